/* comm_mpi.c -- the "mpi" communicator: start, ranks and hosts, and collectives in pieces that fit
 * MPI's int counts.
 *
 * MPI starts with MPI_THREAD_SERIALIZED: one thread at a time calls it, and not always the same
 * thread. The exception is rd_comm_abort, which the watch thread may call at any time. MPI_Abort
 * works there in practice; if it does not, a timer ends the process. */
#include "comm_mpi.h"
#include "host_cpus.h"
#include "host_memory.h"
#include "rd/environment.h"
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

typedef struct mpi_comm {
    rd_comm base;
    MPI_Comm world, local;
    rd_host *host;        /* owned; NULL: no two ranks share memory */
    rd_cross *cross;      /* owned; sums if host is NULL: every rank then counts as a host */
    rd_host_arena *arena; /* owned; NULL: none */
} mpi_comm;

static mpi_comm *comm_mpi_of(rd_comm *c)
{
    return (mpi_comm *)c;
}

enum { PIECE = 1 << 28 }; /* most elements or bytes of one MPI call */

/* ---- collectives ---- */

static rd_code comm_mpi_reduce(rd_comm *c, void *x, int64_t n, size_t size, MPI_Datatype type,
                               MPI_Op op, rd_status *st)
{
    for (int64_t at = 0; at < n; at += PIECE) {
        const int m = (int)(n - at < PIECE ? n - at : PIECE);
        RD_TRY(RD_MPI(MPI_Allreduce(MPI_IN_PLACE, (char *)x + (size_t)at * size, m, type, op,
                                    comm_mpi_of(c)->world),
                      st));
    }
done:
    return st->code;
}

static rd_code comm_mpi_sum_f32(rd_comm *c, float *x, int64_t n, rd_status *st)
{
    if (rd_host_arena_holds(comm_mpi_of(c)->arena, x))
        return rd_host_arena_sum(comm_mpi_of(c)->arena, x, n, st);
    if (comm_mpi_of(c)->host) return rd_host_sum_f32(comm_mpi_of(c)->host, x, n, st);
    return comm_mpi_of(c)->cross ? rd_cross_sum(comm_mpi_of(c)->cross, x, n, st) : st->code;
}

static rd_code comm_mpi_sum_f64(rd_comm *c, double *x, int64_t n, rd_status *st)
{
    if (comm_mpi_of(c)->host) return rd_host_sum_f64(comm_mpi_of(c)->host, x, n, st);
    return comm_mpi_of(c)->cross ? rd_cross_sum_f64(comm_mpi_of(c)->cross, x, n, st) : st->code;
}

static rd_code comm_mpi_sum_i64(rd_comm *c, int64_t *x, int64_t n, rd_status *st)
{
    return comm_mpi_reduce(c, x, n, sizeof *x, MPI_INT64_T, MPI_SUM, st);
}

static rd_code comm_mpi_max_f64(rd_comm *c, double *x, int64_t n, rd_status *st)
{
    return comm_mpi_reduce(c, x, n, sizeof *x, MPI_DOUBLE, MPI_MAX, st);
}

static rd_code comm_mpi_min_f64(rd_comm *c, double *x, int64_t n, rd_status *st)
{
    return comm_mpi_reduce(c, x, n, sizeof *x, MPI_DOUBLE, MPI_MIN, st);
}

static rd_code comm_mpi_bcast_on(MPI_Comm comm, void *p, int64_t bytes, int root, rd_status *st)
{
    for (int64_t at = 0; at < bytes; at += PIECE) {
        const int m = (int)(bytes - at < PIECE ? bytes - at : PIECE);
        RD_TRY(RD_MPI(MPI_Bcast((char *)p + at, m, MPI_BYTE, root, comm), st));
    }
done:
    return st->code;
}

static rd_code comm_mpi_bcast(rd_comm *c, void *p, int64_t bytes, int root, rd_status *st)
{
    return comm_mpi_bcast_on(comm_mpi_of(c)->world, p, bytes, root, st);
}

