/* doctor_nets.c -- checks which interfaces MPI uses, and whether that can work.
 *
 * Open MPI 4.1 sends data through every interface that is up and not excluded. It connects to any
 * address of a host, and it treats equal addresses as one network. A bridge of containers with the
 * same address on all hosts (docker0, 172.17.0.1) makes a host talk to itself: the job waits for
 * ever. */
#include "doctor_impl.h"
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

/* What the library excludes by default. A setting replaces the whole list. */
static const char *const default_exclude = "127.0.0.1/8,sppp";

bool doc_parse_ipv4(const char *s, uint32_t *out)
{
    struct in_addr a;
    if (inet_pton(AF_INET, s, &a) != 1) return false;
    *out = ntohl(a.s_addr);
    return true;
}

void doc_format_ipv4(uint32_t a, char out[16])
{
    (void)snprintf(out, 16, "%u.%u.%u.%u", a >> 24, a >> 16 & 255, a >> 8 & 255, a & 255);
}

static uint32_t mask_of(int prefix)
{
    return prefix <= 0 ? 0 : prefix >= 32 ? UINT32_MAX : ~(UINT32_MAX >> prefix);
}

static uint32_t addr_of(const json_t *net)
{
    uint32_t a = 0;
    (void)doc_parse_ipv4(doc_text(net, "addr"), &a);
    return a;
}

static uint32_t network_of(const json_t *net)
{
    return addr_of(net) & mask_of((int)doc_number(net, "prefix"));
}

static bool is_loopback(const json_t *net)
{
    return addr_of(net) >> 24 == 127;
}

/* Reads the next entry of a list and moves *list behind it. Returns false at the end. */
static bool next_entry(const char **list, char out[64])
{
    while (**list == ',' || **list == ' ') ++*list;
    const size_t n = strcspn(*list, ",");
    (void)snprintf(out, 64, "%.*s", n < 63 ? (int)n : 63, *list);
    *list += n;
    return n > 0;
}

/* Reads "10.0.0.0/8", "10.0.0.0/255.0.0.0" or, as the library also allows, an address alone.
 * Returns false for anything else, such as the name of an interface. */
static bool parse_network(const char *entry, uint32_t *net, uint32_t *mask)
{
    char s[64];
    (void)snprintf(s, sizeof s, "%s", entry);
    char *slash = strchr(s, '/');
    if (slash) *slash = '\0';
    if (!doc_parse_ipv4(s, net)) return false;
    if (!slash || !doc_parse_ipv4(slash + 1, mask)) *mask = mask_of(slash ? atoi(slash + 1) : 32);
    *net &= *mask;
    return true;
}

/* Returns whether an entry of a list, a network or a name, contains this interface. */
static bool entry_fits(const char *entry, const json_t *net)
{
    uint32_t n, mask;
    if (parse_network(entry, &n, &mask)) return (addr_of(net) & mask) == n;
    return strcmp(entry, doc_text(net, "name")) == 0;
}

bool doc_listed(const char *list, const json_t *net)
{
    char entry[64];
    while (next_entry(&list, entry))
        if (entry_fits(entry, net)) return true;
    return false;
}

bool doc_net_used(const json_t *mca, const json_t *net)
{
    const char *include = doc_mca(mca, "btl_tcp_if_include"),
               *exclude = doc_mca(mca, "btl_tcp_if_exclude");
    if (!json_is_true(json_object_get(net, "up"))) return false;
    if (include && *include) return doc_listed(include, net);
    return !doc_listed(exclude ? exclude : default_exclude, net);
}

bool doc_is_bridge(const char *name)
{
    static const char *const begins[] = {"docker", "br-", "virbr", "lxcbr",   "lxdbr",
                                         "podman", "cni", "veth",  "flannel", "cali"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(name, begins[i], strlen(begins[i])) == 0) return true;
    return false;
}

/* Returns whether an earlier host is the same machine under another name. */
static bool is_listed_before(const json_t *hosts, size_t i)
{
    const char *machine = doc_text(json_array_get(hosts, i), "machine");
    for (size_t k = 0; k < i; k++)
        if (*machine && strcmp(machine, doc_text(json_array_get(hosts, k), "machine")) == 0)
            return true;
    return false;
}

/* Returns how many hosts have this address on any interface. *name: the name of one such interface.
 * who: the hosts are appended. name, who: NULL is allowed. */
