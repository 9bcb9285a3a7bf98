/* pictures.c -- samples of an image model as pictures for TensorBoard: several side by side, each
 * with its label, the predicted class and its probability, and a table that names them.
 *
 * A batch holds pixels as the model takes them. The dataset's mean and deviation turn them back. */
#include "pictures.h"
#include "rd/tiles.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- gallery ---- */

static size_t picture_bytes(const gallery *g)
{
    return (size_t)(g->h * g->w * g->c);
}

rd_code gallery_start(gallery *g, const rd_data_spec *spec, int capacity, rd_status *st)
{
    const int64_t c = spec->image_c >= 3 ? 3 : 1;
    g->n = 0;
    if (g->pixels && g->h == spec->image_h && g->w == spec->image_w && g->c == c &&
        g->capacity == capacity)
        return RD_OK;
    gallery_release(g);
    g->h = spec->image_h;
    g->w = spec->image_w;
    g->c = c;
    g->pixels = malloc((size_t)capacity * picture_bytes(g) + 1);
    if (!g->pixels) return rd_fail(st, RD_EENV, "out of memory for %d sample images", capacity);
    g->capacity = capacity;
    return RD_OK;
}

void gallery_release(gallery *g)
{
    free(g->pixels);
    *g = (gallery){0};
}

static uint8_t to_pixel(float v, float mean, float scale)
{
    const float x = v * scale + mean;
    return x > 0.0f ? (uint8_t)(x < 255.0f ? x + 0.5f : 255.0f) : 0; /* a NaN is black */
}

