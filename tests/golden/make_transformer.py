"""Writes golden values of the Transformer: losses, gradients, Adam steps and decoded sentences.

    python make_transformer.py [--only PART_OF_A_NAME] [--check]

Each case is one .npz file with the members that README.md lists. Needs numpy and torch. No code of run_dist is used.
transformer_torch.py is torch.nn.Transformer with copied weights, in float64; its updates are those of
torch.optim.Adam. transformer_numpy.py has the same models sentence by sentence, and decodes. The losses of both agree
to 1e-12. --check writes nothing.
"""

import argparse
import math
import os
import warnings

import numpy as np
import torch

import make_seq2seq as common
import transformer_numpy
import transformer_torch as net

# The functions of make_seq2seq.py that draw cases, differentiate and decode work with any two such modules.
common.net, common.ref = net, transformer_numpy
V_S, V_T = 17, 19
STEPS, LR = common.STEPS, common.LR
# Biases of keys have no gradient but rounding. With a small epsilon Adam would make full steps of it.
EPSILON, MAX_DRIFT = 1e-3, 2e-6
# The slope of ReLU jumps at 0. No number before a ReLU is nearer to 0 than this, so a number rounded to 16 bits has the
# sign that it has in float64, and gradients in mixed can be compared.
APART, TRIES = 0.15, 4000


def config(norm, positions, activation, layers, size=(8, 2, 12), **more):
    c = dict(model="transformer", norm=norm, positions=positions, activation=activation, encoder_layers=layers[0],
             decoder_layers=layers[1], d_model=size[0], n_heads=size[1], ff_dim=size[2], norm_eps=1e-6, dropout_attention=0.0,
             dropout_residual=0.0, dropout_ff=0.0, batch_size=5, optimizer="adamw", learning_rate=LR, adam_epsilon=EPSILON,
             average_across_timesteps=True)
    c.update(more)
    return c


def cases():
    """name -> (config, vocabulary sizes)."""
    return {
        "pre_all": (config("pre", "sockeye", "relu", (1, 1), label_smoothing=0.1), V_T, V_T),
        "pre_none": (config("pre", "interleaved", "gelu_tanh", (1, 2), tie_embeddings="none", output_bias=False,
                            average_across_timesteps=False), V_S, V_T),
        "pre_learned": (config("pre", "learned", "silu", (2, 1), max_positions=5, attention_bias=True,
                               label_smoothing=0.2, label_smoothing_form="fairseq"), V_T, V_T),
        "pre_deep": (config("pre", "t2t", "relu2", (4, 1), embedding_scale=False), V_S, V_T),
        "post_target": (config("post", "t2t", "gelu_erf", (2, 1), attention_bias=True, label_smoothing=0.1,
                               label_smoothing_form="fairseq"), V_S, V_T),
        "post_all": (config("post", "none", "relu", (1, 2), size=(8, 1, 12)), V_T, V_T),
        "padded_all": (config("pre", "interleaved", "relu", (1, 1), pad_vocabs_to_eight=True, label_smoothing=0.1), V_T, V_T),
        "odd_target": (config("pre", "t2t", "relu", (1, 1), size=(9, 3, 7), norm_eps=1e-5, tie_embeddings="target"), 13, 23),
        "ssru_pre": (config("pre", "sockeye", "relu", (1, 2), decoder_layer="ssru", label_smoothing=0.1), V_T, V_T),
        "ssru_post": (config("post", "t2t", "gelu_erf", (1, 1), size=(9, 3, 7), decoder_layer="ssru", attention_bias=True,
                             tie_embeddings="none"), V_S, V_T),
        "gated_pre": (config("pre", "sockeye", "silu", (1, 2), gated_ff=True, label_smoothing=0.1), V_T, V_T),
        "gated_post": (config("post", "t2t", "relu", (1, 1), size=(9, 3, 7), gated_ff=True), V_S, V_T),
    }


def initial(c, v_s, v_t, rng):
    """Matrices about N(0, 1/4), biases N(0, 1/8), gains near 1, in steps of 1/64."""
    p = {}
    for name, shape in net.shapes(c, v_s, v_t).items():
        x = rng.standard_normal(shape) * (0.5 if len(shape) == 2 else 0.35)
        if name.endswith("norm_gain"):
            x = 1 + x
        if name == "output_bias":
            x[common.EOS] += 0.5     # some sentences end before the limit
        p[name] = np.round(x * 64) / 64
    return p


def before_relu(c, p, at, rows, unit, columns, biases):
    """The numbers that a ReLU reads: [sentences, words, columns], with each column of `columns` as that of the unit."""
    if at.endswith("/ff"):
        return rows @ columns + biases
    f = 1 / (1 + np.exp(-(rows @ p[at + "/gate_kernel"][:, unit] + p[at + "/gate_bias"][unit])))[:, :, None]
    u, states = rows @ columns, []
    for t in range(rows.shape[1]):
        states.append(f[:, t] * (states[-1] if states else 0) + (1 - f[:, t]) * u[:, t])
    return np.stack(states, 1)


