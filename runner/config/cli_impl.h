/* cli_impl.h -- what the two files of the command line share: cli.c reads words, cli_bench.c knows the flags of bench
 * mode. */
#ifndef RD_CLI_IMPL_H
#define RD_CLI_IMPL_H

#include "rd/cli.h"

RD_C_BEGIN

typedef enum rd_bench_type {
    RD_BENCH_BOOL,
    RD_BENCH_INT,
    RD_BENCH_REAL,
    RD_BENCH_TEXT
} rd_bench_type;

/* The flag with the name word[0..n), '-' for '_' allowed; -1: none. *negated: it was no<flag>, of a bool. */
int rd_bench_flag_find(const char *word, size_t n, bool *negated);
int rd_bench_flag_count(void);
const char *rd_bench_flag_name(int i); /* "num_batches" */
rd_bench_type rd_bench_flag_type(int i);
const char *rd_bench_flag_value(int i); /* "N"; NULL: a bool */
const char *rd_bench_flag_help(int i);
/* The key that stands for it outside of bench mode; NULL: none. */
const char *rd_bench_flag_key(int i);
void rd_bench_flags_help(FILE *out);

RD_C_END
#endif
