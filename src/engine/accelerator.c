/* accelerator.c - asked for the target alone, the draft alone or both, or left to what the probe finds. */
#include "engine/accelerator.h"

#include <stdio.h>

#include "compute/device_probe.h"
#include "compute/offload.h"

static lever_status try_device(const lv_accelerator_options *options, const lv_weights *weights, bool forced,
                               lv_device **device, lv_device_findings *findings, lever_error *error) {
    LV_TRY(lv_device_open(device, options->name, options->ledger, NULL, error));
    const lv_device_probe_options probe = {
        .weights = weights,
        .kernels = lv_kernels_best(),
        .threads = options->threads,
        .io_bytes_per_second = options->io_bytes_per_second,
        .forced = forced,
    };
    return lv_device_probe(*device, &probe, findings, error);
}

static lever_status refuse(const lv_accelerator_options *options, const char *what, const lv_device_findings *findings,
                           lever_error *error) {
    return lv_fail(error, LEVER_E_ARGUMENT,
                   "the device %s cannot %s: %s; leave the device out, or name another one (lever doctor lists them)",
                   options->name, what, findings->reason);
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

static lever_status open_target(lv_accelerator *a, const lv_accelerator_options *options, bool *holds,
                                lv_device_findings *findings, lever_error *error) {
    const bool forced = options->use == LEVER_DEVICE_TARGET || options->use == LEVER_DEVICE_BOTH;
    LV_TRY(try_device(options, options->target, forced, &a->target, findings, error));
    *holds = findings->verdict != LV_DEVICE_REFUSED;
    if (findings->verdict == LV_DEVICE_STREAMS) {
        /* Who computed a pass must not be seen in the text: with bits of its own the device takes them all. */
        a->target_always = forced || !a->target->facts.same_bits || !a->target->facts.measures;
        tell(options, "computes the target's layers", a->target);
        return LEVER_OK;
    }
    if (forced) return refuse(options, "compute a target whose weights stream", findings, error);
    lv_device_close(&a->target);
    lv_log_write(options->log, LEVER_LOG_INFO, "device %s: the target stays on the CPU: %s", options->name,
                 findings->reason);
    return LEVER_OK;
}

static lever_status open_draft(lv_accelerator *a, const lv_accelerator_options *options, lv_device_findings *findings,
                               lever_error *error) {
    const bool forced = options->use == LEVER_DEVICE_DRAFT || options->use == LEVER_DEVICE_BOTH;
    LV_TRY(try_device(options, options->draft->weights, forced, &a->draft, findings, error));
    if (findings->verdict != LV_DEVICE_REFUSED) {
        a->draft_always = forced || !a->draft->facts.measures;
        tell(options, "computes the draft's layers", a->draft);
        return LEVER_OK;
    }
    if (forced) return refuse(options, "compute the draft", findings, error);
    lv_device_close(&a->draft);
    lv_log_write(options->log, LEVER_LOG_INFO, "device %s: the draft stays on the CPU: %s", options->name,
                 findings->reason);
    return LEVER_OK;
}

lever_status lv_accelerator_open(lv_accelerator *a, const lv_accelerator_options *options, lever_error *error) {
    *a = (lv_accelerator){.target = NULL};
    if (lv_device_is_cpu(options->name)) return LEVER_OK;
    lv_device_findings findings = {.reason = ""};
    bool holds = true;
    if (options->use == LEVER_DEVICE_DRAFT && !options->draft) {
        return lv_fail(error, LEVER_E_ARGUMENT, "the device %s is for the draft, but there is no draft model",
                       options->name);
    }
    lever_status status = LEVER_OK;
    if (options->use != LEVER_DEVICE_DRAFT) status = open_target(a, options, &holds, &findings, error);
    if (status == LEVER_OK && holds && options->draft && options->use != LEVER_DEVICE_TARGET) {
        status = open_draft(a, options, &findings, error);
    }
    if (status == LEVER_OK && !a->target && !a->draft) {
        status =
            refuse(options, options->draft ? "be used" : "compute a target whose weights stream", &findings, error);
    }
    if (status != LEVER_OK) lv_accelerator_close(a);
    return status;
}

void lv_accelerator_close(lv_accelerator *a) {
    lv_device_close(&a->target);
    lv_device_close(&a->draft);
}

uint64_t lv_accelerator_target_bytes(const lv_accelerator *a, const lv_weights *target) {
    return a->target ? lv_offload_bytes(a->target, target, LV_OFFLOAD_BLOCKS) : 0;
}

uint64_t lv_accelerator_draft_bytes(const lv_accelerator *a, const lv_draft_model *draft) {
    return a->draft ? lv_offload_bytes(a->draft, draft->weights, LV_OFFLOAD_ALL) : 0;
}
