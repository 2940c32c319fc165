/* statistics.c - see statistics.h. */
#include "statistics.h"

static double ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

double statistics_energy_per_token(const lever_statistics *s) {
    return s->completion_tokens > 1 ? s->energy_joules / (double)(s->completion_tokens - 1) : 0;
}

/* What is not known is left out. */
static void write_energy(json *out, const lever_statistics *s) {
    if (s->energy_joules <= 0) return;
    json_number(out, "energy_joules", s->energy_joules);
    json_number(out, "energy_per_token", statistics_energy_per_token(s));
    json_text(out, "energy_source", s->energy_is_simulated ? "simulated" : "processor");
}

void statistics_write(json *out, const lever_statistics *s, double open_seconds, uint32_t layers_count) {
    json_unsigned(out, "prompt_tokens", s->prompt_tokens);
    json_unsigned(out, "completion_tokens", s->completion_tokens);
    json_number(out, "prefill_seconds", s->prefill_seconds);
    json_unsigned(out, "prefill_passes", s->prefill_passes);
    json_number(out, "open_seconds", open_seconds);
    json_number(out, "first_token_seconds", s->first_token_seconds);
    json_number(out, "decode_seconds", s->decode_seconds);
    json_number(out, "tokens_per_second", s->tokens_per_second);
    json_text(out, "strategy", lever_strategy_text(s->strategy));
    json_unsigned(out, "cycles", s->cycles);
    json_number(out, "tokens_per_cycle", ratio((double)s->completion_tokens, (double)s->cycles));
    json_unsigned(out, "nodes_drafted", s->nodes_drafted);
    json_unsigned(out, "nodes_verified", s->nodes_verified);
    json_unsigned(out, "nodes_padded", s->nodes_padded);
    json_unsigned(out, "nodes_pruned", s->nodes_pruned);
    json_unsigned(out, "nodes_accepted", s->nodes_accepted);
    json_unsigned(out, "layer_rows", s->layer_rows);
    json_unsigned(out, "device_layer_rows", s->device_layer_rows);
    json_unsigned(out, "padded_layer_rows", s->padded_layer_rows);
    json_unsigned(out, "bytes_read", s->bytes_read);
    json_number(out, "bytes_per_token", ratio((double)s->bytes_read, (double)s->completion_tokens));
    json_number(out, "io_seconds", s->io_seconds);
    json_number(out, "io_bandwidth", ratio((double)s->bytes_read, s->io_seconds));
    json_number(out, "io_utilisation", ratio(s->io_seconds, s->decode_seconds));
    json_number(out, "compute_seconds", s->compute_seconds);
    json_number(out, "draft_seconds", s->draft_seconds);
    json_number(out, "draft_hidden_seconds", s->draft_hidden_seconds);
    json_number(out, "ahead_hit_rate", s->ahead_hit_rate);
    json_unsigned(out, "cycles_scored", s->cycles_scored);
    json_number(out, "prune_recall", s->prune_recall);
    json_bool(out, "draft_dropped", s->draft_dropped);
    json_bool(out, "draft_away", s->draft_away);
    json_number(out, "head_seconds", s->head_seconds);
    json_unsigned(out, "ram_budget", s->ram_budget == UINT64_MAX ? 0 : s->ram_budget);
    json_unsigned(out, "ram_peak", s->ram_peak);
    json_unsigned(out, "rss_peak", s->rss_peak);
    json_unsigned(out, "huge_page_bytes", s->huge_page_bytes);
    json_unsigned(out, "target_layers", layers_count);
    json_unsigned(out, "target_bytes_pinned", s->target_bytes_pinned);
    json_text(out, "cache", lever_cache_text(s->cache));
    json_unsigned(out, "cache_hit_bytes", s->cache_hit_bytes);
    json_unsigned(out, "ring_bytes", s->ring_bytes);
    write_energy(out, s);
}
