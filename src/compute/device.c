/* device.c - which name is which device. */
#include "compute/device.h"

#include <stdio.h>
#include <string.h>

#include "compute/device_ggml.h"
#include "compute/device_test.h"

bool lv_device_is_cpu(const char *name) {
    return !name || strcmp(name, "cpu") == 0;
}

typedef struct {
    char text[512];
} names;

static void add_name(void *user, const char *name, const char *description) {
    (void)description;
    names *all = user;
    const size_t used = strlen(all->text);
    snprintf(all->text + used, sizeof(all->text) - used, "%s%s", used ? ", " : "", name);
}

lever_status lv_device_open(lv_device **device, const char *name, lv_ledger *ledger, const lv_log *log,
                            lever_error *error) {
    *device = NULL;
    if (strncmp(name, "test", 4) == 0 && (name[4] == '\0' || name[4] == ':')) {
        return lv_device_test_open(device, name, ledger, error);
    }
    if (lv_device_ggml_may_be(name)) return lv_device_ggml_open(device, name, ledger, log, error);
    names all = {.text = ""};
    lv_device_list(add_name, &all);
    return lv_fail(error, LEVER_E_ARGUMENT,
                   "the device '%s' is not there; there are: %s; a ggml backend of the same version can be named by "
                   "its file (/path/libggml-NAME.so)",
                   name, all.text);
}

void lv_device_close(lv_device **device) {
    if (!device || !*device) return;
    (*device)->ops->close(*device);
    *device = NULL;
}

void lv_device_buffer_close(lv_device_buffer **buffer) {
    if (!buffer || !*buffer) return;
    (*buffer)->device->ops->buffer_close(*buffer);
    *buffer = NULL;
}

void lv_device_list(lv_device_visit_fn visit, void *user) {
    visit(user, "cpu", "computes in place, with kernels of lever's own");
    visit(user, "test", "an accelerator made of the CPU, for tests");
    lv_device_ggml_list(visit, user);
}
