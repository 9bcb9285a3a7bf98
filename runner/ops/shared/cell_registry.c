/* cell_registry.c -- the list of all recurrent cells. Each cell is one file in runner/ops/cells;
 * make writes the list. */
#include "rd/cell.h"
#include <string.h>

#define RD_ENTRY(name) extern const rd_cell_def rd_cell_##name;
#include "cells.inc"
#undef RD_ENTRY
#define RD_ENTRY(name) &rd_cell_##name,
static const rd_cell_def *const cells[] = {
#include "cells.inc"
};
#undef RD_ENTRY

const rd_cell_def *const *rd_cell_defs(int *n)
{
    *n = (int)(sizeof cells / sizeof *cells);
    return cells;
}

const rd_cell_def *rd_cell_find(const char *name)
{
    int n;
    const rd_cell_def *const *d = rd_cell_defs(&n);
    for (int i = 0; i < n; i++)
        if (strcmp(d[i]->name, name) == 0) return d[i];
    return NULL;
}
