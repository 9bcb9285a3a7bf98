/* doctor_line.c -- reads a list of hosts and makes the mpirun line for it.
 *
 * The line uses the names of the Open MPI that this program was built with: the launcher's own
 * settings have other names in 5.0 than in 4.1. */
#include "doctor_impl.h"
#include "rd/file.h"
#include "rd/hostname.h"
#include <stdarg.h>
#include <stdlib.h>
#include <ctype.h>
#include <string.h>

enum { MOST_SLOTS = 4096 };

static rd_code add_host(doc_hosts *h, const doc_host *one, rd_status *st)
{
    if (one->slots > RD_MOST_RANKS - h->slots)
        return rd_fail(st, RD_EUSAGE, "the hosts have more than %d slots; name fewer hosts",
                       RD_MOST_RANKS);
    doc_host *more = realloc(h->at, (size_t)(h->n + 1) * sizeof *more);
    if (!more) return rd_fail(st, RD_EENV, "out of memory for a list of hosts");
    h->at = more;
    h->at[h->n++] = *one;
    h->slots += one->slots;
    return st->code;
}

/* Returns a number from 1 to `most`. Returns 0 if the text is anything else. */
static int parse_count(const char *s, int most)
{
    return (int)rd_host_count(s, strlen(s), most);
}

/* Reads one entry, "[user@]name[:slots]". where: place of the entry for messages. */
static rd_code parse_entry(const char *where, const char *entry, doc_host *out, rd_status *st)
{
    rd_host_entry e;
    *out = (doc_host){.slots = 1};
    RD_TRY(rd_host_entry_read(entry, strlen(entry), where, &e, st));
    if (memchr(e.name, ':', e.n_name)) {
        rd_fail(st, RD_EUSAGE,
                "%s: '%.100s' is an IPv6 address; the doctor and mpirun -H need a name or an IPv4 "
                "address",
                where, entry);
        goto done;
    }
    if (e.slots && !(out->slots = (int)rd_host_count(e.slots, e.n_slots, MOST_SLOTS)))
        rd_fail(st, RD_EUSAGE,
                "%s: the slots of '%.100s' must be a number, 1 .. %d, not '%.40s'; write "
                "%.*s:4 for four ranks there",
                where, entry, MOST_SLOTS, e.slots, (int)(e.slots - 1 - entry), entry);
    if (e.user) (void)snprintf(out->user, sizeof out->user, "%.*s", (int)e.n_user, e.user);
    (void)snprintf(out->name, sizeof out->name, "%.*s", (int)e.n_name, e.name);
done:
    return st->code;
}

rd_code doc_hosts_parse(const char *list, doc_hosts *out, rd_status *st)
{
    *out = (doc_hosts){0};
    for (const char *s = list;;) {
        char entry[512];
        doc_host one;
        const size_t n = strcspn(s, ",");
        if (n >= sizeof entry)
            return rd_fail(st, RD_EUSAGE, "--hosts: the entry '%.40s...' is too long for a host",
                           s);
        (void)snprintf(entry, sizeof entry, "%.*s", (int)n, s);
        RD_TRY(parse_entry("--hosts", entry, &one, st));
        out->slots_given |= strchr(entry, ':') != NULL;
        RD_TRY(add_host(out, &one, st));
        if (!s[n]) break;
        s += n + 1;
    }
done:
    return st->code;
}

