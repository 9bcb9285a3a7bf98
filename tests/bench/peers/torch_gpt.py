"""Measures PyTorch's speed with the language models of `make bench`, and prints one JSON line.

    python torch_gpt.py FILE.json [--dropout P] [--attention sdpa|matrices] [--batch B] [--dtype float32|bfloat16]
                        [--threads N] [--warmup N] [--steps N] [--device cpu|cuda] [--tf32] [--compile]
    python torch_gpt.py --check

FILE.json is an experiment of ../ (gpt_124m, gpt_6x384). Its keys are the defaults of the options. The model is GPT-2,
written in the usual way for PyTorch: learned positions, pre-norm blocks, one product for queries, keys and values,
scaled_dot_product_attention, tanh GELU, a head tied to the table of embeddings, cross-entropy of all targets in one
call, fused AdamW that decays matrices alone, gradients set to None between steps. --dropout P drops embeddings,
attention weights and the outputs of blocks.

With dropout, scaled_dot_product_attention of a CPU stores whole matrices. --attention=matrices writes the same
matrices out here, with a dropout that draws faster than F.dropout. --compile is torch.compile of the model. The faster
one counts. bfloat16 is torch.autocast with float32 weights. cpu_share = CPU time / wall time. peak_rss_mib has two
values of the process: at most, and before the model was made. --check compares loss and gradients with GPT-2 of
Hugging Face's transformers on small sizes, and measures nothing.

Data: bench_max_len uniformly random tokens a sample. All but the last are inputs, and they count as tokens.
"""

import argparse
import json
import math
import resource
import warnings

import torch
import torch.nn.functional as F
from torch import nn

from step_clock import Clock
from torch_seq2seq import dropout


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, f, eps = c["n_embd"], c["ff_dim"], c["norm_eps"]
        self.heads, self.drop, self.written = c["n_heads"], c["dropout"], c["attention"] == "matrices"
        self.norm1, self.qkv, self.out = nn.LayerNorm(d, eps), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.norm2, self.up, self.down = nn.LayerNorm(d, eps), nn.Linear(d, f), nn.Linear(f, d)

    def attend(self, q, k, v):
        if not self.written:
            return F.scaled_dot_product_attention(q, k, v, None, self.drop, True)
        score = torch.matmul(q * q.shape[3] ** -0.5, k.transpose(2, 3))
        score = score + torch.full(score.shape[2:], -math.inf, dtype=score.dtype, device=score.device).triu(1)
        return torch.matmul(self.dropout(torch.softmax(score, 3)), v)

    def dropout(self, x):
        return dropout(x, self.drop, True) if self.written else F.dropout(x, self.drop)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.dropout(self.out(self.attend(q, k, v).transpose(1, 2).reshape(b, t, d)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")))


class Gpt(nn.Module):
    def __init__(self, c, vocab):
        super().__init__()
        d = c["n_embd"]
        self.table, self.places = nn.Embedding(vocab, d), nn.Embedding(c["max_len"], d)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["n_layers"]))
        self.norm = nn.LayerNorm(d, c["norm_eps"])
        for name, p in self.named_parameters():
            if p.dim() == 2:
                last = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * c["n_layers"]) if last else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, x, y):
        """Mean loss of targets y [b, t] after inputs x [b, t]."""
        z = self.table(x) + self.places(torch.arange(x.shape[1], device=x.device))
        z = self.blocks[0].dropout(z)
        for block in self.blocks:
            z = block(z)
        logits = F.linear(self.norm(z), self.table.weight)
        if logits.dtype == torch.bfloat16:
            logits = logits.float()
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def check():
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    config = GPT2Config(vocab_size=19, n_embd=24, n_layer=2, n_head=3, n_positions=16, resid_pdrop=0.0, embd_pdrop=0.0,
                        attn_pdrop=0.0, attn_implementation="eager")
    reference = GPT2LMHeadModel(config)
    for p in reference.parameters():
        p.data += torch.randn(p.shape) * 0.3
    ids = torch.randint(19, (3, 12))
    want = F.cross_entropy(reference(ids[:, :-1]).logits.flatten(0, 1), ids[:, 1:].flatten())
    want.backward()
    names = {"transformer.wte": "table", "transformer.wpe": "places", "transformer.ln_f": "norm"}
    for i in range(2):
        for his, mine in (("ln_1", "norm1"), ("attn.c_attn", "qkv"), ("attn.c_proj", "out"), ("ln_2", "norm2"),
                          ("mlp.c_fc", "up"), ("mlp.c_proj", "down")):
            names["transformer.h.%d.%s" % (i, his)] = "blocks.%d.%s" % (i, mine)
    for attention in ("sdpa", "matrices"):
        model = Gpt(dict(n_layers=2, n_embd=24, n_heads=3, ff_dim=96, max_len=16, norm_eps=config.layer_norm_epsilon,
                         dropout=0.0, attention=attention), 19)
        mine = dict(model.named_parameters())
        pairs = []
        for name, p in reference.named_parameters():
            at, kind = name.rsplit(".", 1)
            pairs.append((mine.pop(names[at] + "." + kind), p, at.split(".")[-1].startswith("c_") and p.dim() == 2))
        assert not mine, mine.keys()
        for a, b, turned in pairs:
            a.data = b.data.T.contiguous() if turned else b.data.clone()
        loss = model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        assert abs(loss - want) < 1e-12 * want, (loss, want)
        for a, b, turned in pairs:
            assert (a.grad - (b.grad.T if turned else b.grad)).abs().max() < 1e-12
        print("%-8s loss %.12f  reference %.12f" % (attention, loss.item(), want.item()))


