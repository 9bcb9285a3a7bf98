/* blocks_emulated.cc -- runs the blocks of a launch.
 *
 * The threads of a block are fibers; a waiting fiber switches to another one. A thread that ends
 * without waiting leaves its fiber to the next thread, so a kernel without barriers is a loop. */
#include "kernel_emulated.h"
#include "device_emulated.h"
#include "fragments_emulated.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace
{

enum {
    MOST_THREADS = 1024,
    LANES = 32,
    /* MOST_SHARED: bytes of shared memory that a launch gets without asking */
    MOST_SHARED = 48 << 10
};
enum { PAGE = 4096, STACK = 256 << 10 };
enum class state : unsigned char { runs, barrier, warp, ended };

struct fiber;
struct thread {
    uint3 idx;
    state is;
    fiber *on;         /* nullptr: not begun */
    const char *where; /* the place where the thread waits */
    int op, src;       /* the operation of its warp, and the source lane */
    unsigned mask;
    uint64_t value;
    int turn; /* which of the fragments below is the newest */
};

#if defined(__x86_64__)
/* the stack pointer; registers that calls preserve are stored above it */
typedef void *context;
extern "C" void rd_switch_stack(context *from, context to);
asm(R"(
.text
.globl rd_switch_stack
.type rd_switch_stack, @function
rd_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size rd_switch_stack, .-rd_switch_stack
)");
void switch_context(context *from, context *to)
{
    rd_switch_stack(from, *to);
}
void make_context(context *c, char *stack, void (*entry)())
{
    void **top = (void **)(void *)(stack + STACK);
    top[-1] = nullptr;
    top[-2] = (void *)entry;
    for (int i = 3; i <= 8; i++) top[-i] = nullptr;
    *c = top - 8;
}
#else
typedef ucontext_t context;
void switch_context(context *from, context *to)
{
    swapcontext(from, to);
}
void make_context(context *c, char *stack, void (*entry)())
{
    getcontext(c);
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = STACK;
    c->uc_link = nullptr;
    makecontext(c, entry, 0);
}
#endif

struct fiber {
    context at;
    char *stack;
    size_t stack_bytes;
    thread *runs;
    void *fake; /* AddressSanitizer's fake stack */
};

fiber outside; /* the stack of the caller of the launch */
fiber pool[MOST_THREADS];
int n_pool;
fiber *idle[MOST_THREADS];
int n_idle;

thread threads[MOST_THREADS];
/* Two of each thread: a lane may give its next numbers while others still read the ones before. */
rd_emulated_fragment fragments[2][MOST_THREADS];
int n_threads, n_begun, n_living, n_at_barrier;
unsigned warp_living[MOST_THREADS / LANES];
thread *ready[MOST_THREADS];
int n_ready;
thread *now; /* the running thread */
const rd_kernel_call *body;
void *body_param[RD_MOST_PARAMS];
char *shared_end; /* a page that nobody may touch follows */
size_t shared_bytes;
const char *kernel_name;
char trouble[512];

enum class order { forwards, backwards, random } order_of_threads = order::forwards;
uint64_t dice = 88172645463325252u;
uint64_t roll(uint64_t n) /* a number below n */
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return dice % n;
}

fiber *running = &outside;
void switch_to(fiber *to)
{
    fiber *from = running;
    running = to;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->fake, to->stack, to->stack_bytes);
#endif
    switch_context(&from->at, &to->at);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
#endif
    if (now) threadIdx = now->idx;
}

/* Leaves the launch; the stacks of the other fibers are made again. */
[[noreturn]] void give_up()
{
    now = nullptr;
    switch_to(&outside);
    abort();
}

/* Returns the next thread that can continue: one that was released, else one that has not begun. */
thread *next_thread()
{
    const int waiting = n_threads - n_begun;
    if (n_ready > 0 && !(order_of_threads == order::random && waiting > 0 && roll(2))) {
        const int at = order_of_threads == order::random ? (int)roll((uint64_t)n_ready)
                                                         : n_ready - 1;
        thread *t = ready[at];
        ready[at] = ready[--n_ready];
        return t;
    }
    if (waiting == 0) return nullptr;
    const int i = order_of_threads == order::backwards ? n_threads - 1 - n_begun : n_begun;
    n_begun++;
    return &threads[i];
}

void let_go(thread *t)
{
    t->is = state::runs;
    ready[n_ready++] = t;
}

/* Releases threads from the last to the first, because the last one pushed continues first. */
void let_go_all(int first, int n, state waits)
{
    for (int k = 0; k < n; k++) {
        thread *t = &threads[first + (order_of_threads == order::backwards ? k : n - 1 - k)];
        if (t->is == waits && t != now) let_go(t);
    }
}

