/* ops.c -- every op on the CPU and on the GPU with the same parameters and inputs: results, every
 * gradient, numbers that ops leave on the host.
 *
 * Each case runs in these ways:
 *   - on parameters; on results of other ops, where gradients are first written and not added;
 *     twice on the same inputs, where gradients are added; without recording;
 *   - with mixed products, against float32 of the CPU; some ops also without recording;
 *   - for ops on images and rows that accept 16-bit elements: on such elements, once and twice,
 *     against the CPU with every stored number and gradient rounded to 16 bits at the same places
 *     (stored.h).
 *
 * RD_TEST_CUDNN_RNN=off or on tests recurrent layers alone: by our kernels, or by cuDNN if it
 * computes the same model. Without the variable the rule of "auto" decides. An op or a cell of the
 * registries that has no case is a failure. Without a GPU the test is skipped, unless
 * RD_REQUIRE_GPU=1.
 *
 * Tolerances, relative to the largest number in an array:
 *
 * float32: both sides round each of the K products and sums of a dot product, in different orders.
 * Rounding errors add up like a random walk: sqrt(K) 2^-24 of the largest sum, 2e-6 at K = 1000. A
 * chain of six time steps, or two products after each other, multiplies this by less than ten. If
 * terms cancel (for example in the gradient of a scalar), the error has the size of the terms. So
 * no gradient counts as smaller than 1/100 of the case's largest.
 *
 * mixed: operands keep 8 bits (bfloat16), an error of 2^-9 each. Inputs are multiples of 1/64,
 * which bfloat16 represents exactly. So the result of the first op is exact, and with it the sign
 * at a relu. The gradients of a chain differ by a few 2^-9.
 *
 * 16-bit elements: a number that both sides round may be near the middle of two, and be rounded to
 * either. The tolerance is twice the largest change by one rounding: 2^-8 (bfloat16) or 2^-11. If
 * an op is applied twice, the GPU also rounds the first gradient, and both sides round the sum:
 * twice that tolerance. */
#include "gpu_here.h"
#include "op_kinds.h"

static const double FLOAT32 = 2e-5, MIXED = 3e-2;
enum { TO_EITHER = 2 /* roundings */ };

