/* image_model.c -- the functions that all image models share; see image_model.h. */
#include "image_model.h"
#include <inttypes.h>

rd_code rd_image_model_read(const rd_model_args *a, rd_image_config *out, rd_status *st)
{
    RD_TRY(rd_config_read(a->config, &rd_group_image_model, a->mode, out, st));
    if (a->def->own) RD_TRY(rd_config_read_more(a->config, a->def->own, a->mode, out, st));
done:
    return st->code;
}

rd_code rd_image_model_new(const rd_model_args *a, const rd_image_arch *arch, void **self,
                           rd_status *st)
{
    rd_image_net_args n = {.arch = *arch,
                           .n_classes = a->data->n_classes,
                           .h = a->data->image_h,
                           .w = a->data->image_w,
                           .c = a->data->image_c,
                           .seed = a->seed,
                           .params = a->params};
    rd_image_net *net = NULL;
    *self = NULL;
    if (rd_image_model_read(a, &n.config, st) != RD_OK) return st->code;
    if (rd_image_net_new(&n, &net, st) == RD_OK) *self = net;
    return st->code;
}

rd_code rd_image_model_create(const rd_model_args *a, void **self, rd_status *st)
{
    return rd_image_model_new(a, a->def->variant, self, st);
}

rd_code rd_image_model_check_depth(const rd_config *c, int64_t depth, const char *family,
                                   rd_status *st)
{
    const json_t *v = rd_config_has(c, "depth") ? rd_config_get(c, "depth") : NULL;
    if (!v || !json_is_number(v) || (int64_t)json_number_value(v) == depth) return RD_OK;
    return rd_fail(st, RD_EUSAGE,
                   "%s: 'depth' is %" PRId64 ", but the model's name says %" PRId64
                   "; remove 'depth', or take model %s",
                   rd_config_where(c, "depth"), (int64_t)json_number_value(v), depth, family);
}

void rd_image_model_destroy(void *self)
{
    rd_image_net_free(self);
}

rd_code rd_image_model_loss(void *self, rd_tape *t, const rd_batch *b, rd_loss_out *out,
                            rd_status *st)
{
    const rd_field *image = rd_batch_field(b, "image"), *label = rd_batch_field(b, "label");
    rd_image_batch x = {.n = b->n, .sample = b->sample, .epoch = (uint64_t)b->epoch};
    rd_image_result r;
    *out = (rd_loss_out){.loss = NULL};
    if (b->n > 0) {
        if (!image || !label || image->dtype != RD_F32 || label->dtype != RD_I32 ||
            image->n_dim != 3)
            return rd_fail(st, RD_EUSAGE,
                           "the dataset does not give images with labels, which an image model "
                           "needs; take another one (key 'dataset')");
        x.h = image->dim[0];
        x.w = image->dim[1];
        x.c = image->dim[2];
        x.image = image->data;
        x.label = label->data;
    }
    if (rd_image_net_loss(self, t, &x, &r, st) != RD_OK) return st->code;
    out->loss = r.loss;
    out->loss_sum = r.loss_sum;
    out->nll_sum = r.nll_sum;
    out->weight = out->n_targets = (double)b->n;
    out->argmax = r.argmax;
    out->rank = r.rank;
    out->probability = r.probability;
    out->logits = r.logits;
    return RD_OK;
}

const char *const rd_image_model_graphs[] = {"", NULL};

rd_code rd_image_model_graph(void *self, int k, rd_onnx *g, rd_status *st)
{
    (void)k;
    return rd_image_net_graph(self, g, st);
}

double rd_image_model_flops(void *self, const rd_batch *b)
{
    return rd_image_net_flops(self, b->n);
}
