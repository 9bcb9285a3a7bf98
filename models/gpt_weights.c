/* gpt_weights.c -- the arrays of a language model by the names of Hugging Face's transformers.
 *
 * The matrices of GPT-2 are (inputs, outputs), as ours. Those of the family of Llama are (outputs,
 * inputs), and queries, keys and values are three arrays: columns of one matrix of ours. */
#include "gpt_model.h"
#include "rd/safetensors.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LISTED = 20, NAME_BYTES = 160 };

/* An array of a file, and its place in a parameter. */
typedef struct gpt_part {
    char name[NAME_BYTES];
    rd_param *p;            /* NULL: zeros, which the model does not have */
    int64_t rows;           /* number of inputs; 1: a vector */
    int64_t cols;           /* number of outputs */
    int64_t first;          /* its first column in p */
    bool turned;            /* the file has (outputs, inputs) */
    const rd_tf_lora *lora; /* its adapter; NULL, or without a: none. Borrowed */
} gpt_part;

typedef struct gpt_parts {
    gpt_part *at; /* owned; [n] */
    int n, capacity;
    bool failed;
    const char *prefix; /* of the names: "model." */
    char layer[NAME_BYTES];
} gpt_parts;

/* Adds an array PREFIX + layer + name. */
static gpt_part *parts_add(gpt_parts *l, const char *name, rd_param *p, int64_t rows, int64_t cols)
{
    if (l->n == l->capacity) {
        const int more = l->capacity * 2 + 64;
        gpt_part *at = realloc(l->at, (size_t)more * sizeof *at);
        if (!at) {
            l->failed = true;
            return NULL;
        }
        l->at = at;
        l->capacity = more;
    }
    gpt_part *e = &l->at[l->n++];
    *e = (gpt_part){.p = p, .rows = rows, .cols = cols};
    (void)snprintf(e->name, sizeof e->name, "%s%.60s%.60s", l->prefix, l->layer, name);
    return e;
}

/* Adds a matrix of GPT-2. */
static void parts_matrix(gpt_parts *l, const char *name, rd_param *p, const rd_tf_lora *lora)
{
    gpt_part *e = parts_add(l, name, p, p->dim[0], p->dim[1]);
    if (e) e->lora = lora;
}

/* Adds a matrix of the family of Llama: columns from `first` on. */
static void parts_turned(gpt_parts *l, const char *name, rd_param *p, int64_t rows, int64_t cols,
                         int64_t first, const rd_tf_lora *lora)
{
    gpt_part *e = parts_add(l, name, p, rows, cols);
    if (!e) return;
    e->turned = true;
    e->first = first;
    e->lora = lora;
}

/* Adds a vector that p holds from `first` on; where p is NULL and the file needs it: zeros. */
static void parts_vector(gpt_parts *l, const char *name, rd_param *p, int64_t n, int64_t first)
{
    gpt_part *e = parts_add(l, name, p, 1, n);
    if (e) e->first = first;
}

static void parts_gpt2_layer(gpt_parts *l, const gpt_config *c, const rd_tf_layer *y)
{
    const rd_tf_attention *a = &y->self;
    const rd_tf_ff *f = &y->ff;
    const int64_t d = c->n_embd;
    parts_vector(l, "ln_1.weight", a->norm.gain, d, 0);
    parts_vector(l, "ln_1.bias", a->norm.bias, d, 0);
    parts_matrix(l, "attn.c_attn.weight", a->qkv, &a->lora_qkv);
    parts_vector(l, "attn.c_attn.bias", a->qkv_bias, 3 * d, 0);
    parts_matrix(l, "attn.c_proj.weight", a->out, &a->lora_out);
    parts_vector(l, "attn.c_proj.bias", a->out_bias, d, 0);
    parts_vector(l, "ln_2.weight", f->norm.gain, d, 0);
    parts_vector(l, "ln_2.bias", f->norm.bias, d, 0);
    parts_matrix(l, "mlp.c_fc.weight", f->w1, &f->lora1);
    parts_vector(l, "mlp.c_fc.bias", f->b1, c->ff_dim, 0);
    parts_matrix(l, "mlp.c_proj.weight", f->w2, &f->lora2);
    parts_vector(l, "mlp.c_proj.bias", f->b2, d, 0);
}