static const op_case cases[] = {
    {EMBED, .name = "odd sizes", .size = {5, 9, 7}},
    {EMBED, .name = "one row", .size = {1, 1, 1}},
    {EMBED, .name = "one id many times", .size = {1, 33, 700}},
    {EMBED, .name = "more ids than a block", .size = {300, 64, 1500}},
    {EMBED, .name = "wide", .size = {40, 1030, 65}},
    {EMBED, .name = "no ids", .size = {5, 8, 0}},
    {LINEAR, .name = "1x1x1", .size = {1, 1, 1, 1}},
    {LINEAR, .name = "3x5x7", .size = {3, 5, 7, 1}},
    {LINEAR, .name = "70x24x40", .size = {70, 24, 40, 1}},
    {LINEAR, .name = "257x33x129, no bias", .size = {257, 33, 129, 0}},
    {LINEAR, .name = "one column", .size = {600, 8, 1, 1}},
    {LINEAR, .name = "one row", .size = {1, 300, 65, 1}},
    {LINEAR, .name = "70x24x40, 16-bit result", .size = {70, 24, 40, 1, 1}},
    {LINEAR, .name = "257x33x129, no bias, 16-bit result", .size = {257, 33, 129, 0, 1}},
    {LINEAR, .name = "one row, 16-bit result", .size = {1, 300, 65, 1, 1}},
    {PICK, .name = "one input", .size = {9, 4, 5}},
    {PICK, .name = "two inputs", .size = {70, 4, 3, 2, 5}},
    {PICK, .name = "four inputs, many of a row", .size = {600, 3, 16, 1, 1, 40, 8, 7, 33}},
    {PICK, .name = "nothing picked", .size = {0, 4, 3, 2, 5}},
    {XENT, .name = "3x5x7", .size = {3, 5, 7}, .number = {1.0}},
    {XENT, .name = "temperature", .size = {9, 16, 24}, .number = {0.7}},
    {XENT, .name = "one class", .size = {33, 8, 1}, .number = {1.0}},
    {XENT, .name = "one row", .size = {1, 8, 37}, .number = {1.0}},
    {XENT, .name = "more rows than a block", .size = {300, 16, 130}, .number = {1.0}},
    {XENT, .name = "a row wider than shared memory", .size = {5, 8, 20011}, .number = {1.0}},
    {XENT, .name = "table", .size = {9, 16, 24, 0, 1}, .number = {1.0}},
    {XENT, .name = "bias", .size = {9, 16, 24, 0, 0, 1}, .number = {1.0}},
    {XENT, .name = "smoothing", .size = {9, 16, 24}, .number = {1.0, 0.1}},
    {XENT, .name = "smoothing, fairseq", .size = {9, 16, 24, 0, 0, 0, 1}, .number = {1.0, 0.1}},
    {XENT, .name = "weights", .size = {9, 16, 24, 0, 0, 0, 0, 1}, .number = {1.0}},
    {XENT, .name = "classes", .size = {9, 16, 24, 19}, .number = {1.0}},
    {XENT, .name = "all of it", .size = {70, 12, 40, 37, 1, 1, 0, 1}, .number = {0.7, 0.2}},
    {XENT, .name = "all of it, 3001", .size = {9, 12, 3001, 2999, 1, 1, 1, 1},
     .number = {1.0, 0.1}},
    {XENT, .name = "all of it, 9000", .size = {5, 8, 9000, 8001, 1, 1, 1, 1}, .number = {1.0, 0.1}},
    {XENT, .name = "all of it, 33000", .size = {5, 8, 33000, 32900, 1, 1, 0, 1},
     .number = {1.0, 0.1}},
    {XENT, .name = "limited", .size = {9, 16, 24, 0, 0, 0, 0, 0, 1}, .number = {1.0}},
    {XENT, .name = "limited, all of it", .size = {70, 12, 40, 37, 1, 1, 0, 1, 1},
     .number = {0.7, 0.2}},
    {XENT, .name = "limited, all of it, 33000", .size = {5, 8, 33000, 32900, 1, 1, 0, 1, 1},
     .number = {1.0, 0.1}},
    {ATTEND, .name = "one row", .size = {1, 1, 8, 1, 1, 1}, .number = {1.0}},
    {ATTEND, .name = "self", .size = {2, 2, 8, 0, 7, 7, 1, 1, 40, 40}, .number = {1.0}},
    {ATTEND, .name = "causal", .size = {2, 2, 24, 1, 33, 33, 1, 1, 90, 90}, .number = {1.0}},
    {ATTEND, .name = "cross", .size = {2, 2, 8, 0, 5, 11, 17, 1, 1, 70}, .number = {1.0}},
    {ATTEND, .name = "no query", .size = {2, 2, 8, 0, 5, 11, 0, 3, 1, 70}, .number = {1.0}},
    {ATTEND, .name = "grouped heads", .size = {6, 2, 8, 1, 9, 9, 37, 37}, .number = {1.0}},
    {ATTEND, .name = "odd head", .size = {3, 1, 5, 0, 9, 4}, .number = {1.0}},
    {ATTEND, .name = "head of 64", .size = {2, 1, 64, 1, 35, 35}, .number = {1.0}},
    {ATTEND, .name = "head of 128", .size = {1, 1, 128, 0, 20, 33}, .number = {1.0}},
    {ATTEND, .name = "keys before", .size = {2, 2, 8, 1, 3, 9, 35, 70}, .number = {1.0}},
    {ATTEND, .name = "dropout", .size = {2, 2, 8, 0, 7, 7, 40, 40}, .number = {0.9}},
    {ATTEND, .name = "dropout, causal, grouped", .size = {4, 2, 8, 1, 9, 9, 37, 37},
     .number = {0.5}},
    {ATTEND, .name = "head of 136, dropout", .size = {1, 1, 136, 1, 9, 9, 12, 20}, .number = {0.9}},
    {ATTEND, .name = "groups of one sentence",
     .size = {2, 1, 8, 0, 5, 11, 17, 1, 1, 70, ATTEND_PRODUCTS, 1}, .number = {0.9}},
    {ATTEND, .name = "groups of two sentences",
     .size = {2, 1, 5, 1, 5, 11, 17, 18, 1, 40, ATTEND_PRODUCTS, 800}, .number = {0.9}},
    {ATTEND, .name = "blocks, causal, grouped, dropout",
     .size = {4, 2, 24, 1, 9, 9, 1, 1, 70, 130, ATTEND_BLOCKS}, .number = {0.9}},
    {ATTEND, .name = "blocks, cross, dropout",
     .size = {2, 2, 64, 0, 5, 11, 67, 1, 1, 70, ATTEND_BLOCKS}, .number = {0.5}},
    {ATTEND, .name = "blocks, odd head", .size = {2, 1, 5, 1, 70, 70, [ATTEND_WAY] = ATTEND_BLOCKS},
     .number = {1.0}},
    {ATTEND, .name = "blocks, head of 80, causal",
     .size = {1, 1, 80, 1, 40, 40, 35, 35, [ATTEND_WAY] = ATTEND_BLOCKS}, .number = {0.9}},
    {ATTEND, .name = "blocks, head of 128",
     .size = {1, 1, 128, 0, 20, 33, [ATTEND_WAY] = ATTEND_BLOCKS}, .number = {0.9}},
    {ATTEND, .name = "cache", .infers = true,
     .size = {4, 2, 24, 1, 9, 20, 1, 1, 40, 70, [ATTEND_CACHE] = 1}, .number = {1.0}},
    {ATTEND, .name = "cache, products", .infers = true,
     .size = {2, 1, 8, 1, 1, 20, 1, 33, [ATTEND_WAY] = ATTEND_PRODUCTS, [ATTEND_CACHE] = 1},
     .number = {1.0}},
    {ATTEND, .name = "cache, one query", .infers = true,
     .size = {4, 2, 24, 1, 1, 20, 1, 70, [ATTEND_CACHE] = 1}, .number = {1.0}},
    {ATTEND, .name = "rows, causal, grouped",
     .size = {4, 2, 24, 1, 33, 33, 1, 1, 40, 40, ATTEND_ROWS}, .number = {0.5}},
    {ATTEND, .name = "rows, cross", .size = {2, 2, 8, 0, 5, 11, 17, 1, 1, 70, ATTEND_ROWS},
     .number = {1.0}},
    {ATTEND, .name = "rows, head of 64", .size = {2, 1, 64, 1, 35, 35, [ATTEND_WAY] = ATTEND_ROWS},
     .number = {0.9}},
    {ATTEND, .name = "rows, head of 128",
     .size = {1, 1, 128, 0, 20, 33, [ATTEND_WAY] = ATTEND_ROWS}, .number = {1.0}},
    {SSRU, .name = "one number", .size = {1, 0, 1}},
    {SSRU, .name = "one row, state", .size = {7, 1, 1}},
    {SSRU, .name = "three sentences", .size = {33, 0, 7, 1, 12}},
    {SSRU, .name = "states, an empty sentence", .size = {33, 1, 3, 0, 5, 1}},
    {SSRU, .name = "more columns than a block", .size = {300, 1, 30, 1, 9, 17, 2}},
    {SSRU, .name = "long", .size = {64, 1, 150, 300}},
    {LAYER_NORM, .name = "one row", .size = {1, 7, 0, 1}},
    {LAYER_NORM, .name = "no rows", .size = {0, 7, 0, 1}},
    {LAYER_NORM, .name = "odd sizes, no bias", .size = {9, 33, 0, 0}},
    {LAYER_NORM, .name = "several chunks", .size = {300, 65, 0, 1}},
    {LAYER_NORM, .name = "unequal chunks", .size = {2085, 5, 0, 1}},
    {LAYER_NORM, .name = "wide", .size = {3, 1030, 0, 1}},
    {LAYER_NORM, .name = "rms", .size = {70, 33, 1, 0}},
    {LAYER_NORM, .name = "rms, bias", .size = {9, 8, 1, 1}},
    {ACTIVATE, .name = "relu2", .size = {9, 33, RD_ACT_RELU2}},
    {ACTIVATE, .name = "gelu_tanh", .size = {9, 33, RD_ACT_GELU_TANH}},
    {ACTIVATE, .name = "gelu_erf", .size = {9, 33, RD_ACT_GELU_ERF}},
    {ACTIVATE, .name = "silu", .size = {9, 33, RD_ACT_SILU}},
    {ACTIVATE, .name = "one number", .size = {1, 1, RD_ACT_GELU_TANH}},
    {ACTIVATE, .name = "no rows", .size = {0, 7, RD_ACT_SILU}},
    {ACTIVATE, .name = "more than a block", .size = {300, 65, RD_ACT_GELU_ERF}},
    {MULTIPLY, .name = "product", .size = {9, 33}},
    {MULTIPLY, .name = "square", .size = {9, 33, 1}},
    {MULTIPLY, .name = "no rows", .size = {0, 7}},
    {MULTIPLY, .name = "more than a block", .size = {300, 65}},
    {ROTARY, .name = "plain", .size = {9, 2, 1, 8, 8}},
    {ROTARY, .name = "gains", .size = {9, 2, 1, 8, 8, 1}},
    {ROTARY, .name = "gains, no positions", .size = {33, 3, 2, 6, 5, 1, 1}},
    {ROTARY, .name = "no rows", .size = {0, 2, 1, 8, 8, 1}},
    {ROTARY, .name = "one row", .size = {1, 1, 1, 2, 0, 1}},
    {ROTARY, .name = "wide, many rows", .size = {300, 4, 2, 128, 64, 1}},
    {RESIDUAL_SUM, .name = "no dropout", .size = {9, 33, 1}, .number = {1.0}},
    {RESIDUAL_SUM, .name = "dropout, odd", .size = {9, 33, 1}, .number = {0.8}},
    {RESIDUAL_SUM, .name = "dropout, by eight", .size = {70, 40, 1}, .number = {0.8}},
    {RESIDUAL_SUM, .name = "one number", .size = {1, 1, 1}, .number = {0.5}},
    {RESIDUAL_SUM, .name = "no rows", .size = {0, 7, 1}, .number = {0.5}},
    {RESIDUAL_SUM, .name = "float32 sum", .size = {9, 33, 1, 1}, .number = {0.8}},
    {RESIDUAL_SUM, .name = "float32 sum, by eight", .size = {70, 40, 1, 1}, .number = {0.8}},
    {RESIDUAL_SUM, .name = "float32 sum, no dropout", .size = {9, 40, 1, 1}, .number = {1.0}},
    {RESIDUAL_SUM, .name = "float32 x", .size = {9, 33, 1, 0, 1}, .number = {0.8}},
    {RESIDUAL_SUM, .name = "float32 x, by eight", .size = {70, 40, 1, 0, 1}, .number = {0.8}},
    {RESIDUAL_SUM, .name = "float32 x, no dropout", .size = {9, 40, 1, 0, 1}, .number = {1.0}},
    {RESIDUAL_SUM, .name = "alone, float32", .size = {9, 40, 0, 1}, .number = {0.7}},
    {RESIDUAL_SUM, .name = "alone", .size = {9, 33, 0}, .number = {0.7}},
    {RESIDUAL_SUM, .name = "alone, no dropout", .size = {9, 33, 0}, .number = {1.0}},
    {RESIDUAL_SUM, .name = "alone, many rows", .size = {600, 40, 0}, .number = {0.9}},
    {POSITIONS, .name = "pairs", .size = {9, 34, RD_SINUSOID_PAIRS}, .number = {1.5}},
    {POSITIONS, .name = "halves", .size = {9, 34, RD_SINUSOID_HALVES}, .number = {1.0}},
    {POSITIONS, .name = "t2t, odd", .size = {9, 33, RD_SINUSOID_T2T}, .number = {1.5}},
    {POSITIONS, .name = "one row", .size = {1, 8, RD_SINUSOID_PAIRS}, .number = {1.5}},
    {POSITIONS, .name = "no rows", .size = {0, 8, RD_SINUSOID_PAIRS}, .number = {1.5}},
    {POSITIONS, .name = "many rows", .size = {600, 64, RD_SINUSOID_HALVES}, .number = {8.0}},
    {CLASS, .name = "odd sizes", .size = {5, 11}, .number = {0.0}},
    {CLASS, .name = "smoothing", .size = {37, 10}, .number = {0.1}},
    {CLASS, .name = "1000 classes", .size = {9, 1000}, .number = {0.1}},
    {CLASS, .name = "one sample, one class", .size = {1, 1}, .number = {0.1}},
    {CLASS, .name = "many samples", .size = {600, 3}, .number = {0.0}},
    {RNN, .name = "lstm, odd", .cell = "lstm", .size = {3, 6, 5, 7}, .number = {1, 1}},
    {RNN, .name = "lstm, one sequence", .cell = "lstm", .size = {1, 6, 1, 1}, .number = {1, 1}},
    {RNN, .name = "lstm, one step", .cell = "lstm", .size = {9, 1, 5, 7}, .number = {1, 1}},
    {RNN, .name = "lstm, no sequence", .cell = "lstm", .size = {0, 1, 5, 7}, .number = {1, 1}},
    {RNN, .name = "lstm, no step", .cell = "lstm", .size = {0, 0, 5, 7}, .number = {1, 1}},
    {RNN, .name = "lstm, many sequences", .cell = "lstm", .size = {70, 6, 16, 8}, .number = {1, 1}},
    {RNN, .name = "lstm, wide", .cell = "lstm", .size = {5, 4, 64, 130}, .number = {1, 1}},
    {RNN, .name = "lstm, dropout, residual", .cell = "lstm", .size = {5, 6, 16, 16, [RESIDUAL] = 1},
     .number = {0.8, 0.7}},
    {RNN, .name = "lstm, projection", .cell = "lstm", .size = {5, 6, 8, 24, 16}, .number = {1, 1}},
    {RNN, .name = "lstm, projection, dropout, residual", .cell = "lstm",
     .size = {5, 6, 17, 24, 17, [RESIDUAL] = 1}, .number = {0.6, 0.9}},
    {RNN, .name = "lstm, joined context", .cell = "lstm", .size = {5, 6, 16, 8, 0, 23},
     .number = {0.8, 1}},
    {RNN, .name = "gru", .cell = "gru", .size = {5, 6, 16, 24}, .number = {1, 1}},
    {RNN, .name = "gru, odd, dropout, residual", .cell = "gru",
     .size = {4, 6, 9, 9, [RESIDUAL] = 1}, .number = {0.7, 0.8}},
    {RNN, .name = "gru, many sequences", .cell = "gru", .size = {70, 3, 16, 40}, .number = {1, 1}},
    {RNN, .name = "gru, no sequence", .cell = "gru", .size = {0, 1, 16, 40}, .number = {1, 1}},
    {RNN, .name = "slstm", .cell = "slstm", .size = {5, 6, 16, 24}, .number = {1, 1}},
    {RNN, .name = "slstm, joined context, dropout, residual", .cell = "slstm",
     .size = {5, 6, 8, 8, 0, 16, [RESIDUAL] = 1}, .number = {0.9, 0.9}},
    {RNN, .name = "slstm, odd", .cell = "slstm", .size = {37, 3, 5, 7}, .number = {1, 1}},
    {RNN, .name = "slstm, no sequence", .cell = "slstm", .size = {0, 1, 16, 24}, .number = {1, 1}},
    {RNN, .name = "glstm, one group", .cell = "glstm", .size = {5, 6, 16, 24, 0, 0, 1},
     .number = {1, 1}},
    {RNN, .name = "glstm, two groups, dropout", .cell = "glstm", .size = {5, 6, 16, 32, 0, 0, 2},
     .number = {0.8, 0.8}},
    {RNN, .name = "glstm, three groups, projection", .cell = "glstm",
     .size = {40, 3, 12, 24, 18, 0, 3}, .number = {1, 1}},
    {RNN, .name = "glstm, four groups, joined context", .cell = "glstm",
     .size = {5, 6, 16, 32, 0, 16, 4}, .number = {1, 1}},
    {RNN, .name = "glstm, no sequence", .cell = "glstm", .size = {0, 1, 16, 32, 0, 0, 2},
     .number = {1, 1}},
    {STACK, .name = "two layers, odd", .cell = "lstm", .size = {3, 6, 7, 0, 2, 9, 2},
     .number = {1, 1}},
    {STACK, .name = "four layers, dropout, residual", .cell = "lstm",
     .size = {5, 6, 16, 0, 4, 1, 4}, .number = {0.8, 0.7}},
    {STACK, .name = "residual from the lowest layer on", .cell = "lstm",
     .size = {5, 6, 16, 0, 3, 0, 3}, .number = {0.8, 1}},
    {STACK, .name = "joined context, dropout", .cell = "lstm", .size = {5, 6, 8, 23, 3, 1, 3},
     .number = {0.8, 0.9}},
    {STACK, .name = "one length, joined context", .cell = "lstm",
     .size = {4, 5, 16, 16, 3, 1, 3, 1}, .number = {0.8, 1}},
    {STACK, .name = "one sequence, one step", .cell = "lstm", .size = {1, 1, 5, 0, 2, 9, 2},
     .number = {1, 1}},
    {STACK, .name = "more layers than steps", .cell = "lstm", .size = {9, 2, 8, 0, 6, 2, 6},
     .number = {0.9, 1}},
    {STACK, .name = "many sequences", .cell = "lstm", .size = {70, 6, 16, 8, 2, 9, 2},
     .number = {1, 1}},
    {STACK, .name = "wide", .cell = "lstm", .size = {4, 3, 130, 0, 2, 9, 2}, .number = {1, 1}},
    {STACK, .name = "a third layer of another width", .cell = "lstm", .size = {5, 4, 8, 0, 3, 9, 2},
     .number = {1, 1}},
    {STACK, .name = "no sequence", .cell = "lstm", .size = {0, 1, 8, 0, 2, 9, 2}, .number = {1, 1}},
    {STACK, .name = "another cell", .cell = "gru", .size = {5, 6, 8, 0, 2, 9, 2}, .number = {1, 1}},
    {DECODER, .name = "bahdanau, odd", .cell = "lstm",
     .size = {4, 6, 0, 7, 0, 0, 0, 0, RD_ATT_BAHDANAU, 5, 6, 0, 1}, .number = {1, 1}},
    {DECODER, .name = "bahdanau, one sequence, one step", .cell = "lstm",
     .size = {1, 1, 0, 7, 0, 0, 0, 0, RD_ATT_BAHDANAU, 5, 6, 0, 1}, .number = {1, 1}},
    {DECODER, .name = "bahdanau normalised, two layers", .cell = "lstm",
     .size = {5, 6, 0, 16, 0, 0, 0, 0, RD_ATT_BAHDANAU_NORM, 8, 16, 0, 2}, .number = {1, 1}},
    {DECODER, .name = "bahdanau normalised, many sequences", .cell = "lstm",
     .size = {70, 4, 0, 8, 0, 0, 0, 0, RD_ATT_BAHDANAU_NORM, 8, 8, 0, 1}, .number = {1, 1}},
    {DECODER, .name = "bahdanau normalised, wide", .cell = "lstm",
     .size = {3, 3, 0, 130, 0, 0, 0, 0, RD_ATT_BAHDANAU_NORM, 33, 260, 0, 1}, .number = {1, 1}},
    {DECODER, .name = "luong", .cell = "lstm",
     .size = {5, 6, 0, 16, 0, 0, 0, 0, RD_ATT_LUONG, 8, 16, 0, 1}, .number = {1, 1}},
    {DECODER, .name = "luong, odd, many sequences", .cell = "gru",
     .size = {70, 3, 0, 13, 0, 0, 0, 0, RD_ATT_LUONG, 5, 11, 0, 1}, .number = {1, 1}},
    {DECODER, .name = "luong scaled, dropout", .cell = "lstm",
     .size = {5, 6, 0, 16, 0, 0, 0, 0, RD_ATT_LUONG_SCALED, 8, 16, 0, 1}, .number = {0.8, 0.7}},
    {DECODER, .name = "bahdanau, W_in, dropout, two layers", .cell = "lstm",
     .size = {5, 6, 0, 16, 0, 0, 0, 0, RD_ATT_BAHDANAU, 8, 16, 16, 2}, .number = {0.7, 0.8}},
    {DECODER, .name = "bahdanau, W_in, dropout, residual", .cell = "lstm",
     .size = {5, 6, 0, 16, 0, 0, 0, 1, RD_ATT_BAHDANAU, 8, 16, 16, 2}, .number = {0.7, 0.8}},
    {DECODER, .name = "luong, projection", .cell = "lstm",
     .size = {5, 6, 0, 16, 8, 0, 0, 0, RD_ATT_LUONG, 8, 16, 0, 1}, .number = {1, 1}},
    {DECODER, .name = "bahdanau normalised, gru, dropout", .cell = "gru",
     .size = {5, 6, 0, 16, 0, 0, 0, 0, RD_ATT_BAHDANAU_NORM, 8, 16, 0, 2}, .number = {0.9, 1}},
    {DECODER, .name = "no sequence", .cell = "lstm",
     .size = {0, 1, 0, 8, 0, 0, 0, 0, RD_ATT_BAHDANAU, 8, 8, 0, 1}, .number = {1, 1}},
    {CONV, .name = "one channel 3x3", .size = {2, 9, 9, 1, 3, 3, 32, 1, 0, 3}},
    {CONV, .name = "7x7 stride 2", .size = {2, 15, 13, 3, 7, 7, 16, 2, 3333, 0}},
    {CONV, .name = "11x11 stride 4", .size = {1, 23, 27, 3, 11, 11, 8, 4, 2222, 3}},
    {CONV, .name = "1x1", .size = {2, 5, 7, 16, 1, 1, 64, 1, 0, 0}},
    {CONV, .name = "1x1 stride 2, even size", .size = {2, 6, 8, 16, 1, 1, 32, 2, 0, 0}},
    {CONV, .name = "3x3 stride 2, padding after alone", .size = {2, 8, 8, 16, 3, 3, 16, 2, 11, 1}},
    {CONV, .name = "5x5, asymmetric padding", .size = {2, 6, 7, 16, 5, 5, 24, 1, 2103, 1}},
    {CONV, .name = "17 channels to 17", .size = {2, 5, 5, 17, 3, 3, 17, 1, 1111, 3}},
    {CONV, .name = "3 channels to 5", .size = {3, 6, 5, 3, 3, 3, 5, 1, 1012, 3}},
    {CONV, .name = "1x1 image", .size = {3, 1, 1, 16, 3, 3, 16, 1, 1111, 1}},
    {CONV, .name = "oblong kernel", .size = {2, 6, 6, 8, 1, 5, 16, 1, 202, 3}},
    {CONV, .name = "slices of rows", .size = {4, 30, 31, 8, 3, 3, 20, 1, 1111, 3}},
    {CONV, .name = "relu, then a pool", .size = {2, 8, 8, 3, 3, 3, 16, 1, 1111, 7}},
    {NORM, .name = "16 channels", .size = {3, 5, 4, 16, 0, 0}},
    {NORM, .name = "17 channels, relu", .size = {3, 5, 3, 17, 0, 1}},
    {NORM, .name = "one channel", .size = {3, 5, 3, 1, 0, 0}},
    {NORM, .name = "addition", .size = {3, 3, 3, 24, 0, 2}},
    {NORM, .name = "addition, relu, 130 channels", .size = {2, 4, 5, 130, 0, 3}},
    {NORM, .name = "groups", .size = {5, 3, 3, 16, 2, 0}},
    {NORM, .name = "groups, addition, relu", .size = {5, 4, 3, 17, 3, 3}},
    {NORM, .name = "a group larger than the batch", .size = {3, 3, 3, 8, 32, 0}},
    {NORM, .name = "many pixels", .size = {4, 33, 31, 4, 0, 1}},
    {NORM, .name = "slices of rows", .size = {8, 24, 23, 16, 0, 1}},
    {NORM, .name = "slices of rows, 3 channels", .size = {6, 40, 31, 3, 0, 0}},
    {NORM, .name = "slices of rows, groups, addition, relu", .size = {5, 16, 15, 132, 2, 3}},
    {NORM, .name = "slices of rows, 65 channels", .size = {4, 18, 17, 65, 0, 2}},
    {POOL, .name = "max 2x2", .size = {2, 6, 8, 16, RD_POOL_MAX, 2, 2, 0}},
    {POOL, .name = "max 2x2, odd", .size = {2, 5, 7, 17, RD_POOL_MAX, 2, 2, 0}},
    {POOL, .name = "max 3x3 stride 2, padded", .size = {2, 8, 7, 16, RD_POOL_MAX, 3, 2, 1111}},
    {POOL, .name = "max 3x3 stride 2, padded after", .size = {2, 8, 8, 3, RD_POOL_MAX, 3, 2, 11}},
    {POOL, .name = "max 3x3 stride 1", .size = {1, 6, 5, 8, RD_POOL_MAX, 3, 1, 0}},
    {POOL, .name = "max 1x1 stride 2", .size = {1, 5, 5, 8, RD_POOL_MAX, 1, 2, 0}},
    {POOL, .name = "max 3x3 stride 2, padded, many",
     .size = {2, 28, 29, 64, RD_POOL_MAX, 3, 2, 1111}},
    {POOL, .name = "max 16x16", .size = {1, 17, 18, 8, RD_POOL_MAX, 16, 1, 0}},
    {POOL, .name = "max 17x17", .size = {1, 17, 18, 8, RD_POOL_MAX, 17, 1, 0}},
    {POOL, .name = "mean 2x2", .size = {2, 4, 6, 16, RD_POOL_MEAN, 2, 2, 0}},
    {POOL, .name = "mean 3x3 stride 2, padded", .size = {2, 8, 7, 17, RD_POOL_MEAN, 3, 2, 1111}},
    {MEAN, .name = "17 channels", .size = {3, 4, 5, 17}},
    {MEAN, .name = "one pixel", .size = {3, 1, 1, 64}},
    {LRN, .name = "17 channels", .size = {2, 3, 4, 17, 4}},
    {LRN, .name = "64 channels", .size = {2, 5, 3, 64, 4}},
    {LRN, .name = "fewer channels than the window", .size = {1, 2, 2, 3, 4}},
    {MEAN, .name = "many channels", .size = {2, 7, 7, 520}},
    {FLATTEN, .name = "17 channels", .size = {3, 2, 3, 17}},
    {RELU, .name = "17 channels", .size = {2, 3, 3, 17}},
    {RELU, .name = "multiple of 4", .size = {2, 3, 3, 16}},
    {ADD, .name = "17 channels", .size = {2, 3, 3, 17, 0}},
    {ADD, .name = "relu", .size = {2, 3, 3, 16, 1}},
    {ADD, .name = "an image to itself, relu", .size = {2, 3, 3, 16, 1, 1}},
    {SHORTCUT, .name = "16 to 32", .size = {2, 6, 6, 16, 2, 32}},
    {SHORTCUT, .name = "odd", .size = {2, 5, 7, 17, 2, 20}},
    {SHORTCUT, .name = "stride 3, no new channel", .size = {1, 7, 7, 8, 3, 8}},
    {DROPOUT, .name = "images", .size = {4, 3, 5, 17}, .number = {0.75}},
    {DROPOUT, .name = "rows", .size = {5, 101}, .number = {0.5}},
    {DROPOUT, .name = "rows, multiple of 8", .size = {9, 256}, .number = {0.9}},
    {DROPOUT, .name = "keeps all", .size = {3, 16}, .number = {1.0}},
    {CHAIN, .name = "rectified, dropped out, rectified", .size = {3, 4, 4, 5, 1, 1, 8, 1, 0, 3}},
    {IMAGE, .name = "a batch", .size = {2, 5, 3, 3}},
    {CAST, .name = "17 channels", .size = {2, 5, 3, 17}},
    {CAST, .name = "16 channels", .size = {2, 3, 3, 16}},
};
enum { N_CASES = sizeof cases / sizeof *cases, MOST_MATRIX = 8 * 5 * 2 * 2 };

