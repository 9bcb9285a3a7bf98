/* search_options.c -- the keys of decoding, and the rules that they give. */
#include "rd/search.h"
#include <inttypes.h>

static const char *const decoder_types[] = {[RD_DECODER_GREEDY] = "greedy",
                                            [RD_DECODER_BEAM_SEARCH] = "beam_search",
                                            [RD_DECODER_SAMPLING] = "sampling",
                                            NULL};
static const char *const forms[] = {[RD_LENGTH_OPENSEQ2SEQ] = "openseq2seq",
                                    [RD_LENGTH_SOCKEYE] = "sockeye",
                                    [RD_LENGTH_GNMT] = "gnmt",
                                    [RD_LENGTH_MARIAN] = "marian",
                                    [RD_LENGTH_FAIRSEQ] = "fairseq",
                                    NULL};
static const char *const coverages[] = {
    [RD_COVERAGE_GNMT] = "gnmt", [RD_COVERAGE_SUMMARY] = "summary", NULL};
static const char *const formats[] = {[RD_FORMAT_TEXT] = "text",
                                      [RD_FORMAT_NBEST] = "nbest",
                                      [RD_FORMAT_JSON] = "json",
                                      [RD_FORMAT_TSV] = "tsv",
                                      NULL};
static const char *const dtypes[] = {
    [RD_DECODE_FLOAT32] = "float32", [RD_DECODE_INT8] = "int8", NULL};

#define T rd_search_keys
static const rd_option rows[] = {
    RD_OPT_ENUM(T, decoder_type, decoder_type, "\"greedy\"", decoder_types,
                "beam_search, sampling: in eval and infer mode; any other word: greedy",
                RD_OTHER_WORDS),
    RD_OPT_INT(T, beam_width, beam_width, "1", 1, 1000, "number of hypotheses of beam search",
               RD_CARRIED),
    RD_OPT_ENUM(T, length_penalty_type, length_penalty_type, "\"openseq2seq\"", forms,
                "whose score and end of beam search. P: log probability; n: tokens with the end "
                "token; a: length_penalty; b: length_penalty_const. openseq2seq: P / ((4+n)/6)^a, "
                "finished hypotheses stay in the beam. sockeye: P / ((b+n)^a/(b+1)^a), the same. "
                "gnmt: P / ((b+n)/(b+1))^a; fairseq: P / n^a; both until beam_width are finished. "
                "marian: P / n^a, the beam shrinks"),
    RD_OPT_REAL(T, length_penalty, length_penalty, NULL, 0, 10,
                "exponent a of the length penalty. Default: openseq2seq and marian 0, sockeye and "
                "fairseq 1, gnmt 0.6. With openseq2seq, eval mode uses 0",
                RD_GIVEN(T, has_length_penalty), RD_CARRIED),
    RD_OPT_REAL(T, length_penalty_const, length_penalty_const, NULL, 0, 1000,
                "constant b of the length penalty. Default: sockeye 0, gnmt 5",
                RD_GIVEN(T, has_length_penalty_const)),
    RD_OPT_REAL(T, coverage_penalty, coverage_penalty, "0", 0, 10,
                "weight of the coverage penalty of finished hypotheses, with length_penalty_type "
                "gnmt, fairseq or marian. GNMT: 0.2"),
    RD_OPT_ENUM(T, coverage_penalty_type, coverage_penalty_type, "\"gnmt\"", coverages,
                "a sum over source tokens. c: the attention that one got in all. gnmt: "
                "log(min(c, 1)); summary: -max(c - 1, 0)"),
    RD_OPT_INT(T, min_length, min_length, "0", 0, 65534,
               "number of tokens that a translation has at least"),
    RD_OPT_REAL(T, max_length_factor, max_length_factor, "2", 0, 1000,
                "a translation of n source tokens has at most max_length_factor * n + "
                "max_length_offset tokens"),
    RD_OPT_INT(T, max_length_offset, max_length_offset, "0", 0, 65534,
               "see max_length_factor; 0 * n + 200 is fairseq's limit"),
    RD_OPT_BOOL(T, bar_unk, bar_unk, NULL,
                "decoding never chooses the unknown word, the start token or padding. Default: "
                "true, but false for seq2seq, as in OpenSeq2Seq",
                RD_GIVEN(T, has_bar_unk)),
    RD_OPT_REAL(T, sampling_temperature, sampling_temperature, "1", 0, 1000,
                "decoder_type sampling draws tokens by the probabilities of logits / "
                "sampling_temperature, with --seed. 0: the most probable token"),
    RD_OPT_INT(T, sampling_top_k, sampling_top_k, "0", 0, 1 << 24,
               "sampling draws one of the top_k most probable tokens; 0: of all"),
    RD_OPT_REAL(T, sampling_top_p, sampling_top_p, "1", 0, 1,
                "sampling draws one of the fewest most probable tokens whose probabilities add up "
                "to top_p"),
    RD_OPT_PATH(T, shortlist_file, shortlist_file, NULL,
                "a lexicon: lines of source word, TAB, target word, TAB, probability or its "
                "logarithm. Decoding chooses among the target words of a sentence's source words, "
                "which is faster with a large vocabulary. On CPUs"),
    RD_OPT_INT(T, shortlist_k, shortlist_k, "200", 1, 100000,
               "with shortlist_file: number of target words of a source word, the best ones"),
    RD_OPT_ENUM(T, decode_dtype, decode_dtype, "\"float32\"", dtypes,
                "type of the products of decoding, in eval and infer mode. int8: weights and rows "
                "are rounded to 8 bits, for Transformers on CPUs"),
    RD_OPT_INT(T, nbest, nbest, "1", 1, 1000,
               "infer mode: number of translations of each line, at most beam_width"),
    RD_OPT_ENUM(T, output_format, output_format, NULL, formats,
                "infer mode. text: a line of text; nbest: lines of number ||| text ||| score, with "
                "numbers from 0; json: an object with scores a line. Default: text, but nbest if "
                "nbest is not 1. Image models: tsv or json, and text for the class alone. Default: "
                "tsv",
                RD_GIVEN(T, has_output_format)),
    RD_OPT_END,
};
#undef T
const rd_option_group rd_group_search = {"decoding", "translating: search, lengths, output", rows,
                                         sizeof(rd_search_keys)};