static rd_code comm_mpi_local_bcast(rd_comm *c, void *p, int64_t bytes, int root, rd_status *st)
{
    return comm_mpi_bcast_on(comm_mpi_of(c)->local, p, bytes, root, st);
}

static rd_code comm_mpi_barrier(rd_comm *c, rd_status *st)
{
    return RD_MPI(MPI_Barrier(comm_mpi_of(c)->world), st);
}

static rd_code comm_mpi_local_barrier(rd_comm *c, rd_status *st)
{
    if (!comm_mpi_of(c)->host) return RD_MPI(MPI_Barrier(comm_mpi_of(c)->local), st);
    rd_host_barrier(comm_mpi_of(c)->host);
    return st->code;
}

static rd_code comm_mpi_gather(rd_comm *c, const void *p, int64_t n, char **out, int64_t **lens,
                               rd_status *st)
{
    const MPI_Comm world = comm_mpi_of(c)->world;
    const bool root = c->w.rank == 0;
    char *all = NULL;
    int64_t *len = NULL, total = 0;
    if (root) {
        len = calloc((size_t)c->w.size, sizeof *len);
        if (!len) rd_fail(st, RD_EENV, "out of memory for %d numbers", c->w.size);
    }
    if (rd_comm_agree(c, st) != RD_OK || (root && !len)) goto done;
    RD_TRY(RD_MPI(MPI_Gather(&n, 1, MPI_INT64_T, len, 1, MPI_INT64_T, 0, world), st));
    if (root) {
        for (int r = 0; r < c->w.size; r++) total += len[r];
        all = malloc((size_t)total + 1);
        if (!all) rd_fail(st, RD_EENV, "out of memory gathering %" PRId64 " bytes", total);
    }
    if (rd_comm_agree(c, st) != RD_OK || (root && !all)) goto done;
    if (!root) {
        for (int64_t at = 0; at < n; at += PIECE) {
            const int m = (int)(n - at < PIECE ? n - at : PIECE);
            RD_TRY(RD_MPI(MPI_Send((const char *)p + at, m, MPI_BYTE, 0, 1, world), st));
        }
        goto done;
    }
    if (n > 0) memcpy(all, p, (size_t)n);
    char *to = all + n;
    for (int r = 1; r < c->w.size; r++) {
        for (int64_t at = 0; at < len[r]; at += PIECE) {
            const int m = (int)(len[r] - at < PIECE ? len[r] - at : PIECE);
            RD_TRY(RD_MPI(MPI_Recv(to + at, m, MPI_BYTE, r, 1, world, MPI_STATUS_IGNORE), st));
        }
        to += len[r];
    }
    *to = '\0';
    *out = all;
    *lens = len;
    all = NULL;
    len = NULL;
done:
    free(all);
    free(len);
    return st->code;
}

static rd_code comm_mpi_allgather(rd_comm *c, const void *mine, void *all, int64_t bytes,
                                  rd_status *st)
{
    if (bytes <= INT_MAX / c->w.size)
        return RD_MPI(MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                                    comm_mpi_of(c)->world),
                      st);
    memcpy((char *)all + bytes * c->w.rank, mine, (size_t)bytes);
    for (int r = 0; r < c->w.size; r++)
        RD_TRY(comm_mpi_bcast(c, (char *)all + bytes * r, bytes, r, st));
done:
    return st->code;
}

static rd_code comm_mpi_arena_new(rd_comm *c, int64_t n, float **out, char why[200], rd_status *st)
{
    mpi_comm *m = comm_mpi_of(c);
    if (!m->host && c->w.size > c->w.n_hosts)
        snprintf(why, 200, "the ranks of a host share no memory");
    if (m->host) RD_TRY(rd_host_arena_new(m->host, m->world, m->local, n, &m->arena, why, st));
    if (m->arena) {
        *out = rd_host_arena_mine(m->arena);
        snprintf(c->note, sizeof c->note,
                 "gradients are summed in place, in memory shared by the ranks of a host%s",
                 c->w.n_hosts > 1 ? ", and on between hosts" : "");
    }
done:
    return st->code;
}