/* ---- running and comparing ---- */
/* Call it before backward, which uses the memory of values for gradients. */
static void keep_values(trial *t)
{
    for (int k = 0; k < t->n_out; k++) t->n_values += t->out[k]->rows * t->out[k]->cols;
    t->values = malloc((size_t)(t->n_values + 1) * sizeof *t->values);
    float *to = t->values;
    for (int k = 0; k < t->n_out; k++) {
        const int64_t n = t->out[k]->rows * t->out[k]->cols;
        float *x = h_read(&t->h, t->out[k], false);
        memcpy(to, x, (size_t)n * sizeof *to);
        free(x);
        to += n;
    }
}

static void keep_results(trial *t)
{
    for (int k = 0; k < t->n_lists; k++) t->n_integers += t->lists[k].n;
    t->integers = malloc((size_t)(t->n_integers + 1) * sizeof *t->integers);
    int32_t *i = t->integers;
    for (int k = 0; k < t->n_lists; i += t->lists[k++].n)
        if (t->lists[k].n) memcpy(i, t->lists[k].at, (size_t)t->lists[k].n * sizeof *i);
    const size_t bytes = (size_t)rd_params_span(t->h.ps) * sizeof *t->grads;
    t->grads = malloc(bytes + 1);
    memcpy(t->grads, test_grads(t->h.ps), bytes);
}