static void parts_llama_layer(gpt_parts *l, const gpt_config *c, const rd_tf_layer *y)
{
    const rd_tf_attention *a = &y->self;
    const rd_tf_ff *f = &y->ff;
    const int64_t d = c->n_embd, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    parts_vector(l, "input_layernorm.weight", a->norm.gain, d, 0);
    parts_turned(l, "self_attn.q_proj.weight", a->qkv, d, q, 0, &a->lora_part[0]);
    parts_turned(l, "self_attn.k_proj.weight", a->qkv, d, kv, q, &a->lora_part[1]);
    parts_turned(l, "self_attn.v_proj.weight", a->qkv, d, kv, q + kv, &a->lora_part[2]);
    if (a->qkv_bias) {
        parts_vector(l, "self_attn.q_proj.bias", a->qkv_bias, q, 0);
        parts_vector(l, "self_attn.k_proj.bias", a->qkv_bias, kv, q);
        parts_vector(l, "self_attn.v_proj.bias", a->qkv_bias, kv, q + kv);
    }
    if (a->q_gain) {
        parts_vector(l, "self_attn.q_norm.weight", a->q_gain, c->head_dim, 0);
        parts_vector(l, "self_attn.k_norm.weight", a->k_gain, c->head_dim, 0);
    }
    parts_turned(l, "self_attn.o_proj.weight", a->out, q, d, 0, &a->lora_out);
    if (a->out_bias) parts_vector(l, "self_attn.o_proj.bias", a->out_bias, d, 0);
    parts_vector(l, "post_attention_layernorm.weight", f->norm.gain, d, 0);
    parts_turned(l, "mlp.gate_proj.weight", f->w1, d, c->ff_dim, 0, &f->lora1);
    parts_turned(l, "mlp.up_proj.weight", f->w3, d, c->ff_dim, 0, &f->lora3);
    parts_turned(l, "mlp.down_proj.weight", f->w2, c->ff_dim, d, 0, &f->lora2);
    if (f->b1) parts_vector(l, "mlp.gate_proj.bias", f->b1, c->ff_dim, 0);
    if (f->b3) parts_vector(l, "mlp.up_proj.bias", f->b3, c->ff_dim, 0);
    if (f->b2) parts_vector(l, "mlp.down_proj.bias", f->b2, d, 0);
}

/* Lists all arrays. The caller frees l->at. */
static rd_code parts_list(const gpt *m, bool gpt2, const char *prefix, gpt_parts *l, rd_status *st)
{
    const gpt_config *c = &m->c;
    *l = (gpt_parts){.prefix = prefix};
    (void)parts_add(l, gpt2 ? "wte.weight" : "embed_tokens.weight", m->embedding.table,
                    m->n_classes, c->n_embd);
    if (gpt2) (void)parts_add(l, "wpe.weight", m->embedding.places, c->max_len, c->n_embd);
    for (int64_t i = 0; i < c->n_layers; i++) {
        (void)snprintf(l->layer, sizeof l->layer, "%s.%" PRId64 ".", gpt2 ? "h" : "layers", i);
        if (gpt2)
            parts_gpt2_layer(l, c, &m->stack.layer[i]);
        else
            parts_llama_layer(l, c, &m->stack.layer[i]);
    }
    l->layer[0] = '\0';
    parts_vector(l, gpt2 ? "ln_f.weight" : "norm.weight", m->stack.last.gain, c->n_embd, 0);
    if (gpt2) parts_vector(l, "ln_f.bias", m->stack.last.bias, c->n_embd, 0);
    if (c->tie_embeddings == GPT_TIE_NONE) {
        l->prefix = "";
        (void)parts_add(l, "lm_head.weight", m->output, m->n_classes, c->n_embd);
    }
    return l->failed ? rd_fail(st, RD_EENV, "out of memory for a list of weights") : RD_OK;
}

/* Writes the shape that the file has. */
static int part_shape(const gpt_part *e, int64_t dim[2])
{
    dim[0] = e->turned ? e->cols : e->rows;
    dim[1] = e->turned ? e->rows : e->cols;
    if (e->rows != 1) return 2;
    dim[0] = e->cols;
    return 1;
}

/* Copies between the file's form and the parameter; out: to the file. */
static void part_copy(const gpt_part *e, float *values, float *file, bool out)
{
    enum { BLOCK = 32 };
    const int64_t width = e->p->n_dim == 2 ? e->p->dim[1] : e->p->n;
    float *at = values + e->p->offset + e->first;
    for (int64_t r0 = 0; r0 < e->rows; r0 += BLOCK)
        for (int64_t c0 = 0; c0 < e->cols; c0 += BLOCK)
            for (int64_t r = r0; r < e->rows && r < r0 + BLOCK; r++)
                for (int64_t c = c0; c < e->cols && c < c0 + BLOCK; c++) {
                    float *x = &at[r * width + c],
                          *y = &file[e->turned ? c * e->rows + r : r * e->cols + c];
                    *(out ? y : x) = *(out ? x : y);
                }
}

