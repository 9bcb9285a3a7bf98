/* fake_runtime.cc -- the CUDA runtime on host memory: devices, memory, streams, events, launches.
 * See fake_runtime.h. */
#include "fake_runtime.h"
#include <map>
#include <set>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sched.h>
#include <time.h>

struct CUstream_st {
    std::deque<fake::step> steps;
    bool captures = false, broken = false;
    std::vector<fake::work> captured;
};
struct CUevent_st {
    fake::moment_ref last;
    bool timed;
};

namespace
{

enum { MOST_GPUS = 16, PAGE = 4096, DRIVER = 13000, RUNTIME = 13000 };
const int64_t GIB = (int64_t)1 << 30;
const size_t RANGE = (size_t)256 << 30;

struct locked {
    size_t bytes, mapped;
};
struct kernel {
    const char *name;
    void (*call)(const void *, void *const *);
    std::vector<size_t> bytes;
};

std::set<cudaStream_t> streams;
std::set<cudaEvent_t> events;
std::map<char *, locked> pinned;
std::map<char *, size_t> device;
std::map<const void *, kernel> kernels;
int64_t in_use, most_in_use, n_objects, n_run;
cudaError_t last_error = cudaSuccess, broken = cudaSuccess;

/* ---- failures that tests ask for ---- */
int64_t n_calls, fail_at;
bool fail_lasts;
std::string failed, named;
int64_t named_left;

void read_wish()
{
    static bool done;
    if (done) return;
    done = true;
    const char *e = getenv("RD_FAKE_FAIL");
    const char *colon = e ? strrchr(e, ':') : nullptr;
    if (!colon) return;
    named = std::string(e, (size_t)(colon - e));
    named_left = atoll(colon + 1);
    fail_lasts = e[strlen(e) - 1] == '+';
}

enum class pace { lazy, eager, random };
pace pace_of_streams()
{
    static const char *const e = getenv("RD_FAKE_STREAMS");
    static const pace p = e && strcmp(e, "eager") == 0    ? pace::eager
                          : e && strcmp(e, "random") == 0 ? pace::random
                                                          : pace::lazy;
    return p;
}

uint64_t dice = 88172645463325252u;
bool toss()
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return dice >> 32 & 1;
}

/* ---- running ---- */
bool advance(cudaStream_t s);

/* Runs what m waits for. False: it waits for another rank. */
bool advance_to(const fake::moment_ref &m)
{
    while (!m->over) {
        if (m->on->steps.empty()) fake::mistake("an event", "waits for work that is not queued");
        if (!advance(m->on)) return false;
    }
    return true;
}

/* Runs the first step of a stream. False: it waits for another rank. */
bool advance(cudaStream_t s)
{
    const fake::step first = s->steps.front();
    if (first.after && !advance_to(first.after)) return false;
    if (first.run && broken == cudaSuccess && !first.run()) return false;
    s->steps.pop_front();
    if (first.sets) {
        first.sets->over = true;
        first.sets->at_s = fake::now_s();
    }
    return true;
}

/* Runs steps while there are some, or until m is over. Waits for other ranks. */
void finish(cudaStream_t s, const fake::moment_ref &m)
{
    rd_emulated_access access;
    while (m ? !m->over : !s->steps.empty()) {
        if (advance(s)) continue;
        if (fake::groups_lost > 0) fake::mistake("a wait", "a sum over ranks never ends");
        sched_yield();
    }
}

void finish_all()
{
    for (cudaStream_t s : streams) finish(s, nullptr);
}

bool has_work()
{
    for (cudaStream_t s : streams)
        if (!s->steps.empty()) return true;
    return false;
}

void push(cudaStream_t s, fake::step w)
{
    s->steps.push_back(std::move(w));
    const pace p = pace_of_streams();
    if (p == pace::lazy || (p == pace::random && toss())) return;
    rd_emulated_access access;
    while (!s->steps.empty() && advance(s)) continue;
}