void fiber_main();

/* Switches to t, because the running fiber waits or is idle. nullptr: to the caller of the
 * launch. */
void leave(thread *t)
{
    fiber *to = &outside;
    now = t;
    if (t && t->on) {
        to = t->on;
    } else if (t) {
        to = idle[--n_idle];
        to->runs = t;
    }
    switch_to(to);
}

bool same_place(const char *a, const char *b)
{
    return a == b || strcmp(a, b) == 0;
}

void barrier_if_all()
{
    if (n_living == 0 || n_at_barrier < n_living) return;
    const char *first = nullptr;
    for (int i = 0; i < n_threads; i++) {
        const thread *t = &threads[i];
        if (t->is != state::barrier) continue;
        if (first && !same_place(first, t->where)) {
            snprintf(trouble, sizeof trouble,
                     "threads of a block wait at different barriers, %s and %s", first, t->where);
            give_up();
        }
        first = t->where;
    }
    n_at_barrier = 0;
    if (now && now->is == state::barrier) now->is = state::runs;
    let_go_all(0, n_threads, state::barrier);
}

/* Releases the lanes of `mask` when all running lanes wait in the same operation. */
void warp_if_all(int warp, unsigned mask)
{
    thread *lane = threads + warp * LANES;
    const unsigned part = mask & warp_living[warp];
    const thread *first = nullptr;
    uint64_t was[LANES], ballot = 0;
    for (int i = 0; i < LANES; i++) {
        if (!(part >> i & 1)) continue;
        if (lane[i].is != state::warp || lane[i].mask != mask) return;
        if (first && (first->op != lane[i].op || !same_place(first->where, lane[i].where))) {
            snprintf(trouble, sizeof trouble,
                     "lanes of a warp wait in different operations, %s and %s", first->where,
                     lane[i].where);
            give_up();
        }
        first = &lane[i];
        was[i] = lane[i].value;
        if (lane[i].value) ballot |= 1u << i;
    }
    if (!first) return;
    for (int i = 0; i < LANES; i++) {
        if (!(part >> i & 1)) continue;
        if (lane[i].op == 0 && !(part >> lane[i].src & 1)) {
            snprintf(trouble, sizeof trouble, "lane %d reads lane %d, which takes no part, at %s",
                     i, lane[i].src, lane[i].where);
            give_up();
        }
        lane[i].value = lane[i].op == 0 ? was[lane[i].src] : ballot;
    }
    if (now && now->is == state::warp && now >= lane && now < lane + LANES &&
        (part >> (now - lane) & 1))
        now->is = state::runs;
    for (int k = 0; k < LANES; k++) {
        const int i = order_of_threads == order::backwards ? k : LANES - 1 - k;
        if ((part >> i & 1) && &lane[i] != now) let_go(&lane[i]);
    }
}

void ended(thread *t)
{
    const int at = (int)(t - threads), warp = at / LANES;
    t->is = state::ended;
    t->on = nullptr;
    n_living--;
    warp_living[warp] &= ~(1u << at % LANES);
    now = nullptr;
    barrier_if_all();
    for (int i = 0; i < LANES; i++) {
        const thread *lane = &threads[warp * LANES + i];
        if ((warp_living[warp] >> i & 1) && lane->is == state::warp) warp_if_all(warp, lane->mask);
    }
}

void fiber_main()
{
    fiber *self = running;
#if defined(__SANITIZE_ADDRESS__)
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
    /* a fiber that runs for the first time comes from there, or from a fiber that did */
    if (!outside.stack) {
        outside.stack = (char *)(uintptr_t)bottom;
        outside.stack_bytes = bytes;
    }
#endif
    for (;;) {
        thread *t = self->runs;
        t->on = self;
        now = t;
        threadIdx = t->idx;
        body->call(body->function, body_param);
        ended(t);
        t = next_thread();
        if (t && !t->on) {
            self->runs = t;
            continue;
        }
        idle[n_idle++] = self;
        leave(t);
    }
}

void fresh_fiber(fiber *f)
{
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(f->stack, STACK); /* of frames that were left for good */
#endif
    make_context(&f->at, f->stack, fiber_main);
    f->fake = nullptr;
    f->runs = nullptr;
    idle[n_idle++] = f;
}

