/* doctor.c -- rules of the doctor over made-up facts, and the small readers below them. */
#include "../../runner/doctor/doctor_impl.h"
#include "rd/program.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof(a)[0]))

/* A host as the agents describe it, with every fact in order. */
static json_t *host(const char *name, const char *addr)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:s, s:f, "
                     "s:[{s:s, s:s, s:i, s:b, "
                     "s:b}, {s:s, s:s, s:i, s:b, s:b}], s:{}}",
                     "host", name, "listed", name, "machine", name, "versions", "run_dist 1\n",
                     "program", "5 bytes", "mpi", "Open MPI 4.1.4", "ranks", 2, "shm_free", 1e9,
                     "shm_total", 1e9, "memory", 8e9, "memlock", -1.0, "processors", 4.0, "tmpdir",
                     "/tmp", "tmp_free", 1e9, "nets", "name", "lo", "addr", "127.0.0.1", "prefix",
                     8, "up", 1, "loopback", 1, "name", "eth0", "addr", addr, "prefix", 24, "up", 1,
                     "loopback", 0, "mca");
}

static json_t *two_hosts(void)
{
    json_t *hosts = json_array();
    json_array_append_new(hosts, host("node7", "10.0.0.7"));
    json_array_append_new(hosts, host("node8", "10.0.0.8"));
    return hosts;
}

static void set_mca(json_t *hosts, const char *name, const char *value)
{
    size_t i;
    json_t *h;
    json_array_foreach(hosts, i, h)
    {
        json_object_set_new(json_object_get(h, "mca"), name,
                            json_pack("{s:s, s:s}", "value", value, "source", "test"));
    }
}

static void add_net(json_t *hosts, int which, const char *name, const char *addr)
{
    json_array_append_new(json_object_get(json_array_get(hosts, (size_t)which), "nets"),
                          json_pack("{s:s, s:s, s:i, s:b, s:b}", "name", name, "addr", addr,
                                    "prefix", 16, "up", 1, "loopback", 0));
}

/* Changes of the facts, by name; what follows must be found. */
static void no_change(json_t *h)
{
    (void)h;
}
/* A GPU on each, of a program that uses them or not. */
static void one_gpu(json_t *h, const char *versions)
{
    for (size_t i = 0; i < 2; i++) {
        json_object_set_new(json_array_get(h, i), "gpus",
                            json_pack("[{s:s, s:s, s:f}]", "name", "H100", "uuid", "GPU-1",
                                      "memory", 85899345920.0));
        json_object_set_new(json_array_get(h, i), "versions", json_string(versions));
    }
}
static void few_gpus(json_t *h)
{
    one_gpu(h, "run_dist 1\nbackends: cpu, cuda\n");
}
static void unused_gpus(json_t *h)
{
    one_gpu(h, "run_dist 1\nbackends: cpu\n");
}
static void same_name(json_t *h)
{
    json_object_set_new(json_array_get(h, 1), "host", json_string("node7"));
}
static void listed_twice(json_t *h)
{
    same_name(h);
    json_object_set_new(json_array_get(h, 1), "machine", json_string("node7"));
}
static void docker_on_both(json_t *h)
{
    add_net(h, 0, "docker0", "172.17.0.1");
    add_net(h, 1, "docker0", "172.17.0.1");
}
static void docker_left_out(json_t *h)
{
    docker_on_both(h);
    set_mca(h, "btl_tcp_if_exclude", "lo,docker0");
}
static void docker_by_network(json_t *h)
{
    docker_on_both(h);
    set_mca(h, "btl_tcp_if_include", "10.0.0.0/24");
}
static void lo_forgotten(json_t *h)
{
    set_mca(h, "btl_tcp_if_exclude", "docker0");
}
static void lo_by_network(json_t *h)
{
    set_mca(h, "btl_tcp_if_exclude", "127.0.0.0/8,docker0");
}
static void both_lists(json_t *h)
{
    set_mca(h, "btl_tcp_if_exclude", "lo");
    set_mca(h, "btl_tcp_if_include", "eth0");
}
static void one_has_ib0(json_t *h)
{
    add_net(h, 0, "ib0", "10.9.0.7");
    set_mca(h, "btl_tcp_if_include", "eth0,ib0");
}
static void wrong_network(json_t *h)
{
    set_mca(h, "btl_tcp_if_include", "192.168.0.0/16");
}
static void other_program(json_t *h)
{
    json_object_set_new(json_array_get(h, 1), "program", json_string("6 bytes"));
}
static void two_paths(json_t *h)
{
    json_object_set_new(json_array_get(h, 0), "path", json_string("/usr/bin/run_dist"));
    json_object_set_new(json_array_get(h, 1), "path", json_string("/opt/run_dist"));
}
static void two_libraries(json_t *h)
{
    for (size_t i = 0; i < 2; i++) {
        json_t *one = json_array_get(h, i);
        json_object_set_new(
            one, "versions",
            json_string("run_dist 1\nJansson 2.14\noneDNN 3.0\nbackends: cpu, cuda\n"));
        json_object_set_new(one, "cuda", json_string("CUDA 13.0"));
    }
}
static void other_library(json_t *h)
{
    two_libraries(h);
    json_object_set_new(json_array_get(h, 1), "versions",
                        json_string("run_dist 1\nJansson 2.14\noneDNN 2.6.3\nbackends: cpu\n"));
}
static void one_library_more(json_t *h)
{
    json_object_set_new(json_array_get(h, 1), "versions", json_string("run_dist 1\nPCRE2 10.42\n"));
}
static void other_cuda(json_t *h)
{
    two_libraries(h);
    json_object_set_new(json_array_get(h, 1), "cuda", json_string("CUDA 12.8"));
}
static void other_mpi(json_t *h)
{
    json_object_set_new(json_array_get(h, 1), "mpi", json_string("Open MPI 5.0.1"));
}
static void shm_small(json_t *h)
{
    json_object_set_new(json_array_get(h, 1), "shm_free", json_real(67108864.0));
}
static void shm_tiny(json_t *h)
{
    json_object_set_new(json_array_get(h, 1), "shm_free", json_real(8388608.0));
}
static void memory_small(json_t *h)
{
    json_object_set_new(json_array_get(h, 1), "memory", json_real(5e8));
}
static void tmpdir_long(json_t *h)
{
    json_object_set_new(json_array_get(h, 0), "tmpdir",
                        json_string("/a/very/long/path/that/some/batch/system/made/for/this/job/"
                                    "alone/and/for/nobody/else"));
}
static void clock_off(json_t *h, double ahead)
{
    json_object_set_new(json_array_get(h, 1), "clock_ahead_s", json_real(ahead));
    json_object_set_new(json_array_get(h, 1), "clock_error_s", json_real(0.2));
}
static void clock_near(json_t *h)
{
    clock_off(h, 1.1);
}
static void clock_2s(json_t *h)
{
    clock_off(h, -2.5);
}
static void clock_134s(json_t *h)
{
    clock_off(h, 134.2);
}
static void orphan(json_t *h)
{
    json_object_set_new(json_array_get(h, 1), "daemons",
                        json_pack("[{s:s, s:i, s:f}]", "name", "orted", "pid", 3608, "age_s",
                                  720.0));
}

