/* rnn_choose.c -- see rnn_choose.h.
 *
 * Which models cuDNN computes: cuDNN's LSTM equals ours if the forget bias is added to the bias of
 * f. Its GRU multiplies by r after the recurrent product, ours before it (TensorFlow's GRUCell). It
 * has no slstm and no glstm. It computes a projection only with its standard algorithm, which takes
 * a product and a pass for each step, like our kernels.
 *
 * What "auto" chooses: "auto" uses cuDNN only for passes that train. Decoded text must not depend
 * on how sentences are put into batches, but the choice does. Only the persistent algorithms save
 * launches, and save reading the weights again at each step. They need sequences of one length. A
 * layer runs forward in time, so rows behind the end of a sequence change nothing before it, and
 * their gradients are zero.
 *
 * cuDNN's persistent kernels are for float32, float16 and double; for bfloat16 it has the standard
 * algorithm alone.
 *
 * A batch is filled up to at most 1.5 times its rows. The limit is 4 times if the layer is narrow,
 * because launches then dominate the cost. The other limits are those within which PyTorch uses
 * these algorithms on GPUs from compute capability 8.0 on. */
#include "rd/rnn_choose.h"
#include <string.h>

enum {
    /* version of cuDNN since which recurrent layers have bfloat16 */
    BFLOAT16_SINCE = 91300,
    SMALL_H = 128,
    STATIC_H = 1024,
    /* widths are multiples of this number */
    STATIC_UNIT = 128,
    STATIC_BATCH = 128,
    /* the number of sequences of a persistent kernel is a multiple of this number */
    BATCH_UNIT = 8,
    /* GPUs with fewer SMs cannot store the weights */
    STATIC_SM = 98,
    MOST_WIDTH = 1 << 20
};

rd_rnn_asked rd_rnn_asked_of(const char *value)
{
    return strcmp(value, "off") == 0  ? RD_RNN_OFF
           : strcmp(value, "on") == 0 ? RD_RNN_ON
                                      : RD_RNN_AUTO;
}

bool rd_rnn_one_buffer(const char *value)
{
    int colons = 0;
    for (const char *c = value ? value : ""; *c; c++) colons += *c == ':';
    return value && value[0] == ':' && colons == 2;
}

static rd_rnn_choice rnn_choose_own(const char *why)
{
    return (rd_rnn_choice){.algo = RD_RNN_OWN, .why = why};
}

static rd_rnn_choice filled(rd_rnn_algo algo, const rd_rnn_case *c, int64_t n_seq)
{
    return (rd_rnn_choice){
        .algo = algo, .n_seq = n_seq, .padded = n_seq * c->n_steps != c->rows, .why = ""};
}

static bool fits_static(const rd_rnn_case *c, int64_t n_seq)
{
    return c->mixed && c->H <= STATIC_H && c->H % STATIC_UNIT == 0 && c->in % STATIC_UNIT == 0 &&
           n_seq <= STATIC_BATCH && c->major >= 8 && c->n_sm >= STATIC_SM &&
           !(c->major == 8 && c->minor == 6);
}

rd_rnn_choice rd_rnn_choose(const rd_rnn_case *c)
{
    const int64_t n_seq = (c->n_seq + BATCH_UNIT - 1) / BATCH_UNIT * BATCH_UNIT,
                  all = n_seq * c->n_steps;
    if (c->asked == RD_RNN_OFF) return rnn_choose_own("cudnn_rnn is off");
    if (c->asked == RD_RNN_AUTO && !c->trains) return rnn_choose_own("no training");
    if (strcmp(c->cell, "lstm") != 0) return rnn_choose_own("cuDNN has no such cell");
    if (c->projects) return rnn_choose_own("a projection");
    if (c->rows == 0) return rnn_choose_own("no rows");
    if (all > INT32_MAX || c->in > MOST_WIDTH || c->H > MOST_WIDTH || c->in < 1)
        return rnn_choose_own("sizes beyond those of the library");
    if (c->library < 90000) return rnn_choose_own("no cuDNN 9");
    if (c->major < 6) return rnn_choose_own("compute capability below 6.0");
    if (!c->one_buffer)
        return rnn_choose_own(
            "CUBLAS_WORKSPACE_CONFIG has several sizes: sums could differ from run to run");
    if (c->bfloat16 && c->asked == RD_RNN_AUTO)
        return rnn_choose_own("cuDNN has no persistent algorithm for bfloat16");
    if (c->bfloat16 && c->library < BFLOAT16_SINCE)
        return rnn_choose_own("bfloat16 needs cuDNN 9.13");
    if (c->bfloat16) return (rd_rnn_choice){.algo = RD_RNN_STANDARD, .n_seq = c->n_seq, .why = ""};
    if (c->H <= SMALL_H && all <= 4 * c->rows) return filled(RD_RNN_SMALL_H, c, n_seq);
    if (2 * all <= 3 * c->rows && fits_static(c, n_seq))
        return filled(RD_RNN_PERSIST_STATIC, c, n_seq);
    if (c->asked == RD_RNN_AUTO) return rnn_choose_own("no persistent algorithm for these sizes");
    return (rd_rnn_choice){.algo = RD_RNN_STANDARD, .n_seq = c->n_seq, .why = ""};
}
