/* fake_nccl.cc -- NCCL of the fake runtime: sums over the ranks of one machine, and broadcasts,
 * through memory that their processes share.
 *
 * Calls do not block, as the driver asks: they report "in progress" once or twice. A sum is work
 * of its stream. Broadcasts between ncclGroupStart and ncclGroupEnd are one work. Numbers are
 * added in the order of ranks; with 16 bits each partial sum is rounded, as in a ring. If a rank
 * is lost, or RD_EMULATED_NCCL_FAILS=n asks for it in sum n, or RD_EMULATED_SPREAD_FAILS=n in
 * group n of broadcasts, the communicator reports a remote error, and the sum never ends until
 * ncclCommAbort. RD_EMULATED_ABORT_MS=n: that call takes n ms; the other ranks notice it at
 * once. */
#include "fake_runtime.h"
#include "nccl.h"
#include <atomic>
#include <errno.h>
#include <fcntl.h>
#include <mutex>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

using namespace fake;

namespace
{

enum { MOST_RANKS = 64 };
const size_t PIECE = (size_t)64 << 10; /* numbers of a rank at a time */

/* shared memory; zeros at first */
struct board {
    std::atomic<int> pid[MOST_RANKS];
    std::atomic<int> left[MOST_RANKS]; /* the rank does nothing more */
    /* number of phases that a rank has reached */
    std::atomic<uint64_t> phase[MOST_RANKS];
    float slot[][PIECE];
};

} // namespace

struct ncclComm {
    char name[128]; /* of the memory */
    int rank, size, polls;
    board *b;
    size_t bytes;
    bool whole; /* all ranks have joined */
    uint64_t phase;
    std::atomic<bool> aborted;
    std::atomic<int> state; /* of its own threads: ncclResult_t */
};

namespace
{

/* Returns whether the process of rank r has ended, also if its parent has not waited for it. */
bool gone(const board *b, int r)
{
    char path[64], text[512];
    if (b->left[r]) return true;
    if (kill(b->pid[r], 0) != 0) return errno == ESRCH;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)b->pid[r]);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return false;
    text[n] = '\0';
    const char *after = strrchr(text, ')'); /* behind the name */
    return after && strncmp(after, ") Z", 3) == 0;
}

void lose(ncclComm *c)
{
    if (c->state == ncclSuccess) groups_lost++;
    c->state = ncclRemoteError;
}

/* Returns whether all ranks have reached this rank's phase. A lost one is a failure. */
bool all_here(ncclComm *c)
{
    static unsigned tries;
    for (int r = 0; r < c->size; r++) {
        if (c->b->phase[r] >= c->phase) continue;
        if (++tries % 64 == 0 && gone(c->b, r) && c->b->phase[r] < c->phase) lose(c);
        return false;
    }
    return true;
}

/* One sum: its place, and what comes next. */
struct sum {
    size_t at = 0;
    enum { COPY, ADD, LEAVE } next = COPY;
};

rd_element element_of(ncclDataType_t t)
{
    return t == ncclFloat32 ? RD_FLOAT32 : t == ncclBfloat16 ? RD_BFLOAT16 : RD_FLOAT16;
}

float rounded(rd_element t, float x)
{
    return t == RD_FLOAT32    ? x
           : t == RD_BFLOAT16 ? rd_emulated_bfloat16(x)
                              : rd_emulated_float16(x);
}

/* Goes on with a sum, or with the broadcast of rank `root` (-1: a sum). True: it is done, or was
 * given up. */
bool go_on(ncclComm *c, sum *s, void *x, size_t n, rd_element type, int root)
{
    for (;;) {
        if (c->aborted) return true;
        if (c->state != ncclSuccess) return false;
        const size_t most = n - s->at < PIECE ? n - s->at : PIECE;
        if (s->next == sum::COPY) {
            if (s->at == n) return true;
            for (size_t i = 0; i < most; i++)
                c->b->slot[c->rank][i] = rd_emulated_get(type, x, (int64_t)(s->at + i));
            c->b->phase[c->rank] = ++c->phase;
            s->next = sum::ADD;
        }
        if (!all_here(c)) return c->aborted;
        if (s->next == sum::ADD) {
            for (size_t i = 0; i < most; i++) {
                float total = c->b->slot[root < 0 ? 0 : root][i];
                for (int r = 1; r < c->size && root < 0; r++)
                    total = rounded(type, total + c->b->slot[r][i]);
                rd_emulated_put(type, x, (int64_t)(s->at + i), total);
            }
            c->b->phase[c->rank] = ++c->phase;
            s->next = sum::LEAVE;
            continue;
        }
        s->at += most;
        s->next = sum::COPY;
    }
}

void leave(ncclComm *c)
{
    c->b->left[c->rank] = 1;
    (void)shm_unlink(c->name); /* the last rank to join has done so, unless one never came */
}

/* One broadcast of a group. */
struct broadcast {
    void *x;
    size_t n;
    int root;
    sum at;
};
/* The calls since ncclGroupStart. */
struct group {
    bool open = false;
    ncclComm *c = nullptr;
    cudaStream_t stream = nullptr;
    std::vector<broadcast> all;
} grouped;

std::mutex lock;
/* The stream may still look at them, so they stay until the process ends. */
std::vector<ncclComm *> &aborted = *new std::vector<ncclComm *>;

} // namespace

#define NCCL_CALL() \
    if (fails(__func__)) return ncclSystemError