/* Reads one line of a file of hosts. Changes the text of the line. */
static rd_code parse_line(const char *path, int number, char *line, doc_hosts *out, rd_status *st)
{
    doc_host one;
    char where[200], *save = NULL;
    char *word = strtok_r(line, " \t\r\n", &save);
    if (!word) return st->code;
    (void)snprintf(where, sizeof where, "%.150s:%d", path, number);
    RD_TRY(parse_entry(where, word, &one, st));
    out->slots_given |= strchr(word, ':') != NULL;
    while ((word = strtok_r(NULL, " \t\r\n", &save))) {
        const bool slots = strncmp(word, "slots=", 6) == 0, port = strncmp(word, "port=", 5) == 0;
        const int most = slots ? MOST_SLOTS : 65535,
                  n = slots || port ? parse_count(strchr(word, '=') + 1, most) : 0;
        const bool most_slots = strncmp(word, "max_slots=", 10) == 0 ||
                                strncmp(word, "max-slots=", 10) == 0;
        if (most_slots && parse_count(word + 10, RD_MOST_RANKS) == 0)
            return rd_fail(st, RD_EUSAGE, "%s: '%.60s' must be a number, 1 .. %d", where, word,
                           RD_MOST_RANKS);
        if (strncmp(word, "user=", 5) == 0 && !rd_host_user(word + 5, strlen(word + 5)))
            return rd_fail(st, RD_EUSAGE,
                           "%s: '%.60s' is not a user's name; it has letters, digits, '.', '_' "
                           "and '-' and begins with a letter or digit",
                           where, word);
        if ((slots || port) && n == 0)
            return rd_fail(
                st, RD_EUSAGE,
                "%s: '%.60s' must be a number, 1 .. %d; write: name slots=2 port=12345 user=name",
                where, word, most);
        out->slots_given |= slots;
        if (slots)
            one.slots = n;
        else if (port)
            one.port = n;
        else if (strncmp(word, "user=", 5) == 0)
            (void)snprintf(one.user, sizeof one.user, "%.63s", word + 5);
        else if (!most_slots)
            return rd_fail(
                st, RD_EUSAGE,
                "%s: '%.60s' is not understood; write: name slots=2 port=12345 user=name", where,
                word);
    }
    RD_TRY(add_host(out, &one, st));
done:
    return st->code;
}

rd_code doc_hosts_read(const char *path, doc_hosts *out, rd_status *st)
{
    char *text = NULL;
    size_t n = 0;
    int number = 0;
    *out = (doc_hosts){0};
    RD_TRY(rd_file_read(path, RD_EUSAGE, &text, &n, st));
    for (char *line = text; line && *line;) {
        char *end = strchr(line, '\n');
        if (end) *end = '\0';
        line[strcspn(line, "#")] = '\0';
        RD_TRY(parse_line(path, ++number, line, out, st));
        line = end ? end + 1 : NULL;
    }
    if (out->n == 0) rd_fail(st, RD_EUSAGE, "%s names no host; write lines: name slots=2", path);
done:
    free(text);
    return st->code;
}

void doc_hosts_release(doc_hosts *h)
{
    free(h->at);
    *h = (doc_hosts){0};
}

/* Returns an option's name without its dashes, NULL: the word is no option. */
static const char *option_name(const char *word)
{
    if (word[0] != '-') return NULL;
    return word + (word[1] == '-' ? 2 : 1);
}

/* Returns whether one of the words is one of the options. names ends with NULL. */
static bool has_option(char *const *words, int n, const char *const *names)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; names[k] && option_name(words[i]); k++)
            if (strcmp(option_name(words[i]), names[k]) == 0) return true;
    return false;
}

/* Returns a number of ranks. A text that is no number counts as none, one that is too large as
 * more than all slots. */
static int64_t doc_ranks_of(const char *word)
{
    const size_t n = strlen(word);
    const int64_t ranks = rd_host_count(word, n, RD_MOST_RANKS);
    return ranks == 0 && n > 0 && strspn(word, "0123456789") == n && word[strspn(word, "0")]
               ? RD_MOST_RANKS + (int64_t)1
               : ranks;
}

int64_t doc_line_ranks(char *const *words, int n)
{
    static const char *const names[] = {"np", "n", "c"};
    for (int i = 0; i + 1 < n; i++)
        for (int k = 0; k < 3 && option_name(words[i]); k++)
            if (strcmp(option_name(words[i]), names[k]) == 0) return doc_ranks_of(words[i + 1]);
    return 0;
}

/* A growing list of words, for doc_words_free. */
typedef struct word_list {
    char **w; /* [n], then NULL */
    int n, cap;
    rd_status *st; /* borrowed; first failure */
} word_list;

static void add_word(word_list *l, const char *fmt, ...) RD_PRINTF(2, 3);
static void add_word(word_list *l, const char *fmt, ...)
{
    va_list ap;
    if (l->n + 2 > l->cap) {
        char **more = realloc(l->w, (size_t)(l->cap + 64) * sizeof *more);
        if (!more) {
            rd_fail(l->st, RD_EENV, "out of memory for mpirun's line");
            return;
        }
        l->w = more;
        l->cap += 64;
    }
    va_start(ap, fmt);
    if (vasprintf(&l->w[l->n], fmt, ap) < 0) {
        l->w[l->n] = NULL;
        rd_fail(l->st, RD_EENV, "out of memory for mpirun's line");
    } else {
        l->w[++l->n] = NULL;
    }
    va_end(ap);
}

