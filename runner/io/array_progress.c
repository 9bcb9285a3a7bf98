/* array_progress.c -- how far a reading or writing of arrays is. */
#include "npz_impl.h"

/* Who hears of it. */
static struct {
    void (*fn)(void *ctx, double done, double all);
    void *ctx;
    double done, all;  /* bytes */
    int file, n_files; /* n_files 0: one file */
} arrays;

void rd_arrays_on_progress(void (*fn)(void *ctx, double done, double all), void *ctx)
{
    arrays.fn = fn;
    arrays.ctx = ctx;
}

void rd_arrays_begin(double all)
{
    arrays.done = 0.0;
    arrays.all = all;
}

void rd_arrays_files(int file, int n_files)
{
    arrays.file = file;
    arrays.n_files = n_files;
}

void rd_arrays_at(double done)
{
    const double n = arrays.n_files > 0 ? arrays.n_files : 1;
    arrays.done = done < arrays.all ? done : arrays.all; /* headers do not count */
    if (arrays.fn) arrays.fn(arrays.ctx, arrays.done + arrays.file * arrays.all, n * arrays.all);
}

void rd_arrays_add(size_t n)
{
    rd_arrays_at(arrays.done + (double)n);
}
