/* statistics.h - the figures of an answer, as members of a JSON object: `lever run --json` and the rows of `lever
 * bench` have the same ones. */
#ifndef CLI_STATISTICS_H
#define CLI_STATISTICS_H

#include "json.h"
#include "lever.h"

/* Into the object that is open. Energy is left out where it is not known. */
void statistics_write(json *out, const lever_statistics *s, double open_seconds, uint32_t layers_count);

/* Joules of each token that was decoded: the first one comes from the prompt's pass, before any is counted. */
double statistics_energy_per_token(const lever_statistics *s);

#endif
