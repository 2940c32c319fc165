/* timing.c - the formulas, each with what it is meant to say. Where they come from and how far they can be trusted
 * stands in docs/PHONES.md. */
#include "phone/timing.h"

#include <math.h>

/* --- Flash ------------------------------------------------------------------------------------------------------- */

/* Requests a second were published for ranges from 128 MB on; large reads begin at 64 KiB. */
#define RANGE_FIRST 134e6
#define LARGE_READ 65536.0

/* Lanes beyond two get in each other's way at the one queue of the device; from eight on it gets no worse. */
#define LANES_FREE 2.0
#define LANES_WORST 8.0

double lv_phone_flash_rate(const lv_phone_profile *p, double block, double queue, double lanes, double range) {
    const double doublings = fmax(0, log2(range / RANGE_FIRST));
    const double iops = fmax(p->flash_iops_least, p->flash_iops - p->flash_iops_loss * doublings);
    const double device = 1 / (1 / p->flash_sequential + 1 / (block * iops * p->flash_core));
    const double copy = p->flash_copy > 0 ? block / p->flash_copy : 0;
    const double one = block / (p->flash_request + block / p->flash_sequential + copy);
    double rate = fmin(device, queue * one);
    if (lanes > LANES_FREE) {
        const double loss = block >= LARGE_READ ? p->flash_lane_loss : p->flash_lane_loss_small;
        rate *= 1 - loss * fmin(1, (lanes - LANES_FREE) / (LANES_WORST - LANES_FREE));
    }
    return rate * p->flash_fragmentation;
}

double lv_phone_read_rate(const lv_phone_profile *p, double range) {
    return lv_phone_flash_rate(p, p->read_block, p->read_queue, p->read_lanes, range);
}

/* --- Computing --------------------------------------------------------------------------------------------------- */

/* Whatever else goes on, this share of the memory's bandwidth is left. */
#define BANDWIDTH_LEAST 0.05

static double bandwidth(const lv_phone_profile *p, double most, double others, double speed) {
    const double left = fmax(p->memory_bandwidth - others, p->memory_bandwidth * BANDWIDTH_LEAST);
    return fmin(most, left) * sqrt(speed);
}

double lv_phone_cpu_rate(const lv_phone_profile *p, double speed) {
    return p->cpu_bandwidth * p->cpu_bandwidth_share * sqrt(speed);
}

static double whole_tiles(const lv_phone_profile *p, double rows) {
    return p->npu_tile * ceil(rows / p->npu_tile);
}

double lv_phone_padded_rows(const lv_phone_profile *p, double rows) {
    return whole_tiles(p, lv_buckets_padded(&p->npu_buckets, (uint32_t)ceil(rows)));
}

/* Bytes of keys and values that a layer reads. */
static double cache_bytes(const lv_phone_shape *shape, double context) {
    const double f16_bytes = 2;
    return 2 * shape->key_value_width * context * f16_bytes;
}

/* `rows` are wanted, `padded` are computed for them. */
static double npu_layer(const lv_phone_profile *p, const lv_phone_shape *shape, double rows, double padded,
                        const lv_phone_load *load) {
    const double others = p->memory_copies * load->flash_rate + load->cpu_rate;
    const double rate = bandwidth(p, p->npu_bandwidth, others, load->speed);
    const double arithmetic = p->npu_arithmetic * load->speed;
    double seconds = fmax(shape->layer_bytes / rate, 2 * shape->layer_weights * padded / arithmetic);
    if (p->npu_dequantise > 0) seconds = fmax(seconds, shape->layer_weights / (p->npu_dequantise * load->speed));
    seconds += cache_bytes(shape, load->context) / rate;
    seconds += 4 * shape->width * load->context * padded / (p->npu_attention * arithmetic);
    seconds += p->npu_row * rows / load->speed;
    const bool streams = load->flash_rate > 0;
    if (streams) seconds *= 1 + p->npu_io_loss;
    return seconds + p->npu_crossing * (streams ? 1 : p->npu_chunks / shape->layers_count);
}

double lv_phone_npu_layer(const lv_phone_profile *p, const lv_phone_shape *shape, double rows,
                          const lv_phone_load *load) {
    return npu_layer(p, shape, rows, lv_phone_padded_rows(p, rows), load);
}

