"""Measures PyTorch's speed with the models of `make bench`, on the CPU or a GPU, and prints one JSON line.

    python torch_seq2seq.py FILE.json [--lengths RULE] [--batch B] [--vocab V] [--dtype float32|bfloat16] [--threads N]
                            [--warmup N] [--steps N] [--device cpu|cuda] [--tf32] [--compile]
    python torch_seq2seq.py --check

FILE.json is an experiment of ../ (toy, nmt_one, gnmt_4x512, gnmt_8x1024). Its keys are the defaults of the options.
The model is that of the config (lstm cells), written in the usual way for PyTorch: nn.LSTM where there is no
feedback, nn.LSTMCell for the layers inside the attention's feedback loop, keys once per batch, upper gnmt layers
outside the loop, the output layer and the cross-entropy once over the real target positions, fused Adam. bfloat16
is torch.autocast with float32 weights. cpu_share = CPU time / wall time: in a run well below 1 other programs used
the CPU. --check compares the loss with the reference implementation of tests/golden on small sizes, and measures
nothing.

On a GPU, nn.LSTM is cuDNN's. The batches are on the GPU before the clock starts, and nothing waits for the GPU
between the measured steps. step_seconds_median is by the GPU's clock. Without --tf32, float32 products are float32.

--compile is torch.compile of the decoder's time step (cells and attention). All other parts already are one library
call for all steps. For sentences of several lengths the number of steps stays open, so PyTorch compiles once. A
graph of the whole model would have the steps of the longest sentence, and PyTorch would compile it again for each
length.

Data: pair i of an endless stream; batch b has the pairs b B .. b B + B - 1. u(i, k) in [0, 1) is splitmix64 of the
counter 1000003 i + k, its upper 53 bits as a fraction:
    uniform:LO:HI    n_src = LO + floor(u(i, 0) (HI - LO + 1)) words, n_tgt the same with u(i, 1)
    natural:MEAN:MAX z0, z1 = sqrt(-2 ln(1 - u(i, 0))) (cos, sin)(2 pi u(i, 1)); n_src = MEAN exp(0.55 z0 - 0.15),
                     n_tgt = n_src exp(0.15 z1), each rounded half up and limited to 1 .. MAX
    fixed:N          N words on both sides
Word j (from 0) of the source is 4 + floor(u(i, 2 + j) (V - 4)); the target has 1002 + j instead of 2 + j. Start and
end are added, so a side has n + 2 tokens. All of them count as tokens; padding does not.
"""

import argparse
import json
import math
import os
import resource
import sys
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from step_clock import Clock

SOS, EOS, PAD = 1, 2, 3
FUSED_LSTM = True


# ---- data ----

def fraction(i, k):
    """u(i, k) of the rule above, for arrays."""
    with np.errstate(over="ignore"):
        z = np.uint64(1000003) * np.uint64(i) + np.asarray(k, np.uint64)
        z = z + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) / 2.0 ** 53


def words_of(i, rule):
    kind, *arg = rule.split(":")
    arg = [int(a) for a in arg]
    if kind == "fixed":
        return arg[0], arg[0]
    u = fraction(i, [0, 1])
    if kind == "uniform":
        return tuple(arg[0] + int(v * (arg[1] - arg[0] + 1)) for v in u)
    r = math.sqrt(-2.0 * math.log(1.0 - u[0]))
    n_src = arg[0] * math.exp(0.55 * r * math.cos(2 * math.pi * u[1]) - 0.15)
    n_tgt = n_src * math.exp(0.15 * r * math.sin(2 * math.pi * u[1]))
    return tuple(min(max(int(math.floor(n + 0.5)), 1), arg[1]) for n in (n_src, n_tgt))


def batch_of(b, size, vocab, rule):
    sides = [[], []]
    for i in range(b * size, (b + 1) * size):
        for side, (n, start) in enumerate(zip(words_of(i, rule), (2, 1002))):
            ids = 4 + (fraction(i, np.arange(start, start + n)) * (vocab - 4)).astype(np.int64)
            sides[side].append(torch.tensor([SOS, *ids, EOS]))
    x, y = (nn.utils.rnn.pad_sequence(s, batch_first=True, padding_value=PAD) for s in sides)
    len_x, len_y = (torch.tensor([len(t) for t in s]) for s in sides)
    return x, len_x, y, len_y