def keep_apart(c, p, batch, rng):
    """Draws the column before each unit of each ReLU again: of TRIES columns for which the unit is on for some words and
    off for others, the one whose numbers stay away from 0 the most. Layers change in the order of computation. Returns
    None if a unit has no such column."""
    x, x_len, y, y_len = batch
    places = [("encoder/layer%d/ff" % l, x_len) for l in range(c["encoder_layers"])]
    for l in range(c["decoder_layers"]):
        places += [("decoder/layer%d/%s" % (l, k), y_len - 1) for k in ("ssru", "ff")]
    for at, length in places:
        ff = at.endswith("/ff")
        if c["activation"] != "relu" if ff else not net.has_units(c):
            continue
        kernel, bias, seen = p[at + ("/kernel1" if ff else "/kernel")], p.get(at + "/bias1"), {}
        net.logits(c, common.leaves(p, torch.float64), x, x_len, y[:, :-1], seen)
        rows = seen[at].numpy()
        here = np.arange(rows.shape[1])[None] < length.numpy()[:, None]
        for unit in range(kernel.shape[1]):
            columns = np.round(rng.standard_normal((len(kernel), TRIES)) * 32) / 64
            biases = np.round(rng.standard_normal(TRIES) * 0.35 * 64) / 64
            numbers = before_relu(c, p, at, rows, unit, columns, biases)[here]
            least = np.where((numbers > 0).any(0) & (numbers < 0).any(0), np.abs(numbers).min(0), 0)
            best = least.argmax()
            if least[best] < APART:
                return None
            kernel[:, unit] = columns[:, best]
            if ff:
                bias[unit] = biases[best]
    return p


common.initial, common.settle = initial, keep_apart


def train(c, p, batch, dtype):
    """Returns the losses before each update of torch.optim.Adam and after the last, and the final parameters."""
    p, losses = common.leaves(p, dtype), []
    adam = torch.optim.Adam(list(p.values()), lr=LR, betas=(0.9, 0.999), eps=c["adam_epsilon"])
    for t in range(STEPS + 1):
        adam.zero_grad()
        per, weight, _ = net.loss(c, p, *batch)
        losses.append(per.sum().item() / weight)
        if t < STEPS:
            (per.sum() / weight).backward()
            adam.step()
    return losses, {k: v.detach() for k, v in p.items()}


def narrow_error(c, p, batch, grads):
    """The error of the gradient in bfloat16, relative to the gradient in float64."""
    p = common.leaves(p, torch.bfloat16)
    per, weight, _ = net.loss(c, p, *batch)
    narrow = torch.autograd.grad(per.sum() / weight, list(p.values()))
    error = sum(((g - n.double().numpy()) ** 2).sum() for g, n in zip(grads, narrow))
    return math.sqrt(error / sum((g ** 2).sum() for g in grads))


def make(name, c, v_s, v_t, start):
    drift = np.inf
    while drift > MAX_DRIFT:   # a seed for which float32 and float64 agree after ten updates
        seed, src, tgt, p, scale, (decoded, gap), batch, (per, weight, n_correct, grads), note = common.draw(
            name, c, v_s, v_t, start)
        losses, final = train(c, p, batch, torch.float64)
        low, low_final = train(c, p, batch, torch.float32)
        drift = max(abs(a - b) / abs(a) for a, b in zip(losses, low))
        start = seed + 1
    error = narrow_error(c, p, batch, grads)
    model = transformer_numpy.Model(c, p)
    np.testing.assert_allclose(per, [model.nll(s, t) for s, t in zip(src, tgt)], rtol=1e-12)
    drift_sum = max(abs(((final[k] ** 2).sum() - (low_final[k].double() ** 2).sum()).item()) /
                    (final[k] ** 2).sum().item() for k in final)
    index, at = [], 0
    for k, v in p.items():
        index.append([k, list(v.shape), at])
        at += v.size
    src_ids, src_off = common.ragged(src)
    tgt_ids, tgt_off = common.ragged(tgt)
    dec_ids, dec_off = common.ragged([r[0] for rows in decoded for r in rows])
    written = {k: v for k, v in c.items() if k != "classes"}
    print("%-14s seed %5d  %4d parameters  loss %7.4f -> %7.4f, to %.0e  sums to %.0e  least gradient %s  gap %.4f  bfloat16 %.3f" % (
        name, seed, at, losses[0], losses[-1], drift, drift_sum, note, gap, error), flush=True)
    return dict(
        config_json=common.text(written),
        case_json=common.text(dict(src_vocab_size=v_s, tgt_vocab_size=v_t, parameters=index, loss_sum=float(per.sum()),
                                   weight=weight, n_correct=n_correct, adam_loss_after=losses[STEPS], decode_scale=scale,
                                   decode_gap=float(gap), decode_searches=((0, 0.0),) + common.BEAMS,
                                   narrow_error=round(error, 6))),
        src=src_ids, src_off=src_off, tgt=tgt_ids, tgt_off=tgt_off,
        params=np.concatenate([v.ravel() for v in p.values()]).astype(np.float32),
        grads=np.concatenate([common.short(g.ravel()) for g in grads]),
        sentence_loss=per, adam_loss=np.asarray(losses[:STEPS]),
        adam_sum=np.asarray([v.sum().item() for v in final.values()]),
        adam_sumsq=np.asarray([(v * v).sum().item() for v in final.values()]),
        decode_ids=dec_ids, decode_off=dec_off,
        decode_score=np.asarray([[r[1] for r in rows] for rows in decoded]),
        decode_ended=np.asarray([[r[2] for r in rows] for rows in decoded], np.int32))


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--only", default="")
    args.add_argument("--check", action="store_true")
    args = args.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="enable_nested_tensor")
    folder = os.path.join(common.HERE, "transformer")
    os.makedirs(folder, exist_ok=True)
    for i, (name, (c, v_s, v_t)) in enumerate(cases().items()):
        if args.only in name:
            out = make(name, dict(c, classes=v_t), v_s, v_t, 1000 * i)
            if not args.check:
                np.savez_compressed(os.path.join(folder, name + ".npz"), **out)


if __name__ == "__main__":
    main()
