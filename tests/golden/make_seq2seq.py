"""Writes golden values of the sequence-to-sequence models: losses, gradients, Adam steps and decoded sentences.

    python make_seq2seq.py [--only PART_OF_A_NAME] [--check]

Each case is one .npz file. Needs numpy and torch. No code of run_dist is used. seq2seq_torch.py has the padded
models with autograd, in float64. seq2seq_numpy.py has the same models sentence by sentence, for decoding. This
script compares the two, compares LSTM encoders with torch.nn.LSTM, and then writes seq2seq/<case>.npz (README.md
lists its members) and seq2seq/parameter_counts.json. --check writes nothing. The output depends only on the seeds
below, except for the last bits of the float64 values.
"""

import argparse
import json
import os
import sys

import numpy as np
import torch

import seq2seq_numpy as ref
import seq2seq_torch as net

HERE = os.path.dirname(os.path.abspath(__file__))
SOS, EOS, PAD = 1, 2, 3
SOURCE_WORDS, TARGET_WORDS = (5, 2, 7, 1, 4), (3, 6, 2, 4, 1)
V_S, V_T = 17, 19
STEPS, LR = 10, 0.01
BEAMS = ((1, 0.0), (1, 1.0), (3, 0.0), (3, 1.0))
SCALES = (1.5, 2.0, 3.0, 4.0)
MIN_GAP, MIN_GRADIENT, MAX_ROUNDING, SEEDS = 3e-4, 1e-4, 1e-5, 5000
ATTENTIONS = {
    "bahdanau": dict(attention_type="bahdanau"),
    "bahdanau_norm": dict(attention_type="bahdanau", bahdanau_normalize=True),
    "luong": dict(attention_type="luong"),
    "luong_scaled": dict(attention_type="luong", luong_scale=True),
    "gnmt": dict(attention_type="gnmt"),
    "gnmt_v2": dict(attention_type="gnmt_v2"),
}
ENCODERS = {"uni": "unidirectional", "bi": "bidirectional", "gnmt": "gnmt"}


def config(encoder, enc_cell, dec_cell, attention, enc_layers, dec_layers, size=8, emb=8, **more):
    c = dict(encoder_type=ENCODERS[encoder], encoder_cell_type=enc_cell, encoder_cell_units=size, encoder_layers=enc_layers,
             encoder_dp_input_keep_prob=1.0, encoder_dp_output_keep_prob=1.0, encoder_use_skip_connections=False,
             src_emb_size=emb, decoder_cell_type=dec_cell, decoder_cell_units=size, decoder_layers=dec_layers,
             decoder_dp_input_keep_prob=1.0, decoder_dp_output_keep_prob=1.0, decoder_use_skip_connections=False,
             tgt_emb_size=emb, attention_layer_size=size, batch_size=5, optimizer="adam", learning_rate=LR,
             **ATTENTIONS[attention])
    if "glstm" in (enc_cell, dec_cell):
        c["num_groups"] = 2
    c.update(more)
    return c