def real_positions(y, len_y):
    """Runs on the CPU: on a GPU the host would wait for their number."""
    return (torch.arange(y.shape[1] - 1)[None, :] < (len_y - 1)[:, None]).flatten().nonzero()[:, 0]


# ---- model ----

def reverse(x, length):
    s = torch.arange(x.shape[1], device=x.device)[None, :]
    at = torch.where(s < length[:, None], length[:, None] - 1 - s, s)
    return torch.gather(x, 1, at[:, :, None].expand(-1, -1, x.shape[2]))


def dropout(x, drop, training, steps=None):
    """x with inverted dropout; with steps, one mask per step for tensors like x. Several times faster than
    F.dropout on a CPU."""
    if not training or drop == 0.0:
        return x if steps is None else None
    if x.is_cuda and steps is None:
        return F.dropout(x, drop)
    mask = (torch.rand((steps or 1,) + tuple(x.shape), device=x.device) >= drop).to(x.dtype) / (1 - drop)
    return x * mask[0] if steps is None else mask


def run_lstm(layer, x):
    """nn.LSTM over the padded batch: with oneDNN's fused layer this beats packed sequences, and padding at the end
    changes nothing before it. Not every CPU has that layer in bfloat16."""
    if FUSED_LSTM:
        return layer(x)[0]
    with torch.backends.mkldnn.flags(enabled=False):
        return layer(x)[0]


class Stack(nn.Module):
    """Layers of nn.LSTM, each with dropout on its input and, from layer `first_residual` on, a residual."""

    def __init__(self, widths, units, drop, first_residual):
        super().__init__()
        self.layers = nn.ModuleList(nn.LSTM(w, units, batch_first=True) for w in widths)
        self.drop, self.first_residual = drop, first_residual

    def forward(self, x, beside=None):
        for l, layer in enumerate(self.layers):
            z = dropout(x, self.drop, self.training)
            y = run_lstm(layer, z if beside is None else torch.cat([z, beside.to(z.dtype)], 2))
            x = x + y if l >= self.first_residual else y
        return x


