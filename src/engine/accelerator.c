/* accelerator.c - asked for the target alone, the draft alone or both, or left to what the probe finds.
 *
 * What a backend takes for itself (its library, the driver, compiled kernels) is in no ledger: it is what the process
 * grew by while its devices were opened and tried, beyond what the ledger knows of.
 *
 * Want of memory says nothing of the device: as a draft that does not fit is left out, so is a device, unless it was
 * said what it is for. */
#include "engine/accelerator.h"

#include <stdio.h>

#include "base/system.h"
#include "compute/device_probe.h"
#include "compute/offload.h"

static lever_status open_and_probe(const lv_accelerator_options *options, const lv_weights *weights, bool forced,
                                   lv_device **device, lv_device_findings *findings, lever_error *error) {
    LV_TRY(lv_device_open(device, options->name, options->ledger, options->log, error));
    const lv_device_probe_options probe = {
        .weights = weights,
        .kernels = lv_kernels_best(),
        .threads = options->threads,
        .io_bytes_per_second = options->io_bytes_per_second,
        .forced = forced,
        .clock = &lv_clock_real,
        .log = options->log,
    };
    return lv_device_probe(*device, &probe, findings, error);
}

/* *lacks_memory: it could not be tried for want of it, and that is no failure. */
static lever_status try_device(const lv_accelerator_options *options, const lv_weights *weights, bool forced,
                               lv_device **device, lv_device_findings *findings, bool *lacks_memory,
                               lever_error *error) {
    lever_error own;
    lv_error_clear(&own);
    const lever_status status = open_and_probe(options, weights, forced, device, findings, &own);
    if (!forced && (status == LEVER_E_BUDGET || status == LEVER_E_MEMORY)) {
        findings->verdict = LV_DEVICE_UNSUITED;
        snprintf(findings->reason, sizeof(findings->reason), "%s", own.message);
        *lacks_memory = true;
        return LEVER_OK;
    }
    if (status != LEVER_OK && error) *error = own;
    return status;
}

static void tell_left_out(const lv_accelerator_options *options, const char *reason) {
    lv_log_write(options->log, LEVER_LOG_WARNING, "the device %s is left out, the CPU computes: %s", options->name,
                 reason);
}

static lever_status refuse(const lv_accelerator_options *options, const char *what, const char *reason,
                           lever_error *error) {
    return lv_fail(error, LEVER_E_ARGUMENT,
                   "the device %s cannot %s: %s; leave the device out, or name another one (lever doctor lists them)",
                   options->name, what, reason);
}

static void tell(const lv_accelerator_options *options, const char *what, const lv_device *device) {
    char buckets[128] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < device->facts.buckets.count && used < sizeof(buckets); i++) {
        used += (size_t)snprintf(buckets + used, sizeof(buckets) - used, "%s%u", i ? ", " : "",
                                 device->facts.buckets.rows[i]);
    }
    lv_log_write(options->log, LEVER_LOG_INFO, "device %s (%s): %s, %s rows at once; its bits are %s", options->name,
                 device->facts.description, what, buckets, device->facts.same_bits ? "the CPU's" : "its own");
}

/* What its passes cost is known, by the clock or because it tells. */
static bool is_priced(const lv_device *device) {
    return device->facts.measures || device->facts.tells;
}

static lever_status open_target(lv_accelerator *a, const lv_accelerator_options *options, lv_device_findings *findings,
                                bool *lacks_memory, lever_error *error) {
    const bool forced = options->use == LEVER_DEVICE_TARGET || options->use == LEVER_DEVICE_BOTH;
    LV_TRY(try_device(options, options->target, forced, &a->target, findings, lacks_memory, error));
    if (findings->verdict == LV_DEVICE_STREAMS) {
        /* Who computed a pass must not be seen in the text: with bits of its own the device takes them all. */
        a->target_always = forced || !a->target->facts.same_bits || !is_priced(a->target);
        tell(options, "computes the target's layers", a->target);
        return LEVER_OK;
    }
    if (forced) return refuse(options, "compute a target whose weights stream", findings->reason, error);
    lv_device_close(&a->target);
    lv_log_write(options->log, LEVER_LOG_INFO, "device %s: the target stays on the CPU: %s", options->name,
                 findings->reason);
    return LEVER_OK;
}

static lever_status open_draft(lv_accelerator *a, const lv_accelerator_options *options, lv_device_findings *findings,
                               bool *lacks_memory, lever_error *error) {
    const bool forced = options->use == LEVER_DEVICE_DRAFT || options->use == LEVER_DEVICE_BOTH;
    LV_TRY(try_device(options, options->draft->weights, forced, &a->draft, findings, lacks_memory, error));
    if (findings->verdict <= LV_DEVICE_HOLDS) {
        a->draft_always = forced || !is_priced(a->draft);
        tell(options, "computes the draft's layers", a->draft);
        return LEVER_OK;
    }
    if (forced) return refuse(options, "compute the draft", findings->reason, error);
    lv_device_close(&a->draft);
    lv_log_write(options->log, LEVER_LOG_INFO, "device %s: the draft stays on the CPU: %s", options->name,
                 findings->reason);
    return LEVER_OK;
}