/* Lists of btl: one host with two ranks, or two hosts. */
#define BTL(name, list, hosts)                     \
    static void name(json_t *h)                    \
    {                                              \
        if ((hosts) == 1) json_array_remove(h, 1); \
        set_mca(h, "btl", list);                   \
    }
BTL(btl_openib_one, "openib,self", 1)
BTL(btl_openib_two, "openib,self", 2)
BTL(btl_vader_one, "self,vader", 1)
BTL(btl_vader_two, "self,vader", 2)
BTL(btl_tcp_one, "tcp,self", 1)
BTL(btl_all_two, "tcp,vader,self", 2)
BTL(btl_no_self, "vader,tcp", 1)
BTL(btl_self_alone, "self", 1)
BTL(btl_sm, "self,sm,tcp", 1)
BTL(btl_twice, "^openib,^tcp", 1)
BTL(btl_inside, "tcp,^vader,self", 1)
BTL(btl_unknown, "self,vader,tcp,nosuch", 2)
BTL(btl_special, "self,ofi", 2)
BTL(btl_empty, "", 2)
BTL(btl_not_openib, "^openib", 2)
BTL(btl_not_tcp_one, "^tcp", 1)
BTL(btl_not_tcp_two, "^openib,tcp", 2)
BTL(btl_not_self, "^self", 1)
BTL(btl_not_vader, "^vader", 1)
BTL(btl_not_both, "^vader,tcp", 1)
static void btl_sm_five(json_t *h)
{
    btl_sm(h);
    json_object_set_new(json_array_get(h, 0), "mpi", json_string("Open MPI 5.0.3"));
}
static void btl_one_rank(json_t *h)
{
    btl_self_alone(h);
    json_object_set_new(json_array_get(h, 0), "ranks", json_integer(1));
}
static void btl_ucx(json_t *h)
{
    btl_openib_two(h);
    set_mca(h, "pml", "ucx");
}
static void btl_ob1(json_t *h)
{
    btl_openib_two(h);
    set_mca(h, "pml", "ob1");
}
static void btl_in_file(json_t *h)
{
    json_object_set_new(json_object_get(json_array_get(h, 1), "mca"), "btl",
                        json_pack("{s:s, s:s}", "value", "self", "source", "/home/a/mca.conf"));
}