def cases():
    """name -> (config, vocabulary sizes): every legal cell x encoder x attention; depth and other keys vary in
    turn."""
    out, n = {}, 0
    for cell in ("lstm", "gru", "glstm", "slstm"):
        for enc in ENCODERS:
            for att in ATTENTIONS:
                if cell == "gru" and att.startswith("gnmt"):
                    continue                                  # needs a state like that of an LSTM
                more = {}
                deep_enc = 1 + n % 2 if enc == "uni" else 2 + (n % 4 == 1) if enc == "gnmt" else 1 + (n % 3 == 2)
                deep_dec = (2, 3, 1)[n % 3] if att.startswith("gnmt") else (1, 2, 2, 3)[n % 4]
                if enc != "gnmt" and n % 5 in (0, 2):
                    more["encoder_use_skip_connections"] = True
                if not att.startswith("gnmt") and n % 4 in (1, 3):
                    more["decoder_use_skip_connections"] = True
                if cell in ("lstm", "glstm") and n % 4 in (0, 2) and not any(more.values()):
                    more["proj_size"] = 4
                    if att.startswith("luong"):
                        more["attention_layer_size"] = 4
                if n % 7 == 3:
                    more["softmax_temperature"] = 0.5
                if n % 5 == 4:
                    more["average_across_timesteps"] = True
                out["%s_%s_%s" % (cell, enc, att)] = config(enc, cell, cell, att, deep_enc, deep_dec, **more), V_S, V_T
                n += 1
    odd = dict(encoder_cell_units=12, src_emb_size=10, decoder_cell_units=9, tgt_emb_size=7, attention_layer_size=11)
    out["odd_lstm_bi_bahdanau_norm"] = config("bi", "lstm", "lstm", "bahdanau_norm", 1, 1, **odd), 13, 23
    out["odd_gru_uni_bahdanau"] = config("uni", "gru", "gru", "bahdanau", 1, 2, **odd), 13, 23
    out["odd_lstm_gnmt_gnmt_v2"] = config("gnmt", "lstm", "lstm", "gnmt_v2", 3, 2, **dict(odd, proj_size=5)), 13, 23
    out["odd_glstm_bi_gnmt"] = config("bi", "glstm", "glstm", "gnmt", 1, 2, **dict(
        odd, num_groups=3, decoder_cell_units=9, src_emb_size=9, tgt_emb_size=6, proj_size=6)), 13, 23
    out["mixed_gru_bi_lstm_gnmt_v2"] = config("bi", "gru", "lstm", "gnmt_v2", 1, 3), V_S, V_T
    out["mixed_lstm_gnmt_gru_luong"] = config("gnmt", "lstm", "gru", "luong_scaled", 2, 1), V_S, V_T
    out["mixed_slstm_uni_glstm_luong"] = config("uni", "slstm", "glstm", "luong_scaled", 2, 2, num_groups=4), V_S, V_T
    out["mixed_lstm_uni_slstm_gnmt"] = config("uni", "lstm", "slstm", "gnmt", 1, 3, proj_size=4), V_S, V_T
    return out


def initial(c, v_s, v_t, rng):
    """About N(0, 1/2), also for biases and scalars, in steps of 1/32: exact in float32, and small in the file."""
    p = {}
    for name, shape in net.shapes(c, v_s, v_t).items():
        p[name] = np.round(rng.standard_normal(shape) * 16) / 32
        if name == "attention/g":
            p[name] = np.float64(0.75 + np.round(rng.random() * 16) / 32)
    return {k: np.asarray(v, np.float64) for k, v in p.items()}


def sentences(lengths, v, rng):
    rows = [np.concatenate([[SOS], rng.integers(4, v, n), [EOS]]) for n in lengths]
    rows[0][1] = 0                                            # one unknown word
    return rows


def padded(rows):
    x = np.full((len(rows), max(map(len, rows))), PAD)
    for i, r in enumerate(rows):
        x[i, :len(r)] = r
    return torch.tensor(x), torch.tensor([len(r) for r in rows])


def leaves(p, dtype):
    return {k: torch.tensor(v, dtype=dtype, requires_grad=True) for k, v in p.items()}


def train(c, p, batch, dtype, steps):
    """Returns the losses before each update and after the last, and the final parameters. Adam is TensorFlow's:
    epsilon is outside the bias correction."""
    p = leaves(p, dtype)
    m, v, losses = {k: 0.0 for k in p}, {k: 0.0 for k in p}, []
    for t in range(1, steps + 2):
        per, weight, _ = net.loss(c, p, *batch)
        losses.append(per.sum().item() / weight)
        if t > steps:
            return losses, p
        grads = dict(zip(p, torch.autograd.grad(per.sum() / weight, list(p.values()))))
        rate = LR * np.sqrt(1 - 0.999 ** t) / (1 - 0.9 ** t)
        for k in p:
            m[k] = 0.9 * m[k] + 0.1 * grads[k]
            v[k] = 0.999 * v[k] + 0.001 * grads[k] ** 2
            p[k] = (p[k] - rate * m[k] / (torch.sqrt(v[k]) + 1e-8)).detach().requires_grad_(True)