double lv_phone_npu_layer_of_shape(const lv_phone_profile *p, const lv_phone_shape *shape, double rows,
                                   const lv_phone_load *load) {
    return npu_layer(p, shape, rows, whole_tiles(p, rows), load);
}

double lv_phone_cpu_layer(const lv_phone_profile *p, const lv_phone_shape *shape, double rows,
                          const lv_phone_load *load) {
    const double most = p->cpu_bandwidth * p->cpu_bandwidth_share;
    const double rate = bandwidth(p, most, p->memory_copies * load->flash_rate, load->speed);
    const double arithmetic = p->cpu_arithmetic * load->speed;
    const double weights = fmax(shape->layer_bytes / rate, 2 * shape->layer_weights * rows / arithmetic);
    const double attention =
        fmax(cache_bytes(shape, load->context) / rate, 4 * shape->width * load->context * rows / arithmetic);
    return weights + attention + p->cpu_layer;
}

double lv_phone_head(const lv_phone_profile *p, const lv_phone_shape *shape, double rows, const lv_phone_load *load) {
    if (rows <= 0) return 0;
    const double arithmetic = p->head_arithmetic * load->speed;
    return fmax(shape->head_bytes / lv_phone_cpu_rate(p, load->speed), 2 * shape->head_weights * rows / arithmetic);
}

lv_phone_forward lv_phone_forward_cpu(const lv_phone_profile *p, const lv_phone_shape *shape, double rows,
                                      double head_rows, const lv_phone_load *load) {
    const double seconds =
        shape->layers_count * lv_phone_cpu_layer(p, shape, rows, load) + lv_phone_head(p, shape, head_rows, load);
    return (lv_phone_forward){.seconds = seconds, .cpu_seconds = seconds};
}

lv_phone_forward lv_phone_forward_npu(const lv_phone_profile *p, const lv_phone_shape *shape, double rows,
                                      double head_rows, const lv_phone_load *load) {
    const double layers = shape->layers_count * lv_phone_npu_layer(p, shape, rows, load);
    const double head = lv_phone_head(p, shape, head_rows, load);
    return (lv_phone_forward){.seconds = layers + head, .npu_seconds = layers, .cpu_seconds = head};
}

lv_phone_forward lv_phone_forward_best(const lv_phone_profile *p, const lv_phone_shape *shape, double rows,
                                       double head_rows, const lv_phone_load *load) {
    const lv_phone_forward cpu = lv_phone_forward_cpu(p, shape, rows, head_rows, load);
    const lv_phone_forward npu = lv_phone_forward_npu(p, shape, rows, head_rows, load);
    return cpu.seconds <= npu.seconds ? cpu : npu;
}

/* --- Energy and heat --------------------------------------------------------------------------------------------- */

void lv_phone_work_add(lv_phone_work *sum, const lv_phone_work *more) {
    sum->seconds += more->seconds;
    sum->npu_seconds += more->npu_seconds;
    sum->cpu_seconds += more->cpu_seconds;
    sum->reader_seconds += more->reader_seconds;
    sum->bytes_read += more->bytes_read;
}

double lv_phone_joules(const lv_phone_profile *p, const lv_phone_work *work) {
    return p->power_base * work->seconds + p->power_npu * work->npu_seconds + p->power_cpu * work->cpu_seconds +
           p->power_reader * work->reader_seconds + (p->energy_flash + p->energy_memory) * work->bytes_read;
}

double lv_phone_speed_at(const lv_phone_profile *p, double temperature) {
    if (temperature <= p->heat_from) return 1;
    const double share = fmin(1, (temperature - p->heat_from) / (p->heat_full - p->heat_from));
    return 1 - (1 - p->heat_speed_least) * share;
}

/* In steps of a second at most, since the speed changes with the temperature. */
double lv_phone_warm(const lv_phone_profile *p, double temperature, double watts, double seconds) {
    while (seconds > 0) {
        const double step = fmin(seconds, 1);
        const double speed = lv_phone_speed_at(p, temperature);
        const double lost = (temperature - p->heat_ambient) / p->heat_resistance;
        temperature += step * (watts * speed * speed - lost) / p->heat_capacity;
        seconds -= step;
    }
    return temperature;
}