static void run(trial *t, const op_case *c, way how, bool gpu)
{
    rd_status st = {0};
    rd_backend *be;
    const bool grad = has_gradient(how);
    *t = (trial){.c = c, .how = how, .gpu = gpu};
    if (gpu)
        h_gpu_backend_rnn(1, how >= MIXED_PRODUCTS, rnn_of(c), &be, &st);
    else
        rd_backend_cpu_new(1, false, &be, &st);
    must(&st);
    h_init_with(&t->h, be);
    c->declare(t);
    h_fill(&t->h, 0.6, MOST_ELEMENTS);
    if (how >= MIXED_PRODUCTS) h_shorten(&t->h);
    rd_tape_reset(t->h.tape, grad, grad);
    c->apply(t);
    if (how == TWICE || how == NARROW_TWICE) c->apply(t);
    rd_tape_check(t->h.tape, &st);
    must(&st);
    keep_values(t);
    if (grad) {
        int64_t n = 0;
        for (int k = 0; k < t->n_out; k++) n += t->out[k]->rows * t->out[k]->cols;
        assert_true(n <= MOST_ELEMENTS);
        rd_var *loss = t->loss ? t->loss : h_weighted(&t->h, t->out, t->n_out);
        rd_tape_check(t->h.tape, &st);
        must(&st);
        rd_tape_backward(t->h.tape, loss, &st);
        must(&st);
    }
    keep_results(t);
}

