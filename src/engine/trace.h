/* trace.h - a cycle as one line of JSON: the tree, what was verified and accepted, and what it took. Pure; any thread.
 */
#ifndef LV_ENGINE_TRACE_H
#define LV_ENGINE_TRACE_H

#include "spec/cycle.h"

#define LV_TRACE_BYTES ((size_t)128 << 10)

/* Terminated, without a newline. Nodes that were neither verified nor expanded are left out when they do not fit; the
 * line is valid JSON in any case. */
void lv_trace_line(char *line, size_t capacity, const lv_cycle *cycle, const lv_cycle_result *result, uint64_t number);

#endif