class Seq2Seq(nn.Module):
    def __init__(self, c, v_s, v_t):
        super().__init__()
        assert c["encoder_cell_type"] == c["decoder_cell_type"] == "lstm" and "proj_size" not in c
        h_e, h_d, e_s, e_t = (c[k] for k in ("encoder_cell_units", "decoder_cell_units", "src_emb_size", "tgt_emb_size"))
        a, n_e, self.c, self.run_step = c["attention_layer_size"], c["encoder_layers"], c, self.step
        self.drop_e = 1 - c["encoder_dp_input_keep_prob"]
        self.drop_d = 1 - c["decoder_dp_input_keep_prob"]
        self.gnmt = c["attention_type"].startswith("gnmt")
        self.src, self.tgt = nn.Embedding(v_s, e_s), nn.Embedding(v_t, e_t)
        kind = c["encoder_type"]
        if kind == "gnmt":
            self.fw, self.bw = Stack([e_s], h_e, 0.0, 9), Stack([e_s], h_e, 0.0, 9)
            self.upper = Stack([2 * h_e] + [h_e] * (n_e - 2), h_e, self.drop_e, 1)
        else:
            skip = 0 if c["encoder_use_skip_connections"] else n_e
            self.fw = Stack([e_s] + [h_e] * (n_e - 1), h_e, self.drop_e, skip)
            self.bw = Stack([e_s] + [h_e] * (n_e - 1), h_e, self.drop_e, skip) if kind == "bidirectional" else None
        m = 2 * h_e if kind == "bidirectional" else h_e
        self.memory_layer = nn.Linear(m, a, bias=False)
        self.luong = c["attention_type"] == "luong"
        self.normalised = self.gnmt or c.get("bahdanau_normalize", False)
        if not self.luong:
            self.query_layer = nn.Linear(h_d, a, bias=self.normalised)
            self.v = nn.Parameter(torch.rand(a) * 0.2 - 0.1)
        if self.normalised or c.get("luong_scale", False):
            self.g = nn.Parameter(torch.tensor(1.0 if self.luong else a ** -0.5))
        n_in = e_t + m
        self.skip = not self.gnmt and c["decoder_use_skip_connections"]
        if self.skip:
            self.joint = nn.Linear(n_in, h_d)
            n_in = h_d
        loop = 1 if self.gnmt else c["decoder_layers"]
        self.cells = nn.ModuleList(nn.LSTMCell(h_d if l else n_in, h_d) for l in range(loop))
        if self.gnmt:
            self.top = Stack([h_d + m] * (c["decoder_layers"] - 1), h_d, self.drop_d, 1)
        self.out = nn.Linear(h_d if self.gnmt else m, v_t, bias=False)
        for k, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.xavier_uniform_(p)
            elif "bias" in k:
                nn.init.zeros_(p)
                if "bias_ih" in k:
                    p.data[len(p) // 4:len(p) // 2] = 1.0     # forget bias

    def encode(self, x, length):
        e = self.src(x)
        memory = self.fw(e)
        if self.bw is not None:
            memory = torch.cat([memory, reverse(self.bw(reverse(e, length)), length)], 2)
        if self.c["encoder_type"] == "gnmt" and len(self.upper.layers):
            memory = self.upper(memory)
        live = torch.arange(x.shape[1], device=x.device)[None, :] < length[:, None]
        return memory * live[:, :, None], live

    def step(self, word, ctx, state, mask, keys, memory, hide, v):
        """One time step of the loop: the last cell's output, the new context, the new states."""
        cur, states = torch.cat([word.to(ctx.dtype), ctx], 1), []
        if self.skip:
            cur = self.joint(cur)
        for l, cell in enumerate(self.cells):
            states.append(cell(cur if mask[l] is None else cur * mask[l], state[l]))
            cur = cur + states[l][0] if self.skip else states[l][0]
        if self.luong:
            score = torch.bmm(cur.to(keys.dtype)[:, None], keys.transpose(1, 2))[:, 0]
            if hasattr(self, "g"):
                score = self.g * score
        else:
            score = torch.tanh(keys + self.query_layer(cur)[:, None]) @ v.to(keys.dtype)
        weights = torch.softmax(score + hide, 1)
        return cur, torch.bmm(weights[:, None].to(memory.dtype), memory)[:, 0], states

    def forward(self, x, len_x, y, len_y, real=None):
        """Loss, summed over words and averaged over sentences. real: target positions without padding, sentence by
        sentence."""
        memory, live = self.encode(x, len_x)
        keys = self.memory_layer(memory)
        hide = torch.zeros(live.shape, device=x.device).masked_fill(~live, float("-inf"))
        v = None if self.luong else self.g * self.v / self.v.norm() if self.normalised else self.v
        words = self.tgt(y[:, :-1]).unbind(1)
        state = [None] * len(self.cells)
        ctx = memory.new_zeros(memory.shape[0], memory.shape[2])
        queries, contexts = [], []
        masks = [dropout(memory.new_empty(len(x), cell.input_size), self.drop_d, self.training, len(words)) for cell in self.cells]
        for t, word in enumerate(words):
            mask = [None if m is None else m[t] for m in masks]
            cur, new, state = self.run_step(word, ctx, state, mask, keys, memory, hide, v)
            queries.append(cur)
            contexts.append(ctx if self.c["attention_type"] == "gnmt" else new)
            ctx = new
        if self.gnmt:
            top = torch.stack(queries, 1)
            if len(self.top.layers):
                top = self.top(top, torch.stack(contexts, 1))
        else:
            top = torch.stack(contexts, 1)
        real = real_positions(y, len_y) if real is None else real
        logits = self.out(top.flatten(0, 1).index_select(0, real))
        if logits.dtype == torch.bfloat16:
            logits = logits.float()
        return F.cross_entropy(logits, y[:, 1:].flatten().index_select(0, real), reduction="sum") / len(y)


# ---- the same weights under the names of the reference ----

def exported(model, c):
    out = {}

    def put(prefix, n_in, w_ih, w_hh, b):
        h = w_hh.shape[1]
        order = torch.cat([torch.arange(0, h), torch.arange(2 * h, 3 * h), torch.arange(h, 2 * h), torch.arange(3 * h, 4 * h)])
        bias = b.clone()
        bias[h:2 * h] -= 1.0
        # rows: input, h, then what is concatenated to h
        out[prefix + "/kernel"] = torch.cat([w_ih.T[:n_in], w_hh.T, w_ih.T[n_in:]])[:, order]
        out[prefix + "/bias"] = bias[order]

    def put_stack(stack, name, first=0, beside=0):
        for l, r in enumerate(stack.layers):
            put(name % (l + first), r.input_size - beside, r.weight_ih_l0, r.weight_hh_l0, r.bias_ih_l0 + r.bias_hh_l0)
    kind = c["encoder_type"]
    if kind == "gnmt":
        put_stack(model.fw, "encoder/layer%d/fw")
        put_stack(model.bw, "encoder/layer%d/bw")
        put_stack(model.upper, "encoder/layer%d", 1)
    elif kind == "bidirectional":
        put_stack(model.fw, "encoder/fw/layer%d")
        put_stack(model.bw, "encoder/bw/layer%d")
    else:
        put_stack(model.fw, "encoder/layer%d")
    for l, r in enumerate(model.cells):
        put("decoder/layer%d" % l, r.input_size, r.weight_ih, r.weight_hh, r.bias_ih + r.bias_hh)
    if model.gnmt:
        put_stack(model.top, "decoder/layer%d", 1, model.memory_layer.in_features)
    out.update({"src_embedding": model.src.weight, "tgt_embedding": model.tgt.weight, "output_kernel": model.out.weight.T,
                "attention/memory_kernel": model.memory_layer.weight.T})
    if not model.luong:
        out["attention/query_kernel"], out["attention/v"] = model.query_layer.weight.T, model.v
        if model.normalised:
            out["attention/b"] = model.query_layer.bias
    if hasattr(model, "g"):
        out["attention/g"] = model.g
    if model.skip:
        out["decoder/input_kernel"], out["decoder/input_bias"] = model.joint.weight.T, model.joint.bias
    return out


def check():
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "golden"))
    import seq2seq_torch as net
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    for encoder, layers in (("unidirectional", 2), ("bidirectional", 2), ("gnmt", 4)):
        for att in (dict(attention_type="luong", luong_scale=True), dict(attention_type="bahdanau"),
                    dict(attention_type="bahdanau", bahdanau_normalize=True), dict(attention_type="gnmt"),
                    dict(attention_type="gnmt_v2")):
            for skip in (False, True):
                c = dict(encoder_type=encoder, encoder_layers=layers, decoder_layers=3, attention_layer_size=8,
                         src_emb_size=8, tgt_emb_size=8, **att)
                for side in ("encoder", "decoder"):
                    c.update({side + "_cell_type": "lstm", side + "_cell_units": 8, side + "_dp_input_keep_prob": 1.0,
                              side + "_use_skip_connections": skip})
                model = Seq2Seq(c, 30, 30)
                for p in model.parameters():
                    p.data += torch.randn(p.shape) * 0.3
                data = batch_of(0, 6, 30, "natural:6:12")
                want = net.shapes(c, 30, 30)
                got = exported(model, c)
                assert {k: tuple(v.shape) for k, v in got.items()} == dict(want), set(want) ^ set(got)
                mine, ref = model(*data), net.loss(c, got, *data)[0].sum() / 6
                assert abs(mine - ref) < 1e-10 * abs(ref), (encoder, att, skip, mine.item(), ref.item())
                print("%-15s %-12s skip %d  loss %.12f  reference %.12f" % (encoder, att["attention_type"], skip, mine.item(), ref.item()))


