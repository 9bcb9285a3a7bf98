/* image_model.h -- the functions and macros that all image models share. The file of a model
 * describes its network as an rd_image_arch (image_net.h); RD_MODEL_IMAGE makes the definition. */
#ifndef RD_IMAGE_MODEL_H
#define RD_IMAGE_MODEL_H

#include "rd/image_net.h"
#include "rd/model.h"

/* Reads rd_group_image_model and the model's own keys (a->def->own). */
rd_code rd_image_model_read(const rd_model_args *a, rd_image_config *out, rd_status *st);
/* Makes the network of a->def->variant, an rd_image_arch: the `create` of most image models. */
rd_code rd_image_model_create(const rd_model_args *a, void **self, rd_status *st);
/* Makes the network of this arch, for models that choose their arch by keys. */
rd_code rd_image_model_new(const rd_model_args *a, const rd_image_arch *arch, void **self,
                           rd_status *st);
/* Returns RD_EUSAGE if the config has a key `depth` that contradicts the model's name. family: the
 * model that has any depth, for the message. */
rd_code rd_image_model_check_depth(const rd_config *c, int64_t depth, const char *family,
                                   rd_status *st);
/* The functions destroy, loss, flops and graph of rd_model_def, and its list of graphs. */
void rd_image_model_destroy(void *self);
rd_code rd_image_model_graph(void *self, int k, rd_onnx *g, rd_status *st);
extern const char *const rd_image_model_graphs[];
rd_code rd_image_model_loss(void *self, rd_tape *t, const rd_batch *b, rd_loss_out *out,
                            rd_status *st);
double rd_image_model_flops(void *self, const rd_batch *b);

/* The entries of an image model's definition. text: its name; what: one line about it; data: the
 * default dataset; batch: the usual samples per rank in bench mode. The entries .create, .variant
 * and, for further keys, .own follow the macro. */
#define RD_IMAGE_MODEL(text, what, data, batch)                                                  \
    .name = (text), .about = (what), .group = &rd_group_image_model, .default_dataset = (data),  \
    .usual_batch = (batch), .unit = "images", .destroy = rd_image_model_destroy,                 \
    .loss = rd_image_model_loss, .flops = rd_image_model_flops, .graphs = rd_image_model_graphs, \
    .graph = rd_image_model_graph

/* Defines a model with one network that only reads the keys of all image models. The other
 * arguments are the fields of its rd_image_arch. */
#define RD_MODEL_IMAGE(id, text, what, data, batch, ...)                                      \
    RD_MODEL(id) = {RD_IMAGE_MODEL(text, what, data, batch), .create = rd_image_model_create, \
                    .variant = &(const rd_image_arch){__VA_ARGS__}}

#endif