cudaStream_t need_stream(const char *call, cudaStream_t s)
{
    if (!streams.count(s)) fake::mistake(call, "the stream does not exist");
    return s;
}

cudaEvent_t need_event(const char *call, cudaEvent_t e)
{
    if (!events.count(e)) fake::mistake(call, "the event does not exist");
    return e;
}

template <typename T>
bool is_within(const std::map<char *, T> &m, const void *p, size_t bytes, size_t (*size)(const T &))
{
    auto at = m.upper_bound((char *)const_cast<void *>(p));
    if (at == m.begin()) return false;
    --at;
    return (char *)p + bytes <= at->first + size(at->second);
}

bool is_pinned(const void *p, size_t bytes)
{
    return is_within<locked>(pinned, p, bytes, [](const locked &l) { return l.bytes; });
}

bool is_device(const void *p, size_t bytes)
{
    return is_within<size_t>(device, p, bytes, [](const size_t &n) { return n; });
}

int n_gpus()
{
    const int64_t n = fake::number_of_environment("RD_EMULATED_GPUS", 1);
    return n < MOST_GPUS ? (int)n : (int)MOST_GPUS;
}

size_t memory_of_gpu()
{
    return (size_t)fake::number_of_environment("RD_EMULATED_MEMORY", 8 * GIB);
}

int capability()
{
    return (int)fake::number_of_environment("RD_EMULATED_SM", 90);
}

void print_counts()
{
    const rd_fake_work &w = fake::counts;
    fprintf(stderr,
            "emulated GPU: kernels %lld, products %lld, convolutions %lld, copies %lld, recurrent "
            "%lld, graphs %lld with %lld of these\n",
            (long long)w.kernels, (long long)w.products, (long long)w.convolutions,
            (long long)w.copies, (long long)w.recurrent, (long long)w.graphs,
            (long long)w.in_graphs);
    fprintf(stderr,
            "fake CUDA: waits %lld, up %lld, down %lld, device %lld bytes, sums %lld, plans beside "
            "sums %lld, memory %lld bytes at most\n",
            (long long)w.waits, (long long)w.up_bytes, (long long)w.down_bytes,
            (long long)w.device_bytes, (long long)w.sums, (long long)w.plans_beside_sums,
            (long long)most_in_use);
}

} // namespace