# ---- timing ----

def has_fused_lstm(dtype):
    try:
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            nn.LSTM(8, 8)(torch.zeros(1, 1, 8))
        return True
    except RuntimeError:
        return False


def update(model, opt, c):
    params = [p for p in model.parameters() if p.grad is not None]
    if "max_grad_norm" in c:
        nn.utils.clip_grad_norm_(params, c["max_grad_norm"])
    if "lars_nu" in c:
        w, g = torch._foreach_norm([p.detach() for p in params]), torch._foreach_norm([p.grad for p in params])
        scale = [torch.where((a > 0) & (b > 0), c["lars_nu"] * a / b, 1 / 16384) for a, b in zip(w, g)]
        torch._foreach_mul_([p.grad for p in params], scale)
    opt.step()


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("config", nargs="?")
    args.add_argument("--lengths")
    args.add_argument("--batch", type=int)
    args.add_argument("--vocab", type=int)
    args.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    args.add_argument("--threads", type=int, default=1)
    args.add_argument("--warmup", type=int, default=2)
    args.add_argument("--steps", type=int)
    args.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    args.add_argument("--tf32", action="store_true")
    args.add_argument("--compile", action="store_true")
    args.add_argument("--check", action="store_true")
    args = args.parse_args()
    warnings.filterwarnings("ignore", message="TF32")
    torch.set_num_threads(args.threads)
    global FUSED_LSTM
    FUSED_LSTM = args.device == "cuda" or has_fused_lstm(args.dtype)
    gpu = args.device == "cuda"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.tf32
    if args.check:
        return check()
    with open(args.config) as f:
        c = json.load(f)
    vocab, size = args.vocab or c["bench_vocab"], args.batch or c["batch_size"]
    steps = args.steps or c["bench_steps"]
    lengths = args.lengths or "uniform:%d:%d" % (c["bench_min_len"] - 2, c["bench_max_len"] - 2)
    torch.manual_seed(1)
    model = Seq2Seq(c, vocab, vocab).train().to(args.device)
    if args.compile:
        model.run_step = torch.compile(model.step, dynamic=None if lengths.startswith("fixed") else True)
    opt = torch.optim.Adam(model.parameters(), lr=c["learning_rate"], fused=True)
    batches = [batch_of(b, size, vocab, lengths) for b in range(args.warmup + steps)]
    tokens = [int(b[1].sum() + b[3].sum()) for b in batches]
    targets = [int(b[3].sum()) for b in batches]
    batches = [[t.to(args.device) for t in b + (real_positions(b[2], b[3]),)] for b in batches]
    clock, losses = Clock(gpu), []
    for b, data in enumerate(batches):
        if b == args.warmup:
            clock.start()
        opt.zero_grad()
        with torch.autocast(args.device, torch.bfloat16, enabled=args.dtype == "bfloat16"):
            loss = model(*data)
        loss.backward()
        update(model, opt, c)
        losses.append(loss.detach() if gpu else loss.item())
        if b >= args.warmup:
            clock.step()
    clock.stop()
    hidden = sum(p.numel() for k, p in model.named_parameters() if "bias_hh" in k)   # torch has each bias twice
    print(json.dumps(dict(
        peer="torch", version=torch.__version__, config=args.config, dtype=args.dtype, device=args.device, tf32=args.tf32,
        threads=args.threads, batch=size, vocab=vocab, lengths=lengths, compiled=args.compile, steps=steps,
        parameters=sum(p.numel() for p in model.parameters()) - hidden,
        tokens_per_s=round(sum(tokens[args.warmup:]) / clock.seconds, 1),
        target_tokens_per_s=round(sum(targets[args.warmup:]) / clock.seconds, 1), step_seconds_median=round(clock.median(), 5),
        loss_first=round(float(losses[0]), 4), loss_last=round(float(losses[-1]), 4),
        fused_lstm=FUSED_LSTM, cpu_share=round(clock.cpu / clock.seconds / args.threads, 3),
        peak_device_mib=round(torch.cuda.max_memory_allocated() / 2 ** 20) if gpu else None,
        peak_rss_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))))


if __name__ == "__main__":
    main()
