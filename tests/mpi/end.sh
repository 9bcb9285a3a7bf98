#!/bin/bash
# end.sh -- tests a start and an end in which MPI does not answer: a library between the program and MPI makes a rank
# hang. The job ends by itself, with the code of the run and one line.
#
# timeout: 300
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/end.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 60 7
case $(ldd "$PROG") in
*libasan* | *libtsan*) echo "skip: a sanitizer must be loaded first" && echo "0 passed, 0 failed, 1 skipped" && exit 0 ;;
esac

# HANG_RANK (all: every rank) hangs at HANG_AT: before or after MPI_Finalize, in MPI_Init_thread, or while it parses the
# config. With "crash" it hangs before MPI_Finalize, and crashes when PMIx_Finalize begins. HANG_AGE is added to the age
# of the start, in seconds.
cat > hang.c << 'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
int PMPI_Finalize(void);
int PMPI_Init_thread(int *argc, char ***argv, int level, int *got);
static volatile int started, ending, leaving;
static void hang(const char *where)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *who = getenv("HANG_RANK"), *at = getenv("HANG_AT");
    while (rank && who && at && strcmp(at, where) == 0 && (strcmp(who, "all") == 0 || strcmp(who, rank) == 0)) pause();
}
int PMIx_Finalize(const void *info, size_t n)
{
    void *pmix = dlopen("libpmix.so.2", RTLD_LAZY | RTLD_NOLOAD);
    if (ending) { /* MPI_Init_thread calls it, too */
        leaving = 1;
        sleep(1);
    }
    return pmix ? ((int (*)(const void *, size_t))dlsym(pmix, "PMIx_Finalize"))(info, n) : 0;
}
int MPI_Finalize(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *who = getenv("HANG_RANK"), *at = getenv("HANG_AT");
    if (rank && strcmp(at, "crash") == 0 && strcmp(who, rank) == 0) {
        ending = 1;
        while (!leaving) usleep(1000);
        *(volatile int *)8 = 1;
    }
    hang("before");
    int rc = PMPI_Finalize();
    dprintf(2, "ended MPI: rank %s\n", rank);
    hang("after");
    return rc;
}
int MPI_Init_thread(int *argc, char ***argv, int level, int *got)
{
    hang("init");
    int rc = PMPI_Init_thread(argc, argv, level, got);
    started = 1;
    return rc;
}
void *json_loadb(const char *p, size_t n, size_t flags, void *error)
{
    hang("config");
    return ((void *(*)(const char *, size_t, size_t, void *))dlsym(RTLD_NEXT, "json_loadb"))(p, n, flags, error);
}
/* The phases of the start begin in the past, so their limits have passed. */
int clock_gettime(clockid_t id, struct timespec *t)
{
    int (*real)(clockid_t, struct timespec *) = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *age = getenv("HANG_AGE");
    int rc = real(id, t);
    if (age && id == CLOCK_MONOTONIC && (started || strcmp(getenv("HANG_AT"), "init") == 0)) t->tv_sec -= atoi(age);
    return rc;
}
END
"${CC:-gcc}" -shared -fPIC -w -o hang.so hang.c || exit 2

job() { # NP RANK AT FLAGS...: prints what was said, and counts the lines about the end
    local np=$1 rank=$2 at=$3
    shift 3
    # shellcheck disable=SC2086 # $MPIRUN is several words
    timeout -k 10 100 $MPIRUN -np "$np" -x LD_PRELOAD="$PWD/hang.so" -x HANG_RANK="$rank" -x HANG_AT="$at" -x HANG_AGE \
        "$PROG" --config_file=toy.json --set stall_warn_s=1 --set stall_abort_s=2 "$@" > said 2>&1 < /dev/null
    local rc=$?
    grep -E "^done|warning|error|^stopped" said | cut -c1-300
    echo "$(grep -c 'MPI_Finalize has not returned' said) lines"
    return $rc
}
unset HANG_AGE
any="\(\[rank [0-9], .*\] \)\?warning: "
text="MPI_Finalize has not returned for 2 s, more than stall_abort_s allows; .* exit code"
expect "no hang" 0 "^0 lines" job 2 none before --logdir=a --max_steps=5
expect "rank 1 does not begin to end MPI" 0 "^$any$text 0" job 2 1 before --logdir=b --max_steps=5
expect "it is one line" 0 "^1 lines" tail -n 1 <(job 2 1 before --logdir=b --max_steps=6)
expect "rank 0 ends MPI as usual" 0 "^ended MPI: rank 0" cat said
expect "what was trained is saved" 0 "model-6.npz" cat b/checkpoint
if [ "${CASES:-}" = all ]; then
    expect "all ranks hang" 0 "^$any$text 0" job 3 all before --logdir=c --max_steps=5
    expect "one line of three ranks" 0 "^1 lines" tail -n 1 <(job 3 all before --logdir=c --max_steps=6)
fi
expect "rank 0 hangs behind the others" 0 "^warning: $text 0" job 2 0 after --logdir=d --max_steps=5
expect "rank 1 hangs behind the others" 0 "^\[rank 1, .*\] warning: $text 0" job 2 1 after --logdir=d --max_steps=6
expect "MPI crashes while it is left" 0 "^$any$text 0" job 2 1 crash --logdir=d --max_steps=6
expect "evaluation" 0 "^$any$text 0" job 2 1 before --logdir=d --mode=eval
expect "inference" 0 "^$any$text 0" job 2 1 before --logdir=d --mode=infer --inference_out=out.txt
expect "all lines are translated" 0 "^7 " wc -l out.txt
expect "the code of a failed run" 6 "^$any$text 6" job 2 1 before --logdir=d --set optimizer=momentum --max_steps=9
expect "one rank under mpirun" 0 "^$any$text 0" job 1 0 before --logdir=e --max_steps=5

# A rank that hangs in MPI_Init_thread or before the watch begins. The limits are 300 and 600 s.
export HANG_AGE=1000
expect "MPI_Init_thread" 3 "run_dist: error: \[rank 0, .*\] MPI has been connecting the ranks for 300 s" job 2 1 init --logdir=f
expect "the config" 3 "run_dist: error: \[rank 0, .*\] the ranks have been reading the config and opening their devices for 600 s" \
    job 2 1 config --logdir=f
summary