/* Left to itself, a device that is not for the target may still be for the draft, unless it is for nothing. */
static lever_status open_both(lv_accelerator *a, const lv_accelerator_options *options, lever_error *error) {
    lv_device_findings target = {.verdict = LV_DEVICE_STREAMS}, draft = {.verdict = LV_DEVICE_STREAMS};
    const bool for_draft = options->draft && options->use != LEVER_DEVICE_TARGET;
    bool lacks_memory = false;
    if (options->use == LEVER_DEVICE_DRAFT && !options->draft) {
        return lv_fail(error, LEVER_E_ARGUMENT, "the device %s is for the draft, but there is no draft model",
                       options->name);
    }
    if (options->use != LEVER_DEVICE_DRAFT) LV_TRY(open_target(a, options, &target, &lacks_memory, error));
    if (for_draft && target.verdict != LV_DEVICE_REFUSED) LV_TRY(open_draft(a, options, &draft, &lacks_memory, error));
    if (a->target || a->draft) return LEVER_OK;
    char reasons[sizeof(target.reason) + sizeof(draft.reason) + 64];
    snprintf(reasons, sizeof(reasons), "for the target, %s; for the draft, %s", target.reason, draft.reason);
    if (lacks_memory && target.verdict != LV_DEVICE_REFUSED && draft.verdict != LV_DEVICE_REFUSED) {
        tell_left_out(options, for_draft ? reasons : target.reason);
        return LEVER_OK;
    }
    if (!for_draft) return refuse(options, "compute a target whose weights stream", target.reason, error);
    if (target.verdict == LV_DEVICE_REFUSED) return refuse(options, "be used", target.reason, error);
    return refuse(options, "be used", reasons, error);
}

/* What the process has beyond what the ledger knows of; memory that is booked and not yet touched makes it less. */
static int64_t unbooked_bytes(lv_ledger *ledger) {
    lv_process_memory memory;
    lv_system_trim_heap();
    lv_process_memory_read("", &memory);
    return (int64_t)memory.rss_bytes - (int64_t)lv_ledger_used(ledger);
}

lever_status lv_accelerator_open(lv_accelerator *a, const lv_accelerator_options *options, lever_error *error) {
    *a = (lv_accelerator){.ledger = options->ledger};
    if (lv_device_is_cpu(options->name)) return LEVER_OK;
    const int64_t before = unbooked_bytes(options->ledger);
    const lever_status status = open_both(a, options, error);
    if (status != LEVER_OK) {
        lv_accelerator_close(a);
        return status;
    }
    const int64_t grown = unbooked_bytes(options->ledger) - before;
    if (grown > 0) {
        a->own_bytes = (uint64_t)grown;
        lv_ledger_book(options->ledger, LV_MEM_DEVICE, a->own_bytes);
    }
    return LEVER_OK;
}

bool lv_accelerator_leave_out(lv_accelerator *a, const lv_accelerator_options *options, const char *reason) {
    if ((!a->target && !a->draft) || options->use != LEVER_DEVICE_AUTO) return false;
    tell_left_out(options, reason);
    /* Of what libraries and drivers took some may stay. */
    const int64_t before = unbooked_bytes(a->ledger);
    lv_device_close(&a->target);
    lv_device_close(&a->draft);
    const int64_t freed = before - unbooked_bytes(a->ledger);
    const uint64_t back = freed < 0 ? 0 : (uint64_t)freed < a->own_bytes ? (uint64_t)freed : a->own_bytes;
    lv_ledger_release(a->ledger, LV_MEM_DEVICE, back);
    a->own_bytes -= back;
    return true;
}

void lv_accelerator_close(lv_accelerator *a) {
    lv_device_close(&a->target);
    lv_device_close(&a->draft);
    lv_ledger_release(a->ledger, LV_MEM_DEVICE, a->own_bytes);
    a->own_bytes = 0;
}

uint64_t lv_accelerator_target_bytes(const lv_accelerator *a, const lv_weights *target) {
    return a->own_bytes + (a->target ? lv_offload_bytes(a->target, target, LV_OFFLOAD_BLOCKS) : 0);
}

uint64_t lv_accelerator_draft_bytes(const lv_accelerator *a, const lv_draft_model *draft) {
    return a->draft ? lv_offload_bytes(a->draft, draft->weights, LV_OFFLOAD_ALL) : 0;
}