namespace fake
{

rd_fake_work counts;
int in_graph, groups_lost, sums_queued;

void count_in_graph()
{
    if (in_graph) counts.in_graphs++;
}

bool fails(const char *call)
{
    read_wish();
    n_calls++;
    bool now = fail_at > 0 && (n_calls == fail_at || (fail_lasts && n_calls > fail_at));
    if (named_left > 0 && (named == "any" || named == call) && --named_left == 0) {
        now = true;
        if (fail_lasts) fail_at = n_calls;
    }
    if (now && failed.empty()) failed = call;
    return now;
}

void mistake(const char *call, const char *format, ...)
{
    va_list a;
    fprintf(stderr, "fake CUDA: %s: ", call);
    va_start(a, format);
    vfprintf(stderr, format, a);
    va_end(a);
    fputc('\n', stderr);
    abort();
}

cudaError_t device_failure()
{
    return broken;
}

void break_device(cudaError_t e)
{
    if (broken == cudaSuccess) broken = e;
}

cudaError_t set_last(cudaError_t e)
{
    if (e != cudaSuccess) last_error = e;
    return e;
}

bool is_capturing()
{
    for (cudaStream_t s : streams)
        if (s->captures) return true;
    return false;
}

cudaError_t illegal_in_capture()
{
    for (cudaStream_t s : streams)
        if (s->captures) {
            s->broken = true;
            return cudaErrorStreamCaptureUnsupported;
        }
    return cudaSuccess;
}

int64_t number_of_environment(const char *name, int64_t otherwise)
{
    const char *e = getenv(name);
    return e && *e ? strtoll(e, nullptr, 10) : otherwise;
}

double now_s()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void count_object(int by)
{
    n_objects += by;
}

void queue(cudaStream_t s, work w, const char *call)
{
    need_stream(call, s);
    if (s->captures)
        s->captured.push_back(std::move(w));
    else
        push(s, {std::move(w), nullptr, nullptr});
}

void need_device(const char *call, const char *what, const void *p, size_t bytes)
{
    if (bytes && !is_device(p, bytes))
        mistake(call, "%s: %zu bytes at %p are no memory of the device", what, bytes, p);
}

work kernel_work(const char *call, const void *function, dim3 grid, dim3 block, void **param,
                 size_t shared)
{
    const auto known = kernels.find(function);
    if (known == kernels.end()) mistake(call, "an unknown kernel");
    const kernel &k = known->second;
    /* the call, and behind it the parameters */
    size_t bytes = (sizeof(rd_kernel_call) + RD_PARAM_ALIGN - 1) / RD_PARAM_ALIGN * RD_PARAM_ALIGN;
    rd_kernel_call c = {};
    c.name = k.name;
    c.function = function;
    c.call = k.call;
    c.grid[0] = grid.x, c.grid[1] = grid.y, c.grid[2] = grid.z;
    c.block[0] = block.x, c.block[1] = block.y, c.block[2] = block.z;
    c.shared = (uint32_t)shared;
    for (size_t n : k.bytes) {
        c.at[c.n++] = (uint32_t)bytes;
        bytes += (n + RD_PARAM_ALIGN - 1) / RD_PARAM_ALIGN * RD_PARAM_ALIGN;
    }
    typedef struct alignas(RD_PARAM_ALIGN) block16 {
        unsigned char b[RD_PARAM_ALIGN];
    } block16;
    std::vector<block16> room(bytes / sizeof(block16));
    unsigned char *to = room.data()->b;
    memcpy(to, &c, sizeof c);
    for (size_t i = 0; i < k.bytes.size(); i++) memcpy(to + c.at[i], param[i], k.bytes[i]);
    return [room] {
        static const int64_t fault = number_of_environment("RD_FAKE_FAULT", 0);
        rd_status st = {};
        counts.kernels++;
        count_in_graph();
        if (++n_run == fault) {
            break_device(cudaErrorIllegalAddress);
        } else if (rd_emulated_run(nullptr, room.data(), &st) != RD_OK) {
            fprintf(stderr, "fake CUDA: %s\n", st.msg);
            break_device(cudaErrorLaunchFailure);
        }
        return true;
    };
}

} // namespace fake

using namespace fake;