static void done(trial *t)
{
    free(t->values);
    free(t->grads);
    free(t->integers);
    h_free(&t->h);
}

static double largest(int64_t n, const float *x)
{
    double most = 0.0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs((double)x[i]));
    return most;
}

static void compare(const trial *a, const char *what, int64_t n, const float *want,
                    const float *got, double least, double tolerance)
{
    const double most = fmax(largest(n, want), least);
    /* two numbers that were rounded before the addition may cancel, or almost cancel */
    const bool zeros = a->c->zeros && a->how != NARROW_TWICE;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= tolerance * most) ||
            (zeros && (got[i] == 0.0f) != (want[i] == 0.0f)))
            fail_msg(
                "%s, %s: %s, element %lld of %lld: %.9g on the GPU, %.9g on the CPU (largest %.3g)",
                a->c->name, way_names[a->how], what, (long long)i, (long long)n, (double)got[i],
                (double)want[i], most);
}

static void test_case(void **state)
{
    const op_case *c = *state;
    for (int how = 0; how < N_WAYS; how++) {
        trial cpu, gpu;
        const double tolerance = how == MIXED_PRODUCTS || how == MIXED_NO_GRADIENT ? MIXED
                                 : how == NARROW       ? TO_EITHER * roundoff()
                                 : how == NARROW_TWICE ? 2 * TO_EITHER * roundoff()
                                                       : FLOAT32;
        if ((how == TWICE && c->is_loss) || (how == MIXED_NO_GRADIENT && !c->infers) ||
            (how >= NARROW && !c->narrow))
            continue;
        run(&cpu, c, (way)how, false);
        run(&gpu, c, (way)how, true);
        assert_int_equal(cpu.n_values, gpu.n_values);
        compare(&cpu, "result", cpu.n_values, cpu.values, gpu.values, 0.0, tolerance);
        const double least = largest(rd_params_span(cpu.h.ps), cpu.grads) / 100.0;
        for (int i = 0; i < rd_params_n(cpu.h.ps); i++) {
            const rd_param *p = rd_params_at(cpu.h.ps, i);
            char what[192];
            snprintf(what, sizeof what, "gradient of %s", p->name);
            compare(&cpu, what, p->n, cpu.grads + p->offset, gpu.grads + p->offset, least,
                    tolerance);
        }
        assert_int_equal(cpu.n_integers, gpu.n_integers);
        for (int64_t i = 0; i < cpu.n_integers && how < MIXED_PRODUCTS; i++)
            if (cpu.integers[i] != gpu.integers[i])
                fail_msg("%s, %s: integer %lld: %d on the GPU, %d on the CPU", c->name,
                         way_names[how], (long long)i, (int)gpu.integers[i], (int)cpu.integers[i]);
        for (int k = 0; k < cpu.n_sums; k++)
            if (!(fabs(cpu.sum[k] - gpu.sum[k]) <= tolerance * fabs(cpu.sum[k]) + 1e-12))
                fail_msg("%s, %s: sum %d: %.9g on the GPU, %.9g on the CPU", c->name,
                         way_names[how], k, gpu.sum[k], cpu.sum[k]);
        done(&cpu);
        done(&gpu);
    }
}