def check_against_torch(c, p, x, length):
    """Runs the encoder with torch.nn.LSTM and packed sequences, if that module has the formula."""
    if c["encoder_cell_type"] != "lstm" or c["encoder_type"] == "gnmt" or c["encoder_use_skip_connections"]:
        return False
    h = c["encoder_cell_units"]
    order = np.concatenate([np.arange(0, h), np.arange(2 * h, 3 * h), np.arange(h, 2 * h), np.arange(3 * h, 4 * h)])
    tensors = {k: torch.tensor(v) for k, v in p.items()}
    memory = net.encode(c, tensors, x, length)
    sides = []
    for d in ("fw/", "bw/") if c["encoder_type"] == "bidirectional" else ("",):
        lstm = torch.nn.LSTM(c["src_emb_size"], h, c["encoder_layers"], batch_first=True,
                             proj_size=c.get("proj_size", 0), dtype=torch.float64)
        n_in = c["src_emb_size"]
        for l in range(c["encoder_layers"]):
            at = "encoder/%slayer%d/" % (d, l)
            kernel, bias = p[at + "kernel"][:, order], p[at + "bias"][order].copy()
            bias[h:2 * h] += 1.0                              # torch's second gate is the forget gate
            with torch.no_grad():
                getattr(lstm, "weight_ih_l%d" % l)[:] = torch.tensor(kernel[:n_in].T)
                getattr(lstm, "weight_hh_l%d" % l)[:] = torch.tensor(kernel[n_in:].T)
                getattr(lstm, "bias_ih_l%d" % l)[:] = torch.tensor(bias)
                getattr(lstm, "bias_hh_l%d" % l)[:] = 0
                if "proj_size" in c:
                    getattr(lstm, "weight_hr_l%d" % l)[:] = torch.tensor(p[at + "projection"].T)
            n_in = net.width(c, "encoder")
        e = tensors["src_embedding"][x]
        if d == "bw/":
            e = net.reverse(e, length)
        packed = torch.nn.utils.rnn.pack_padded_sequence(e, length, batch_first=True, enforce_sorted=False)
        out = torch.nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)[0]
        sides.append(net.reverse(out, length) if d == "bw/" else out)
    np.testing.assert_allclose(memory.detach(), torch.cat(sides, 2).detach(), rtol=0, atol=1e-12)
    return True


def search(model, s, width, penalty):
    """Searches one sentence alone, with a limit of twice its length: ids, score, whether it ended, deciding gap."""
    if width:
        return ref.beam_search(model, s, SOS, EOS, 2 * len(s), width, penalty)
    return ref.greedy(model, s, SOS, EOS, 2 * len(s))


def decode(c, p, scale, src):
    """Returns all searches of all sentences, and the least gap, with every parameter times scale. None if a near
    tie decides, if float32 gives another result, or if the searches show too little."""
    exact, rounded = (ref.Model(c, {k: np.asarray(v * scale, t) for k, v in p.items()}) for t in (np.float64, np.float32))
    searches, out = ((0, 0.0),) + BEAMS, []
    for width, penalty in searches:
        out.append([search(exact, s, width, penalty) for s in src])
        if min(r[3] for r in out[-1]) < MIN_GAP:
            return None
        if width == 0 and (len({tuple(r[0]) for r in out[0]}) < 3 or sum(r[2] for r in out[0]) < 2 or
                           max(len(r[0]) for r in out[0]) < 3):
            return None
    for (width, penalty), rows in zip(searches, out):
        for s, (ids, score, _, _) in zip(src, rows):
            low = search(rounded, s, width, penalty)
            if low[0] != ids or abs(low[1] - score) > MAX_ROUNDING * (1 + abs(score)):
                return None
    least = min(r[3] for rows in out for r in rows)
    greedy, beam1, _, beam3, beam3_penalty = [[r[0] for r in rows] for rows in out]
    assert beam1 == greedy, "a beam of one without penalty is the greedy search"
    return (out, least) if beam3 != greedy and beam3_penalty != beam3 else None


