/* memory_use.c -- what the memory of a rank consists of. */
#include "memory_use.h"
#include "device.h"

#include <math.h>

rd_code memory_use_of(rd_run *r, memory_use *out, rd_status *st)
{
    const double ranks = rd_optim_is_shared(r->optim) ? (double)r->world->local_size : 1.0;
    double all[] = {4.0 * (double)rd_optim_kept(r->optim) * rd_params_n_slots(r->params) / ranks,
                    (double)rd_arena_peak(rd_tape_arena(r->tape)),
                    (double)rd_tape_borrowed_peak(r->tape), run_peak_bytes(), device_peak_bytes(r)};
    RD_TRY(rd_comm_max_f64(r->comm, all, sizeof all / sizeof *all, st));
    *out = (memory_use){.weights = 4.0 * (double)rd_params_span(r->params),
                        .gradients = 4.0 * (double)rd_params_grad_span(r->params),
                        .optimizer = all[0],
                        .activations = all[1],
                        .borrowed = all[2],
                        .process = all[3],
                        .gpu = all[4]};
done:
    return st->code;
}

double memory_use_rest(const memory_use *m)
{
    return fmax(0.0, m->process - m->weights - m->gradients - m->optimizer - m->activations);
}