static struct row {
    const char *name;
    void (*change)(json_t *hosts);
    void (*check)(doc_report *r, const json_t *hosts);
    int ok, warn, fail;
    const char *text; /* in the first line, or in its remedy */
} rows[] = {
    {"names in order", no_change, doc_check_names, 1, 0, 0, "2 hosts, each with its own name"},
    {"one name for two", same_name, doc_check_names, 0, 0, 1,
     "node7 and node8 both call themselves 'node7'"},
    {"a host listed twice", listed_twice, doc_check_names, 0, 1, 0, "one machine"},
    {"addresses in order", no_change, doc_check_addresses, 1, 0, 0, "no address is on two hosts"},
    {"docker0 on both", docker_on_both, doc_check_addresses, 0, 0, 1,
     "mpirun --mca btl_tcp_if_include 10.0.0.0/24 --mca oob_tcp_if_include 10.0.0.0/24"},
    {"docker0 named", docker_on_both, doc_check_addresses, 0, 0, 1,
     "172.17.0.1 (docker0) exists on several hosts: node7, node8"},
    {"docker0 left out", docker_left_out, doc_check_addresses, 1, 0, 0, "left out by the settings"},
    {"docker0 left out by network", docker_by_network, doc_check_addresses, 1, 0, 0,
     "left out by the settings"},
    {"interfaces in order", no_change, doc_check_interfaces, 1, 0, 0,
     "node7: eth0 (10.0.0.7/24); node8: eth0 (10.0.0.8/24)"},
    {"lo not excluded", lo_forgotten, doc_check_interfaces, 0, 0, 1,
     "lo is missing in btl_tcp_if_exclude (docker0, from test)"},
    {"lo excluded by network", lo_by_network, doc_check_interfaces, 1, 0, 0, "eth0"},
    {"include and exclude", both_lists, doc_check_interfaces, 0, 0, 1, "are both set"},
    {"ib0 on one host", one_has_ib0, doc_check_interfaces, 0, 0, 1,
     "the interface ib0 of btl_tcp_if_include is missing on node8"},
    {"a network on no host", wrong_network, doc_check_interfaces, 0, 0, 2,
     "the network 192.168.0.0/16 of btl_tcp_if_include is missing on node7"},
    {"btl not set", no_change, doc_check_btl, 1, 0, 0, "not set"},
    {"btl empty", btl_empty, doc_check_btl, 1, 0, 0, "not set"},
    {"openib,self on a host", btl_openib_one, doc_check_btl, 0, 0, 1,
     "btl is 'openib,self' on node7 (test): ranks of a host need vader (or tcp)"},
    {"openib,self on two", btl_openib_two, doc_check_btl, 0, 0, 1,
     "ranks of several hosts need tcp"},
    {"openib,self with ob1", btl_ob1, doc_check_btl, 0, 0, 1, "ranks of several hosts need tcp"},
    {"openib,self with ucx", btl_ucx, doc_check_btl, 1, 0, 0,
     "has no effect: pml ucx sends the messages"},
    {"self,vader on a host", btl_vader_one, doc_check_btl, 1, 0, 0, "'self,vader' leaves what"},
    {"self,vader on two", btl_vader_two, doc_check_btl, 0, 0, 1, "ranks of several hosts need tcp"},
    {"tcp,self on a host", btl_tcp_one, doc_check_btl, 0, 1, 0, "slower than vader"},
    {"tcp,vader,self", btl_all_two, doc_check_btl, 1, 0, 0, "leaves what the ranks need"},
    {"btl without self", btl_no_self, doc_check_btl, 0, 0, 1, "every rank needs self in it"},
    {"self alone", btl_self_alone, doc_check_btl, 0, 0, 1, "ranks of a host need vader (or tcp)"},
    {"self alone for a rank", btl_one_rank, doc_check_btl, 1, 0, 0, "leaves what the ranks need"},
    {"sm in Open MPI 4", btl_sm, doc_check_btl, 0, 0, 1, "sm, which is called vader there"},
    {"sm in Open MPI 5", btl_sm_five, doc_check_btl, 1, 0, 0, "leaves what the ranks need"},
    {"two signs", btl_twice, doc_check_btl, 0, 0, 1, "one '^' only, in front of the whole list"},
    {"a sign inside", btl_inside, doc_check_btl, 0, 0, 1, "one '^' only"},
    {"an unknown btl", btl_unknown, doc_check_btl, 0, 1, 0, "lacks a name of the list"},
    {"other hardware", btl_special, doc_check_btl, 1, 0, 0, "leaves what the ranks need"},
    {"^openib", btl_not_openib, doc_check_btl, 1, 0, 0, "'^openib' leaves what the ranks need"},
    {"^tcp on a host", btl_not_tcp_one, doc_check_btl, 1, 0, 0, "leaves what the ranks need"},
    {"^openib,tcp on two", btl_not_tcp_two, doc_check_btl, 0, 0, 1, "several hosts need tcp"},
    {"^self", btl_not_self, doc_check_btl, 0, 1, 0, "it leaves out self"},
    {"^vader", btl_not_vader, doc_check_btl, 0, 1, 0, "slower than vader"},
    {"^vader,tcp", btl_not_both, doc_check_btl, 0, 0, 1, "ranks of a host need vader (or tcp)"},
    {"btl in a file of one host", btl_in_file, doc_check_btl, 0, 0, 1,
     "remove btl from /home/a/mca.conf"},
    {"one program", no_change, doc_check_program, 2, 0, 0, "the same everywhere"},
    {"its path", two_paths, doc_check_program, 2, 0, 0,
     "/usr/bin/run_dist, on node8 /opt/run_dist: run_dist 1; 5 bytes; the same everywhere"},
    {"its libraries", two_libraries, doc_check_program, 2, 0, 0,
     "Jansson 2.14, oneDNN 3.0, CUDA 13.0; the same everywhere"},
    {"another library", other_library, doc_check_program, 0, 0, 1,
     "node8 has 'oneDNN 2.6.3', node7 has 'oneDNN 3.0'"},
    {"a library more", one_library_more, doc_check_program, 0, 0, 1,
     "node8 has 'PCRE2 10.42', node7 has ''"},
    {"another CUDA", other_cuda, doc_check_program, 0, 0, 1,
     "the version of CUDA's libraries differs: node8 has 'CUDA 12.8'"},
    {"another program", other_program, doc_check_program, 0, 0, 1,
     "the program file differs: node8 has '6 bytes', node7 has '5 bytes'"},
    {"another MPI", other_mpi, doc_check_program, 0, 0, 1,
     "the MPI library differs: node8 has 'Open MPI 5.0.1'"},
    {"space in order", no_change, doc_check_space, 4, 0, 0, "/dev/shm has 954 MiB free or more"},
    {"docker's /dev/shm", shm_small, doc_check_space, 3, 1, 0, "/dev/shm of node8 has 64 MiB free"},
    {"a tiny /dev/shm", shm_tiny, doc_check_space, 3, 0, 1, "--shm-size=1g"},
    {"little memory", memory_small, doc_check_space, 3, 1, 0, ""},
    {"a long TMPDIR", tmpdir_long, doc_check_space, 3, 1, 0, ""},
    {"clocks that may be equal", clock_near, doc_check_clocks, 1, 0, 0, ""},
    {"a clock behind", clock_2s, doc_check_clocks, 0, 1, 0,
     "the clock of node8 is 2.3 s behind that of node7"},
    {"a clock far ahead", clock_134s, doc_check_clocks, 0, 0, 1,
     "the clock of node8 is 134.0 s ahead of that of node7"},
    {"a daemon is left", orphan, doc_check_left, 0, 1, 0,
     "orted of node8, pid 3608, has been running for 12 min"},
    {"more ranks than GPUs", few_gpus, doc_check_gpus, 1, 2, 0,
     "2 ranks of node7 have 1 GPU: a training refuses that"},
    {"GPUs of another program", unused_gpus, doc_check_gpus, 1, 0, 0, "2 GPUs, not used"},
    {"no daemon is left", no_change, doc_check_left, 1, 0, 0, ""},
};

