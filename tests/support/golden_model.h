/* golden_model.h -- a sequence model for tests of golden values: its config, parameters, backend
 * and tape. */
#ifndef RD_TESTS_GOLDEN_MODEL_H
#define RD_TESTS_GOLDEN_MODEL_H

#include "rd/model.h"
#include "rd/modes.h"
#include "test.h"
#include "test_device.h"
#include <math.h>

typedef struct golden_model {
    rd_config *config;
    rd_params *ps;
    rd_backend *be, *device; /* device: NULL if be computes */
    rd_tape *tape;
    const rd_model_def *def;
    void *model;
} golden_model;

/* How a config is read. */
enum {
    GOLDEN_MODEL_KEYS = 1,  /* keys that it lacks have the values of the model */
    GOLDEN_UNKNOWN_KEYS = 2 /* it may have keys that are not known */
};

/* Makes the model of a config, whose parameters are not laid out yet. */
static inline void golden_open(golden_model *m, const char *name, const void *text, size_t n,
                               int rules, const rd_data_spec *spec)
{
    rd_status st = {0};
    const rd_option_group *groups[RD_MAX_GROUPS];
    rd_log *log;
    *m = (golden_model){0};
    must_do(rd_config_new(name, text, n, groups, rd_option_groups(groups),
                          rules & GOLDEN_UNKNOWN_KEYS, &m->config, &st),
            &st);
    m->def = rd_model_find(json_string_value(rd_config_get(m->config, "model")));
    assert_non_null(m->def);
    for (const rd_model_key *k = m->def->keys; k && k->key && (rules & GOLDEN_MODEL_KEYS); k++)
        if (!rd_config_has(m->config, k->key))
            must_do(rd_config_put(m->config, k->key, json_loads(k->value, JSON_DECODE_ANY, NULL),
                                  "model", &st),
                    &st);
    must_do(rd_params_new(&m->ps, &st), &st);
    must_do(rd_backend_cpu_new(1, false, &m->be, &st), &st);
    must_do(rd_log_new(0, "test", stdout, &log, &st), &st);
    const rd_model_args a = {.def = m->def,
                             .config = m->config,
                             .mode = RD_MODE_TRAIN,
                             .data = spec,
                             .seed = 1,
                             .params = m->ps,
                             .backend = m->be,
                             .log = log};
    must_do(m->def->create(&a, &m->model, &st), &st);
    rd_log_free(log);
}

/* Moves the parameters to the device of the tests, and makes the tape. mixed: with mixed
 * products. */
static inline void golden_start_as(golden_model *m, bool mixed)
{
    rd_status st = {0};
    must_do(test_use_device_as(m->ps, mixed, &st), &st);
    if (mixed) {
        rd_backend_free(m->be);
        must_do(rd_backend_cpu_new(1, true, &m->be, &st), &st);
    }
#ifdef RD_CUDA
    if (test_on_gpu()) must_do(rd_backend_gpu_new(test_gpus[mixed], 1, &m->device, &st), &st);
#endif
    must_do(rd_tape_new(m->device ? m->device : m->be, m->ps, &m->tape, &st), &st);
}

static inline void golden_start(golden_model *m)
{
    golden_start_as(m, false);
}

static inline void golden_close(golden_model *m)
{
    rd_tape_free(m->tape);
    m->def->destroy(m->model);
    rd_backend_free(m->device);
    rd_backend_free(m->be);
    rd_params_free(m->ps);
    rd_config_free(m->config);
}

/* Records the loss of a batch and, with `backward`, computes the gradients. training: dropout is
 * on. */
static inline rd_loss_out golden_loss_as(golden_model *m, const rd_batch *b, bool backward,
                                         bool training)
{
    rd_status st = {0};
    rd_loss_out out;
    memset(test_grads(m->ps), 0, (size_t)rd_params_grad_span(m->ps) * sizeof(float));
    rd_params_touch_grads(m->ps);
    rd_tape_reset(m->tape, backward, training);
    must_do(m->def->loss(m->model, m->tape, b, &out, &st), &st);
    if (backward) must_do(rd_tape_backward(m->tape, out.loss, &st), &st);
    return out;
}

static inline rd_loss_out golden_loss(golden_model *m, const rd_batch *b, bool backward)
{
    return golden_loss_as(m, b, backward, true);
}

static inline void golden_near(double got, double want, double rtol, const char *what)
{
    if (!(fabs(got - want) <= rtol * fabs(want)))
        fail_msg("%s: got %.9g, want %.9g", what, got, want);
}

#endif
