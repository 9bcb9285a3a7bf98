/* onnx.h -- builds a graph of ONNX (opset 17) and writes it as a file.
 *
 * A value of the graph is an int. The first failure stays in the graph's status, and all later
 * calls do nothing, so callers need no checks. Names of values are unique in a file, and the body
 * of a loop may use the values around it. */
#ifndef RD_ONNX_H
#define RD_ONNX_H

#include "rd/status.h"
#include <jansson.h>
#include <stdint.h>

RD_C_BEGIN

/* Element types, with the numbers of ONNX. */
typedef enum rd_onnx_type {
    RD_ONNX_FLOAT = 1,
    RD_ONNX_INT64 = 7,
    RD_ONNX_BOOL = 9,
    RD_ONNX_DOUBLE = 11
} rd_onnx_type;

/* A dimension of an input or output. name NULL: it is n; else any number, called `name`. */
typedef struct rd_onnx_dim {
    int64_t n;
    const char *name;
} rd_onnx_dim;
#define RD_ONNX_DIM(n_) ((rd_onnx_dim){.n = (n_)})
#define RD_ONNX_ANY(name_) ((rd_onnx_dim){.name = (name_)})

typedef struct rd_onnx rd_onnx;
/* Makes a graph. st: the status of all calls, borrowed until rd_onnx_free. The caller owns *out. */
rd_code rd_onnx_new(const char *name, rd_onnx **out, rd_status *st);
void rd_onnx_free(rd_onnx *g); /* NULL is fine */
/* Returns the status of the graph. */
rd_status *rd_onnx_status(const rd_onnx *g);

/* Adds an input. name: unique. */
int rd_onnx_input(rd_onnx *g, const char *name, rd_onnx_type type, int n_dim,
                  const rd_onnx_dim *dim);
/* Makes v an output. */
void rd_onnx_output(rd_onnx *g, int v, const char *name, rd_onnx_type type, int n_dim,
                    const rd_onnx_dim *dim);
/* Adds an array of constants: a weight with this name, or (name NULL) a small one. Copies
 * the data. n_dim 0: a scalar. */
int rd_onnx_weight(rd_onnx *g, const char *name, rd_onnx_type type, int n_dim, const int64_t *dim,
                   const void *data);
/* Returns the value of this name. -1: there is none. */
int rd_onnx_find(const rd_onnx *g, const char *name);
/* Return a list of n integers, a scalar, a scalar float. */
int rd_onnx_ints(rd_onnx *g, int n, const int64_t *x);
int rd_onnx_int(rd_onnx *g, int64_t x);
int rd_onnx_float(rd_onnx *g, float x);

/* An attribute of a node. Set one of the values that `kind` names. */
typedef struct rd_onnx_attr {
    const char *name; /* NULL ends a list */
    enum { RD_ONNX_I, RD_ONNX_F, RD_ONNX_IS, RD_ONNX_S, RD_ONNX_G } kind;
    int64_t i;
    float f;
    const int64_t *is; /* [n] */
    int n;
    const char *s;
    rd_onnx *g; /* a body of rd_onnx_body; borrowed */
} rd_onnx_attr;
enum { RD_ONNX_MOST = 80 };
/* Adds a node and returns its first output; further ones follow it in out[n_out], if not NULL. in:
 * a value of -1 is an input that is left out. attr: a list that ends with a NULL name, or NULL. */
int rd_onnx_node(rd_onnx *g, const char *op, int n_in, const int *in, const rd_onnx_attr *attr,
                 int n_out, int *out);
/* Adds a node with one, two or three inputs and no attributes. */
int rd_onnx_op1(rd_onnx *g, const char *op, int a);
int rd_onnx_op2(rd_onnx *g, const char *op, int a, int b);
int rd_onnx_op3(rd_onnx *g, const char *op, int a, int b, int c);
/* Return columns [from, to) of the axis; x with this shape (0: as it is there, -1: the rest); x
 * with the axes in this order; the joined values; x as another type. */
int rd_onnx_slice(rd_onnx *g, int x, int64_t axis, int64_t from, int64_t to);
int rd_onnx_reshape(rd_onnx *g, int x, int n, const int64_t *shape);
int rd_onnx_transpose(rd_onnx *g, int x, int n, const int64_t *order);
int rd_onnx_concat(rd_onnx *g, int n, const int *x, int64_t axis);
int rd_onnx_cast(rd_onnx *g, int x, rd_onnx_type type);
/* Returns dimension `axis` of x, as a list of one integer. */
int rd_onnx_dim_of(rd_onnx *g, int x, int64_t axis);

/* Begins the body of a loop. It has its own inputs and outputs, and may use the values of g made so
 * far. The caller frees it with rd_onnx_free after the node that has it as an attribute. */
rd_code rd_onnx_body(rd_onnx *g, const char *name, rd_onnx **out);

/* Writes the file, atomically. metadata: a borrowed object of strings, or NULL. RD_EUSAGE: the file
 * would have more than 2 GB, the most of this form. The caller has made sure that the file does not
 * exist, or may be replaced. */
rd_code rd_onnx_write(rd_onnx *g, const char *path, const char *producer_version,
                      const json_t *metadata, rd_status *st);

RD_C_END
#endif