static void add_setting(word_list *l, const char *how, const char *name, const char *value)
{
    add_word(l, "%s", how);
    add_word(l, "%s", name);
    add_word(l, "%s", value);
}

/* Returns the port of ssh if all hosts have the same one. Otherwise returns ssh_port, where 0
 * leaves the port to ssh's own settings. */
static int common_ssh_port(const doc_hosts *h, int ssh_port)
{
    for (int i = 1; i < h->n; i++)
        if (h->at[i].port != h->at[0].port) return ssh_port;
    return h->at[0].port ? h->at[0].port : ssh_port;
}

rd_code doc_line(const doc_hosts *h, int ssh_port, const char *args, const char *network, bool root,
                 char ***out, int *n, rd_status *st)
{
    static const char
        *const as_root[] = {"allow-run-as-root", NULL},
               *const count[] = {"np", "n", "c", NULL},
               *const where[] = {"H", "host", "hostfile", "machinefile", "default-hostfile", NULL},
               *const map[] = {"map-by", "npernode", "N", "ppr", "rankfile", "rf", NULL},
               *const bind[] = {"bind-to", "bind-to-none", "bind-to-core", NULL};
    word_list l = {.st = st};
    char **more = NULL;
    int n_more = 0;
    const bool five = strncmp(rd_comm_library_version(), "Open MPI 5", 10) == 0;
    json_t *mca = doc_mca_new(args);
    *out = NULL;
    *n = 0;
    if (args) RD_TRY(doc_words(args, &more, &n_more, st));
    add_word(&l, "mpirun");
    if (root && !has_option(more, n_more, as_root)) add_word(&l, "--allow-run-as-root");
    if (!has_option(more, n_more, count)) {
        add_word(&l, "-np");
        add_word(&l, "%d", h->slots);
    }
    if (!has_option(more, n_more, where)) {
        rd_strbuf list = {0};
        for (int i = 0; i < h->n; i++)
            rd_strbuf_printf(&list, "%s%s:%d", i ? "," : "", h->at[i].name, h->at[i].slots);
        add_word(&l, "-H");
        add_word(&l, "%s", rd_strbuf_str(&list));
        rd_strbuf_release(&list);
    }
    if (!has_option(more, n_more, map)) {
        add_word(&l, "--map-by");
        add_word(&l, "slot");
    }
    if (!has_option(more, n_more, bind)) {
        add_word(&l, "--bind-to");
        add_word(&l, "none");
    }
    if (h->n > 1 && common_ssh_port(h, ssh_port) && !doc_mca(mca, "plm_rsh_args")) {
        char port[32];
        (void)snprintf(port, sizeof port, "-p %d", common_ssh_port(h, ssh_port));
        add_setting(&l, five ? "--prtemca" : "--mca", five ? "plm_ssh_args" : "plm_rsh_args", port);
    }
    if (h->n > 1 && network[0] && !doc_mca(mca, "btl_tcp_if_include") &&
        !doc_mca(mca, "btl_tcp_if_exclude"))
        add_setting(&l, "--mca", "btl_tcp_if_include", network);
    if (h->n > 1 && network[0] && !doc_mca(mca, "oob_tcp_if_include") &&
        !doc_mca(mca, "oob_tcp_if_exclude"))
        add_setting(&l, five ? "--prtemca" : "--mca", five ? "if_include" : "oob_tcp_if_include",
                    network);
    for (int i = 0; i < n_more; i++) add_word(&l, "%s", more[i]);
done:
    json_decref(mca);
    doc_words_free(more, n_more);
    *out = l.w;
    *n = l.n;
    return st->code;
}

/* Returns whether a shell takes the word as it is. */
static bool needs_no_quotes(const char *word)
{
    const char *s = word;
    while (isalnum((unsigned char)*s) || (unsigned char)*s >= 0x80 ||
           (*s && strchr("_-@%+=:,./", *s)))
        s++;
    return s > word && !*s;
}

void doc_line_text(char *const *words, int n, rd_strbuf *out)
{
    for (int i = 0; i < n; i++) {
        const char *s = words[i];
        if (i > 0) rd_strbuf_puts(out, " ");
        if (needs_no_quotes(s)) {
            rd_strbuf_puts(out, s);
            continue;
        }
        rd_strbuf_puts(out, "'");
        for (; *s; s++) rd_strbuf_add(out, *s == '\'' ? "'\"'\"'" : s, *s == '\'' ? 5 : 1);
        rd_strbuf_puts(out, "'");
    }
}