/* Where the dataset gives no normalisation, the image's own range is stretched to 0 .. 255. */
static void own_range(const float *x, int64_t n, float *mean, float *scale)
{
    float lo = x[0], hi = x[0];
    for (int64_t i = 1; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    *scale = hi > lo ? 255.0f / (hi - lo) : 0.0f;
    *mean = -lo * *scale;
}

void gallery_add(gallery *g, const rd_data_spec *spec, const rd_batch *b, int64_t i,
                 const rd_loss_out *out)
{
    const rd_field *image = rd_batch_field(b, "image"), *label = rd_batch_field(b, "label");
    if (!g->pixels || g->n >= g->capacity || !image || !image->off || image->dtype != RD_F32 ||
        !label || !out->argmax)
        return;
    const int64_t per = image->off[i + 1] - image->off[i], channels = spec->image_c;
    if (per != g->h * g->w * channels) return;
    const float *x = (const float *)image->data + image->off[i];
    uint8_t *to = g->pixels + (size_t)g->n * picture_bytes(g);
    float mean[4], scale[4];
    for (int k = 0; k < 4; k++) {
        mean[k] = spec->pixel_mean[k];
        scale[k] = spec->pixel_std[k];
        if (spec->pixel_std[0] == 0.0f) own_range(x, per, &mean[k], &scale[k]);
    }
    for (int64_t p = 0; p < g->h * g->w; p++)
        for (int64_t k = 0; k < g->c; k++)
            to[p * g->c + k] = to_pixel(x[p * channels + k], mean[k & 3], scale[k & 3]);
    g->p[g->n++] = (picture){
        .id = b->sample[i],
        .label = ((const int32_t *)label->data)[label->off ? label->off[i] : i],
        .predicted = out->argmax[i],
        .probability = out->probability ? out->probability[i] : NAN};
}

typedef struct placed {
    const char *at; /* a picture, followed by its pixels */
    int64_t id;
} placed;

static int by_id(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Rank 0: keeps the pictures with the lowest ids of all ranks. */
static rd_code take_lowest(gallery *g, const char *all, int64_t bytes, rd_status *st)
{
    const size_t one = sizeof(picture) + picture_bytes(g);
    const int64_t n = bytes / (int64_t)one;
    placed *at = malloc((size_t)(n + 1) * sizeof *at);
    if (!at) return rd_fail(st, RD_EENV, "out of memory for sample images");
    for (int64_t i = 0; i < n; i++) {
        picture p;
        memcpy(&p, all + (size_t)i * one, sizeof p);
        at[i] = (placed){all + (size_t)i * one, p.id};
    }
    qsort(at, (size_t)n, sizeof *at, by_id);
    g->n = n < g->capacity ? (int)n : g->capacity;
    for (int i = 0; i < g->n; i++) {
        memcpy(&g->p[i], at[i].at, sizeof g->p[i]);
        memcpy(g->pixels + (size_t)i * picture_bytes(g), at[i].at + sizeof(picture),
               picture_bytes(g));
    }
    free(at);
    return RD_OK;
}

rd_code gallery_gather(rd_run *r, gallery *g, rd_status *st)
{
    rd_strbuf mine = {0};
    char *all = NULL;
    int64_t *lens = NULL, bytes = 0;
    for (int i = 0; i < g->n; i++) {
        rd_strbuf_add(&mine, &g->p[i], sizeof g->p[i]);
        rd_strbuf_add(&mine, g->pixels + (size_t)i * picture_bytes(g), picture_bytes(g));
    }
    if (mine.failed) rd_fail(st, RD_EENV, "out of memory for sample images");
    RD_TRY(run_agree(r, st));
    RD_TRY(rd_comm_gather(r->comm, mine.s, (int64_t)mine.n, &all, &lens, st));
    g->n = 0;
    if (r->world->rank == 0) {
        for (int i = 0; i < r->world->size; i++) bytes += lens[i];
        (void)take_lowest(g, all, bytes, st);
    }
    (void)run_agree(r, st);
done:
    free(all);
    free(lens);
    rd_strbuf_release(&mine);
    return st->code;
}

/* ---- drawing ---- */

/* Appends the table of the samples: their names have no room in the picture. */
static void write_table(rd_events *e, int64_t step, const char *tag, const gallery *g,
                        int64_t columns, const rd_dataset *d, rd_status *st)
{
    const rd_dataset_def *def = rd_dataset_def_of(d);
    char name[64];
    rd_strbuf md = {0};
    (void)snprintf(name, sizeof name, "%.40s/names", tag); /* a tag belongs to one kind of record */
    rd_strbuf_puts(&md, "| place | sample | label | prediction | probability |\n"
                        "|---|---|---|---|---|\n");
    for (int i = 0; i < g->n; i++) {
        const int32_t id = (int32_t)g->p[i].id;
        rd_strbuf_printf(&md, "| row %" PRId64 ", column %" PRId64 " | ", i / columns + 1,
                         i % columns + 1);
        if (def->text && g->p[i].id <= INT32_MAX)
            rd_dataset_text_cell(d, 0, &id, 1, &md);
        else
            rd_strbuf_printf(&md, "%" PRId64, g->p[i].id);
        rd_strbuf_puts(&md, " | ");
        rd_dataset_class_cell(d, g->p[i].label, &md);
        rd_strbuf_puts(&md, " | ");
        rd_dataset_class_cell(d, g->p[i].predicted, &md);
        rd_strbuf_printf(&md, " | %.4f |\n", (double)g->p[i].probability);
    }
    (void)rd_events_text(e, step, name, rd_strbuf_str(&md), st);
    rd_strbuf_release(&md);
}

/* Draws a sample, enlarged `zoom` times, at x, y. */
static void draw_sample(rd_picture *k, int64_t x, int64_t y, const gallery *g, int i, int64_t zoom)
{
    const uint8_t *from = g->pixels + (size_t)i * picture_bytes(g);
    for (int64_t v = 0; v < g->h; v++)
        for (int64_t u = 0; u < g->w; u++) {
            const uint8_t *at = from + (v * g->w + u) * g->c;
            const rd_colour c = {at[0], at[g->c > 1 ? 1 : 0], at[g->c > 1 ? 2 : 0]};
            rd_picture_fill(k, x + u * zoom, y + v * zoom, zoom, zoom, c);
        }
}

/* Writes the label, and below it probability and predicted class: green if they agree, else red. */
static void draw_caption(rd_picture *k, int64_t x, int64_t y, int64_t w, const picture *p,
                         const rd_dataset *d)
{
    static const rd_colour black = {20, 20, 20}, right = {10, 120, 50}, wrong = {190, 20, 20};
    rd_strbuf label = {0}, predicted = {0};
    rd_dataset_class_text(d, p->label, &label);
    if (p->probability >= 0.0f && p->probability <= 1.0f)
        rd_strbuf_printf(&predicted, "%.0f%% ", 100.0 * (double)p->probability);
    rd_dataset_class_text(d, p->predicted, &predicted);
    rd_tile_caption(k, x, y, w, 0, black, rd_strbuf_str(&label));
    rd_tile_caption(k, x, y, w, 1, p->label == p->predicted ? right : wrong,
                    rd_strbuf_str(&predicted));
    rd_strbuf_release(&label);
    rd_strbuf_release(&predicted);
}

void gallery_write(rd_events *e, int64_t step, const char *tag, const gallery *g,
                   const rd_dataset *d, rd_status *st)
{
    /* Small images are enlarged, and a tile has room for the names of most classes. */
    enum { SEEN = 112, NARROWEST = 96, LARGEST = 4096 };
    rd_picture k;
    rd_status own = {0};
    if (!e || g->n == 0) return;
    const int64_t cols = (int64_t)ceil(sqrt((double)g->n)), rows = (g->n + cols - 1) / cols;
    const int64_t zoom = g->w < SEEN ? (SEEN + g->w / 2) / g->w : 1;
    const int64_t w = g->w * zoom > NARROWEST ? g->w * zoom : NARROWEST,
                  h = g->h * zoom + RD_TILE_CAPTION * rd_tile_scale(w);
    if (cols * (w + RD_TILE_GAP) > LARGEST || rows * (h + RD_TILE_GAP) > LARGEST ||
        rd_picture_new(cols * (w + RD_TILE_GAP), rows * (h + RD_TILE_GAP), &k, &own) != RD_OK)
        return;
    for (int i = 0; i < g->n; i++) {
        const int64_t x = i % cols * (w + RD_TILE_GAP), y = i / cols * (h + RD_TILE_GAP);
        draw_sample(&k, x + (w - g->w * zoom) / 2, y, g, i, zoom);
        draw_caption(&k, x, y + g->h * zoom, w, &g->p[i], d);
    }
    (void)rd_events_image(e, step, tag, (int)k.w, (int)k.h, 3, k.rgb, st);
    rd_picture_release(&k);
    write_table(e, step, tag, g, cols, d, st);
}
