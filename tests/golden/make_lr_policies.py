#!/usr/bin/env python3
"""Writes tests/golden/lr_policies_values.h: learning rates of schedules and of the plateau rule, without run_dist.

  piecewise            torch MultiStepLR
  polynomial, cosine   torch PolynomialLR, CosineAnnealingLR
  nanoGPT, llm.c       their formulas of the cosine and of wsd; checked against published rates
  Sockeye, fairseq     their formulas of the inverse square root; checked against the paper's and published rates
  warm-up              the formula of Horovod's LearningRateWarmupCallback, batch by batch
  plateau              Keras' ReduceLROnPlateau.on_epoch_end (2.2.x), rewritten below; without cool-down also torch
                       ReduceLROnPlateau, which must agree

    python3 tests/golden/make_lr_policies.py > tests/golden/lr_policies_values.h
"""
import json

import numpy as np
import torch


def torch_rates(lr, make, n):
    """Returns the rates of n steps of a torch scheduler."""
    p = torch.zeros(1, requires_grad=True)
    opt = torch.optim.SGD([p], lr=lr)
    sched = make(opt)
    out = []
    for _ in range(n):
        out.append(opt.param_groups[0]["lr"])
        opt.step()
        sched.step()
    return out


def horovod_warmup(initial_lr, size, warmup_epochs, epoch, batch, steps_per_epoch):
    """LearningRateWarmupCallback: on_batch_begin adjusts with epoch + batch / S, the multiplier adds 1 / S."""
    x = epoch + float(batch) / steps_per_epoch
    x += 1.0 / steps_per_epoch
    return initial_lr * (1.0 / size * (x * (size - 1) / warmup_epochs + 1))


schedules = []  # name, keys, ranks, steps per epoch, last epoch, {step: rate}


def add(name, keys, n, S, end, rates):
    schedules.append((name, keys, n, S, end, rates))


