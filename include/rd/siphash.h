/* siphash.h -- SipHash-2-4, a keyed hash of short messages (Aumasson and Bernstein, 2012). */
#ifndef RD_SIPHASH_H
#define RD_SIPHASH_H

#include "rd/status.h"
#include <stdint.h>

RD_C_BEGIN

enum { RD_SIPHASH_KEY_BYTES = 16 };

/* Returns the hash of n bytes. Without the key nobody can compute it, nor guess it better than by
 * chance (1 in 2^64). The result does not depend on the byte order of the machine. */
uint64_t rd_siphash(const unsigned char key[RD_SIPHASH_KEY_BYTES], const void *p, size_t n);

RD_C_END
#endif
