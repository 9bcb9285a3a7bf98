/* doctor_btl.c -- judges `btl`, the list of Open MPI's ways to send a message.
 *
 * A list names the ways to use, or, after "^", those to leave out. Each rank needs self. Ranks of a
 * host need shared memory (vader; sm since Open MPI 5) or tcp, ranks of several hosts tcp. With an
 * incomplete list MPI ends all ranks in MPI_Init, and its text does not name the setting. */
#include "doctor_impl.h"
#include <stdlib.h>
#include <string.h>

typedef struct btl_list {
    bool exclusive;                  /* it begins with "^" */
    bool twice;                      /* there is another "^", which Open MPI refuses */
    bool self, shared, tcp, special; /* what MPI may use; special: hardware with its own network */
    bool old_sm;                     /* "sm" in a list for Open MPI 4 */
    char unknown[64];                /* a name that Open MPI does not have; "": none */
} btl_list;

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name) != 0) names++;
    return *names != NULL;
}

static void read_btl(const char *list, bool five, btl_list *out)
{
    static const char *const special[] = {"ofi", "portals4", "uct", "ugni", "usnic", NULL},
                             *const others[] = {"openib", "smcuda", "template", NULL};
    bool self = false, shared = false, tcp = false, own = false;
    *out = (btl_list){.exclusive = list[0] == '^'};
    list += out->exclusive;
    while (*list) {
        char name[64];
        const size_t n = strcspn(list, ",");
        (void)snprintf(name, sizeof name, "%.*s", n < 63 ? (int)n : 63, list);
        list += n + (list[n] == ',');
        if (strchr(name, '^')) out->twice = true;
        if (strcmp(name, "self") == 0)
            self = true;
        else if (strcmp(name, "tcp") == 0)
            tcp = true;
        else if (strcmp(name, "vader") == 0 || (five && strcmp(name, "sm") == 0))
            shared = true;
        else if (strcmp(name, "sm") == 0)
            out->old_sm = !out->exclusive;
        else if (is_one_of(name, special))
            own = true;
        else if (*name && !is_one_of(name, others))
            (void)snprintf(out->unknown, sizeof out->unknown, "%s", name);
    }
    out->self = self != out->exclusive;
    out->shared = shared != out->exclusive;
    out->tcp = tcp != out->exclusive;
    out->special = own && !out->exclusive;
}

/* Returns what is missing or wrong, as the end of a sentence; NULL: nothing. */
static const char *fault_of(const btl_list *l, bool several, int n_local)
{
    if (l->twice) return "Open MPI allows one '^' only, in front of the whole list";
    if (!l->self && !l->exclusive) return "every rank needs self in it";
    if (l->old_sm) return "Open MPI 4 ends at sm, which is called vader there";
    if (l->special) return NULL;
    if (several && !l->tcp) return "ranks of several hosts need tcp";
    if (n_local > 1 && !l->shared && !l->tcp) return "ranks of a host need vader (or tcp)";
    return NULL;
}

/* Returns what works and is still worth a warning; NULL: nothing. */
static const char *doubt_of(const btl_list *l, int n_local)
{
    if (l->unknown[0]) return "MPI ends if it lacks a name of the list, and one is unusual";
    if (!l->self) return "it leaves out self, by which a rank sends to itself";
    if (n_local > 1 && !l->shared && !l->special)
        return "ranks of a host then send over tcp, which is slower than vader";
    return NULL;
}

/* Returns what to do about a setting from this source. */
static void btl_remedy(const char *source, char out[512])
{
    static const char *const instead = "Open MPI then chooses well, or write self,vader,tcp; "
                                       "-mca btl ^openib only silences InfiniBand";
    if (strcmp(source, "mpirun's line") == 0)
        (void)snprintf(out, 512, "leave '-mca btl ...' out: %s", instead);
    else if (strcmp(source, "environment") == 0)
        (void)snprintf(out, 512, "leave '-mca btl ...' out, or unset OMPI_MCA_btl: %s", instead);
    else
        (void)snprintf(out, 512, "remove btl from %.250s: %s", source, instead);
}

/* Judges the list of one host. Returns whether it said something. */
static bool judge_host(doc_report *r, const json_t *h, bool several)
{
    const json_t *mca = json_object_get(h, "mca");
    const char *list = doc_mca(mca, "btl"), *source = doc_mca_source(mca, "btl");
    const int n_local = (int)doc_number(h, "ranks");
    char remedy[512];
    btl_list l;
    read_btl(list, strncmp(doc_text(h, "mpi"), "Open MPI 5", 10) == 0, &l);
    const char *fault = fault_of(&l, several, n_local), *doubt = doubt_of(&l, n_local);
    if (!fault && !doubt) return false;
    btl_remedy(source, remedy);
    doc_add(r, fault ? DOC_FAIL : DOC_WARN, "btl", remedy, "btl is '%.200s' on %s (%s): %s", list,
            doc_text(h, "listed"), source, fault ? fault : doubt);
    return true;
}

void doc_check_btl(doc_report *r, const json_t *hosts)
{
    const bool several = json_array_size(hosts) > 1 ||
                         json_is_true(json_object_get(json_array_get(hosts, 0), "others"));
    const char *said = NULL, *list = NULL, *instead = NULL;
    size_t i;
    json_t *h;
    json_array_foreach(hosts, i, h)
    {
        const json_t *mca = json_object_get(h, "mca");
        const char *pml = doc_mca(mca, "pml"), *here = doc_mca(mca, "btl");
        if (!here || !*here) continue;
        list = here;
        /* These send messages without a btl. */
        if (pml && (strcmp(pml, "ucx") == 0 || strcmp(pml, "cm") == 0)) instead = pml;
        if (instead) continue;
        if (said && strcmp(said, here) == 0) continue; /* hosts often share it */
        if (judge_host(r, h, several)) said = here;
    }
    if (!said && instead)
        doc_add(r, DOC_OK, "btl", NULL, "'%.200s' has no effect: pml %s sends the messages", list,
                instead);
    else if (!said && list)
        doc_add(r, DOC_OK, "btl", NULL, "'%.200s' leaves what the ranks need", list);
    else if (!said)
        doc_add(r, DOC_OK, "btl", NULL, "not set: Open MPI chooses how ranks send messages");
}