extern "C" {

/* ---- for tests ---- */
int64_t rd_fake_calls(void)
{
    return n_calls;
}

void rd_fake_fail(int64_t k, bool lasting)
{
    fail_at = k > 0 ? n_calls + k : 0;
    fail_lasts = lasting;
    failed.clear();
    broken = last_error = cudaSuccess;
}

const char *rd_fake_failed(void)
{
    return failed.empty() ? nullptr : failed.c_str();
}

int64_t rd_fake_left(void)
{
    return n_objects;
}

void rd_fake_count(rd_fake_work *out)
{
    *out = counts;
}

/* ---- for the emulated parts ---- */
bool rd_emulated_is_read(const void *)
{
    return false;
}

rd_code rd_emulated_stuck(rd_gpu *, rd_status *)
{
    return RD_OK;
}

rd_code rd_emulated_stick(rd_gpu *, rd_status *st)
{
    return st->code;
}

void rd_emulated_count(enum rd_emulated_work what)
{
    if (what == RD_EMULATED_RECURRENT) counts.recurrent++;
}

void rd_emulated_kernel(const void *function, const char *name,
                        void (*call)(const void *, void *const *), const size_t *bytes, size_t n)
{
    if (!kernels.count(function)) kernels[function] = {name, call, {bytes, bytes + n}};
}

/* ---- devices and failures ---- */
const char *cudaGetErrorName(cudaError_t e)
{
#define NAME(x) \
    case x:     \
        return #x
    switch (e) {
        NAME(cudaSuccess);
        NAME(cudaErrorInvalidValue);
        NAME(cudaErrorMemoryAllocation);
        NAME(cudaErrorInvalidConfiguration);
        NAME(cudaErrorInsufficientDriver);
        NAME(cudaErrorInvalidDeviceFunction);
        NAME(cudaErrorNoDevice);
        NAME(cudaErrorInvalidDevice);
        NAME(cudaErrorNoKernelImageForDevice);
        NAME(cudaErrorInvalidResourceHandle);
        NAME(cudaErrorNotReady);
        NAME(cudaErrorIllegalAddress);
        NAME(cudaErrorLaunchFailure);
        NAME(cudaErrorStreamCaptureUnsupported);
        NAME(cudaErrorStreamCaptureInvalidated);
        NAME(cudaErrorUnknown);
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaErrorNoDevice ? "RD_EMULATED_GPUS is 0" : "a failure of the fake runtime";
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t e = broken != cudaSuccess ? broken : last_error;
    last_error = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    return broken != cudaSuccess ? broken : last_error;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = (int)number_of_environment("RD_FAKE_DRIVER", DRIVER);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = RUNTIME;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    FAKE_CALL();
    const char *order = getenv("CUDA_DEVICE_ORDER");
    if (!order || strcmp(order, "PCI_BUS_ID") != 0)
        mistake(__func__, "GPUs are not numbered as nvidia-smi numbers them");
    *n = n_gpus();
    return *n ? cudaSuccess : set_last(cudaErrorNoDevice);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int index)
{
    FAKE_CALL();
    if (index < 0 || index >= n_gpus()) return set_last(cudaErrorInvalidDevice);
    *p = {};
    snprintf(p->name, sizeof p->name, "emulated GPU");
    p->uuid.bytes[15] = (char)(index + number_of_environment("RD_FAKE_UUID", 0));
    p->totalGlobalMem = memory_of_gpu();
    p->major = capability() / 10;
    p->minor = capability() % 10;
    p->multiProcessorCount = (int)number_of_environment("RD_FAKE_SMS", 132);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int index)
{
    FAKE_CALL();
    if (index < 0 || index >= n_gpus()) return set_last(cudaErrorInvalidDevice);
    const int number = number_of_environment("RD_FAKE_MIG", 0)
                           ? 0
                           : index + (int)number_of_environment("RD_FAKE_UUID", 0);
    snprintf(id, (size_t)bytes, "0000:%02x:00.0", 0xe0 + number);
    return cudaSuccess;
}

cudaError_t rd_fake_attributes(const void *, cudaFuncAttributes *out)
{
    if (fails("cudaFuncGetAttributes")) return set_last(cudaErrorUnknown);
    for (const int sm : {__CUDA_ARCH_LIST__})
        if (sm / 10 <= capability()) {
            *out = {.numRegs = 32};
            return cudaSuccess;
        }
    return set_last(cudaErrorNoKernelImageForDevice);
}

cudaError_t cudaSetDevice(int index)
{
    FAKE_CALL();
    if (index < 0 || index >= n_gpus()) return set_last(cudaErrorInvalidDevice);
    rd_emulated_watch_faults();
    static const bool prints = number_of_environment("RD_EMULATED_COUNT", 0) &&
                               atexit(print_counts) == 0;
    (void)prints;
    return rd_emulated_range(RANGE) ? cudaSuccess : set_last(cudaErrorMemoryAllocation);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *low, int *high)
{
    FAKE_CALL();
    *low = 0;
    *high = -5;
    return cudaSuccess;
}

/* ---- memory ---- */
cudaError_t cudaMalloc(void **p, size_t bytes)
{
    *p = nullptr;
    FAKE_CALL_OUTSIDE();
    const size_t need = rd_emulated_padded(bytes), all = memory_of_gpu();
    if (bytes > all || (size_t)in_use + need > all) return set_last(cudaErrorMemoryAllocation);
    *p = rd_emulated_take(&device, bytes);
    if (!*p) return set_last(cudaErrorMemoryAllocation);
    device[(char *)*p] = bytes;
    in_use += (int64_t)need;
    if (in_use > most_in_use) most_in_use = in_use;
    count_object(1);
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    const bool fail = fails(__func__);
    if (!p) return cudaSuccess;
    if (illegal_in_capture() != cudaSuccess) return set_last(cudaErrorStreamCaptureUnsupported);
    if (!device.count((char *)p)) mistake(__func__, "%p was not allocated", p);
    if (has_work()) counts.waits++;
    finish_all();
    in_use -= (int64_t)rd_emulated_padded(device[(char *)p]);
    device.erase((char *)p);
    rd_emulated_give_back(p);
    count_object(-1);
    return fail ? set_last(cudaErrorUnknown) : set_last(broken);
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    *p = nullptr;
    FAKE_CALL_OUTSIDE();
    /* the first two are the driver's own staging buffers */
    if (!number_of_environment("RD_EMULATED_PAGE_LOCKED", 1) && pinned.size() >= 2)
        return set_last(cudaErrorMemoryAllocation);
    const size_t mapped = (bytes + PAGE) / PAGE * PAGE;
    void *m = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) return set_last(cudaErrorMemoryAllocation);
    pinned[(char *)m] = {bytes, mapped};
    count_object(1);
    *p = m;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    const bool fail = fails(__func__);
    if (!p) return cudaSuccess;
    if (illegal_in_capture() != cudaSuccess) return set_last(cudaErrorStreamCaptureUnsupported);
    if (!pinned.count((char *)p)) mistake(__func__, "%p was not allocated", p);
    if (has_work()) counts.waits++;
    finish_all();
    munmap(p, pinned[(char *)p].mapped);
    pinned.erase((char *)p);
    count_object(-1);
    return fail ? set_last(cudaErrorUnknown) : set_last(broken);
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
    FAKE_CALL();
    *total = memory_of_gpu();
    *left = *total > (size_t)in_use ? *total - (size_t)in_use : 0;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s)
{
    FAKE_CALL();
    need_stream(__func__, s);
    if (bytes == 0) return cudaSuccess;
    const bool up = kind == cudaMemcpyHostToDevice, down = kind == cudaMemcpyDeviceToHost;
    const void *host = up ? from : to;
    if (!down) need_device(__func__, "target", to, bytes);
    if (!up) need_device(__func__, "source", from, bytes);
    if ((up || down) && rd_emulated_is_device(host, 0))
        mistake(__func__, "the host's array %p is memory of the device", host);
    if ((up || down) && !is_pinned(host, bytes))
        mistake(__func__, "the array %p of the host is pageable: the copy waits for the stream",
                host);
    (up ? counts.up_bytes : down ? counts.down_bytes : counts.device_bytes) += (int64_t)bytes;
    queue(
        s,
        [=] {
            counts.copies++;
            count_in_graph();
            memmove(to, from, bytes);
            return true;
        },
        __func__);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s)
{
    FAKE_CALL();
    need_device(__func__, "target", p, bytes);
    queue(
        s,
        [=] {
            counts.copies++;
            count_in_graph();
            memset(p, value, bytes);
            return true;
        },
        __func__);
    return cudaSuccess;
}

/* ---- streams ---- */
static cudaError_t stream_new(const char *call, cudaStream_t *s, unsigned flags)
{
    if (flags != cudaStreamNonBlocking) mistake(call, "the stream waits for the default one");
    *s = new CUstream_st;
    streams.insert(*s);
    count_object(1);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    *s = nullptr;
    FAKE_CALL_OUTSIDE();
    return stream_new(__func__, s, flags);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int)
{
    *s = nullptr;
    FAKE_CALL_OUTSIDE();
    return stream_new(__func__, s, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    const bool fail = fails(__func__);
    finish(need_stream(__func__, s), nullptr);
    streams.erase(s);
    delete s;
    count_object(-1);
    return fail ? set_last(cudaErrorUnknown) : set_last(broken);
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    FAKE_CALL_OUTSIDE();
    if (!need_stream(__func__, s)->steps.empty()) counts.waits++;
    finish(s, nullptr);
    return set_last(broken);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    FAKE_CALL_OUTSIDE();
    need_stream(__func__, s);
    /* an event that was never recorded is over */
    if (need_event(__func__, e)->last) push(s, {nullptr, e->last, nullptr});
    return cudaSuccess;
}

/* ---- events ---- */
static cudaError_t event_new(cudaEvent_t *e, unsigned flags)
{
    *e = new CUevent_st{nullptr, !(flags & cudaEventDisableTiming)};
    events.insert(*e);
    count_object(1);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    *e = nullptr;
    FAKE_CALL();
    return event_new(e, flags);
}

cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    *e = nullptr;
    FAKE_CALL();
    return event_new(e, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    const bool fail = fails(__func__);
    events.erase(need_event(__func__, e));
    delete e;
    count_object(-1);
    return fail ? set_last(cudaErrorUnknown) : set_last(broken);
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    FAKE_CALL_OUTSIDE();
    need_stream(__func__, s);
    need_event(__func__, e)->last = std::make_shared<moment>();
    e->last->on = s;
    push(s, {nullptr, nullptr, e->last});
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    FAKE_CALL();
    const moment_ref m = need_event(__func__, e)->last;
    if (!m || m->over) return set_last(broken);
    rd_emulated_access access;
    if (!advance_to(m)) return set_last(cudaErrorNotReady);
    counts.waits++;
    return set_last(broken);
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    FAKE_CALL_OUTSIDE();
    const moment_ref m = need_event(__func__, e)->last;
    if (!m || m->over) return set_last(broken);
    counts.waits++;
    finish(m->on, m);
    return set_last(broken);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    FAKE_CALL();
    const cudaEvent_t of[] = {need_event(__func__, from), need_event(__func__, to)};
    for (const cudaEvent_t e : of) {
        if (!e->timed || !e->last) mistake(__func__, "an event has no time");
        if (!e->last->over) return set_last(cudaErrorNotReady);
    }
    *ms = (float)((to->last->at_s - from->last->at_s) * 1e3);
    return cudaSuccess;
}

/* ---- launches and captures ---- */
cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **param,
                             size_t shared, cudaStream_t s)
{
    FAKE_CALL();
    rd_kernel_call c = {};
    c.grid[0] = grid.x, c.grid[1] = grid.y, c.grid[2] = grid.z;
    c.block[0] = block.x, c.block[1] = block.y, c.block[2] = block.z;
    c.shared = (uint32_t)shared;
    if (rd_emulated_limit(&c)) return set_last(cudaErrorInvalidConfiguration);
    queue(s, kernel_work(__func__, function, grid, block, param, shared), __func__);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
    FAKE_CALL();
    if (is_capturing()) mistake(__func__, "a capture within a capture");
    need_stream(__func__, s)->captures = true;
    s->broken = false;
    s->captured.clear();
    return cudaSuccess;
}

} // extern "C"

namespace fake
{

/* Ends a capture. False: it was invalid. */
bool end_capture(cudaStream_t s, std::vector<work> *out)
{
    if (!need_stream("cudaStreamEndCapture", s)->captures)
        mistake("cudaStreamEndCapture", "nothing is captured");
    s->captures = false;
    out->swap(s->captured);
    s->captured.clear();
    return !s->broken;
}

} // namespace fake