def short(g, bits=17):
    """Rounds float32 to this number of significant bits (relative error up to 4e-6), for a smaller file."""
    mantissa, exponent = np.frexp(g)
    return np.ldexp(np.round(np.ldexp(mantissa, bits)), exponent - bits).astype(np.float32)


def ragged(rows):
    return np.concatenate([np.asarray(r, np.int32) for r in rows]).astype(np.int32), np.cumsum([0] + [len(r) for r in rows])


def text(obj):
    return np.frombuffer(json.dumps(obj).encode(), np.uint8)


def gradients(c, p, batch, dtype):
    """Returns the loss of each sentence, the weight, the number of right words, and the gradients of the mean loss
    in the order of p."""
    q = leaves(p, dtype)
    per, weight, n_correct = net.loss(c, q, *batch)
    grads = torch.autograd.grad(per.sum() / weight, list(q.values()))
    return per.detach().numpy(), weight, n_correct, [g.double().numpy() for g in grads]


def settle(c, p, batch, rng):
    """Returns the parameters to use in the place of p, or None if there are none. make_transformer.py has its own."""
    return p


def draw(name, c, v_s, v_t, start):
    """Returns the first seed that makes a useful case: no gradient is too small for float32, and the searches are
    instructive and have no near ties."""
    for seed in range(start, start + SEEDS):
        rng = np.random.default_rng(seed)
        src, tgt = sentences(SOURCE_WORDS, v_s, rng), sentences(TARGET_WORDS, v_t, rng)
        batch = padded(src) + padded(tgt)
        p = settle(c, initial(c, v_s, v_t, rng), batch, rng)
        scale = SCALES[seed % len(SCALES)]
        decoded = p and decode(c, p, scale, src)
        if not decoded:
            continue
        exact = gradients(c, p, batch, torch.float64)
        rounded = gradients(c, p, batch, torch.float32)
        least, where = min((np.abs(g).max(), k) for k, g in zip(p, exact[3]))
        rounding = max(np.abs(g - h).max() / np.abs(g).max() for g, h in zip(exact[3], rounded[3]))
        if least > MIN_GRADIENT and rounding < MAX_ROUNDING:
            return seed, src, tgt, p, scale, decoded, batch, exact, "%.0e (%s), to %.0e" % (least, where, rounding)
    sys.exit("%s: none of %d seeds makes a case" % (name, SEEDS))


def make(name, c, v_s, v_t, start):
    seed, src, tgt, p, scale, (decoded, gap), batch, (per, weight, n_correct, grads), note = draw(name, c, v_s, v_t, start)
    model = ref.Model(c, p)
    np.testing.assert_allclose(per, [model.nll(s, t) for s, t in zip(src, tgt)], rtol=1e-12)
    by_module = check_against_torch(c, p, *batch[:2])
    losses, final = train(c, p, batch, torch.float64, STEPS)
    low, low_final = train(c, p, batch, torch.float32, STEPS)
    drift = max(abs(a - b) / abs(a) for a, b in zip(losses, low))
    drift_sum = max(abs(((final[k] ** 2).sum() - (low_final[k].double() ** 2).sum()).item()) /
                    (final[k] ** 2).sum().item() for k in final)
    index, at = [], 0
    for k, v in p.items():
        index.append([k, list(v.shape), at])
        at += v.size
    src_ids, src_off = ragged(src)
    tgt_ids, tgt_off = ragged(tgt)
    searches = ((0, 0.0),) + BEAMS
    dec_ids, dec_off = ragged([r[0] for rows in decoded for r in rows])
    out = dict(
        config_json=text(c),
        case_json=text(dict(src_vocab_size=v_s, tgt_vocab_size=v_t, parameters=index, loss_sum=float(per.sum()), weight=weight,
                            n_correct=n_correct, adam_loss_after=losses[STEPS], decode_scale=scale, decode_gap=float(gap),
                            decode_searches=searches)),
        src=src_ids, src_off=src_off, tgt=tgt_ids, tgt_off=tgt_off,
        params=np.concatenate([v.ravel() for v in p.values()]).astype(np.float32),
        grads=np.concatenate([short(g.ravel()) for g in grads]),
        sentence_loss=per, adam_loss=np.asarray(losses[:STEPS]),
        adam_sum=np.asarray([v.sum().item() for v in final.values()]),
        adam_sumsq=np.asarray([(v * v).sum().item() for v in final.values()]),
        decode_ids=dec_ids, decode_off=dec_off,
        decode_score=np.asarray([[r[1] for r in rows] for rows in decoded]),
        decode_ended=np.asarray([[r[2] for r in rows] for rows in decoded], np.int32))
    print("%-31s seed %5d  %4d parameters  loss %7.4f -> %7.4f, to %.0e  sums to %.0e  least gradient %s  gap %.4f%s" % (
        name, seed, at, losses[0], losses[-1], drift, drift_sum, note, gap, "  = nn.LSTM" if by_module else ""), flush=True)
    return out