/* Allocates memory between two pages that nobody may touch. */
char *guarded(size_t bytes)
{
    char *p = (char *)mmap(nullptr, bytes + 2 * PAGE, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p + PAGE, bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
    return p + PAGE;
}

bool enough_fibers(int n)
{
    while (n_pool < n) {
        fiber *f = &pool[n_pool];
        f->stack = guarded(STACK);
        f->stack_bytes = STACK;
        if (!f->stack) return false;
        n_pool++;
        fresh_fiber(f);
    }
    return true;
}

void read_environment()
{
    static bool done;
    if (done) return;
    done = true;
    const char *e = getenv("RD_EMULATED_ORDER");
    if (e && strcmp(e, "backwards") == 0) order_of_threads = order::backwards;
    if (e && strcmp(e, "random") == 0) order_of_threads = order::random;
}

/* Reports that not all threads have ended, and that none can continue. */
void describe_hang()
{
    for (int i = 0; i < n_threads; i++)
        if (threads[i].is == state::barrier || threads[i].is == state::warp) {
            snprintf(trouble, sizeof trouble,
                     "thread %d of %d waits for ever at %s; %d of the block have ended", i,
                     n_threads, threads[i].where, n_threads - n_living);
            return;
        }
}

bool run_block()
{
    n_begun = n_ready = n_at_barrier = 0;
    n_living = n_threads;
    for (int w = 0; w * LANES < n_threads; w++) {
        const int lanes = n_threads - w * LANES;
        warp_living[w] = lanes >= LANES ? 0xffffffffu : (1u << lanes) - 1;
    }
    for (int i = 0; i < n_threads; i++) {
        threads[i].is = state::runs;
        threads[i].on = nullptr;
        threads[i].turn = 0;
    }
    if (shared_bytes)
        memset(shared_end - (shared_bytes + 15) / 16 * 16, 0xff, (shared_bytes + 15) / 16 * 16);
    leave(next_thread());
    if (n_living > 0 && !trouble[0]) describe_hang();
    if (n_living == 0) return true;
    n_idle = 0;
    for (int i = 0; i < n_pool; i++) fresh_fiber(&pool[i]);
    return false;
}

/* A fault reports where the kernel was. Then the process ends as it would have ended without the
 * handler. */
struct sigaction before;
void on_fault(int signal, siginfo_t *info, void *)
{
    char text[512];
    if (kernel_name)
        snprintf(text, sizeof text,
                 "emulated GPU: kernel %s, block (%u, %u, %u), thread (%u, %u, %u) touches %p, "
                 "which it may not\n",
                 kernel_name, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y,
                 threadIdx.z, info->si_addr);
    else if (rd_emulated_is_read(info->si_addr))
        snprintf(text, sizeof text,
                 "emulated GPU: pinned memory at %p is written, and was not waited for with "
                 "rd_gpu_host_wait\n",
                 info->si_addr);
    else if (rd_emulated_is_device(info->si_addr, 1))
        snprintf(text, sizeof text, "emulated GPU: host code touches device memory at %p\n",
                 info->si_addr);
    else
        text[0] = '\0';
    if (write(STDERR_FILENO, text, strlen(text)) < 0) {
    }
    sigaction(signal, &before, nullptr);
}

} // namespace

extern "C" void rd_emulated_watch_faults(void)
{
    static char stack[64 << 10];
    static bool done;
    if (done) return;
    done = true;
#if !defined(__SANITIZE_ADDRESS__)
    stack_t s = {};
    s.ss_sp = stack;
    s.ss_size = sizeof stack;
    struct sigaction a = {};
    a.sa_sigaction = on_fault;
    a.sa_flags = SA_SIGINFO | SA_ONSTACK;
    if (sigaltstack(&s, nullptr) == 0) sigaction(SIGSEGV, &a, &before);
#else
    (void)on_fault, (void)stack;
#endif
}

extern "C" void *rd_emulated_shared(void)
{
    return shared_end - (shared_bytes + 15) / 16 * 16;
}

extern "C" void rd_emulated_barrier(const char *where)
{
    thread *self = now;
    self->is = state::barrier;
    self->where = where;
    n_at_barrier++;
    barrier_if_all();
    if (self->is != state::runs) leave(next_thread());
}

extern "C" uint64_t rd_emulated_warp(int op, unsigned mask, uint64_t value, int src,
                                     const char *where)
{
    thread *self = now;
    const int at = (int)(self - threads);
    self->is = state::warp;
    self->where = where;
    self->op = op;
    self->mask = mask;
    self->value = value;
    self->src = src;
    if (!(mask >> at % LANES & 1)) {
        snprintf(trouble, sizeof trouble, "lane %d is not in the mask 0x%08x that it gives, at %s",
                 at % LANES, mask, where);
        give_up();
    }
    warp_if_all(at / LANES, mask);
    if (self->is != state::runs) leave(next_thread());
    return self->value;
}

