/* Which device a run takes: from what every rank has found. No GPU is needed. */
#include "rd/gpu_choose.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rd_gpu_seat seat_of(int host, int local_rank, int n_visible, int gpu)
{
    rd_gpu_seat s = {.host_index = host, .local_rank = local_rank, .n_visible = n_visible};
    snprintf(s.host, sizeof s.host, "node%02d", host);
    s.index = rd_gpu_choose_index(local_rank, n_visible);
    if (n_visible == 0) {
        snprintf(s.why, sizeof s.why, "no driver");
        return s;
    }
    snprintf(s.name, sizeof s.name, "NVIDIA H100 80GB HBM3");
    snprintf(s.uuid, sizeof s.uuid, "GPU-%d-%d", host, gpu);
    return s;
}

static void test_index(void **state)
{
    (void)state;
    assert_int_equal(rd_gpu_choose_index(0, 0), -1);
    assert_int_equal(rd_gpu_choose_index(3, 8), 3);
    assert_int_equal(rd_gpu_choose_index(5, 1), 0);
    assert_int_equal(rd_gpu_choose_index(5, 4), 1);
}

static void test_cpu(void **state)
{
    (void)state;
    rd_gpu_seat s[] = {seat_of(0, 0, 1, 0)};
    rd_gpu_choice c;
    rd_status st = {0};
    assert_int_equal(rd_gpu_choose(RD_DEVICE_CPU, false, true, s, 1, &c, &st), RD_OK);
    assert_int_equal(c.device, RD_DEVICE_CPU);
    assert_string_equal(c.text, "");
    assert_int_equal(rd_gpu_choose(RD_DEVICE_AUTO, false, false, s, 1, &c, &st), RD_OK);
    assert_int_equal(c.device, RD_DEVICE_CPU);
    assert_string_equal(c.text, "");
    s[0] = seat_of(0, 0, 0, 0);
    assert_int_equal(rd_gpu_choose(RD_DEVICE_AUTO, false, true, s, 1, &c, &st), RD_OK);
    assert_int_equal(c.device, RD_DEVICE_CPU);
    assert_string_equal(c.text, "the CPU, because no GPU can be used: no driver");
    assert_string_equal(rd_device_name(RD_DEVICE_CPU), "cpu");
}

static void test_cuda_is_not_there(void **state)
{
    (void)state;
    rd_gpu_seat s[] = {seat_of(0, 0, 1, 0), seat_of(1, 0, 0, 0), seat_of(2, 0, 0, 0)};
    rd_gpu_choice c;
    rd_status st = {0};
    assert_int_equal(rd_gpu_choose(RD_DEVICE_CUDA, false, false, s, 1, &c, &st), RD_EENV);
    assert_non_null(strstr(st.msg, "make CUDA=1"));
    st = (rd_status){0};
    assert_int_equal(rd_gpu_choose(RD_DEVICE_CUDA, false, true, s + 1, 1, &c, &st), RD_EENV);
    assert_non_null(strstr(st.msg, "no GPU that can be used: no driver"));
    for (rd_device d = RD_DEVICE_AUTO; d <= RD_DEVICE_CUDA; d += 2) {
        st = (rd_status){0};
        assert_int_equal(rd_gpu_choose(d, true, true, s, 3, &c, &st), RD_EENV);
        assert_non_null(strstr(
            st.msg,
            "rank 1 on 'node01' has no GPU (no driver), while rank 0 on 'node00' has one: 1 of 3"));
    }
}