/* ---- none is forgotten ---- */
#define RD_ENTRY(name) #name,
static const char *const all_ops[] = {
#include "ops.inc"
};
static const char *const all_cells[] = {
#include "cells.inc"
};
#undef RD_ENTRY

static void test_all_have_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof all_ops / sizeof *all_ops; i++) {
        bool has = false;
        for (int k = 0; k < N_CASES; k++) has |= strcmp(cases[k].op, all_ops[i]) == 0;
        if (!has) fail_msg("op %s has no case in tests/gpu/ops.c", all_ops[i]);
    }
    for (size_t i = 0; i < sizeof all_cells / sizeof *all_cells; i++) {
        bool has = false;
        for (int k = 0; k < N_CASES; k++)
            has |= cases[k].cell && strcmp(cases[k].cell, all_cells[i]) == 0;
        if (!has) fail_msg("cell %s has no case in tests/gpu/ops.c", all_cells[i]);
    }
}

/* An op that does not declare 16-bit inputs never gets them; it reads a 16-bit variable as
 * float32. */
static void test_guard(void **state)
{
    (void)state;
    trial t = {.how = NARROW, .gpu = true};
    rd_status st = {0};
    rd_backend *be;
    h_gpu_backend(1, true, &be, &st);
    must(&st);
    h_init_with(&t.h, be);
    matrix(&t, 3, 5);
    h_fill(&t.h, 0.6, MOST_ELEMENTS);
    rd_var *x = input(&t, 0);
    rd_tape_check(t.h.tape, &st);
    must(&st);
    assert_int_equal(x->type, narrow_type);
    float *got = h_read(&t.h, x, false);
    for (int i = 0; i < 15; i++) assert_true(got[i] == rounded((float)t.h.x[0][i]));
    free(got);
    assert_null(rd_op_pick(t.h.tape, 1, &x, (const int64_t *[]){rows_in_order(&t, 3)}, 3));
    assert_int_equal(rd_tape_check(t.h.tape, &st), RD_EBUG);
    assert_non_null(strstr(st.msg, "op 'pick' takes float32"));
    h_free(&t.h);
}