static void check_row(void **state)
{
    const struct row *row = *state;
    rd_status st = {0};
    doc_report r;
    json_t *hosts = two_hosts();
    assert_int_equal(doc_report_init(&r, &st), RD_OK);
    row->change(hosts);
    row->check(&r, hosts);
    const json_t *first = json_array_get(r.checks, 0),
                 *last = json_array_get(r.checks, json_array_size(r.checks) - 1);
    if (r.n[DOC_OK] != row->ok || r.n[DOC_WARN] != row->warn || r.n[DOC_FAIL] != row->fail)
        doc_print_checks(&r, stderr);
    assert_int_equal(r.n[DOC_OK], row->ok);
    assert_int_equal(r.n[DOC_WARN], row->warn);
    assert_int_equal(r.n[DOC_FAIL], row->fail);
    if (!strstr(doc_text(first, "text"), row->text) && !strstr(doc_text(last, "text"), row->text) &&
        !strstr(doc_text(first, "remedy"), row->text))
        fail_msg("'%s' is not in '%s' or '%s'", row->text, doc_text(first, "text"),
                 doc_text(first, "remedy"));
    assert_string_equal(doc_verdict(&r), row->fail ? "failure" : row->warn ? "warning" : "ok");
    const bool differs = row->check == doc_check_program && row->fail;
    assert_int_equal(doc_result(&r, &st), !row->fail ? RD_OK : differs ? RD_EDISAGREE : RD_EENV);
    doc_report_release(&r);
    json_decref(hosts);
}