/* Merges the adapter of a matrix into its weights in a file: adds scale A B. sum: [cols]
 * scratch. */
static void part_merge(const gpt *m, const gpt_part *e, float *file, double *sum)
{
    const float *values = rd_params_values(m->ps);
    const int64_t rank = m->c.lora_rank;
    if (!e->lora || !e->lora->a) return;
    for (int64_t r = 0; r < e->rows; r++) {
        const float *a = values + e->lora->a->offset + r * rank;
        memset(sum, 0, (size_t)e->cols * sizeof *sum);
        for (int64_t k = 0; k < rank; k++) {
            const float *b = values + e->lora->b->offset + k * e->cols;
            for (int64_t c = 0; c < e->cols; c++) sum[c] += (double)a[k] * (double)b[c];
        }
        for (int64_t c = 0; c < e->cols; c++) {
            float *y = &file[e->turned ? c * e->rows + r : r * e->cols + c];
            *y = (float)((double)*y + m->stack.c.lora.scale * sum[c]);
        }
    }
}

/* ---- loading ---- */

static void weights_note(rd_strbuf *list, int *n, const char *name, const char *what)
{
    if ((*n)++ < LISTED) rd_strbuf_printf(list, "%s'%s' %s", list->n ? ", " : "", name, what);
    if (*n == LISTED + 1) rd_strbuf_puts(list, ", ...");
}

/* Returns whether an array of the file needs no place: masks and angles that older releases saved,
 * and a head that is the table again. */
static bool weights_ignored(const gpt *m, const char *name)
{
    static const char *const ends[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t k = strlen(ends[i]);
        if (n >= k && strcmp(name + n - k, ends[i]) == 0) return true;
    }
    return m->c.tie_embeddings != GPT_TIE_NONE && strcmp(name, "lm_head.weight") == 0;
}

static void weights_unused(const gpt *m, const rd_weights *w, const gpt_parts *l, rd_strbuf *list,
                           int *n)
{
    for (int i = 0; i < rd_weights_n(w); i++) {
        const char *name = rd_weights_at(w, i)->name;
        int k = 0;
        while (k < l->n && strcmp(l->at[k].name, name) != 0) k++;
        if (k == l->n && !weights_ignored(m, name))
            weights_note(list, n, name, "is not in the model");
    }
}

/* Sets the rows of a table to 0 that have no token in the file. */
static void weights_clear_rows(const gpt *m, const rd_param *p)
{
    float *at = rd_params_values(m->ps) + p->offset;
    memset(at + m->n_classes * p->dim[1], 0,
           (size_t)((p->dim[0] - m->n_classes) * p->dim[1]) * sizeof *at);
}

rd_code gpt_weights_load(void *self, const rd_weights *w, rd_strbuf *list, int *n, rd_status *st)
{
    gpt *m = self;
    const bool gpt2 = m->c.norm_type == GPT_NORM_LAYER;
    const char *prefix = gpt2 ? "transformer." : "model.";
    char first[64];
    gpt_parts l = {0};
    float *buf = NULL;
    int64_t most = 0, dim[2];
    *n = 0;
    /* A model without a head saves its arrays without the prefix. */
    (void)snprintf(first, sizeof first, "%s%s", prefix,
                   gpt2 ? "wte.weight" : "embed_tokens.weight");
    if (!rd_weights_find(w, first)) prefix = "";
    RD_TRY(parts_list(m, gpt2, prefix, &l, st));
    for (int i = 0; i < l.n; i++)
        if (l.at[i].rows * l.at[i].cols > most) most = l.at[i].rows * l.at[i].cols;
    buf = malloc((size_t)(most + 1) * sizeof *buf);
    if (!buf) RD_TRY(rd_fail(st, RD_EENV, "out of memory for weights"));
    for (int i = 0; i < l.n; i++) {
        const gpt_part *e = &l.at[i];
        const rd_array *a = rd_weights_find(w, e->name);
        const int n_dim = part_shape(e, dim);
        bool same = a && a->n_dim == n_dim;
        for (int d = 0; same && d < n_dim; d++) same = a->dim[d] == dim[d];
        if (!same || !e->p) {
            weights_note(list, n, e->name,
                         !a      ? "is missing there"
                         : !e->p ? "is not in the model"
                                 : "has another shape there");
            continue;
        }
        RD_TRY(rd_weights_read(w, e->name, buf, e->rows * e->cols, st));
        part_copy(e, rd_params_values(m->ps), buf, false);
    }
    weights_clear_rows(m, m->embedding.table);
    weights_clear_rows(m, m->output);
    weights_unused(m, w, &l, list, n);
done:
    free(buf);
    free(l.at);
    return st->code;
}

