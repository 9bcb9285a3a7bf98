/* spare.h -- memory of a step that serves a second time: that of values and gradients which nothing
 * reads any more, and that of the parameters' gradients before backward writes them.
 *
 * Records of a step are numbered in the order of forward; backward goes down. A variable whose
 * memory ends with record n (`ends` below) is read and written until the backward of n is over. The
 * memory of a parameter's gradient is free from its last use in forward, by record u, until the
 * backward of u. So it holds variables with ends > u: their backward is over before that of u. The
 * gradient is zeroed when backward arrives at u.
 *
 * Under AddressSanitizer spare memory is poisoned. */
#ifndef RD_ENGINE_SPARE_H
#define RD_ENGINE_SPARE_H

#include "rd/tape.h"

/* Only pieces of at least SPARE_LEAST bytes are kept. */
enum { SPARE_MOST = 256, SPARE_LEAST = 4096 * 4 };

typedef struct spare_piece {
    unsigned char *at;
    size_t bytes;  /* 64 bytes of slack follow */
    int64_t until; /* it holds variables with ends > until; -1: all variables */
} spare_piece;

typedef struct spare_list {
    int n;
    spare_piece piece[SPARE_MOST];
} spare_list;

/* The gradient of a parameter. */
typedef struct spare_grad {
    bool owed; /* its contents are undefined: it is zeroed before its first contribution */
    bool lent;
    int64_t until; /* number of the last record that used the parameter before; -1: none */
} spare_grad;

/* Sets *out to memory with undefined contents for the kernel of this call, once a call: that of
 * gradients, if a piece is large enough, else scratch. The kernel calls no rd_call_grad. */
rd_code spare_room(rd_call *c, size_t bytes, void *out, rd_status *st);

typedef struct spare_pool {
    rd_arena *arena;              /* borrowed; new memory, where the backend computes */
    bool host;                    /* that is the memory of the process */
    rd_params *params;            /* borrowed; NULL: none */
    spare_grad *grad;             /* owned; by index of the parameter */
    int n_owed;                   /* number of gradients that are owed */
    unsigned char *base;          /* of the gradient arena; NULL: no gradient has been borrowed */
    size_t lent_bytes, lent_peak; /* bytes of gradients that hold variables; the most so far */
    spare_list list;
} spare_pool;

rd_code spare_open(spare_pool *s, rd_params *params, rd_arena *arena, bool host, rd_status *st);
void spare_close(spare_pool *s);
/* Begins a step: no memory is spare. */
void spare_reset(spare_pool *s);

/* Sets *out to memory with undefined contents for a variable: the newest spare piece of this size,
 * else the smallest that is large enough, else new memory. The newest piece is likely to be in a
 * cache. ends: -1 for a variable that lives until the step ends. */
rd_code spare_take(spare_pool *s, size_t bytes, int64_t ends, void *out, rd_status *st);
/* Takes over memory, if it is worth while. *at becomes NULL then. */
void spare_keep(spare_pool *s, void **at, size_t bytes);
bool spare_full(const spare_pool *s);
/* Sets *out to memory of gradients for a kernel, which gives it back by spare_keep; NULL: no piece
 * is large enough. */
void spare_take_lent(spare_pool *s, size_t bytes, void *out);
/* Returns whether memory may hold a variable with these `ends`. */
bool spare_fits(const spare_pool *s, const void *at, size_t bytes, int64_t ends);

/* Borrows the gradients of all parameters that spare_borrows names: their contents are undefined
 * from now on, until they are returned. */
void spare_borrow(spare_pool *s);
bool spare_borrows(const spare_pool *s, const rd_param *p);
/* Notes that a record used a parameter, after its forward pass. lend: makes the memory of its
 * gradient spare. Does nothing if that is lent already, or was not borrowed, or is returned. */
void spare_used(spare_pool *s, const rd_param *p, int64_t record, bool lend);
bool spare_is_lent(const spare_pool *s, const rd_param *p);
/* Zeroes the gradient of a parameter, if it is owed. It is not lent again in this step. */
void spare_return(spare_pool *s, const rd_param *p);
/* The same for the gradients to which the backward of this record and of older ones adds; or for
 * all of them. */
void spare_return_from(spare_pool *s, int64_t record);
void spare_return_all(spare_pool *s);

#endif
