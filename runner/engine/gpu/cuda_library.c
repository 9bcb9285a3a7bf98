/* cuda_library.c -- see cuda_library.h. */
#include "cuda_library.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The loader searches for the name (LD_LIBRARY_PATH, ldconfig), then in the folder of NVIDIA's own
 * installer. */
static const char *const folders[] = {"", "/usr/local/cuda/lib64/"};

static void *open_one(rd_library *l)
{
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++)
        for (size_t i = 0; i < sizeof l->names / sizeof *l->names && l->names[i]; i++) {
            char path[256];
            snprintf(path, sizeof path, "%s%s", folders[f], l->names[i]);
            void *h = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
            if (h) return h;
            const char *why = dlerror();
            if (!l->why[0] && why)
                snprintf(l->why, sizeof l->why, "%s", why); /* message of the first choice */
        }
    return NULL;
}

rd_code rd_library_load(rd_library *l, rd_status *st)
{
    if (l->handle) return st->code;
    l->why[0] = '\0';
    void *h = open_one(l);
    for (int i = 0; h && i < l->n_symbol; i++) {
        void *f = dlsym(h, l->symbol[i].name);
        if (!f) {
            snprintf(l->why, sizeof l->why, "'%s' has no %s: it is too old", l->names[0],
                     l->symbol[i].name);
            dlclose(h);
            h = NULL;
            break;
        }
        memcpy((char *)l->table + l->symbol[i].at, &f, sizeof f);
    }
    if (!h)
        return rd_fail(st, RD_EENV,
                       "%s is needed and cannot be loaded (%s); install %s, and put its folder "
                       "into LD_LIBRARY_PATH where the loader does not find it by itself, or set "
                       "\"device\": \"cpu\"",
                       l->title, l->why, l->package);
    l->handle = h;
    return st->code;
}