/* A card, and a library that is not there. */
static void test_library_is_not_there(void **state)
{
    (void)state;
    rd_gpu_choice c;
    rd_status st = {0};
    rd_gpu_seat s[] = {seat_of(0, 0, 1, 0), seat_of(1, 0, 1, 0)};
    const char *why =
        "cuDNN is needed and cannot be loaded (libcudnn.so.9: no such file); install cuDNN 9";
    snprintf(s[0].why, sizeof s[0].why, "%s", why);
    assert_int_equal(rd_gpu_choose(RD_DEVICE_AUTO, false, true, s, 1, &c, &st), RD_OK);
    assert_int_equal(c.device, RD_DEVICE_CPU);
    assert_string_equal(c.text,
                        "the CPU, because NVIDIA H100 80GB HBM3 cannot be used: cuDNN is needed "
                        "and cannot be loaded (libcudnn.so.9: no such "
                        "file); install cuDNN 9");
    assert_int_equal(rd_gpu_choose(RD_DEVICE_CUDA, false, true, s, 1, &c, &st), RD_EENV);
    assert_non_null(strstr(
        st.msg,
        "\"device\" is \"cuda\", and NVIDIA H100 80GB HBM3 cannot be used: cuDNN is needed"));
    assert_non_null(strstr(st.msg, "install cuDNN 9"));
    st = (rd_status){0};
    assert_int_equal(rd_gpu_choose(RD_DEVICE_AUTO, false, true, s, 2, &c, &st), RD_EENV);
    assert_non_null(strstr(st.msg, "rank 0 on 'node00' cannot use its GPU (cuDNN is needed and"));
    assert_non_null(strstr(st.msg, "while rank 1 on 'node01' has one: 1 of 2"));
    snprintf(s[1].why, sizeof s[1].why, "%s", why);
    st = (rd_status){0};
    assert_int_equal(rd_gpu_choose(RD_DEVICE_AUTO, false, true, s, 2, &c, &st), RD_OK);
    assert_int_equal(c.device, RD_DEVICE_CPU);
}

static void test_one_each(void **state)
{
    (void)state;
    rd_gpu_choice c;
    rd_status st = {0};
    rd_gpu_seat s[] = {seat_of(0, 0, 2, 0), seat_of(0, 1, 2, 1), seat_of(1, 0, 1, 0),
                       seat_of(1, 1, 1, 1)};
    assert_int_equal(rd_gpu_choose(RD_DEVICE_AUTO, false, true, s, 1, &c, &st), RD_OK);
    assert_string_equal(c.text, "NVIDIA H100 80GB HBM3 on node00");
    assert_int_equal(rd_gpu_choose(RD_DEVICE_AUTO, false, true, s, 2, &c, &st), RD_OK);
    assert_string_equal(c.text, "2 x NVIDIA H100 80GB HBM3 on node00, one rank each");
    /* The launcher of the second host shows each rank one GPU: index 0 twice, two uuids. */
    assert_int_equal(rd_gpu_choose(RD_DEVICE_CUDA, false, true, s, 4, &c, &st), RD_OK);
    assert_int_equal(c.device, RD_DEVICE_CUDA);
    assert_false(c.shared);
    assert_string_equal(c.text, "4 x NVIDIA H100 80GB HBM3 on 2 hosts, one rank each");
    snprintf(s[3].name, sizeof s[3].name, "NVIDIA A100");
    assert_int_equal(rd_gpu_choose(RD_DEVICE_CUDA, false, true, s, 4, &c, &st), RD_OK);
    assert_string_equal(c.text, "4 x NVIDIA H100 80GB HBM3 and others on 2 hosts, one rank each");
}

static void test_shared(void **state)
{
    (void)state;
    rd_gpu_choice c;
    rd_status st = {0};
    rd_gpu_seat s[3] = {seat_of(0, 0, 2, 0), seat_of(0, 1, 2, 1), seat_of(0, 2, 2, 0)};
    assert_int_equal(rd_gpu_choose(RD_DEVICE_AUTO, false, true, s, 3, &c, &st), RD_EENV);
    assert_string_equal(
        st.msg, "two ranks on one GPU:\n"
                "  rank 0    node00  GPU 0  GPU-0-0\n"
                "  rank 2    node00  GPU 0  GPU-0-0\n"
                "start at most 2 ranks on 'node00', or show the ranks more GPUs "
                "(CUDA_VISIBLE_DEVICES; srun --gpus-per-node); "
                "\"allow_shared_gpu\": true lets them share, \"device\": \"cpu\" does without");
    st = (rd_status){0};
    assert_int_equal(rd_gpu_choose(RD_DEVICE_AUTO, true, true, s, 3, &c, &st), RD_OK);
    assert_true(c.shared);
    assert_string_equal(c.text, "2 x NVIDIA H100 80GB HBM3 on node00, up to 2 ranks on each");
}