static void test_links(void **state)
{
    static const struct {
        double rate[4];
        int level;
        const char *text;
    } cases[] = {{{0, 9.4, 9.1, 0}, DOC_OK, "slowest link node8 -> node7, 9.10 Gbit/s"},
                 {{0, 0.94, 0.95, 0},
                  DOC_WARN,
                  "node7 -> node8 carries 0.94 Gbit/s, the level of 1 Gbit/s Ethernet"},
                 {{0, 8.0, 0.095, 0},
                  DOC_WARN,
                  "node8 -> node7 carries 0.10 Gbit/s, the level of 100 Mbit/s Ethernet"},
                 {{0, 0, 0, 0}, DOC_WARN, "could not be measured"}};
    (void)state;
    json_t *hosts = two_hosts();
    for (int i = 0; i < COUNT(cases); i++) {
        rd_status st = {0};
        doc_report r;
        assert_int_equal(doc_report_init(&r, &st), RD_OK);
        doc_check_links(&r, hosts, cases[i].rate);
        assert_int_equal(r.n[cases[i].level], 1);
        assert_non_null(strstr(doc_text(json_array_get(r.checks, 0), "text"), cases[i].text));
        doc_report_release(&r);
    }
    json_decref(hosts);
}

static void test_cpus(void **state)
{
    static const struct {
        const char *cores[2];
        int warnings;
        const char *text;
    } cases[] = {{{"0-1", "2-3"}, 0, "no rank shares"},
                 {{"0", "1"}, 1, "bound to one CPU"},
                 {{"2", "2"}, 1, "2 ranks of node7 share 1 CPU"}};
    (void)state;
    for (int i = 0; i < COUNT(cases); i++) {
        rd_status st = {0};
        doc_report r;
        json_t *hosts = json_pack("[o]", host("node7", "10.0.0.7"));
        json_t *ranks = json_pack("[{s:i, s:s}, {s:i, s:s}]", "host_index", 0, "cores",
                                  cases[i].cores[0], "host_index", 0, "cores", cases[i].cores[1]);
        assert_int_equal(doc_report_init(&r, &st), RD_OK);
        doc_check_cpus(&r, hosts, ranks);
        assert_int_equal(r.n[DOC_WARN], cases[i].warnings);
        assert_non_null(strstr(doc_text(json_array_get(r.checks, 0), "text"), cases[i].text));
        doc_report_release(&r);
        json_decref(hosts);
        json_decref(ranks);
    }
}

static void test_host_lists(void **state)
{
    static const struct {
        const char *list;
        int hosts, slots; /* 0: an error */
        const char *says;
    } cases[] = {{"node1:2,node2:4", 2, 6, ""},
                 {"node1", 1, 1, ""},
                 {"me@10.0.0.7:2", 1, 2, ""},
                 {"a:2, b:2", 0, 0, ""},
                 {"a:two", 0, 0,
                  "the slots of 'a:two' must be a number, 1 .. 4096, not 'two'; write a:4 for four "
                  "ranks there"},
                 {"b:2,me@a:0", 0, 0,
                  "the slots of 'me@a:0' must be a number, 1 .. 4096, not '0'; write me@a:4 for "
                  "four ranks there"},
                 {"a:4097", 0, 0, "1 .. 4096, not '4097'; write a:4 "},
                 {"a:", 0, 0, "1 .. 4096, not ''; write a:4 "},
                 {":0", 0, 0, "an entry without a name"},
                 {"", 0, 0, ""},
                 {"a:2,,b", 0, 0, ""},
                 {"-oProxyCommand=x:2", 0, 0, ""},
                 {"a;b", 0, 0, "'a;b' is not a host name"},
                 {"-lroot@a", 0, 0, "'-lroot@a' is not a host name"},
                 {"me;x@a", 0, 0, "'me;x@a' is not a host name"},
                 {"a\x1b[2J", 0, 0, "'a\\u001b[2J' is not a host name"},
                 {"[fe80::1]:2", 0, 0, "'[fe80::1]:2' is an IPv6 address"},
                 {"a:99999999999999999999", 0, 0, "must be a number, 1 .. 4096"}};
    (void)state;
    for (int i = 0; i < COUNT(cases); i++) {
        rd_status st = {0};
        doc_hosts h;
        (void)doc_hosts_parse(cases[i].list, &h, &st);
        assert_int_equal(st.code, cases[i].hosts ? RD_OK : RD_EUSAGE);
        if (!strstr(st.msg, cases[i].says)) fail_msg("%s", st.msg);
        if (cases[i].hosts) {
            assert_int_equal(h.n, cases[i].hosts);
            assert_int_equal(h.slots, cases[i].slots);
        }
        doc_hosts_release(&h);
    }
}

