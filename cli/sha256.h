/* sha256.h - SHA-256 (FIPS 180-4), for checking what was fetched.
 *
 * Pure functions on the caller's state; any thread. */
#ifndef CLI_SHA256_H
#define CLI_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_TEXT_BYTES 65 /* 64 hexadecimal digits and the terminator */

typedef struct {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64]; /* the last bytes, until there are 64 */
} sha256;

void sha256_init(sha256 *hash);
void sha256_update(sha256 *hash, const void *data, size_t bytes);
void sha256_finish(sha256 *hash, char text[SHA256_TEXT_BYTES]); /* lower case */

#endif