def original(encoder, layers, dec_layers, units, attention, **more):
    c = config(encoder, "lstm", "lstm", "bahdanau", layers, dec_layers, units, units, attention_type=attention, **more)
    return {k: c[k] for k in c if "dp_" not in k and k not in ("batch_size", "optimizer", "learning_rate")}


def parameter_counts():
    """Counts the trainable parameters of the original's experiments from the shapes."""
    toy = original("bi", 1, 1, 128, "luong", luong_scale=True)
    nmt = original("bi", 2, 4, 512, "bahdanau", bahdanau_normalize=True)
    opennmt = original("uni", 2, 2, 512, "bahdanau")
    gnmt = original("gnmt", 8, 8, 1024, "gnmt_v2")
    del gnmt["encoder_use_skip_connections"], gnmt["decoder_use_skip_connections"]
    unit = original("uni", 2, 2, 16, "bahdanau")
    rows = []
    for name, c, v_s, v_t, want in (
            ("toy_data_config", toy, 14, 14, 565761),
            ("toy_data_config_2GPUs", toy, 14, 14, 565761),
            ("nmt_one", nmt, 32000, 32000, 19678209 + 2048 * 32000),
            ("open_nmt_692-like", opennmt, 50008, 50000, 9970176 + 512 * 50008 + 1024 * 50000),
            ("gnmt_like", gnmt, 32000, 32000, 182523905 + 3072 * 32000),
            ("hvd8x_1xGNMT-like", gnmt, 36552, 36552, 182523905 + 3072 * 36552),
            ("unit test of the original", unit, 14, 14, 10672)):
        n = sum(int(np.prod(s)) for s in net.shapes(c, v_s, v_t).values())
        print("%-28s V %5d %5d  %11d parameters%s" % (name, v_s, v_t, n, "" if n == want else "  NOT %d" % want))
        assert n == want
        rows.append(dict(name=name, src_vocab_size=v_s, tgt_vocab_size=v_t, parameters=n, config=c))
    return rows


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--only", default="")
    args.add_argument("--check", action="store_true")
    args = args.parse_args()
    torch.set_num_threads(1)
    folder = os.path.join(HERE, "seq2seq")
    os.makedirs(folder, exist_ok=True)
    counts = parameter_counts()
    if not args.check:
        with open(os.path.join(folder, "parameter_counts.json"), "w") as f:
            json.dump(counts, f, indent=1)
            f.write("\n")
    for i, (name, (c, v_s, v_t)) in enumerate(cases().items()):
        if args.only in name:
            out = make(name, c, v_s, v_t, 1000 * i)
            if not args.check:
                np.savez_compressed(os.path.join(folder, name + ".npz"), **out)


if __name__ == "__main__":
    main()