static void test_host_file(void **state)
{
    char path[] = "/tmp/doctor_hosts.XXXXXX";
    const int fd = mkstemp(path);
    static const char text[] = "# all\nnode1 slots=2 user=me port=12345 # one\n\nnode2 slots=4\n";
    rd_status st = {0};
    doc_hosts h;
    (void)state;
    assert_true(fd >= 0 && write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1);
    assert_int_equal(doc_hosts_read(path, &h, &st), RD_OK);
    assert_int_equal(h.n, 2);
    assert_int_equal(h.slots, 6);
    assert_int_equal(h.at[0].port, 12345);
    assert_string_equal(h.at[0].user, "me");
    doc_hosts_release(&h);
    assert_int_equal(write(fd, "x speed=9\n", 10), 10);
    assert_int_equal(doc_hosts_read(path, &h, &st), RD_EUSAGE);
    assert_non_null(strstr(st.msg, ":5: 'speed=9' is not understood"));
    doc_hosts_release(&h);
    static const struct {
        const char *line, *says;
    } bad[] = {{"x slots=0\n", ":1: 'slots=0' must be a number, 1 .. 4096; write: name slots=2"},
               {"x slots=2x\n", "'slots=2x' must be"},
               {"x slots=100000\n", "'slots=100000' must be"},
               {"x slots=99999999999999999999\n", "must be a number, 1 .. 4096"},
               {"x max_slots=99999999999999999999\n", "must be a number, 1 .. 1000000"},
               {"x max-slots=0\n", "must be a number, 1 .. 1000000"},
               {"x user=-oProxyCommand=y\n", "'user=-oProxyCommand=y' is not a user's name"},
               {"x user=\n", "'user=' is not a user's name"},
               {"-x slots=1\n", ":1: '-x' is not a host name"},
               {"x slots=2 port=0\n", "'port=0' must be a number, 1 .. 65535"}};
    for (int i = 0; i < COUNT(bad); i++) {
        st = (rd_status){0};
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, bad[i].line, strlen(bad[i].line), 0), strlen(bad[i].line));
        assert_int_equal(doc_hosts_read(path, &h, &st), RD_EUSAGE);
        if (!strstr(st.msg, bad[i].says)) fail_msg("%s", st.msg);
        doc_hosts_release(&h);
    }
    (void)close(fd);
    (void)unlink(path);
}

static void test_line(void **state)
{
    rd_status st = {0};
    doc_hosts h;
    char **w;
    int n;
    rd_strbuf text = {0};
    (void)state;
    assert_int_equal(setenv("HOME", "/nonexistent", 1), 0);
    assert_int_equal(doc_hosts_parse("a:2,b:2", &h, &st), RD_OK);
    assert_int_equal(doc_line(&h, 12345, NULL, "10.0.0.0/24", true, &w, &n, &st), RD_OK);
    doc_line_text(w, n, &text);
    assert_non_null(
        strstr(rd_strbuf_str(&text),
               "mpirun --allow-run-as-root -np 4 -H a:2,b:2 --map-by slot --bind-to none"));
    assert_non_null(strstr(rd_strbuf_str(&text),
                           "'-p 12345' --mca btl_tcp_if_include 10.0.0.0/24"));
    doc_words_free(w, n);
    rd_strbuf_reset(&text);
    /* What the person says is not said again. */
    assert_int_equal(
        doc_line(&h, 0,
                 "-np 2 --bind-to core -mca btl_tcp_if_include eth0 -mca plm_rsh_args \"-p 7 -v\"",
                 "10.0.0.0/24", false, &w, &n, &st),
        RD_OK);
    doc_line_text(w, n, &text);
    assert_null(strstr(rd_strbuf_str(&text), "-np 4"));
    assert_null(strstr(rd_strbuf_str(&text), "--bind-to none"));
    assert_null(strstr(rd_strbuf_str(&text), "btl_tcp_if_include 10.0.0.0"));
    assert_non_null(strstr(rd_strbuf_str(&text), "plm_rsh_args '-p 7 -v'"));
    assert_int_equal(doc_line_ranks(w, n), 2);
    doc_words_free(w, n);
    rd_strbuf_release(&text);
    doc_hosts_release(&h);
}

/* A shell must read the printed line as the words that it was made of. */
static void test_line_in_a_shell(void **state)
{
    static char *words[] = {"mpirun", "a b",   "it's", "$HOME",  "`id`",  "a\\b", "",
                            "x=1",    "~",     "#",    "a\nb",   "[a-z]", "!",    "a;b",
                            "\"q\"",  "''",    "\t",   "a'\"'b", "{a,b}", "*",    "\xc3\xa9",
                            "-x",     "a:2,b", "1>2",  "%s\\n"};
    const int n = sizeof words / sizeof *words;
    rd_strbuf line = {0}, want = {0};
    char got[1000], **again;
    int m;
    rd_status st = {0};
    (void)state;
    rd_strbuf_puts(&line, "printf '%s|' ");
    doc_line_text(words, n, &line);
    for (int i = 0; i < n; i++) rd_strbuf_printf(&want, "%s|", words[i]);
    FILE *shell = popen(rd_strbuf_str(&line), "r");
    assert_non_null(shell);
    got[fread(got, 1, sizeof got - 1, shell)] = '\0';
    assert_int_equal(pclose(shell), 0);
    assert_string_equal(got, rd_strbuf_str(&want));
    must_do(doc_words(rd_strbuf_str(&line), &again, &m, &st),
            &st); /* --mpirun_args reads it, too */
    assert_int_equal(m, n + 2);
    for (int i = 0; i < n; i++) assert_string_equal(again[i + 2], words[i]);
    doc_words_free(again, m);
    rd_strbuf_release(&line);
    rd_strbuf_release(&want);
}

