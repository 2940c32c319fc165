/* sampler.h - which token follows, as a function of logits, history, seed and position alone.
 *
 * Order: penalties, temperature, top-k, top-p, min-p, noise. The token is argmax(log p + Gumbel(seed, position, token))
 * over the candidates that are left (sampling with keyed noise, Daliri et al., arXiv 2408.07978); at temperature 0 the
 * argmax of the penalised logits. Ties: the lowest id. So any tree, any pruning and any draft give the text of plain
 * decoding. Owns its scratch memory; one thread at a time. Knows neither model nor clock. */
#ifndef LV_SPEC_SAMPLER_H
#define LV_SPEC_SAMPLER_H

#include "base/memory.h"

typedef struct {
    float temperature;    /* 0: the likeliest token */
    int32_t top_k;        /* 0 or -1: off */
    float top_p;          /* 1: off; 0: the likeliest only */
    float min_p;          /* 0: off; 1: only what is as likely as the likeliest */
    float repeat_penalty; /* divides positive and multiplies negative logits of tokens in the history; 1: off */
    float presence_penalty, frequency_penalty; /* subtracted once, and once per occurrence; 0: off */
    int32_t penalty_tokens;                    /* how far back the penalties look; -1: all of the history */
    uint64_t seed;
} lv_sampling;

/* LEVER_E_ARGUMENT naming the value that is out of range (negative or not finite temperature, top_p outside 0..1, ...).
 */
lever_status lv_sampling_check(const lv_sampling *sampling, lever_error *error);

/* Whether there are penalties at all, and what they make of the logit of a token that is `count` times in the history.
 */
bool lv_sampling_penalises(const lv_sampling *sampling);
float lv_sampling_penalise(const lv_sampling *sampling, float logit, uint32_t count);

typedef struct lv_sampler lv_sampler;

/* Scratch for `vocabulary` logits, booked as LV_MEM_LOGITS: lv_sampler_bytes of it. */
lever_status lv_sampler_open(lv_sampler **sampler, int32_t vocabulary, lv_ledger *ledger, lever_error *error);
void lv_sampler_close(lv_sampler **sampler);
uint64_t lv_sampler_bytes(int32_t vocabulary);

/* The token at absolute position `position`, given the logits of the position before and the `history_count` tokens up
 * to there. Logits that are NaN or minus infinity never win; when nothing is left the result is token 0. `logits` is
 * not changed. `sampling` has passed lv_sampling_check. */
int32_t lv_sampler_pick(lv_sampler *sampler, const lv_sampling *sampling, const float *logits, const int32_t *history,
                        size_t history_count, uint64_t position);

/* The lowest id among the largest logits; NaN never wins; 0 when there is nothing but NaN and minus infinity. */
int32_t lv_argmax(const float *logits, int32_t vocabulary);

#endif
