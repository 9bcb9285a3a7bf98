"""Trains the character model of configs/novels_char.json with PyTorch, and prints one JSON line.

    python torch_novels.py FOLDER [--seed N] [--steps N]

FOLDER is the one that configs/get_novels fills. The recipe is nanoGPT's for a CPU: 4 layers of 128, 4 heads, windows
of 64 characters, 12 a step, no biases, erf GELU, no dropout, AdamW (0.9, 0.99) with decay 0.1 of matrices, clipping of
the norm at 1. The rate rises for 100 steps to 1e-3, then falls as a cosine to 1e-4 at the last step (2000). Windows
begin at random characters of train.txt. The loss is the mean over all whole windows of dev.txt, each by itself.
`cpu_s` is the CPU time of training, without the start of Python and without evaluation.
"""

import argparse
import json
import math
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(d, bias=False), nn.LayerNorm(d, bias=False)
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Chars(nn.Module):
    def __init__(self, vocab, window, d=128, layers=4, heads=4):
        super().__init__()
        self.table, self.places = nn.Embedding(vocab, d), nn.Embedding(window, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d, bias=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                last = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if last else 0.02)

    def forward(self, x, y, reduction="mean"):
        z = self.table(x) + self.places.weight[:x.shape[1]]
        for block in self.blocks:
            z = block(z)
        return F.cross_entropy(F.linear(self.norm(z), self.table.weight).flatten(0, 1), y.flatten(), reduction=reduction)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("folder")
    args.add_argument("--seed", type=int, default=0)
    args.add_argument("--steps", type=int, default=2000)
    args = args.parse_args()
    window, batch, warmup, top, low = 64, 12, 100, 1e-3, 1e-4
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    text = {part: open("%s/%s.txt" % (args.folder, part), encoding="utf-8", newline="").read() for part in ("train", "dev")}
    ids = {c: i for i, c in enumerate(sorted(set(text["train"] + text["dev"])))}
    train, dev = (torch.tensor([ids[c] for c in text[part]]) for part in ("train", "dev"))
    model = Chars(len(ids), window)
    groups = [dict(params=[p for p in model.parameters() if p.dim() >= 2], weight_decay=0.1),
              dict(params=[p for p in model.parameters() if p.dim() < 2], weight_decay=0.0)]
    opt = torch.optim.AdamW(groups, lr=top, betas=(0.9, 0.99), fused=True)
    start = time.process_time()
    for step in range(args.steps):
        part = min(1.0, (step - warmup) / max(1, args.steps - warmup))
        rate = top * (step + 1) / (warmup + 1) if step < warmup else low + (top - low) * (1 + math.cos(math.pi * part)) / 2
        for group in opt.param_groups:
            group["lr"] = rate
        at = torch.randint(len(train) - window, (batch,))
        rows = torch.stack([train[i:i + window + 1] for i in at])
        opt.zero_grad(set_to_none=True)
        loss = model(rows[:, :-1], rows[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
    seconds = time.process_time() - start
    windows = (len(dev) - 1) // window
    total = 0.0
    with torch.no_grad():
        for i in range(0, windows, 64):
            n = min(64, windows - i)
            x = dev[i * window:(i + n) * window].view(n, window)
            y = dev[i * window + 1:(i + n) * window + 1].view(n, window)
            total += model(x, y, reduction="sum").double().item()
    print(json.dumps(dict(peer="torch", version=torch.__version__, seed=args.seed, steps=args.steps,
                          parameters=sum(p.numel() for p in model.parameters()), windows=windows,
                          loss=round(total / (windows * window), 4), cpu_s=round(seconds, 1))))


if __name__ == "__main__":
    main()
