/* method.h - whole methods of decoding at given tokens a cycle: the model without any tokens.
 *
 * What a cycle drafts and verifies, and how many tokens it is taken to give, are assumptions that stand in the method;
 * the time it takes and its energy follow from the profile. Pure; any thread. */
#ifndef LV_PHONE_METHOD_H
#define LV_PHONE_METHOD_H

#include "phone/timing.h"

typedef struct {
    const char *name;
    double steps;                 /* forwards of the draft over one row, one after the other */
    double wide_steps, wide_rows; /* and over several */
    double rows;                  /* of the pass */
    double head_rows;             /* of the target's head */
    bool head_walks;              /* one by one along the accepted path, else all at once */
    double tokens;                /* that a cycle is taken to give */
} lv_phone_method;

/* "ar": a pass for each token. "chain": 5 drafted, all rows through the head. "edge": a tree of 20. "lever": 3 narrow
 * and 4 wide forwards, 32 rows, the head along the path. At 1, 2.12, 2.75 and 3.45 tokens a cycle, which were chosen to
 * fit what was published of the three phones. NULL: no such method. */
const lv_phone_method *lv_phone_method_find(const char *name);

typedef struct {
    double seconds, joules;                           /* of a token */
    double draft_seconds, pass_seconds, head_seconds; /* of a cycle */
} lv_phone_method_times;

/* `pinned_share` of the target's layers stay in memory. Each cycle begins with an empty ring: the reader rests while
 * the draft and the head compute. */
lv_phone_method_times lv_phone_method_run(const lv_phone_method *method, const lv_phone_profile *profile,
                                          const lv_phone_shape *target, const lv_phone_shape *draft,
                                          double pinned_share);

#endif