/* ---- attention at all lengths, for CASES=all ---- */

/* Writes the cases if all are asked for, and returns their number: each length and width of a head,
 * with and without dropout, by the program's choice and by rows. */
static int attend_matrix(op_case *to)
{
    static const int lengths[] = {1, 7, 8, 63, 64, 65, 257, 1024}, heads[] = {8, 24, 64, 80, 128};
    static char names[MOST_MATRIX][64];
    int n = 0;
    for (int i = 0; i < MOST_MATRIX && all_cases(); i++) {
        const int T = lengths[i / 20], hs = heads[i / 4 % 5], rows = i % 4 / 2, few = T > 257;
        op_case c = {ATTEND, .name = names[n], .infers = true,
                     .size = {few ? 1 : 2, 1, hs, i / 4 % 2, T, T, 5,
                              5, [ATTEND_WAY] = rows ? ATTEND_ROWS : ATTEND_RULE},
                     .number = {i % 2 ? 0.9 : 1.0}};
        snprintf(names[n], sizeof names[n], "T %d, head %d%s%s%s", T, hs, i % 2 ? ", dropout" : "",
                 i / 4 % 2 ? ", causal" : "", rows ? ", rows" : "");
        to[n++] = c;
    }
    return n;
}

int main(void)
{
    static op_case copies[N_CASES + MOST_MATRIX]; /* cmocka's state is not const */
    static char names[N_CASES + MOST_MATRIX][128];
    const struct CMUnitTest complete[] = {cmocka_unit_test(test_all_have_cases)};
    struct CMUnitTest t[N_CASES + MOST_MATRIX + 1];
    int status = cmocka_run_group_tests_name("cases", complete, NULL, NULL);
    if (status != 0 || !gpu_here(1, &status)) return status != 0;
    const char *only = getenv("RD_TEST_ONLY");
    if (getenv("RD_TEST_CUDNN_RNN")) only = "rnn_*";
    if (only) cmocka_set_test_filter(only);
    memcpy(copies, cases, sizeof cases);
    rd_status st = {0};
    rd_backend *mixed;
    h_gpu_backend(1, true, &mixed, &st);
    narrow_type = rd_backend_activations(mixed);
    rd_backend_free(mixed);
    const int n = N_CASES + attend_matrix(copies + N_CASES);
    for (int i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "%s: %s", copies[i].op, copies[i].name);
        t[i] = (struct CMUnitTest){names[i], test_case, NULL, NULL, &copies[i]};
    }
    t[n] = (struct CMUnitTest){"16 bits for an op of float32", test_guard, NULL, NULL, NULL};
    return _cmocka_run_group_tests("ops: the GPU against the CPU", t, (size_t)n + 1, NULL, NULL) !=
           0;
}
