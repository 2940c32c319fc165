/* hub.h - a file from the model hub.
 *
 * Asks the hub for the file's checksum and size, then fetches it, going on where an earlier attempt stopped. libcurl is
 * looked for when it is needed, so that the command does not carry a TLS library while it runs a model. */
#ifndef CLI_HUB_H
#define CLI_HUB_H

#include "part.h"

/* LEVER_E_NETWORK when libcurl or the hub cannot be reached, does not have the file or does not give it: `message` says
 * which. `checksum` is what the hub states, or "" when it states none. */
lever_status hub_fetch(const model_file *wanted, part *file, progress *bar, char checksum[SHA256_TEXT_BYTES],
                       lever_error *error);

#endif