/* Two containers on one machine have different host names, and see the same GPU. */
static void test_containers(void **state)
{
    (void)state;
    rd_gpu_choice c;
    rd_status st = {0};
    rd_gpu_seat s[2] = {seat_of(0, 0, 1, 0), seat_of(1, 0, 1, 0)};
    memcpy(s[1].uuid, s[0].uuid, sizeof s[1].uuid);
    assert_int_equal(rd_gpu_choose(RD_DEVICE_AUTO, false, true, s, 2, &c, &st), RD_EENV);
    assert_string_equal(
        st.msg, "two ranks on one GPU, which several hosts have, as containers on one machine do:\n"
                "  rank 0    node00  GPU 0  GPU-0-0\n"
                "  rank 1    node01  GPU 0  GPU-0-0\n"
                "show each of them other GPUs (CUDA_VISIBLE_DEVICES; docker run --gpus device=0); "
                "\"allow_shared_gpu\": true lets them share, \"device\": \"cpu\" does without");
    st = (rd_status){0};
    assert_int_equal(rd_gpu_choose(RD_DEVICE_AUTO, true, true, s, 2, &c, &st), RD_OK);
    assert_true(c.shared);
}

/* Ranks that see one GPU each: NCCL cannot use NVLink between them. */
static void test_hidden(void **state)
{
    (void)state;
    rd_gpu_choice c;
    rd_status st = {0};
    rd_gpu_seat s[2] = {seat_of(0, 0, 1, 0), seat_of(0, 1, 1, 1)};
    assert_int_equal(rd_gpu_choose(RD_DEVICE_AUTO, false, true, s, 2, &c, &st), RD_OK);
    assert_true(c.hidden && !c.shared);
    assert_int_equal(rd_gpu_choose(RD_DEVICE_AUTO, false, true, s, 1, &c, &st), RD_OK);
    assert_false(c.hidden);
    s[1].host_index = 1; /* one GPU on each host */
    assert_int_equal(rd_gpu_choose(RD_DEVICE_AUTO, false, true, s, 2, &c, &st), RD_OK);
    assert_false(c.hidden);
    s[0] = seat_of(0, 0, 2, 0), s[1] = seat_of(0, 1, 2, 1);
    assert_int_equal(rd_gpu_choose(RD_DEVICE_AUTO, false, true, s, 2, &c, &st), RD_OK);
    assert_false(c.hidden);
}

/* MIG instances of one GPU have different UUIDs, and NCCL takes them for one GPU. */
static void test_instances(void **state)
{
    (void)state;
    rd_gpu_choice c;
    rd_status st = {0};
    rd_gpu_seat s[2] = {seat_of(0, 0, 1, 0), seat_of(0, 1, 1, 1)};
    for (int i = 0; i < 2; i++) {
        snprintf(s[i].uuid, sizeof s[i].uuid, "MIG-%d", i);
        snprintf(s[i].pci, sizeof s[i].pci, "0000:17:00.0");
    }
    assert_int_equal(rd_gpu_choose(RD_DEVICE_AUTO, false, true, s, 2, &c, &st), RD_OK);
    assert_true(c.shared && !c.hidden);
    s[1].host_index = 1; /* another machine */
    assert_int_equal(rd_gpu_choose(RD_DEVICE_AUTO, false, true, s, 2, &c, &st), RD_OK);
    assert_false(c.shared);
    s[1] = s[0]; /* the launcher shows both the same instance */
    assert_int_equal(rd_gpu_choose(RD_DEVICE_AUTO, false, true, s, 2, &c, &st), RD_EENV);
    assert_non_null(strstr(st.msg, "CUDA_VISIBLE_DEVICES=MIG-... of each rank"));
}

