/* device_ggml.h - a device of ggml's: one whose backend is linked in, or one of a backend in a file.
 *
 * ggml does the work; its bits are its own. Who uses it calls in from one thread at a time. */
#ifndef LV_COMPUTE_DEVICE_GGML_H
#define LV_COMPUTE_DEVICE_GGML_H

#include "compute/device.h"

/* True for the name of a device of the linked backends, and for what names a file. */
bool lv_device_ggml_may_be(const char *name);

/* LEVER_E_ARGUMENT says why it cannot be used: its file, its server, or the device itself. */
lever_status lv_device_ggml_open(lv_device **device, const char *name, lv_ledger *ledger, const lv_log *log,
                                 lever_error *error);

/* Calls for each device of the linked backends. */
void lv_device_ggml_list(lv_device_visit_fn visit, void *user);

#endif
