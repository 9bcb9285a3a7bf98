/* cpu_needs.h -- what the CPU must have for the instructions that the compiler used. */
#ifndef RD_CPU_NEEDS_H
#define RD_CPU_NEEDS_H

#include "rd/status.h"

RD_C_BEGIN

/* Returns the name of a feature that this build needs and this CPU lacks, such as "AVX2". NULL: the
 * CPU has all of them. A program without this check ends with "Illegal instruction".
 *
 * absent, for tests: a feature that counts as lacking. NULL: none. */
const char *rd_cpu_lacks(const char *absent);

RD_C_END

#endif
