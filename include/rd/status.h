/* status.h -- one status type for the whole program: a code to branch on, a message to act on.
 *
 * A function that can fail takes `rd_status *st` as its last argument and returns st->code. The
 * first failure wins: a later rd_fail on the same status does nothing, so cleanup cannot hide the
 * cause. The codes are the exit codes of the program (logs/README.md, "Exit codes"). The struct is
 * plain data of fixed size, so it can be sent to another rank. */
#ifndef RD_STATUS_H
#define RD_STATUS_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
#define RD_C_BEGIN extern "C" {
#define RD_C_END }
#else
#define RD_C_BEGIN
#define RD_C_END
#endif
#define RD_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

RD_C_BEGIN

typedef enum rd_code {
    RD_OK = 0,
    RD_EUSAGE = 2,    /* command line or config */
    RD_EENV = 3,      /* the machine: device, library, memory, disk, permission */
    RD_EDISAGREE = 4, /* the ranks differ in config, data or program */
    RD_EDATA = 5,     /* vocabulary, text, any training data */
    RD_ECKPT = 6,     /* a checkpoint cannot be read, or does not fit the config */
    RD_ENUMERIC = 7,  /* a number is not finite, or replicas differ */
    RD_ESTALL = 8,    /* a rank makes no progress */
    RD_EPEER = 9,     /* another rank was lost */
    RD_EBUG = 70,     /* a bug of this program */
    RD_ESTOP = 75     /* stopped on request, with a checkpoint saved */
} rd_code;

enum { RD_MSG_BYTES = 1024 };

typedef struct rd_status {
    rd_code code;
    int rank;               /* the rank that failed first; -1 before the ranks are known */
    char where[64];         /* "file.c:88" in the source, for --verbose */
    char msg[RD_MSG_BYTES]; /* what happened, where, what to do; lower case, no full stop */
} rd_status;

#define RD_STR2(x) #x
#define RD_STR(x) RD_STR2(x)
#define RD_HERE (__FILE__ ":" RD_STR(__LINE__))

/* Writes the failure to *st, unless *st already holds one. Returns st->code, which is
 * never RD_OK: a code of RD_OK becomes RD_EBUG. Characters that may not be shown are escaped, the
 * newline too (printable.h): a name in the arguments may hold any bytes. A message that is too long
 * is cut between two UTF-8 characters. */
rd_code rd_fail_(rd_status *st, rd_code code, const char *where, const char *fmt, ...)
    RD_PRINTF(4, 5);
/* Returns code. Shows compilers and analysers that rd_fail_ never returns RD_OK. */
static inline rd_code rd_failed_(rd_code code)
{
    if (code == RD_OK) __builtin_unreachable();
    return code;
}
#define rd_fail(st, code, ...) rd_failed_(rd_fail_((st), (code), RD_HERE, __VA_ARGS__))

/* The same for a message of several lines. The caller escapes the foreign parts of args. */
rd_code rd_fail_lines_(rd_status *st, rd_code code, const char *where, const char *fmt, ...)
    RD_PRINTF(4, 5);
#define rd_fail_lines(st, code, ...) rd_failed_(rd_fail_lines_((st), (code), RD_HERE, __VA_ARGS__))

/* Writes "text: " in front of the message of a failed status, for callers that know the file or the
 * key. Does nothing to a status without a failure. */
void rd_status_prefix(rd_status *st, const char *fmt, ...) RD_PRINTF(2, 3);
/* Appends a remedy, such as "; NAME fetches it", to the message of a failed status that says that
 * there is no such file, or that a placeholder has no folder. Does nothing to other failures, and
 * to a message that has it already. */
void rd_status_no_file(rd_status *st, const char *remedy);

/* Jumps to the label `done` of the calling function if expr is not RD_OK. */
#define RD_TRY(expr)                    \
    do {                                \
        if ((expr) != RD_OK) goto done; \
    } while (0)

/* Ends the program with a message unless cond holds. cond is an invariant of the code. An error of
 * the user, a file or the machine is a failure instead (rd_fail). Active with make DEBUG=1 and
 * SAN=...; other builds do not evaluate cond. */
#ifdef RD_DEBUG
#define rd_assert(cond) ((cond) ? (void)0 : rd_assert_failed_(RD_HERE, #cond))
#else
#define rd_assert(cond) ((void)sizeof((cond) ? 1 : 0))
#endif
/* Prints where an invariant does not hold, and ends the program. */
void rd_assert_failed_(const char *where, const char *cond) __attribute__((noreturn, cold));

RD_C_END
#endif