for n, S in ((1, 468), (2, 234), (4, 117), (8, 58)):
    steps = sorted(set(list(range(0, 6 * S, 13)) + [1, S - 1, S, 5 * S - 2, 5 * S - 1, 5 * S, 5 * S + 1]))
    rates = {s: horovod_warmup(1.0 * n, n, 5, s // S, s % S, S) if s // S < 5 else 1.0 * n for s in steps}
    add("Horovod's warm-up, %d ranks" % n, {"learning_rate": 1.0, "warmup_epochs": 5}, n, S, 24, rates)

S = 11
goyal = [0.1 * f for f in torch_rates(1.0, lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [30, 60, 80], 0.1), 90)]
goyal_keys = {"learning_rate": 0.1, "piecewise_learning_rate_schedule": "0.1;30;0.01;60;0.001;80;0.0001", "warmup_epochs": 5}
picked = sorted(set(list(range(0, 990, 7)) + [329, 330, 331, 659, 660, 661, 879, 880, 881]))
add("pieces by epochs, 8 ranks", goyal_keys, 8, S, 90,
    {s: horovod_warmup(0.8, 8, 5, s // S, s % S, S) if s // S < 5 else 8 * goyal[s // S] for s in picked})
add("pieces by epochs, hand-scaled", dict(goyal_keys, lr_scaling="none", warmup_epochs=0), 8, S, 90,
    {s: goyal[s // S] for s in picked})
steps = torch_rates(0.4, lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [20, 50], 0.5), 80)
by_steps = {"learning_rate": 0.4, "piecewise_learning_rate_schedule": "0.4;20;0.2;50;0.1", "lr_boundary_unit": "steps",
            "lr_policy": "piecewise"}
add("pieces by steps", by_steps, 1, 10, 8, dict(enumerate(steps)))
add("pieces by steps, 2 ranks", by_steps, 2, 5, 8, {s: 2 * steps[2 * s] for s in range(40)})

poly = torch_rates(0.3, lambda o: torch.optim.lr_scheduler.PolynomialLR(o, 60, 2.0), 70)
add("polynomial, power 2", {"learning_rate": 0.3, "lr_policy": "polynomial", "lr_power": 2.0, "decay_end_epoch": 6}, 1, 10, 0,
    dict(enumerate(poly)))
add("polynomial by steps, 2 ranks", {"learning_rate": 0.3, "lr_policy": "polynomial", "lr_power": 2.0, "decay_steps": 60}, 2, 5,
    0, {s: 2 * poly[2 * s] for s in range(35)})
# MLPerf's LARS: a ramp from 0 over 2 epochs, then power 2 from 10 down to 1e-4 at the last epoch.
mlperf = {}
for s in range(80):
    x = s / 10
    mlperf[s] = 10.0 * (x + 0.1) / 2 if x < 2 else 1e-4 + (10.0 - 1e-4) * (1 - min(1.0, (x - 2) / 6)) ** 2
add("polynomial after a warm-up from 0", {"learning_rate": 10.0, "lr_policy": "polynomial", "lr_power": 2.0,
                                          "min_learning_rate": 1e-4, "warmup_epochs": 2, "warmup_start": 0.0,
                                          "lr_scaling": "none"}, 4, 10, 8, mlperf)
cosine = torch_rates(0.25, lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 50, 0.01), 51)
add("cosine", {"learning_rate": 0.25, "lr_policy": "cosine", "min_learning_rate": 0.01}, 1, 10, 5, dict(enumerate(cosine)))
add("cosine from epoch 2, root scaling",
    {"learning_rate": 0.25, "lr_policy": "cosine", "min_learning_rate": 0.01, "decay_begin_epoch": 2, "decay_end_epoch": 7,
     "lr_scaling": "sqrt"}, 4, 10, 0, {s: 2 * cosine[max(0, s - 20)] for s in range(71)})
add("warm-up with root scaling", {"learning_rate": 0.5, "warmup_epochs": 3, "lr_scaling": "sqrt"}, 4, 6, 9,
    {s: 0.5 * (1 + (2 - 1) * min(1.0, (s + 1) / 18)) for s in range(30)})


def nanogpt(i, lr, low, warmup, total):
    """get_lr of nanoGPT's train.py."""
    if i < warmup:
        return lr * (i + 1) / (warmup + 1)
    if i > total:
        return low
    return low + 0.5 * (1.0 + np.cos(np.pi * (i - warmup) / (total - warmup))) * (lr - low)


def llmc(i, lr, low, warmup, total, wsd):
    """get_learning_rate_cosine and get_learning_rate_wsd of llm.c's schedulers.h."""
    if i < warmup:
        return lr * (i + 1) / warmup
    if not wsd:
        return low + 0.5 * (1.0 + np.cos(np.pi * (i - warmup) / (total - warmup))) * (lr - low)
    point = int(0.8 * total)
    return lr if i < point else low + (1.0 - np.sqrt((i - point) / (total - point))) * (lr - low)


def sockeye(t, base, warmup):
    """LearningRateSchedulerInvSqrtDecay; t counts from 1."""
    return base * min(1.0, t / warmup if warmup else 1.0) / np.sqrt(max(t, warmup))


def fairseq(i, lr, first, warmup):
    """InverseSquareRootSchedule.step_update; update i from 0."""
    return first + i * (lr - first) / warmup if i < warmup else lr * warmup ** 0.5 * i ** -0.5


def published(values, rate):
    """Stops unless rate gives the published values, which have seven digits or fewer."""
    for step, text in values.items():
        digits = len(text.split("e")[0].replace(".", "").lstrip("0"))
        assert float("%.*e" % (digits - 1, rate(step))) == float(text), (step, text, rate(step))


NONE = {"lr_scaling": "none"}
for name, lr, low, w, total, values in (
        ("nanoGPT", 6e-4, 6e-5, 2000, 600000,
         {0: "2.998501e-7", 1999: "5.997001e-4", 2000: "6.000000e-4", 301000: "3.300000e-4", 600000: "6.000000e-5"}),
        ("nanoGPT, characters", 1e-3, 1e-4, 100, 5000,
         {0: "9.900990e-6", 99: "9.900990e-4", 100: "1.000000e-3", 2550: "5.500000e-4", 5000: "1.000000e-4"})):
    published(values, lambda i: nanogpt(i, lr, low, w, total))
    keys = dict(NONE, learning_rate=lr, min_learning_rate=low, lr_policy="cosine", warmup_steps=w, warmup_start=1 / (w + 1),
                decay_steps=total - w)
    steps = sorted(set(values) | {1, w // 2, w - 1, w + 1, total // 3, total - 1, total + 1, 2 * total})
    add(name, keys, 1, 10 ** 7, 0, {i: nanogpt(i, lr, low, w, total) for i in steps})
for name, lr, low, w, total, wsd, values in (
        ("llm.c, cosine", 6e-4, 0.0, 700, 18865, False,
         {0: "8.571429e-7", 699: "6.000000e-4", 700: "6.000000e-4", 9782: "3.000259e-4", 18864: "4.486629e-12"}),
        ("build-nanogpt", 6e-4, 6e-5, 715, 19073, False, {0: "8.391608e-7", 9894: "3.300000e-4", 19072: "6.0000e-5"}),
        ("llm.c, wsd", 6e-4, 0.0, 700, 18865, True,
         {15092: "6.000000e-4", 16978: "1.757922e-4", 18864: "7.951759e-8"})):
    def rate(i):
        return llmc(i, lr, low, w, total, wsd)
    published(values, rate)
    keys = dict(NONE, learning_rate=lr, min_learning_rate=low, warmup_steps=w - 1, warmup_start=1 / w,
                lr_policy="wsd" if wsd else "cosine")
    down = {"begin_decay_at": w, "decay_steps": total - w}
    steps = sorted(set(values) | {1, w // 2, w - 1, w, w + 1, total // 2, int(0.8 * total), total - 1})
    add(name, dict(keys, **({"decay_fraction": 0.2, "decay_end_epoch": 1} if wsd else down)), 1, total, 0,
        {i: rate(i) for i in steps})
    if wsd:  # the same in steps, to the end of the run, and by the default of decay_fraction; of four ranks, four times
        add(name + ", by steps", dict(keys, begin_decay_at=15092, decay_steps=3773), 1, total, 0, {i: rate(i) for i in steps})
        add(name + ", end of the run", keys, 1, 5 * 7 ** 3, total / (5 * 7 ** 3), {i: rate(i) for i in steps})
        linear = dict(keys, begin_decay_at=15092, decay_steps=3773, lr_scaling="linear", warmup_steps=0)
        del linear["warmup_start"]
        add(name + ", 4 ranks", linear, 4, 1000, 0,
            {s: 4 * rate(4 * s) for s in (200, 3772, 3773, 3774, 4000, 4244, 4716)})
low = 0.1 * 6e-4
add("wsd to a tenth", dict(NONE, learning_rate=6e-4, min_learning_rate=low, lr_policy="wsd", decay_fraction=0.1), 2, 100, 50,
    {i: 6e-4 if i < 4500 else low + (1 - np.sqrt((i - 4500) / 500)) * (6e-4 - low) if i < 5000 else low
     for i in (0, 1, 4499, 4500, 4501, 4625, 4750, 4999, 5000, 6000)})

published({1: "2.5002e-7", 2000: "5.0004e-4", 4000: "1.00007e-3", 8000: "7.0716e-4", 100000: "2.0001e-4"},
          lambda t: sockeye(t, 0.06325, 4000))
TS = (1, 2, 3, 1999, 2000, 3999, 4000, 4001, 8000, 16000, 100000, 10 ** 6)
for t in TS:  # section 5.3 of "Attention is all you need", with d_model = 512
    want = 512 ** -0.5 * min(t ** -0.5, t * 4000 ** -1.5)
    assert abs(sockeye(t, 512 ** -0.5, 4000) - want) <= 1e-15 * max(want, 1)
inverse = {"lr_policy": "inv_sqrt", "warmup_steps": 4000}
for name, base, w in (("Sockeye", 0.06325, 4000), ("the paper's", 512 ** -0.5, 4000), ("Sockeye, no warm-up", 0.5, 0)):
    add("inv_sqrt, " + name, dict(NONE, **dict(inverse, learning_rate=base, warmup_steps=w)), 1, 100, 0,
        {t - 1: sockeye(t, base, w) for t in TS})
for n, law in ((2, "linear"), (8, "linear"), (4, "sqrt")):
    add("inv_sqrt, Sockeye, %d ranks, %s" % (n, law), dict(inverse, learning_rate=0.06325, lr_scaling=law), n, 100, 0,
        {s: (n if law == "linear" else n ** 0.5) * sockeye(s * n + 1, 0.06325, 4000) for s in (0, 1, 250, 499, 500, 501, 1999, 9999)})
add("inv_sqrt, Sockeye, a floor", dict(NONE, **dict(inverse, learning_rate=0.06325, min_learning_rate=5e-4)), 1, 100, 0,
    {t - 1: sockeye(t, 0.06325, 4000) if t <= 4000 else max(5e-4, sockeye(t, 0.06325, 4000)) for t in TS})
IS = (0, 1, 2, 1999, 2000, 3999, 4000, 4001, 8000, 16000, 100000, 10 ** 6)
for first in (0.0, 1e-7):
    keys = dict(NONE, **dict(inverse, learning_rate=5e-4, inv_sqrt_form="fairseq"))
    if first:
        keys["warmup_init_lr"] = first
    add("inv_sqrt, fairseq from %g" % first, keys, 1, 100, 0, {i: fairseq(i, 5e-4, first, 4000) for i in IS})
add("inv_sqrt, fairseq, 4 ranks", dict(inverse, learning_rate=5e-4, inv_sqrt_form="fairseq", warmup_init_lr=1e-7), 4, 100, 0,
    {s: 4 * fairseq(4 * s, 5e-4, 1e-7, 4000) for s in (0, 1, 500, 999, 1000, 1001, 4000, 10 ** 5)})


class KerasPlateau:
    """Keras 2.2 callbacks.py, ReduceLROnPlateau, mode min or max."""

    def __init__(self, lr, factor, patience, min_delta, cooldown, min_lr, higher):
        self.lr, self.factor, self.patience, self.cooldown, self.min_lr = lr, factor, patience, cooldown, min_lr
        self.op = (lambda a, b: np.greater(a, b + min_delta)) if higher else (lambda a, b: np.less(a, b - min_delta))
        self.best = -np.inf if higher else np.inf
        self.cooldown_counter = self.wait = 0

    def in_cooldown(self):
        return self.cooldown_counter > 0

    def on_epoch_end(self, current):
        if self.in_cooldown():
            self.cooldown_counter -= 1
            self.wait = 0
        if self.op(current, self.best):
            self.best = current
            self.wait = 0
        elif not self.in_cooldown():
            self.wait += 1
            if self.wait >= self.patience:
                if self.lr > self.min_lr:
                    self.lr = max(self.lr * self.factor, self.min_lr)
                    self.cooldown_counter = self.cooldown
                    self.wait = 0
        return self.lr


rng = np.random.default_rng(3)
curve = np.round(np.concatenate([2.0 * 0.7 ** np.arange(8), 0.12 + 0.01 * rng.normal(size=30), 0.1 - 0.001 * np.arange(6),
                                 0.09 + 0.0005 * rng.random(36)]), 5)
creep = np.round(1.0 - 0.00009 * np.arange(40), 6)  # small steps that add up
plateaus = []
for name, values, keys, higher in (
        ("Horovod's MNIST", curve, {"plateau_factor": 0.1}, False),
        ("patience 3", curve, {"plateau_factor": 0.5, "plateau_patience": 3}, False),
        ("patience 1", curve, {"plateau_factor": 0.9, "plateau_patience": 1}, False),
        ("cool-down", curve, {"plateau_factor": 0.5, "plateau_patience": 2, "plateau_cooldown": 3}, False),
        ("cool-down without patience", curve, {"plateau_factor": 0.5, "plateau_patience": 1, "plateau_cooldown": 3}, False),
        ("a lowest rate", curve, {"plateau_factor": 0.1, "plateau_patience": 2, "plateau_min_lr": 0.02}, False),
        ("small gains", creep, {"plateau_factor": 0.5, "plateau_patience": 4, "plateau_min_delta": 5e-4}, False),
        ("no smallest gain", creep, {"plateau_factor": 0.5, "plateau_patience": 4, "plateau_min_delta": 0.0}, False),
        ("accuracy", 1.0 - curve / 4, {"plateau_factor": 0.2, "plateau_patience": 3, "plateau_monitor": "figure"}, True)):
    patience, delta = keys.get("plateau_patience", 10), keys.get("plateau_min_delta", 1e-4)
    cooldown, low = keys.get("plateau_cooldown", 0), keys.get("plateau_min_lr", 0.0)
    k = KerasPlateau(1.0, keys["plateau_factor"], patience, delta, cooldown, low, higher)
    rates = [k.on_epoch_end(v) for v in values]
    if cooldown == 0:
        p = torch.zeros(1, requires_grad=True)
        opt = torch.optim.SGD([p], lr=1.0)
        t = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, "max" if higher else "min", keys["plateau_factor"], patience - 1,
                                                       delta, "abs", 0, low, 0.0)
        for v, want in zip(values, rates):
            t.step(float(v))
            assert abs(opt.param_groups[0]["lr"] - want) <= 1e-12 * want, (name, v)
    assert len(set(rates)) > 1 or name == "no smallest gain", name
    plateaus.append((name, dict(keys, learning_rate=1.0), higher, values, rates))


def text(keys):
    return json.dumps(json.dumps(keys))


print("/* Written by tests/golden/make_lr_policies.py with torch %s and numpy %s; do not edit. */"
      % (torch.__version__.split("+")[0], np.__version__))
print("#ifndef LR_POLICIES_VALUES_H\n#define LR_POLICIES_VALUES_H\n")
print("enum { MOST_RATES = %d, MOST_VALUES = %d };"
      % (max(len(s[5]) for s in schedules), max(len(p[3]) for p in plateaus)))
print("static const struct golden_schedule {\n    const char *name, *keys;\n    int n_ranks;\n    double epoch_steps, end_epoch;\n"
      "    int n;\n    int step[MOST_RATES];\n    double rate[MOST_RATES];\n} schedules[] = {")
for name, keys, n, S, end, rates in schedules:
    print('    {"%s",\n     %s,\n     %d, %d, %g, %d,' % (name, text(keys), n, S, end, len(rates)))
    print("     {" + ", ".join(str(s) for s in rates) + "},")
    print("     {" + ", ".join("%.17g" % r for r in rates.values()) + "}},")
print("};\nstatic const struct golden_plateau {\n    const char *name, *keys;\n    int higher, n;\n    double value[MOST_VALUES];\n"
      "    double rate[MOST_VALUES];\n} plateaus[] = {")
for name, keys, higher, values, rates in plateaus:
    print('    {"%s",\n     %s,\n     %d, %d,' % (name, text(keys), higher, len(values)))
    print("     {" + ", ".join("%.17g" % v for v in values) + "},")
    print("     {" + ", ".join("%.17g" % r for r in rates) + "}},")
print("};\n#endif")