static void check_ports(const char *args, const char *which, int want_first, int want_last)
{
    int first = 0, last = 0;
    json_t *mca = doc_mca_new(args);
    assert_int_equal(doc_mca_ports(mca, which, &first, &last), want_first > 0);
    if (want_first > 0) {
        assert_int_equal(first, want_first);
        assert_int_equal(last, want_last);
    }
    json_decref(mca);
}

static void test_odd_ports(void **state)
{
    (void)state;
    check_ports("-mca btl_tcp_port_min_v4 46050 -mca btl_tcp_port_range_v4 2147483647", "btl_tcp",
                46050, 65535);
    check_ports("-mca btl_tcp_port_min_v4 46050 -mca btl_tcp_port_range_v4 99999999999999999999",
                "btl_tcp", 46050, 65535);
    check_ports("-mca btl_tcp_port_min_v4 46050 -mca btl_tcp_port_range_v4 -5", "btl_tcp", 0, 0);
    check_ports("-mca btl_tcp_port_min_v4 70000", "btl_tcp", 0, 0);
    check_ports("-mca btl_tcp_port_min_v4 4294967297", "btl_tcp", 0, 0);
    check_ports("-mca oob_tcp_dynamic_ipv4_ports 46000", "oob_tcp", 46000, 46000);
    check_ports("-mca oob_tcp_dynamic_ipv4_ports 46000-,47000", "oob_tcp", 46000, 46000);
    check_ports("-mca oob_tcp_dynamic_ipv4_ports 46000-46010,47000", "oob_tcp", 46000, 46010);
    check_ports("-mca oob_tcp_dynamic_ipv4_ports 46000-99999999999", "oob_tcp", 0, 0);
    check_ports("-mca oob_tcp_dynamic_ipv4_ports x", "oob_tcp", 0, 0);
}

static void test_settings(void **state)
{
    int first, last;
    (void)state;
    json_t *mca = doc_mca_new("-mca btl_tcp_port_min_v4 46050 --mca btl_tcp_port_range_v4 100 -mca "
                              "oob_tcp_dynamic_ipv4_ports 46000-46049 -mca pml 'ob1'");
    assert_string_equal(doc_mca(mca, "pml"), "ob1");
    assert_true(doc_mca_ports(mca, "btl_tcp", &first, &last));
    assert_int_equal(first, 46050);
    assert_int_equal(last, 46149);
    assert_true(doc_mca_ports(mca, "oob_tcp", &first, &last));
    assert_int_equal(first, 46000);
    assert_int_equal(last, 46049);
    json_decref(mca);
    mca = doc_mca_new(NULL);
    assert_false(doc_mca_ports(mca, "btl_tcp", &first, &last));
    json_decref(mca);
    /* The environment of mpirun counts more than that of a login, its line more than both. */
    assert_int_equal(setenv("OMPI_MCA_btl", "tcp", 1), 0);
    json_t *launcher = json_pack("{s:{s:s, s:s}}", "btl", "value", "vader", "source",
                                 "environment");
    json_t *here = doc_mca_environment(), *there = doc_mca_with(launcher, ""),
           *line = doc_mca_with(launcher, "-mca btl self");
    assert_string_equal(doc_mca(here, "btl"), "tcp");
    assert_string_equal(doc_mca(there, "btl"), "vader");
    assert_string_equal(doc_mca_source(there, "btl"), "environment");
    assert_string_equal(doc_mca(line, "btl"), "self");
    assert_string_equal(doc_mca_source(line, "btl"), "mpirun's line");
    assert_int_equal(unsetenv("OMPI_MCA_btl"), 0);
    json_decref(launcher);
    json_decref(here);
    json_decref(there);
    json_decref(line);
}

#define RULER "----------------------------------------\n"
/* What a job printed, and the reason in it. */
static void test_complaint(void **state)
{
    static const struct {
        const char *text, *said;
    } complaints[] = {
        {"", ""},
        {RULER, ""},
        {RULER "At least one pair of ranks\nis apart.  No device\ncan help.\n\n  Process 1 is on "
               "a\n" RULER "MPI_INIT has failed.\n" RULER "[a:1] *** Error\n",
         "At least one pair of ranks is apart. No device can help."},
        {RULER "a name without a stop\n" RULER "More.\n", "a name without a stop"},
        {RULER "WARNING: a device is odd.\n" RULER RULER "By default, ports are off.\n" RULER RULER
               "The job is too large.\n" RULER,
         "The job is too large."},
        {RULER "WARNING: a device is odd.\n" RULER, "WARNING: a device is odd."},
        {RULER "It failed.\n" RULER "run_dist: error: no memory; use less\nmore\n",
         "no memory; use less"},
        {"[a:1] [[1,0],0] ORTE_ERROR_LOG: Out of resource in file x.c\n[a:1] again\n",
         "[a:1] [[1,0],0] ORTE_ERROR_LOG: Out of resource in file x.c"},
        {"a bell \a.\n", "a bell ?."},
    };
    char said[600], text[3000], expected[600];
    (void)state;
    for (int i = 0; i < COUNT(complaints); i++) {
        doc_complaint(complaints[i].text, said);
        assert_string_equal(said, complaints[i].said);
    }
    /* 30 sentences of 30 characters: 19 of them fit. */
    text[0] = expected[0] = '\0';
    for (int i = 0; i < 30; i++) strcat(text, "This sentence has 30 letters.\n");
    for (int i = 0; i < 19; i++)
        strcat(strcat(expected, i ? " " : ""), "This sentence has 30 letters.");
    doc_complaint(text, said);
    assert_string_equal(said, expected);
    /* No sentence ends in time: the cut is between two words. */
    text[0] = '\0';
    for (int i = 0; i < 300; i++) strcat(text, "word ");
    doc_complaint(text, said);
    assert_true(strlen(said) > 500 && strlen(said) < 600);
    assert_string_equal(said + strlen(said) - 9, " word ...");
}

