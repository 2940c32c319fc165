/* phone_profile.h - what a phone can do, as numbers: flash, memory, NPU, CPU, power, heat.
 *
 * A profile is a small commented text, built in under a name (profiles/phones/) or a file of the user's. Each value
 * stands with its unit and where it comes from, read, fitted or estimated. Values in front of the first [section] hold
 * for all sections, those in a section for it alone; which section is wanted stands behind a colon ("oneplus12:app"),
 * else it is the first. A missing, absurd or unknown value is refused by name. docs/PHONES.md says what each means.
 * Pure but for reading the file; const afterwards; any thread. */
#ifndef LV_PHONE_PROFILE_H
#define LV_PHONE_PROFILE_H

#include "base/buckets.h"
#include "base/status.h"

enum { LV_PHONE_RING_MAX = 64 }; /* layers, at most, that a ring may hold */

/* In bytes, seconds, watts, joules, degrees Celsius, weights or operations; shares are of 1. */
typedef struct {
    char name[96], section[32];

    double flash_sequential, flash_request; /* bytes/s of large reads; seconds that a request takes alone */
    double flash_iops, flash_iops_loss, flash_iops_least; /* within 128 MB; less for each doubling; but at least */
    double flash_copy;                                    /* bytes/s of a copy behind each read; 0: none */
    double flash_lane_loss, flash_lane_loss_small;        /* at 8 lanes and more; for reads below 64 KiB */
    double flash_core;                         /* share of a fast core's requests that the reading core makes */
    double flash_fragmentation;                /* share that is left of the rate */
    double read_block, read_queue, read_lanes; /* how the target is read */
    double ring_layers;                        /* that are in memory beside the pinned ones */

    double memory_bandwidth;
    double memory_copies; /* times that each byte read crosses memory */

    double npu_bandwidth, npu_arithmetic;
    double npu_dequantise;  /* weights/s; 0: no limit */
    double npu_row;         /* seconds that each row of a layer adds */
    double npu_tile;        /* rows that are computed at least */
    double npu_crossing;    /* seconds to the NPU and back */
    double npu_chunks;      /* crossings of a pass that streams nothing */
    double npu_io_loss;     /* share by which reading slows it */
    double npu_attention;   /* share of its arithmetic that attention reaches */
    lv_buckets npu_buckets; /* batch shapes */

    double cpu_bandwidth, cpu_bandwidth_share; /* what the cores could read, and the share that is used */
    double cpu_arithmetic, cpu_layer;          /* seconds that a layer takes besides */
    double head_arithmetic;

    double power_base, power_npu, power_cpu, power_reader; /* whenever on; and when at work */
    double energy_flash, energy_memory;                    /* of a byte read */

    double heat_ambient, heat_resistance, heat_capacity; /* degrees; degrees a watt; joules a degree */
    double heat_from, heat_full, heat_speed_least;       /* slower from, slowest at; then this share of the speed */
} lv_phone_profile;

/* Reads the values of a section from a text; "" or NULL: the first section. `origin` is the text's name in messages.
 * LEVER_E_FORMAT. */
lever_status lv_phone_profile_parse(lv_phone_profile *profile, const char *origin, const char *text,
                                    const char *section, lever_error *error);

/* "NAME", "NAME:SECTION", "FILE" or "FILE:SECTION"; built-in names come first. LEVER_E_IO, LEVER_E_FORMAT;
 * LEVER_E_ARGUMENT, with the list of names, when there is neither. */
lever_status lv_phone_profile_load(lv_phone_profile *profile, const char *wanted, lever_error *error);

/* The profiles that are built in (cmake/LeverPhones.cmake writes the table). */
typedef struct {
    const char *name;
    const char *text;
} lv_phone_text;
extern const lv_phone_text lv_phone_texts[];
extern const size_t lv_phone_texts_count;

#endif