rd_code rd_search_rules_of(const rd_search_keys *k, bool bars_unk, rd_search_rules *out,
                           rd_status *st)
{
    static const double usual_penalty[] = {[RD_LENGTH_OPENSEQ2SEQ] = 0.0,
                                           [RD_LENGTH_SOCKEYE] = 1.0,
                                           [RD_LENGTH_GNMT] = 0.6,
                                           [RD_LENGTH_MARIAN] = 0.0,
                                           [RD_LENGTH_FAIRSEQ] = 1.0};
    enum { UNK = 0, START = 1, PAD = 3 };
    const rd_length_form form = k->length_penalty_type;
    const bool beam = k->decoder_type == RD_DECODER_BEAM_SEARCH;
    *out = (rd_search_rules){.beam_width = beam ? k->beam_width : 1,
                             .n_best = k->nbest,
                             .form = form,
                             .length_penalty = k->has_length_penalty ? k->length_penalty
                                                                     : usual_penalty[form],
                             .length_const = k->has_length_penalty_const ? k->length_penalty_const
                                             : form == RD_LENGTH_GNMT    ? 5.0
                                                                         : 0.0,
                             .coverage = beam ? k->coverage_penalty : 0.0,
                             .coverage_form = k->coverage_penalty_type,
                             .min_length = k->min_length,
                             .max_length_factor = k->max_length_factor,
                             .max_length_offset = k->max_length_offset,
                             .samples = k->decoder_type == RD_DECODER_SAMPLING,
                             .sampling = {.temperature = k->sampling_temperature,
                                          .top_k = k->sampling_top_k,
                                          .top_p = k->sampling_top_p}};
    if (form == RD_LENGTH_OPENSEQ2SEQ && !beam) out->length_penalty = 0.0;
    if (k->has_bar_unk ? k->bar_unk : bars_unk)
        for (int i = 0; i < 3; i++)
            out->barred[out->n_barred++] = (const int32_t[]){UNK, START, PAD}[i];
    if (k->max_length_factor == 0.0 && k->max_length_offset == 0)
        return rd_fail(st, RD_EUSAGE,
                       "max_length_factor and max_length_offset are both 0, so each translation is "
                       "empty; give one of them");
    if (k->coverage_penalty > 0.0 && (form == RD_LENGTH_OPENSEQ2SEQ || form == RD_LENGTH_SOCKEYE))
        return rd_fail(st, RD_EUSAGE,
                       "coverage_penalty %g needs length_penalty_type gnmt, fairseq or marian, but "
                       "it is %s; add --set length_penalty_type=gnmt",
                       k->coverage_penalty, forms[form]);
    if (k->nbest > out->beam_width)
        return rd_fail(st, RD_EUSAGE,
                       "nbest %" PRId64 " needs a beam that is as wide, but beam_width is %" PRId64
                       "; add --beam_width=%" PRId64,
                       k->nbest, out->beam_width, k->nbest);
    if (k->has_output_format && k->output_format == RD_FORMAT_TSV)
        return rd_fail(st, RD_EUSAGE,
                       "output_format tsv is for image models; a translation has text, nbest or "
                       "json");
    if (k->nbest > 1 && k->has_output_format && k->output_format == RD_FORMAT_TEXT)
        return rd_fail(st, RD_EUSAGE,
                       "nbest %" PRId64 " needs output_format nbest or json, but it is text",
                       k->nbest);
    return RD_OK;
}