def rss():
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("config", nargs="?")
    args.add_argument("--dropout", type=float, default=0.0)
    args.add_argument("--attention", choices=("sdpa", "matrices"))
    args.add_argument("--batch", type=int)
    args.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    args.add_argument("--threads", type=int, default=1)
    args.add_argument("--warmup", type=int, default=1)
    args.add_argument("--steps", type=int)
    args.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    args.add_argument("--tf32", action="store_true")
    args.add_argument("--compile", action="store_true")
    args.add_argument("--check", action="store_true")
    args = args.parse_args()
    if args.check:
        return check()
    warnings.filterwarnings("ignore", message="TF32")
    torch.set_num_threads(args.threads)
    gpu = args.device == "cuda"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.tf32
    with open(args.config) as f:
        c = dict(norm_eps=1e-5, dropout=args.dropout, **json.load(f))
    c["attention"] = args.attention or ("matrices" if args.dropout and not gpu else "sdpa")
    vocab, size, steps, n = c["bench_vocab"], args.batch or c["batch_size"], args.steps or c["bench_steps"], c["bench_max_len"]
    torch.manual_seed(1)
    before = rss()
    model = Gpt(c, vocab).train().to(args.device)
    run = torch.compile(model) if args.compile else model
    groups = [dict(params=[p for p in model.parameters() if p.dim() >= 2], weight_decay=c["weight_decay"]),
              dict(params=[p for p in model.parameters() if p.dim() < 2], weight_decay=0.0)]
    opt = torch.optim.AdamW(groups, lr=c["learning_rate"], betas=(0.9, c["adam_beta2"]), fused=True)
    batches = [torch.randint(vocab, (size, n)).to(args.device) for _ in range(args.warmup + steps)]
    clock, losses = Clock(gpu), []
    for b, ids in enumerate(batches):
        if b == args.warmup:
            clock.start()
        opt.zero_grad(set_to_none=True)
        with torch.autocast(args.device, torch.bfloat16, enabled=args.dtype == "bfloat16"):
            loss = run(ids[:, :-1], ids[:, 1:])
        loss.backward()
        opt.step()
        losses.append(loss.detach() if gpu else loss.item())
        if b >= args.warmup:
            clock.step()
    clock.stop()
    tokens = size * (n - 1)
    print(json.dumps(dict(
        peer="torch", version=torch.__version__, config=args.config, dtype=args.dtype, device=args.device, tf32=args.tf32,
        threads=args.threads, batch=size, vocab=vocab, dropout=args.dropout, attention=c["attention"], compiled=args.compile,
        steps=steps, parameters=sum(p.numel() for p in model.parameters()), tokens_per_step=tokens,
        tokens_per_s=round(tokens * steps / clock.seconds, 1), step_seconds_median=round(clock.median(), 5),
        loss_first=round(float(losses[0]), 4), loss_last=round(float(losses[-1]), 4),
        cpu_share=round(clock.cpu / clock.seconds / args.threads, 3),
        peak_device_mib=round(torch.cuda.max_memory_allocated() / 2 ** 20) if gpu else None,
        peak_rss_mib=rss(), libraries_rss_mib=before)))


if __name__ == "__main__":
    main()