static void comm_mpi_arena_free(rd_comm *c)
{
    rd_host_arena_free(comm_mpi_of(c)->arena);
    comm_mpi_of(c)->arena = NULL;
}

static rd_code comm_mpi_share(rd_comm *c, size_t bytes, size_t mark_at, void **out, char why[200],
                              rd_status *st)
{
    unsigned char *map = NULL;
    int err = rd_host_memory_new(comm_mpi_of(c)->local, bytes, mark_at, &map, st);
    RD_TRY(RD_MPI(MPI_Allreduce(MPI_IN_PLACE, &err, 1, MPI_INT, MPI_MAX, comm_mpi_of(c)->local),
                  st));
    if (err == 0)
        *out = map;
    else
        rd_host_memory_why(err, bytes, why);
done:
    if (map && !*out) munmap(map, bytes);
    return st->code;
}

void rd_mpi_inside(rd_comm *c, MPI_Comm *world, rd_host **w, rd_host_arena **a)
{
    *world = comm_mpi_of(c)->world;
    *w = comm_mpi_of(c)->host;
    *a = comm_mpi_of(c)->arena;
}

/* ---- start and end ---- */

/* Collective over a host. Makes the word that its ranks share for rd_comm_end. */
static rd_code share_end(mpi_comm *m, rd_status *st)
{
    const size_t mark_at = 64, bytes = 128;
    unsigned char *map = NULL;
    if (m->base.w.local_size < 2) return st->code;
    int err = rd_host_memory_new(m->local, bytes, mark_at, &map, st);
    RD_TRY(RD_MPI(MPI_Allreduce(MPI_IN_PLACE, &err, 1, MPI_INT, MPI_MAX, m->local), st));
    if (err == 0) m->base.end_said = (atomic_int *)(void *)map;
    if (map && err != 0) munmap(map, bytes);
done:
    return st->code;
}

static bool mpi_is_running(void)
{
    int begun = 0, ended = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    return begun && !ended;
}

static void comm_mpi_abort(rd_comm *c, int exit_code)
{
    (void)c;
    if (mpi_is_running()) MPI_Abort(MPI_COMM_WORLD, exit_code);
}

static void comm_mpi_free(rd_comm *c)
{
    mpi_comm *m = comm_mpi_of(c);
    rd_host_free(m->host);
    rd_cross_free(m->cross);
    if (m->local != MPI_COMM_NULL) MPI_Comm_free(&m->local);
    if (m->world != MPI_COMM_NULL) MPI_Comm_free(&m->world);
    free(m);
    if (!mpi_is_running()) return;
    MPI_Finalize();
}

static const rd_comm_vt mpi_vt = {.sum_f32 = comm_mpi_sum_f32,
                                  .sum_f64 = comm_mpi_sum_f64,
                                  .sum_i64 = comm_mpi_sum_i64,
                                  .max_f64 = comm_mpi_max_f64,
                                  .min_f64 = comm_mpi_min_f64,
                                  .bcast = comm_mpi_bcast,
                                  .barrier = comm_mpi_barrier,
                                  .gather = comm_mpi_gather,
                                  .allgather = comm_mpi_allgather,
                                  .local_bcast = comm_mpi_local_bcast,
                                  .local_barrier = comm_mpi_local_barrier,
                                  .arena_new = comm_mpi_arena_new,
                                  .arena_free = comm_mpi_arena_free,
                                  .share = comm_mpi_share,
                                  .abort = comm_mpi_abort,
                                  .free = comm_mpi_free};

/* Returns whether a rank may read the memory of another process. A sandbox forbids the call, and a
 * hardened kernel forbids it to all users but root. Open MPI would print "Read -1, expected N" at
 * every message. */
