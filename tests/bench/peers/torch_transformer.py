"""Measures PyTorch's speed with the Transformers of `make bench`, on the CPU or a GPU, and prints one JSON line.

    python torch_transformer.py FILE.json [--attention_dropout P] [--attention sdpa|matrices] [--batch B] [--vocab V] [--dtype float32|bfloat16]
                                [--threads N] [--warmup N] [--steps N] [--device cpu|cuda] [--tf32] [--compile]
    python torch_transformer.py --check

FILE.json is an experiment of ../ (transformer_base, transformer_small). Its keys are the defaults of the options. The
model is the pre-norm encoder-decoder Transformer of the config, written in the usual way for PyTorch: one product for
queries, keys and values, scaled_dot_product_attention, one table of embeddings for source, target and output, output
layer and cross-entropy with label smoothing over the real target positions, fused AdamW. With attention dropout,
scaled_dot_product_attention of a CPU stores whole matrices and draws its mask slowly. --attention=matrices writes the
same matrices out here, which is faster, and is the default then. --attention=sdpa is then the usual program: all its
dropout is F.dropout, where the other forms draw masks several times faster. bfloat16 is torch.autocast with float32 weights. cpu_share = CPU time / wall time:
in a run well below 1 other programs used the CPU. --check compares loss and gradients with the reference of
tests/golden on small sizes, and measures nothing.

Data: pair i of an endless stream has the lengths of row floor(u(i, 0) n) of the n rows of bench_lengths, source
and target. u and the words are those of torch_seq2seq.py. Start and end are added, so a side has n + 2 tokens.
All of them count as tokens; padding does not. Without it both sides are uniform from bench_min_len to
bench_max_len tokens.

Batches are padded. 32 batches' worth of pairs are sorted by length and cut where the padded tokens of both sides
would be more than B times the mean of the real ones. The measured batches are taken from that list at equal steps.
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
from torch_seq2seq import EOS, PAD, SOS, dropout, fraction, real_positions

POOL = 32


# ---- data ----

def table_of(c):
    if "bench_lengths" in c:
        return np.array(c["bench_lengths"], np.int64).reshape(-1, 2) - 2
    lo, hi = c["bench_min_len"] - 2, c["bench_max_len"] - 2
    return np.array([(s, t) for s in range(lo, hi + 1) for t in range(lo, hi + 1)])


def pairs_of(n, vocab, table):
    """[(source, target)] of n pairs, as arrays of ids."""
    out = []
    for i in range(n):
        lengths = table[int(float(fraction(i, [0])[0]) * len(table))]
        words = [4 + (fraction(i, np.arange(start, start + k)) * (vocab - 4)).astype(np.int64)
                 for k, start in zip(lengths, (2, 1002))]
        out.append([np.concatenate([[SOS], w, [EOS]]) for w in words])
    return out


def cut(pairs, limit):
    """Lists of pairs of like lengths; their padded sides have at most `limit` tokens."""
    pairs = sorted(pairs, key=lambda p: (max(len(p[0]), len(p[1])), len(p[1]), len(p[0])))
    batches, rest, s, t = [], [], 0, 0
    for p in pairs:
        s, t = max(s, len(p[0])), max(t, len(p[1]))
        if rest and (len(rest) + 1) * (s + t) > limit:
            batches.append(rest)
            rest, s, t = [], len(p[0]), len(p[1])
        rest.append(p)
    return batches + [rest]


def padded(pairs):
    x, y = (nn.utils.rnn.pad_sequence([torch.from_numpy(p[k]) for p in pairs], batch_first=True, padding_value=PAD)
            for k in (0, 1))
    len_x, len_y = (torch.tensor([len(p[k]) for p in pairs]) for k in (0, 1))
    return x, len_x, y, len_y


def batches_of(c, size, vocab, wanted):
    table = table_of(c)
    limit = int(size * (table.mean(0).sum() + 4))
    batches = cut(pairs_of(POOL * size, vocab, table), limit)
    return [padded(batches[int((k + 0.5) * len(batches) / wanted)]) for k in range(wanted)]


# ---- model ----

def usual(c):
    """Whether the program is written in the usual way: scaled_dot_product_attention and F.dropout."""
    return c.get("attention") == "sdpa" and c["dropout_attention"] > 0.0


def attend(q, k, v, mask, causal, drop, training, form=None):
    """Softmax attention of [sentence, head, position, column]; mask: added to the scores, or None."""
    if form == "sdpa" or form is None and (not training or drop == 0.0 or q.is_cuda):
        return F.scaled_dot_product_attention(q, k, v, mask, drop if training else 0.0, causal)
    score = torch.matmul(q * q.shape[3] ** -0.5, k.transpose(2, 3))
    if causal:
        mask = torch.full(score.shape[2:], -math.inf, dtype=score.dtype).triu(1)
    return torch.matmul(dropout(torch.softmax(score if mask is None else score + mask, 3), drop, True), v)


class Attention(nn.Module):
    def __init__(self, c, memory):
        super().__init__()
        d, self.heads, self.drop = c["d_model"], c["n_heads"], c["dropout_attention"]
        self.form = c.get("attention")
        self.norm = nn.LayerNorm(d, c.get("norm_eps", 1e-6))
        self.qkv = nn.Linear(d, d if memory else 3 * d, bias=False)
        self.kv = nn.Linear(d, 2 * d, bias=False) if memory else None
        self.out = nn.Linear(d, d, bias=False)

    def forward(self, x, memory, mask, causal):
        def heads(z, n):
            return z.view(z.shape[0], z.shape[1], n, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = self.qkv(self.norm(x))
        if self.kv is None:
            q, k, v = heads(y, 3)
        else:
            (q,), (k, v) = heads(y, 1), heads(self.kv(memory), 2)
        y = attend(q, k, v, mask, causal, self.drop, self.training, self.form)
        return self.out(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, c, memory):
        super().__init__()
        d, f = c["d_model"], c["ff_dim"]
        self.attention, self.memory = Attention(c, False), Attention(c, True) if memory else None
        self.norm, self.ff1, self.ff2 = nn.LayerNorm(d, c.get("norm_eps", 1e-6)), nn.Linear(d, f), nn.Linear(f, d)
        self.drop, self.drop_ff = c["dropout_residual"], c["dropout_ff"]
        self.dropout = F.dropout if usual(c) else dropout

    def forward(self, x, mask, memory, memory_mask):
        x = x + self.dropout(self.attention(x, None, mask, self.memory is not None), self.drop, self.training)
        if self.memory is not None:
            x = x + self.dropout(self.memory(x, memory, memory_mask, False), self.drop, self.training)
        y = self.dropout(F.relu(self.ff1(self.norm(x))), self.drop_ff, self.training)
        return x + self.dropout(self.ff2(y), self.drop, self.training)


class Transformer(nn.Module):
    def __init__(self, c, vocab):
        super().__init__()
        d, self.smoothing, self.drop = c["d_model"], c["label_smoothing"], c["dropout_residual"]
        self.dropout = F.dropout if usual(c) else dropout
        self.table, self.bias = nn.Embedding(vocab, d), nn.Parameter(torch.zeros(vocab))
        self.encoder = nn.ModuleList(Layer(c, False) for _ in range(c["encoder_layers"]))
        self.decoder = nn.ModuleList(Layer(c, True) for _ in range(c["decoder_layers"]))
        self.norms = nn.ModuleList(nn.LayerNorm(d, c.get("norm_eps", 1e-6)) for _ in range(2))
        nn.init.normal_(self.table.weight, std=d ** -0.5)
        angle = torch.arange(1024, dtype=torch.float64)[:, None] / 10000.0 ** (torch.arange(0, d, 2, dtype=torch.float64) / d)
        self.register_buffer("places", torch.cat([angle.sin(), angle.cos()], 1).to(self.bias.dtype))

    def embed(self, ids):
        x = self.table(ids) * math.sqrt(self.table.embedding_dim) + self.places[:ids.shape[1]]
        return self.dropout(x, self.drop, self.training)

    def forward(self, x, len_x, y, len_y, real=None):
        """Mean loss of the target words. real: target positions without padding, sentence by sentence."""
        mask = None
        if real is None or x.shape[1] * len(x) != int(len_x.sum()):
            behind = torch.arange(x.shape[1], device=x.device)[None, :] >= len_x[:, None]
            mask = torch.zeros(behind.shape, dtype=self.places.dtype, device=x.device).masked_fill(behind, -math.inf)[:, None, None]
        memory = self.embed(x)
        for layer in self.encoder:
            memory = layer(memory, mask, None, None)
        memory, z = self.norms[0](memory), self.embed(y[:, :-1])
        for layer in self.decoder:
            z = layer(z, None, memory, mask)
        real = real_positions(y, len_y) if real is None else real
        z = self.norms[1](z).flatten(0, 1).index_select(0, real)
        logits = F.linear(z, self.table.weight, self.bias)
        if logits.dtype == torch.bfloat16:
            logits = logits.float()
        return F.cross_entropy(logits, y[:, 1:].flatten().index_select(0, real), label_smoothing=self.smoothing)


# ---- the same weights under the names of the reference ----

def exported(model):
    out = {"embedding": model.table.weight}

    def norm(at, n):
        out[at + "/norm_gain"], out[at + "/norm_bias"] = n.weight, n.bias

    def attention(at, a):
        norm(at, a.norm)
        if a.kv is None:
            out[at + "/qkv_kernel"] = a.qkv.weight.T
        else:
            out[at + "/q_kernel"], out[at + "/kv_kernel"] = a.qkv.weight.T, a.kv.weight.T
        out[at + "/out_kernel"] = a.out.weight.T
    for side, layers, last in (("encoder", model.encoder, model.norms[0]), ("decoder", model.decoder, model.norms[1])):
        for l, layer in enumerate(layers):
            at = "%s/layer%d/" % (side, l)
            attention(at + "attention", layer.attention)
            if layer.memory is not None:
                attention(at + "memory", layer.memory)
            norm(at + "ff", layer.norm)
            out.update({at + "ff/kernel1": layer.ff1.weight.T, at + "ff/bias1": layer.ff1.bias,
                        at + "ff/kernel2": layer.ff2.weight.T, at + "ff/bias2": layer.ff2.bias})
        norm(side, last)
    out["output_bias"] = model.bias
    return out


def check():
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "golden"))
    import transformer_torch as net
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    V = 30
    for layers in ((1, 1), (2, 3)):
        for heads in (1, 4):
            for smoothing in (0.0, 0.1):
                c = dict(encoder_layers=layers[0], decoder_layers=layers[1], d_model=8, n_heads=heads, ff_dim=12, norm="pre",
                         norm_eps=1e-6, positions="sockeye", activation="relu", label_smoothing=smoothing, dropout_attention=0.0,
                         dropout_residual=0.0, dropout_ff=0.0, average_across_timesteps=True, classes=V)
                model = Transformer(c, V)
                for p in model.parameters():
                    p.data += torch.randn(p.shape) * 0.3
                data = padded(pairs_of(6, V, np.array([(3, 4), (1, 7), (6, 1), (5, 5)])))
                got = exported(model)
                want = net.shapes(c, V, V)
                assert {k: tuple(v.shape) for k, v in got.items()} == dict(want), set(want) ^ set(got)
                leaves = {k: v.detach().clone().requires_grad_() for k, v in got.items()}
                per, weight, _ = net.loss(c, leaves, *data)
                ref = per.sum() / weight
                ref.backward()
                losses = []
                for drop in (0.0, 1e-30):       # scaled_dot_product_attention, and the matrices written out
                    for m in model.modules():
                        if isinstance(m, Attention):
                            m.drop = drop
                    model.zero_grad()
                    mine = model.train()(*data)
                    mine.backward()
                    losses.append(mine.item())
                    assert abs(mine - ref) < 1e-10 * abs(ref), (c, drop, mine.item(), ref.item())
                    for k, g in exported_gradients(model).items():
                        assert (g - leaves[k].grad).abs().max() < 1e-10, (c, drop, k)
                print("layers %s heads %d smoothing %.1f  loss %.12f  reference %.12f" % (layers, heads, smoothing, losses[0], ref.item()))


def exported_gradients(model):
    """The gradients under the same names: exported() of a model whose weights are the gradients."""
    values = [p.data for p in model.parameters()]
    for p in model.parameters():
        p.data = p.grad
    out = {k: v.detach() for k, v in exported(model).items()}
    for p, v in zip(model.parameters(), values):
        p.data = v
    return out


# ---- timing ----

def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("config", nargs="?")
    args.add_argument("--attention_dropout", type=float)
    args.add_argument("--attention", choices=("sdpa", "matrices"))
    args.add_argument("--batch", type=int)
    args.add_argument("--vocab", type=int)
    args.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    args.add_argument("--threads", type=int, default=1)
    args.add_argument("--warmup", type=int, default=1)
    args.add_argument("--steps", type=int)
    args.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    args.add_argument("--tf32", action="store_true")
    args.add_argument("--compile", action="store_true")
    args.add_argument("--check", action="store_true")
    args = args.parse_args()
    warnings.filterwarnings("ignore", message="TF32")
    torch.set_num_threads(args.threads)
    gpu = args.device == "cuda"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.tf32
    if args.check:
        return check()
    with open(args.config) as f:
        c = json.load(f)
    if args.attention_dropout is not None:
        c["dropout_attention"] = args.attention_dropout
    c["attention"] = args.attention
    vocab, size, steps = args.vocab or c["bench_vocab"], args.batch or c["batch_size"], args.steps or c["bench_steps"]
    torch.manual_seed(1)
    model = Transformer(c, vocab).train().to(args.device)
    run = torch.compile(model, dynamic=True) if args.compile else model
    opt = torch.optim.AdamW(model.parameters(), lr=c["learning_rate"], betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    batches = batches_of(c, size, vocab, steps)
    batches = batches[-1:] * args.warmup + batches      # the longest first: later batches fit into its memory
    tokens = [int(b[1].sum() + b[3].sum()) for b in batches]
    targets = [int(b[3].sum()) for b in batches]
    slots = sum(b[0].numel() + b[2].numel() for b in batches[args.warmup:])
    batches = [[t.to(args.device) for t in b + (real_positions(b[2], b[3]),)] for b in batches]
    clock, losses = Clock(gpu), []
    for b, data in enumerate(batches):
        if b == args.warmup:
            clock.start()
        opt.zero_grad()
        with torch.autocast(args.device, torch.bfloat16, enabled=args.dtype == "bfloat16"):
            loss = run(*data)
        loss.backward()
        opt.step()
        losses.append(loss.detach() if gpu else loss.item())
        if b >= args.warmup:
            clock.step()
    clock.stop()
    print(json.dumps(dict(
        peer="torch", version=torch.__version__, config=args.config, dtype=args.dtype, device=args.device, tf32=args.tf32,
        threads=args.threads, batch=size, vocab=vocab, attention_dropout=c["dropout_attention"], attention=c["attention"], compiled=args.compile, steps=steps,
        parameters=sum(p.numel() for p in model.parameters()), padding=round(1.0 - sum(tokens[args.warmup:]) / slots, 3),
        tokens_per_step=round(sum(tokens[args.warmup:]) / steps, 1),
        tokens_per_s=round(sum(tokens[args.warmup:]) / clock.seconds, 1),
        target_tokens_per_s=round(sum(targets[args.warmup:]) / clock.seconds, 1), step_seconds_median=round(clock.median(), 5),
        loss_first=round(float(losses[0]), 4), loss_last=round(float(losses[-1]), 4),
        cpu_share=round(clock.cpu / clock.seconds / args.threads, 3),
        peak_device_mib=round(torch.cuda.max_memory_allocated() / 2 ** 20) if gpu else None,
        peak_rss_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))))


if __name__ == "__main__":
    main()
