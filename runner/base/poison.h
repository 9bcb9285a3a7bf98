/* poison.h -- marks memory that nothing may touch, for AddressSanitizer. Without it the macros do
 * nothing. */
#ifndef RD_BASE_POISON_H
#define RD_BASE_POISON_H

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

#endif