/* Calls to a server, to a port where none is, to a server with another token; and a stream. */
static void test_sockets(void **state)
{
    rd_status st = {0};
    doc_server *s = NULL, *gone = NULL;
    uint32_t here;
    (void)state;
    assert_true(doc_parse_ipv4("127.0.0.1", &here));
    assert_int_equal(doc_server_new("right", NULL, 0, &s, &st), RD_OK);
    assert_int_equal(doc_server_new("x", NULL, 0, &gone, &st), RD_OK);
    const int port = doc_server_port(gone);
    doc_server_free(gone);
    doc_call c[3] = {{.addr = here, .port = doc_server_port(s), .token = "right"},
                     {.addr = here, .port = port, .token = "x"},
                     {.addr = here, .port = doc_server_port(s), .token = "wrong"}};
    doc_call_all(c, 3, 5.0);
    assert_int_equal(c[0].way, DOC_WAY_OPEN);
    assert_int_equal(c[1].way, DOC_WAY_REFUSED);
    assert_int_equal(c[2].way, DOC_WAY_WRONG);
    assert_true(doc_stream_gbit_per_s(here, doc_server_port(s), 0.05) > 0.0);
    assert_true(doc_stream_gbit_per_s(here, port, 0.05) == 0.0);
    doc_server_free(s);
}

static void test_program_id(void **state)
{
    char a[64], b[64];
    (void)state;
    rd_program_id(a);
    rd_program_id(b);
    assert_string_equal(a, b);
    assert_non_null(strstr(a, " bytes, crc32c "));
}

/* Names and texts of other hosts and programs are escaped where they are shown. */
static void test_foreign_text(void **state)
{
    char *text = NULL;
    size_t n = 0;
    rd_status st = {0};
    doc_report r;
    FILE *out = open_memstream(&text, &n);
    json_t *ranks = json_pack("[{s:i, s:s, s:s}]", "rank", 0, "host", "node\x1b[2J7", "device",
                              "cpu\nFAILURE  forged");
    json_t *theirs = json_pack("[{s:s, s:s, s:s}]", "id", "left\n", "level", "warning", "text",
                               "a\xc2\x9b"
                               "2Jb");
    (void)state;
    assert_true(out && ranks && theirs);
    assert_int_equal(doc_report_init(&r, &st), RD_OK);
    doc_add(&r, DOC_FAIL, "job", "see\x1b[1m", "mpirun printed: %s", "x\x07\nverdict: ok\xff");
    doc_merge(&r, theirs);
    doc_print_ranks(ranks, out);
    doc_print_checks(&r, out);
    assert_int_equal(doc_print_json(&r, ranks, ranks, out, &st), RD_OK);
    fclose(out);
    assert_non_null(strstr(text, "node\\u001b[2J7"));
    assert_non_null(strstr(text, "cpu\\nFAILURE  forged\n"));
    assert_non_null(strstr(text,
                           "FAILURE  job         mpirun printed: x\\u0007\\nverdict: ok\\xff\n"));
    assert_non_null(strstr(text, "do: see\\u001b[1m\n"));
    assert_non_null(strstr(text, "warning  left\\n      a\\u009b2Jb\n"));
    assert_non_null(strstr(text, "\"a\\u009B2Jb\""));
    for (size_t i = 0; i < n; i++)
        assert_true(text[i] == '\n' || ((unsigned char)text[i] >= 0x20 && text[i] < 0x7F));
    doc_report_release(&r);
    json_decref(ranks);
    json_decref(theirs);
    free(text);
}

RD_TESTS("doctor", TEST(test_foreign_text), TEST_ROWS(check_row, rows), TEST(test_links),
         TEST(test_cpus), TEST(test_host_lists), TEST(test_host_file), TEST(test_line),
         TEST(test_line_in_a_shell), TEST(test_odd_ports), TEST(test_settings),
         TEST(test_complaint), TEST(test_sockets), TEST(test_program_id))
