/* rnn_choose.h -- what computes a recurrent layer on a GPU: our kernels, or cuDNN.
 *
 * Our kernels compute step by step. cuDNN's recurrent layers compute all steps at once. The
 * functions only decide. They touch no GPU, and the file is in every build. The answer depends on
 * the arguments alone, so a run that resumes from a checkpoint computes exactly like the run before
 * it. */
#ifndef RD_RNN_CHOOSE_H
#define RD_RNN_CHOOSE_H

#include "rd/status.h"
#include <stdint.h>

RD_C_BEGIN

/* The values of the key "cudnn_rnn". */
typedef enum rd_rnn_asked { RD_RNN_AUTO, RD_RNN_OFF, RD_RNN_ON } rd_rnn_asked;

/* Returns the enumerator for a value of the key: "auto", "off" or "on". */
rd_rnn_asked rd_rnn_asked_of(const char *value);

typedef struct rd_rnn_case {
    rd_rnn_asked asked;
    /* cell type; cuDNN's LSTM equals ours, so "lstm" is the only type that cuDNN can compute */
    const char *cell;
    /* the layer has a projection: h = m W_p */
    bool projects;
    /* in: width of all inputs, with the columns that gnmt joins to h; H: number of units */
    int64_t in, H;
    /* of the packed batch: time steps, sequences at the first step, rows of all steps */
    int64_t n_steps, n_seq, rows;
    /* a backward pass follows */
    bool trains;
    /* operands have 16 bits, and these are bfloat16 */
    bool mixed, bfloat16;
    /* the GPU's compute capability and its number of streaming multiprocessors */
    int major, minor, n_sm;
    /* cuDNN's version, major * 10000 + minor * 100 + patch; 0: cuDNN is missing */
    int library;
    /* cuBLAS uses one size of buffers: rd_rnn_one_buffer */
    bool one_buffer;
} rd_rnn_case;

typedef enum rd_rnn_algo {
    /* our kernels: a product and a pass over the gates for each time step */
    RD_RNN_OWN,
    /* cuDNN's standard algorithm: the same launches; sequences of any lengths */
    RD_RNN_STANDARD,
    /* cuDNN's persistent algorithm: one kernel for all steps, which keeps the recurrent weights on
     * the SMs; all sequences have one length */
    RD_RNN_PERSIST_STATIC,
    /* cuDNN's persistent algorithm for narrow layers */
    RD_RNN_SMALL_H
} rd_rnn_algo;

typedef struct rd_rnn_choice {
    rd_rnn_algo algo;
    /* number of sequences in the batch that cuDNN gets; all sequences are as long as the longest
     * one, except with RD_RNN_STANDARD */
    int64_t n_seq;
    /* that batch has more rows than the packed batch, so rows must be moved */
    bool padded;
    /* RD_RNN_OWN: the reason, in words; else "" */
    const char *why;
} rd_rnn_choice;

/* Returns the algorithm for a layer. */
rd_rnn_choice rd_rnn_choose(const rd_rnn_case *c);

/* Returns whether CUBLAS_WORKSPACE_CONFIG has buffers of one size, as in ":4096:2". The
 * documentation of cuDNN promises that recurrent layers then give the same bytes in every run.
 * value: the value of the variable, NULL if it is not set. */
bool rd_rnn_one_buffer(const char *value);

RD_C_END
#endif