/* ---- saving ---- */

static int parts_order(const void *a, const void *b)
{
    return strcmp(((const gpt_part *)a)->name, ((const gpt_part *)b)->name);
}

rd_code gpt_weights_save(void *self, const char *folder, const json_t *metadata, json_t **config,
                         rd_status *st)
{
    gpt *m = self;
    const char *why;
    const gpt_architecture *form = gpt_architecture_of(&m->c, &why);
    gpt_parts l = {0};
    rd_array *a = NULL;
    float *all = NULL;
    double *sum = NULL;
    int64_t total = 0, at = 0, widest = 0;
    char path[4400];
    *config = NULL;
    if (!form)
        return rd_fail(st, RD_EUSAGE,
                       "no architecture of transformers has %s; --format=npz writes the weights by "
                       "the names of this program",
                       why);
    RD_TRY(parts_list(m, form->gpt2, form->gpt2 ? "transformer." : "model.", &l, st));
    qsort(l.at, (size_t)l.n, sizeof *l.at, parts_order);
    for (int i = 0; i < l.n; i++) total += l.at[i].rows * l.at[i].cols;
    for (int i = 0; i < l.n; i++)
        if (l.at[i].cols > widest) widest = l.at[i].cols;
    a = calloc((size_t)l.n + 1, sizeof *a);
    all = calloc((size_t)total + 1, sizeof *all);
    sum = malloc((size_t)(widest + 1) * sizeof *sum);
    if (!a || !all || !sum)
        RD_TRY(rd_fail(st, RD_EENV, "out of memory for %" PRId64 " weights", total));
    for (int i = 0; i < l.n; i++) {
        const gpt_part *e = &l.at[i];
        int64_t dim[2];
        a[i] = (rd_array){.descr = "<f4",
                          .n_dim = part_shape(e, dim),
                          .data = all + at,
                          .bytes = (size_t)(e->rows * e->cols) * sizeof *all};
        (void)snprintf(a[i].name, sizeof a[i].name, "%s", e->name);
        for (int d = 0; d < a[i].n_dim; d++) a[i].dim[d] = dim[d];
        if (e->p) part_copy(e, rd_params_values(m->ps), all + at, true);
        part_merge(m, e, all + at, sum);
        at += e->rows * e->cols;
    }
    *config = gpt_config_json(m, form);
    if (!*config) RD_TRY(rd_fail(st, RD_EENV, "out of memory for a config"));
    (void)snprintf(path, sizeof path, "%.4200s/model.safetensors", folder);
    RD_TRY(rd_safetensors_write(path, a, l.n, metadata, st));
done:
    free(sum);
    free(all);
    free(a);
    free(l.at);
    return st->code;
}

/* Writes the name of an array of an adapter. letter: A or B. */
static void adapter_name(const gpt_part *e, char letter, char out[NAME_BYTES + 48])
{
    static const char end[] = ".weight";
    const int n = (int)(strlen(e->name) - (sizeof end - 1));
    (void)snprintf(out, NAME_BYTES + 48, "base_model.model.%.*s.lora_%c.weight", n, e->name,
                   letter);
}

/* Copies between an array of an adapter, which is (cols, rows) in the file, and its parameter. */
static void adapter_copy(const gpt *m, const rd_param *p, float *file, bool out)
{
    const int64_t rows = p->dim[0], cols = p->dim[1];
    float *values = rd_params_values(m->ps) + p->offset;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            float *x = &values[r * cols + c], *y = &file[c * rows + r];
            *(out ? y : x) = *(out ? x : y);
        }
}

/* Adds an array of an adapter to those that are saved. */
static void adapter_array(const gpt *m, const gpt_part *e, char letter, float *out, rd_array *a)
{
    const rd_param *p = letter == 'A' ? e->lora->a : e->lora->b;
    char name[NAME_BYTES + 48];
    adapter_name(e, letter, name);
    *a = (rd_array){.descr = "<f4",
                    .n_dim = 2,
                    .dim = {p->dim[1], p->dim[0]},
                    .data = out,
                    .bytes = (size_t)p->n * sizeof *out};
    (void)snprintf(a->name, sizeof a->name, "%.190s", name);
    adapter_copy(m, p, out, true);
}

