"""Measures CTranslate2's speed of translation on the CPU and prints one JSON line for each case.

    python ctranslate2_decode.py FILE.json [--type float32|int8] [--case BATCH:BEAM ...] [--sentences N] [--source N]
                                 [--tokens N] [--threads N] [--repeat N]

FILE.json is an experiment of ../ (transformer_base, transformer_small): the sizes of the model. Weights are random,
because only time counts. Every sentence has N source words (--source, 20) and is made to give N words (--tokens, 30),
so the end of a sentence does not depend on the weights. A case translates --sentences sentences (default: twice the
batch, at least 8) in batches of BATCH, with BEAM hypotheses; 1 is greedy. The best of --repeat runs counts, by CPU
time and by the clock. int8 is CTranslate2's quantisation of the same weights.
"""

import argparse
import json
import os
import resource
import tempfile
import time

import ctranslate2
import numpy as np
from ctranslate2.specs import transformer_spec


def model_of(c, vocab, folder, kind):
    d, heads, ff, rng = c["d_model"], c["n_heads"], c["ff_dim"], np.random.default_rng(1)
    spec = transformer_spec.TransformerSpec.from_config((c["encoder_layers"], c["decoder_layers"]), heads, pre_norm=True)

    def matrix(rows, cols):
        return (rng.standard_normal((rows, cols)) * cols ** -0.5).astype(np.float32)

    def linear(layer, rows, cols):
        layer.weight, layer.bias = matrix(rows, cols), np.zeros(rows, np.float32)

    def norm(layer):
        layer.gamma, layer.beta = np.ones(d, np.float32), np.zeros(d, np.float32)

    def attention(layer, parts):
        norm(layer.layer_norm)
        for k, n in enumerate(parts):
            linear(layer.linear[k], n * d, d)

    angle = np.arange(1024)[:, None] / 10000.0 ** (np.arange(0, d, 2) / d)
    places = np.concatenate([np.sin(angle), np.cos(angle)], 1).astype(np.float32)
    table = matrix(vocab, d)
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = table
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = np.dtype("int8").type(1)
        side.position_encodings.encodings = places
        norm(side.layer_norm)
        for layer in side.layer:
            attention(layer.self_attention, (3, 1))
            if side is spec.decoder:
                attention(layer.attention, (1, 2, 1))
            norm(layer.ffn.layer_norm)
            linear(layer.ffn.linear_0, ff, d)
            linear(layer.ffn.linear_1, d, ff)
    spec.decoder.projection.weight, spec.decoder.projection.bias = table, np.zeros(vocab, np.float32)
    words = ["<unk>", "<s>", "</s>"] + ["w%d" % i for i in range(vocab - 3)]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.validate()
    spec.optimize(quantization=None if kind == "float32" else kind)
    spec.save(folder)
    return words


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("config")
    args.add_argument("--type", default="float32", choices=("float32", "int8"))
    args.add_argument("--case", nargs="+", default=["64:1", "64:5", "1:1", "1:5"])
    args.add_argument("--sentences", type=int)
    args.add_argument("--source", type=int, default=20)
    args.add_argument("--tokens", type=int, default=30)
    args.add_argument("--threads", type=int, default=1)
    args.add_argument("--repeat", type=int, default=3)
    args = args.parse_args()
    with open(args.config) as f:
        c = json.load(f)
    with tempfile.TemporaryDirectory() as parent:
        folder = os.path.join(parent, "model")
        os.makedirs(folder)
        words = model_of(c, c["bench_vocab"], folder, args.type)
        translator = ctranslate2.Translator(folder, device="cpu", compute_type=args.type, inter_threads=1,
                                            intra_threads=args.threads)
    rng = np.random.default_rng(2)
    for case in args.case:
        batch, beam = (int(x) for x in case.split(":"))
        n = args.sentences or max(8, 2 * batch)
        source = [[words[i] for i in rng.integers(3, len(words), args.source)] + ["</s>"] for _ in range(n)]
        best_cpu = best = float("inf")
        for k in range(args.repeat + 1):
            cpu, clock = time.process_time(), time.perf_counter()
            out = translator.translate_batch(source, beam_size=beam, max_batch_size=batch, min_decoding_length=args.tokens,
                                             max_decoding_length=args.tokens)
            cpu, clock = time.process_time() - cpu, time.perf_counter() - clock
            if k > 0:   # the first run does not count
                best_cpu, best = min(best_cpu, cpu), min(best, clock)
        assert all(len(x.hypotheses[0]) == args.tokens for x in out), "a sentence has another length"
        print(json.dumps(dict(
            peer="ctranslate2", version=ctranslate2.__version__, config=args.config, type=args.type, threads=args.threads,
            batch=batch, beam=beam, sentences=n, source_words=args.source, tokens=args.tokens,
            target_tokens_per_s=round(n * args.tokens / best, 1), target_tokens_per_cpu_s=round(n * args.tokens / best_cpu, 1),
            cpu_share=round(best_cpu / best / args.threads, 3),
            peak_rss_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))), flush=True)


if __name__ == "__main__":
    main()
