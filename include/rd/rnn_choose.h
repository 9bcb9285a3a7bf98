/* rnn_choose.h -- who computes a recurrent layer on a GPU: our kernels step by step, or cuDNN's recurrent layers all steps
 * at once. Decisions only: no GPU is touched, and the file is in every build. The answer depends on the arguments alone,
 * so that a run that goes on from a checkpoint computes as the one before it did. */
#ifndef RD_RNN_CHOOSE_H
#define RD_RNN_CHOOSE_H

#include "rd/status.h"
#include <stdint.h>

RD_C_BEGIN

typedef enum rd_rnn_asked {
    RD_RNN_AUTO,
    RD_RNN_OFF,
    RD_RNN_ON
} rd_rnn_asked; /* the key "cudnn_rnn" */
/* By the key's value: "auto", "off", "on". */
rd_rnn_asked rd_rnn_asked_of(const char *value);

typedef struct rd_rnn_case {
    rd_rnn_asked asked;
    const char *cell; /* "lstm"; in the library's sense, and so the only one */
    bool projects;    /* h = m W_p */
    int64_t in, H;    /* width of all that enters (what gnmt joins to h, too), units */
    int64_t n_steps, n_seq,
        rows; /* of the packed batch: time steps, sequences of the first one, rows of all steps */
    bool trains;            /* backward will follow */
    bool mixed;             /* operands of 16 bits */
    int major, minor, n_sm; /* of the card */
    int library;            /* cuDNN's version, major * 10000 + minor * 100 + patch; 0: not there */
    bool one_buffer;        /* cuBLAS keeps to one size of buffers: rd_rnn_one_buffer */
} rd_rnn_case;

typedef enum rd_rnn_algo {
    RD_RNN_OWN,      /* our kernels, a product and a pass over the gates for each time step */
    RD_RNN_STANDARD, /* cuDNN's, which are the same launches; sequences of any lengths */
    RD_RNN_PERSIST_STATIC, /* one kernel for all steps, weights of the recurrence on the SMs; lengths all the same */
    RD_RNN_SMALL_H /* the same for narrow layers */
} rd_rnn_algo;

typedef struct rd_rnn_choice {
    rd_rnn_algo algo;
    int64_t
        n_seq; /* the batch the library gets; all sequences as long as the longest, but with RD_RNN_STANDARD */
    bool padded;     /* that is more than there is: rows are to be moved */
    const char *why; /* RD_RNN_OWN: the reason, in words; else "" */
} rd_rnn_choice;
rd_rnn_choice rd_rnn_choose(const rd_rnn_case *c);

/* value: of CUBLAS_WORKSPACE_CONFIG, NULL where it is not set. True: buffers of one size, as in ":4096:2", with which the
 * library's documentation promises that recurrent layers give the same bytes in every run. */
bool rd_rnn_one_buffer(const char *value);

RD_C_END
#endif