static void test_table_is_cut(void **state)
{
    (void)state;
    rd_gpu_choice c;
    rd_status st = {0};
    static rd_gpu_seat s[64];
    for (int r = 0; r < 64; r++) {
        s[r] = seat_of(r / 32, r % 32, 1, 0);
        memset(s[r].host, 'h', sizeof s[r].host - 1);
        memset(s[r].uuid, r < 32 ? 'u' : 'v', sizeof s[r].uuid - 1);
    }
    assert_int_equal(rd_gpu_choose(RD_DEVICE_CUDA, false, true, s, 64, &c, &st), RD_EENV);
    assert_non_null(strstr(st.msg, "and 26 ranks more\nstart at most 1 rank on "));
    assert_non_null(strstr(st.msg, "does without"));
}

static void test_nccl(void **state)
{
    (void)state;
    char why[200] = "";
    assert_true(rd_nccl_serves(false, 21800, why));
    assert_true(rd_nccl_serves(true, 23000, why));
    assert_string_equal(why, "");
    assert_false(rd_nccl_serves(true, 22999, why));
    assert_false(rd_nccl_serves(true, 22809, why));
    assert_string_equal(why, "ranks share a GPU, which NCCL allows from 2.30 on; here is 2.28");
}

static void test_nccl_settings(void **state)
{
    (void)state;
    static const char ours[] = "NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_NVLS_ENABLE=0";
    char text[160];
    unsetenv("NCCL_ALGO");
    unsetenv("NCCL_PROTO");
    unsetenv("NCCL_NVLS_ENABLE");
    assert_false(rd_nccl_settings(text));
    assert_string_equal(text, ours);
    assert_string_equal(getenv("NCCL_PROTO"), "Simple");
    assert_false(
        rd_nccl_settings(text)); /* what it has put there itself is no choice of a person */
    setenv("NCCL_PROTO", "LL", 1);
    assert_true(rd_nccl_settings(text));
    assert_string_equal(text, "NCCL_ALGO=Ring NCCL_PROTO=LL NCCL_NVLS_ENABLE=0");
    assert_string_equal(getenv("NCCL_PROTO"), "LL");
}

static void test_batch(void **state)
{
    (void)state;
    const uint64_t G = (uint64_t)1 << 30;
    /* 10 GiB fixed; 100 samples take 80: 72 - 10 = 62 GiB of room, 77 samples. */
    assert_int_equal(rd_gpu_batch_that_fits(100, 10 * G, 70 * G, 20 * G, 10 * G), 72);
    assert_int_equal(rd_gpu_batch_that_fits(10, 10 * G, 70 * G, 20 * G, 10 * G), 7);
    assert_int_equal(rd_gpu_batch_that_fits(100, 79 * G, 79 * G, 20 * G, 1 * G), 0);
    assert_int_equal(rd_gpu_batch_that_fits(64, 1 * G, 2 * G, 1 * G, 70 * G), 56);
    assert_int_equal(rd_gpu_batch_that_fits(1, 1 * G, 2 * G, 80 * G, 70 * G), 0);
    assert_int_equal(rd_gpu_batch_that_fits(0, 0, 0, 0, 0), 0);
}

RD_TESTS("gpu_choose", TEST(test_index), TEST(test_cpu), TEST(test_cuda_is_not_there),
         TEST(test_one_each), TEST(test_shared), TEST(test_containers), TEST(test_hidden),
         TEST(test_instances), TEST(test_table_is_cut), TEST(test_batch),
         TEST(test_library_is_not_there), TEST(test_nccl), TEST(test_nccl_settings))