extern "C" {

ncclResult_t ncclGetVersion(int *version)
{
    *version = (int)number_of_environment("RD_EMULATED_NCCL", 22809);
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    unsigned char random[16];
    NCCL_CALL();
    if (getrandom(random, sizeof random, 0) != sizeof random) return ncclSystemError;
    memset(id, 0, sizeof *id);
    size_t at = (size_t)snprintf(id->internal, sizeof id->internal, "/rd_fake_");
    for (unsigned char b : random)
        at += (size_t)snprintf(id->internal + at, sizeof id->internal - at, "%02x", b);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t r)
{
    return r == ncclRemoteError ? "remote process exited or there was a network error"
                                : "a failure of the fake NCCL";
}

const char *ncclGetLastError(ncclComm_t)
{
    return "";
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    NCCL_CALL();
    if (config->blocking != 0) mistake(__func__, "calls would block");
    if (size < 1 || size > MOST_RANKS || rank < 0 || rank >= size) return ncclInvalidArgument;
    const size_t bytes = sizeof(board) + (size_t)size * sizeof(float[PIECE]);
    const int fd = shm_open(id.internal, O_RDWR | O_CREAT, 0600);
    void *p = fd >= 0 && ftruncate(fd, (off_t)bytes) == 0
                  ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                  : MAP_FAILED;
    if (fd >= 0) close(fd);
    if (p == MAP_FAILED) return ncclSystemError;
    ncclComm *c = *out = new ncclComm{};
    count_object(1);
    memcpy(c->name, id.internal, sizeof c->name);
    c->rank = rank;
    c->size = size;
    c->b = (board *)p;
    c->bytes = bytes;
    c->polls = 2;
    c->b->pid[rank] = (int)getpid();
    c->state = ncclSuccess;
    /* Nobody opens the memory again once all have joined. */
    bool last = true;
    for (int r = 0; r < size; r++) last = last && c->b->pid[r] != 0;
    if (last) (void)shm_unlink(id.internal);
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state)
{
    NCCL_CALL();
    *state = ncclInProgress;
    if (!c->whole) {
        for (int r = 0; r < c->size; r++)
            if (c->b->pid[r] == 0) return ncclSuccess;
        c->whole = true;
    }
    if (c->polls > 0 && c->polls-- > 0) return ncclSuccess;
    *state = (ncclResult_t)(int)c->state;
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t c, cudaStream_t s)
{
    static int64_t left = number_of_environment("RD_EMULATED_NCCL_FAILS", 0);
    NCCL_CALL();
    if (!c->whole) mistake(__func__, "the group is not whole");
    if (c->polls > 0) mistake(__func__, "the call before is in progress");
    if (from != to || op != ncclSum) mistake(__func__, "sums are in place");
    if (is_capturing()) mistake(__func__, "a sum in a graph");
    const rd_element e = element_of(type);
    need_device(__func__, "numbers", to, n * rd_element_bytes(e));
    c->polls = 1;
    const bool lost = left > 0 && --left == 0;
    const auto at = std::make_shared<sum>();
    sums_queued++;
    queue(
        s,
        [=] {
            if (lost) lose(c);
            const bool over = go_on(c, at.get(), to, n, e, -1);
            counts.sums += over;
            sums_queued -= over;
            return over;
        },
        __func__);
    return ncclInProgress;
}

ncclResult_t ncclGroupStart(void)
{
    NCCL_CALL();
    if (grouped.open) mistake(__func__, "a group in a group");
    grouped = {};
    grouped.open = true;
    return ncclSuccess;
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t type, int root,
                           ncclComm_t c, cudaStream_t s)
{
    NCCL_CALL();
    if (!grouped.open) mistake(__func__, "broadcasts are grouped");
    if (!c->whole) mistake(__func__, "the group is not whole");
    if (c->polls > 0) mistake(__func__, "the call before is in progress");
    if (from != to || type != ncclFloat32) mistake(__func__, "float32 in place");
    if (root < 0 || root >= c->size) mistake(__func__, "rank %d", root);
    if (is_capturing()) mistake(__func__, "a broadcast in a graph");
    if (grouped.c && (grouped.c != c || grouped.stream != s)) mistake(__func__, "two streams");
    need_device(__func__, "numbers", to, n * sizeof(float));
    grouped.c = c;
    grouped.stream = s;
    grouped.all.push_back({to, n, root, {}});
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    static int64_t left = number_of_environment("RD_EMULATED_SPREAD_FAILS", 0);
    if (!grouped.open) mistake(__func__, "there is no group");
    grouped.open = false;
    NCCL_CALL();
    if (!grouped.c) return ncclSuccess;
    ncclComm *c = grouped.c;
    c->polls = 1;
    const bool lost = left > 0 && --left == 0;
    const auto list = std::make_shared<std::vector<broadcast>>(std::move(grouped.all));
    const auto next = std::make_shared<size_t>(0);
    sums_queued++;
    queue(
        grouped.stream,
        [=] {
            if (lost) lose(c);
            for (; *next < list->size(); ++*next) {
                broadcast &b = (*list)[*next];
                if (!go_on(c, &b.at, b.x, b.n, RD_FLOAT32, b.root)) return false;
            }
            counts.sums++;
            sums_queued--;
            return true;
        },
        __func__);
    return ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    NCCL_CALL();
    c->polls = 1;
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    const bool fail = fails(__func__);
    leave(c);
    munmap(c->b, c->bytes);
    delete c;
    count_object(-1);
    return fail ? ncclSystemError : ncclSuccess;
}

/* Sums that hang end, with no result. */
ncclResult_t ncclCommAbort(ncclComm_t c)
{
    const std::lock_guard<std::mutex> guard(lock);
    leave(c);
    usleep((useconds_t)number_of_environment("RD_EMULATED_ABORT_MS", 0) * 1000);
    aborted.push_back(c);
    if (c->state != ncclSuccess) groups_lost--;
    c->aborted = true;
    count_object(-1);
    return ncclSuccess;
}

} // extern "C"