static bool may_read_peers(void)
{
    char from = 1, to = 0;
    const struct iovec a = {&to, 1}, b = {&from, 1};
    if (process_vm_readv(getpid(), &a, 1, &b, 1, 0) != 1) return false;
    FILE *f = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    int scope = 0;
    if (f && fscanf(f, "%d", &scope) != 1) scope = 0;
    if (f) fclose(f);
    return scope < 2 || geteuid() == 0;
}

/* Sets variables for Open MPI, unless the environment has them. The settings of mpirun --mca arrive
 * in the environment, too. */
static void set_mpi_defaults(void)
{
    (void)rd_environment_default(RD_VAR_UNUSED_WARNING);
    if (!may_read_peers()) (void)rd_environment_default(RD_VAR_NO_PEER_READ);
    (void)rd_environment_default(RD_VAR_TCP_FLAGS);
    const char *n_local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    if (n_local && atol(n_local) > sysconf(_SC_NPROCESSORS_ONLN))
        (void)rd_environment_default(RD_VAR_YIELD);
}

static char library[64]; /* the function below writes it once */
static pthread_once_t library_once = PTHREAD_ONCE_INIT;

/* Shortens "Open MPI v4.1.4, package: Debian OpenMPI, ..." to "Open MPI 4.1.4". */
static void read_library_version(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int n = 0;
    MPI_Get_library_version(text, &n);
    text[strcspn(text, ",\n")] = '\0';
    char *v = strstr(text, " v");
    if (v && v[2] >= '0' && v[2] <= '9') memmove(v + 1, v + 2, strlen(v + 2) + 1);
    snprintf(library, sizeof library, "%.63s", text);
}

const char *rd_comm_library_version(void)
{
    pthread_once(&library_once, read_library_version);
    return library;
}

/* Makes the ranks of a host behave like those of k hosts if the environment has RD_COMM_HOSTS=k,
 * for tests. They share the host's cores. */
static rd_code split_hosts_for_tests(mpi_comm *m, bool *crowded, rd_status *st)
{
    const char *text = getenv("RD_COMM_HOSTS");
    const int k = text ? atoi(text) : 0;
    MPI_Comm all = m->local;
    int me = 0, n = 0;
    *crowded = k > 1;
    if (k < 2) return RD_OK;
    RD_TRY(RD_MPI(MPI_Comm_rank(all, &me), st));
    RD_TRY(RD_MPI(MPI_Comm_size(all, &n), st));
    RD_TRY(RD_MPI(MPI_Comm_split(all, (int)((int64_t)me * k / n), me, &m->local), st));
    MPI_Comm_free(&all);
done:
    return st->code;
}

/* Collective. Finds the hosts and cores, and fills in the rd_world. *crowded: a host has more ranks
 * than cores. */
static rd_code find_world(mpi_comm *m, bool *crowded, rd_status *st)
{
    rd_world *w = &m->base.w;
    rd_cpu_set *sets = NULL;
    MPI_Comm leaders = MPI_COMM_NULL;
    int host[2] = {0, 1};
    RD_TRY(RD_MPI(MPI_Comm_split_type(m->world, MPI_COMM_TYPE_SHARED, w->rank, MPI_INFO_NULL,
                                      &m->local),
                  st));
    RD_TRY(split_hosts_for_tests(m, crowded, st));
    RD_TRY(RD_MPI(MPI_Comm_set_errhandler(m->local, MPI_ERRORS_RETURN), st));
    RD_TRY(RD_MPI(MPI_Comm_rank(m->local, &w->local_rank), st));
    RD_TRY(RD_MPI(MPI_Comm_size(m->local, &w->local_size), st));
    /* Hosts are numbered by their lowest rank. */
    RD_TRY(RD_MPI(
        MPI_Comm_split(m->world, w->local_rank == 0 ? 0 : MPI_UNDEFINED, w->rank, &leaders), st));
    if (leaders != MPI_COMM_NULL) {
        MPI_Comm_rank(leaders, &host[0]);
        MPI_Comm_size(leaders, &host[1]);
        MPI_Comm_free(&leaders);
    }
    RD_TRY(RD_MPI(MPI_Bcast(host, 2, MPI_INT, 0, m->local), st));
    w->host_index = host[0];
    w->n_hosts = host[1];
    sets = calloc((size_t)w->local_size, sizeof *sets);
    if (!sets) rd_fail(st, RD_EENV, "out of memory for the cores of %d ranks", w->local_size);
    RD_TRY(rd_comm_agree(&m->base, st));
    const rd_cpu_set mine = rd_cpus_mine();
    RD_TRY(RD_MPI(MPI_Allgather(&mine, (int)sizeof mine, MPI_BYTE, sets, (int)sizeof mine, MPI_BYTE,
                                m->local),
                  st));
    const double share = rd_cpus_share(sets, w->local_size, w->local_rank, rd_cpus_quota(""));
    w->n_cpus = rd_cpus_whole(share);
    int any = share < 1.0 - 1e-6;
    RD_TRY(RD_MPI(MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, m->local), st));
    *crowded |= any != 0;
