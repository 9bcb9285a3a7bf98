/* shortcut.h -- the attribute of the op shortcut, for shortcut.c and shortcut.cu. */
#ifndef RD_SHORTCUT_H
#define RD_SHORTCUT_H

#include "shared/image_op.h"

typedef struct rd_shortcut {
    int64_t stride;
    int64_t c_out; /* channels of the output */
} rd_shortcut;

#endif