rd_code gpt_adapter_save(void *self, const char *folder, const char *base, const json_t *metadata,
                         json_t **config, rd_status *st)
{
    gpt *m = self;
    const char *why;
    const gpt_architecture *form = gpt_architecture_of(&m->c, &why);
    gpt_parts l = {0};
    rd_array *a = NULL;
    float *all = NULL;
    int64_t at = 0;
    int n = 0;
    char path[4400];
    *config = NULL;
    if (m->c.lora_rank == 0)
        return rd_fail(st, RD_EUSAGE,
                       "this model has no adapters ('lora_rank' is 0); --format=safetensors writes "
                       "its weights");
    if (!form)
        return rd_fail(st, RD_EUSAGE,
                       "no architecture of transformers has %s; --format=npz writes the weights by "
                       "the names of this program",
                       why);
    RD_TRY(parts_list(m, form->gpt2, form->gpt2 ? "transformer." : "model.", &l, st));
    a = calloc((size_t)(2 * l.n) + 1, sizeof *a);
    all = malloc((size_t)(rd_params_count(m->ps) + 1) * sizeof *all);
    if (!a || !all) RD_TRY(rd_fail(st, RD_EENV, "out of memory for adapters"));
    for (int i = 0; i < l.n; i++) {
        const rd_tf_lora *lora = l.at[i].lora;
        if (!lora || !lora->a) continue;
        adapter_array(m, &l.at[i], 'A', all + at, &a[n++]);
        at += lora->a->n;
        adapter_array(m, &l.at[i], 'B', all + at, &a[n++]);
        at += lora->b->n;
    }
    *config = gpt_adapter_json(m, base);
    if (!*config) RD_TRY(rd_fail(st, RD_EENV, "out of memory for a config"));
    (void)snprintf(path, sizeof path, "%.4200s/adapter_model.safetensors", folder);
    RD_TRY(rd_safetensors_write(path, a, n, metadata, st));
done:
    free(all);
    free(a);
    free(l.at);
    return st->code;
}

/* Reads one array of an adapter. */
static rd_code adapter_read(const gpt *m, const rd_weights *w, const gpt_part *e, char letter,
                            float *buf, rd_strbuf *list, int *n, rd_status *st)
{
    const rd_param *p = letter == 'A' ? e->lora->a : e->lora->b;
    char name[NAME_BYTES + 48];
    adapter_name(e, letter, name);
    const rd_array *a = rd_weights_find(w, name);
    if (!a || a->n_dim != 2 || a->dim[0] != p->dim[1] || a->dim[1] != p->dim[0]) {
        weights_note(list, n, name, a ? "has another shape there" : "is missing there");
        return RD_OK;
    }
    RD_TRY(rd_weights_read(w, name, buf, p->n, st));
    adapter_copy(m, p, buf, false);
done:
    return st->code;
}

/* Lists the arrays of a file that belong to no adapter of the model. */
static void adapter_unused(const rd_weights *w, const gpt_parts *l, rd_strbuf *list, int *n)
{
    char name[NAME_BYTES + 48];
    for (int i = 0; i < rd_weights_n(w); i++) {
        bool used = false;
        for (int k = 0; k < 2 * l->n && !used; k++) {
            const gpt_part *e = &l->at[k / 2];
            if (!e->lora || !e->lora->a) continue;
            adapter_name(e, k % 2 ? 'B' : 'A', name);
            used = strcmp(rd_weights_at(w, i)->name, name) == 0;
        }
        if (!used) weights_note(list, n, rd_weights_at(w, i)->name, "is not in the model");
    }
}

rd_code gpt_adapter_load(void *self, const rd_weights *w, rd_strbuf *list, int *n, rd_status *st)
{
    const gpt *m = self;
    const bool gpt2 = m->c.norm_type == GPT_NORM_LAYER;
    gpt_parts l = {0};
    float *buf = malloc((size_t)(rd_params_count(m->ps) + 1) * sizeof *buf);
    *n = 0;
    if (!buf) return rd_fail(st, RD_EENV, "out of memory for adapters");
    RD_TRY(parts_list(m, gpt2, gpt2 ? "transformer." : "model.", &l, st));
    for (int i = 0; i < l.n; i++) {
        if (!l.at[i].lora || !l.at[i].lora->a) continue;
        RD_TRY(adapter_read(m, w, &l.at[i], 'A', buf, list, n, st));
        RD_TRY(adapter_read(m, w, &l.at[i], 'B', buf, list, n, st));
    }
    adapter_unused(w, &l, list, n);
done:
    free(buf);
    free(l.at);
    return st->code;
}