static int count_holders(const json_t *hosts, uint32_t addr, const char **name, rd_strbuf *who)
{
    size_t i, k;
    json_t *h, *net;
    int n = 0;
    json_array_foreach(hosts, i, h)
    {
        bool has = false;
        if (is_listed_before(hosts, i)) continue;
        json_array_foreach(json_object_get(h, "nets"), k, net)
        {
            if (addr_of(net) != addr) continue;
            has = true;
            if (name) *name = doc_text(net, "name");
        }
        if (has && who) rd_strbuf_printf(who, "%s%s", n ? ", " : "", doc_text(h, "listed"));
        n += has;
    }
    return n;
}

bool doc_shared_address(const json_t *hosts, const json_t *net)
{
    return count_holders(hosts, addr_of(net), NULL, NULL) > 1;
}

/* Returns whether a host is in the network with an address that no other host has. */
static bool host_in_network(const json_t *hosts, const json_t *host, uint32_t network, int prefix)
{
    size_t k;
    json_t *net;
    json_array_foreach(json_object_get(host, "nets"), k, net)
    {
        if (is_loopback(net) || !json_is_true(json_object_get(net, "up"))) continue;
        if ((addr_of(net) & mask_of(prefix)) == network &&
            (int)doc_number(net, "prefix") == prefix &&
            count_holders(hosts, addr_of(net), NULL, NULL) == 1)
            return true;
    }
    return false;
}

void doc_common_network(const json_t *hosts, char out[32])
{
    const json_t *first = json_array_get(hosts, 0);
    char text[16];
    out[0] = '\0';
    /* Interfaces of machines first, then bridges. */
    for (int bridges = 0; bridges < 2; bridges++) {
        size_t k, i;
        json_t *net, *h;
        json_array_foreach(json_object_get(first, "nets"), k, net)
        {
            if (is_loopback(net) || doc_is_bridge(doc_text(net, "name")) != (bridges == 1))
                continue;
            bool all = true;
            json_array_foreach(hosts, i, h)
            {
                all = all &&
                      host_in_network(hosts, h, network_of(net), (int)doc_number(net, "prefix"));
            }
            if (!all) continue;
            doc_format_ipv4(network_of(net), text);
            (void)snprintf(out, 32, "%s/%d", text, (int)doc_number(net, "prefix"));
            return;
        }
    }
}

/* Returns the remedy that names the common network. out: its buffer. */
static const char *remedy_network(const json_t *hosts, char out[160])
{
    char network[32];
    doc_common_network(hosts, network);
    if (!network[0])
        return "name the network that all hosts have in common: mpirun --mca btl_tcp_if_include "
               "NETWORK/BITS";
    (void)snprintf(out, 160, "mpirun --mca btl_tcp_if_include %s --mca oob_tcp_if_include %s",
                   network, network);
    return out;
}

/* Checks that each host has every interface or network that the setting includes. */
static void check_include(doc_report *r, const json_t *hosts, const char *setting)
{
    char entry[64], remedy[160];
    size_t i, k;
    json_t *h, *net;
    json_array_foreach(hosts, i, h)
    {
        const char *list = doc_mca(json_object_get(h, "mca"), setting);
        while (list && next_entry(&list, entry)) {
            bool there = false;
            uint32_t a, b;
            json_array_foreach(json_object_get(h, "nets"), k, net)
            {
                there = there ||
                        (entry_fits(entry, net) && json_is_true(json_object_get(net, "up")));
            }
            if (there) continue;
            doc_add(r, DOC_FAIL, "interfaces", remedy_network(hosts, remedy),
                    "%s %s of %s is missing on %s; MPI would end with 'unknown interface'",
                    parse_network(entry, &a, &b) ? "the network" : "the interface", entry, setting,
                    doc_text(h, "listed"));
        }
    }
}

/* Checks that the settings of one host still exclude the loopback interface. A list of excluded
 * networks replaces the default, which contains it. many: there are several hosts. */
static bool check_loopback(doc_report *r, const json_t *host, bool many, const json_t *hosts)
{
    const json_t *mca = json_object_get(host, "mca"), *lo = NULL;
    const char *list = doc_mca(mca, "btl_tcp_if_exclude"),
               *include = doc_mca(mca, "btl_tcp_if_include");
    char remedy[160];
    size_t k;
    json_t *net;
    json_array_foreach(json_object_get(host, "nets"), k, net)
    {
        if (is_loopback(net) && !lo) lo = net;
    }
    if (list && include && *include) {
        doc_add(
            r, DOC_FAIL, "interfaces", "leave btl_tcp_if_exclude out",
            "btl_tcp_if_include and btl_tcp_if_exclude are both set on %s; MPI accepts one of them",
            doc_text(host, "listed"));
        return false;
    }
    if (!list || !lo || doc_listed(list, lo)) return true;
    doc_add(
        r, many ? DOC_FAIL : DOC_WARN, "interfaces", remedy_network(hosts, remedy),
        "lo is missing in btl_tcp_if_exclude (%.200s, from %s): the setting replaces the default, "
        "so MPI searches for other hosts at 127.0.0.1 and hangs; exclude lo,%.200s, or better "
        "name what to include",
        list, doc_mca_source(mca, "btl_tcp_if_exclude"), list);
    return false;
}