extern "C" const rd_emulated_fragment *rd_emulated_exchange(const rd_emulated_fragment own,
                                                            const char *where)
{
    thread *self = now;
    const int at = (int)(self - threads);
    self->turn ^= 1;
    memcpy(fragments[self->turn][at], own, sizeof(rd_emulated_fragment));
    rd_emulated_warp(2, 0xffffffffu, 0, 0, where);
    return &fragments[self->turn][at / LANES * LANES];
}

extern "C" bool rd_emulated_argument(rd_gpu *gpu, rd_status *st, const char *kernel, int i,
                                     const void *p, bool sure)
{
    unsigned char resident;
    const uintptr_t a = (uintptr_t)p;
    if (!p || rd_emulated_is_device(p, 0)) return true;
    /* A word of a structure may be any value, for example two sizes. So only a mapped address
     * counts as an address, and it must be above AddressSanitizer's shadow memory. */
    if (!sure && (a < 0x100080000000u || a >> 47 ||
                  mincore((void *)(a & ~(uintptr_t)(PAGE - 1)), 1, &resident) != 0))
        return true;
    rd_fail(st, RD_EBUG, "kernel %s: argument %d %s %p, which is no memory of the device", kernel,
            i, sure ? "is the address" : "holds the address", p);
    rd_emulated_stick(gpu, st);
    return false;
}

extern "C" const char *rd_emulated_limit(const rd_kernel_call *c)
{
    const uint64_t n = (uint64_t)c->block[0] * c->block[1] * c->block[2];
    return n == 0 || n > MOST_THREADS || c->block[2] > 64 ? "a block has 1 to 1024 threads"
           : c->grid[0] > INT32_MAX                   ? "a grid has at most 2147483647 blocks in x"
           : c->grid[1] > 65535 || c->grid[2] > 65535 ? "a grid has at most 65535 blocks in y and z"
           : c->shared > MOST_SHARED ? "48 KiB of shared memory is what a launch gets"
                                     : nullptr;
}

extern "C" rd_code rd_emulated_run(rd_gpu *gpu, const void *args, rd_status *st)
{
    const rd_kernel_call *c = (const rd_kernel_call *)args;
    const char *kernel = c->name;
    const dim3 grid(c->grid[0], c->grid[1], c->grid[2]),
        block(c->block[0], c->block[1], c->block[2]);
    const size_t bytes = c->shared;
    if (rd_emulated_stuck(gpu, st) != RD_OK) return st->code;
    const uint64_t n = (uint64_t)block.x * block.y * block.z;
    const char *wrong = rd_emulated_limit(c);
    if (kernel_name && *kernel_name) wrong = "a kernel cannot start another";
    if (wrong) {
        rd_fail(
            st, RD_EBUG,
            "kernel %s cannot be started with grid (%u, %u, %u), block (%u, %u, %u), %zu bytes: %s",
            kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, bytes, wrong);
        return rd_emulated_stick(gpu, st);
    }
    rd_emulated_count(RD_EMULATED_KERNEL);
    read_environment();
    if (!shared_end) {
        char *p = guarded(MOST_SHARED);
        if (p) shared_end = p + MOST_SHARED;
    }
    if (!shared_end || !enough_fibers((int)n))
        return rd_fail(st, RD_EENV, "out of memory for the threads of the emulated GPU");
    rd_emulated_access access;
    gridDim = grid;
    blockDim = block;
    body = c;
    rd_kernel_params(c, body_param);
    shared_bytes = bytes;
    kernel_name = kernel;
    trouble[0] = '\0';
    n_threads = (int)n;
    for (int i = 0; i < n_threads; i++) {
        const unsigned u = (unsigned)i;
        threads[i].idx = {u % block.x, u / block.x % block.y, u / block.x / block.y};
    }
    const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    bool fine = true;
    for (uint64_t k = 0; k < blocks && fine; k++) {
        const uint64_t b = order_of_threads == order::forwards ? k : blocks - 1 - k;
        blockIdx = {(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
                    (unsigned)(b / grid.x / grid.y)};
        fine = run_block();
    }
    kernel_name = nullptr;
    now = nullptr;
    if (fine) return RD_OK;
    rd_fail(st, RD_EBUG, "kernel %s, block (%u, %u, %u): %s", kernel, blockIdx.x, blockIdx.y,
            blockIdx.z, trouble);
    return rd_emulated_stick(gpu, st);
}