done:
    free(sets);
    return st->code;
}

rd_code rd_comm_mpi_new(int *argc, char ***argv, int launched, rd_comm **out, rd_status *st)
{
    int level = 0;
    bool crowded = false;
    char why[200] = "";
    *out = NULL;
    mpi_comm *m = calloc(1, sizeof *m);
    if (!m) return rd_fail(st, RD_EENV, "out of memory for a communicator");
    m->base.vt = &mpi_vt;
    m->base.end_s = 300.0;
    m->world = m->local = MPI_COMM_NULL;
    rd_world *w = &m->base.w;
    w->size = w->local_size = w->n_hosts = w->n_cpus = 1;
    w->comm = "mpi";
    if (gethostname(w->host, sizeof w->host - 1) != 0)
        snprintf(w->host, sizeof w->host, "localhost");
    snprintf(w->library, sizeof w->library, "%s", rd_comm_library_version());
    set_mpi_defaults();
    const int rc = MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &level);
    if (rc != MPI_SUCCESS) {
        rd_fail(st, RD_EENV,
                "MPI_Init_thread failed with code %d; see the launcher's messages above", rc);
        goto done;
    }
    m->base.threads = level >= MPI_THREAD_SERIALIZED;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    RD_TRY(RD_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &m->world), st));
    RD_TRY(RD_MPI(MPI_Comm_set_errhandler(m->world, MPI_ERRORS_RETURN), st));
    RD_TRY(RD_MPI(MPI_Comm_rank(m->world, &w->rank), st));
    RD_TRY(RD_MPI(MPI_Comm_size(m->world, &w->size), st));
    if (launched > w->size) {
        rd_fail(st, RD_EENV,
                "the launcher started %d ranks but MPI sees %d; the program (%s) and mpirun use "
                "different MPI libraries, start it with the mpirun of that library",
                launched, w->size, w->library);
        goto done;
    }
    RD_TRY(find_world(m, &crowded, st));
    RD_TRY(share_end(m, st));
    RD_TRY(rd_host_new(m->world, m->local, crowded, &m->host, why, st));
    m->base.shares = m->host != NULL;
    if (!m->host && w->size > 1) {
        (void)rd_cross_new(m->world, &m->cross, st);
        RD_TRY(rd_comm_agree(&m->base, st));
    }
    if (w->size == 1)
        snprintf(m->base.note, sizeof m->base.note, "one rank, nothing to sum");
    else if (!m->host)
        snprintf(m->base.note, sizeof m->base.note, "sums by messages (%s)", why);
    else
        snprintf(m->base.note, sizeof m->base.note,
                 "sums through shared memory in pieces of %zu KiB%s",
                 rd_host_piece_bytes(m->host) >> 10,
                 w->n_hosts > 1 ? ", and on between hosts" : "");
    *out = &m->base;
    return RD_OK;
done:
    comm_mpi_free(&m->base);
    return st->code;
}