void doc_check_interfaces(doc_report *r, const json_t *hosts)
{
    const int before = r->n[DOC_FAIL] + r->n[DOC_WARN];
    /* The key "others" in the facts of one host means that the job has several hosts. */
    const bool many = json_array_size(hosts) > 1 ||
                      json_is_true(json_object_get(json_array_get(hosts, 0), "others"));
    size_t i, k;
    json_t *h, *net;
    rd_strbuf used = {0};
    if (many) check_include(r, hosts, "btl_tcp_if_include");
    if (many) check_include(r, hosts, "oob_tcp_if_include");
    json_array_foreach(hosts, i, h)
    {
        /* The setting is the same on all hosts: one check for all. */
        if (!check_loopback(r, h, many, hosts)) break;
    }
    json_array_foreach(hosts, i, h)
    {
        bool any = false;
        rd_strbuf_printf(&used, "%s%s: ", i ? "; " : "", doc_text(h, "listed"));
        json_array_foreach(json_object_get(h, "nets"), k, net)
        {
            if (!doc_net_used(json_object_get(h, "mca"), net)) continue;
            rd_strbuf_printf(&used, "%s%s (%s/%.0f)", any ? ", " : "", doc_text(net, "name"),
                             doc_text(net, "addr"), doc_number(net, "prefix"));
            any = true;
        }
        if (any) continue;
        rd_strbuf_puts(&used, "none");
        if (many && r->n[DOC_FAIL] + r->n[DOC_WARN] == before)
            doc_add(r, DOC_FAIL, "interfaces", "bring the interface up, or include another one",
                    "MPI has no interface to use on %s", doc_text(h, "listed"));
    }
    if (r->n[DOC_FAIL] + r->n[DOC_WARN] == before)
        doc_add(r, DOC_OK, "interfaces", NULL, "MPI uses %s", rd_strbuf_str(&used));
    rd_strbuf_release(&used);
}

void doc_check_addresses(doc_report *r, const json_t *hosts)
{
    size_t i, k, m;
    json_t *h, *net, *o;
    int same = 0, failed = 0;
    char remedy[160];
    rd_strbuf unused = {0};
    json_t *seen = json_array();
    json_array_foreach(hosts, i, h)
    {
        json_array_foreach(json_object_get(h, "nets"), k, net)
        {
            bool again = false, used = false;
            const char *name = "";
            rd_strbuf who = {0};
            json_array_foreach(seen, m, o)
            {
                again = again || strcmp(json_string_value(o), doc_text(net, "addr")) == 0;
            }
            if (again || is_loopback(net)) continue;
            json_array_append_new(seen, json_string(doc_text(net, "addr")));
            if (count_holders(hosts, addr_of(net), &name, &who) > 1) {
                size_t i2, k2;
                json_t *h2, *net2;
                same++;
                json_array_foreach(hosts, i2, h2)
                {
                    json_array_foreach(json_object_get(h2, "nets"), k2, net2)
                    {
                        used = used || (addr_of(net2) == addr_of(net) &&
                                        doc_net_used(json_object_get(h2, "mca"), net2));
                    }
                }
                if (used) {
                    failed++;
                    doc_add(r, DOC_FAIL, "addresses", remedy_network(hosts, remedy),
                            "the address %s (%s) exists on several hosts: %s; MPI would "
                            "use it to connect one to the other, and hang",
                            doc_text(net, "addr"), name, rd_strbuf_str(&who));
                } else {
                    rd_strbuf_printf(&unused, "%s%s (%s) on %s", unused.n ? "; " : "",
                                     doc_text(net, "addr"), name, rd_strbuf_str(&who));
                }
            }
            rd_strbuf_release(&who);
        }
    }
    json_decref(seen);
    if (!same)
        doc_add(r, DOC_OK, "addresses", NULL, "no address is on two hosts");
    else if (!failed)
        doc_add(r, DOC_OK, "addresses", NULL, "left out by the settings: %s",
                rd_strbuf_str(&unused));
    rd_strbuf_release(&unused);
}
