/* gpu_seat.c -- what a rank finds on its host: its GPU, and the libraries that a run needs. */
#include "rd/gpu_choose.h"
#include "rd/gpu.h"
#include <stdio.h>
#include <string.h>

rd_code rd_gpu_seat_look(bool images, int claimed, rd_gpu_seat *s, rd_status *st)
{
    rd_gpu_info info;
    rd_status own = {.code = RD_OK};
    char why[256];
    s->n_visible = rd_gpu_count(why);
    (void)snprintf(s->why, sizeof s->why, "%s", why);
    s->index = claimed >= 0 ? claimed : rd_gpu_choose_index(s->local_rank, s->n_visible);
    if (s->index < 0) return st->code;
    RD_TRY(rd_gpu_query(s->index, &info, st));
    memcpy(s->name, info.name, sizeof s->name);
    memcpy(s->uuid, info.uuid, sizeof s->uuid);
    memcpy(s->pci, info.pci, sizeof s->pci);
    if (rd_gpu_need_libraries(images, &own) != RD_OK)
        (void)snprintf(s->why, sizeof s->why, "%.390s", own.msg);
done:
    return st->code;
}
