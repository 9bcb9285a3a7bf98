"""Writes golden values of the image models: losses, gradients, running statistics and the first steps of training.

    python make_images.py [--only PART_OF_A_NAME] [--check] [--narrow | --spread]

Each case is one .json file. Needs numpy, torch and torchvision. No code of run_dist is used; images_torch.py has
the networks, in float64. Weights, images and labels come from a formula (see README.md), so the files have only
results. The script compares the resnets and VGG with torchvision's modules before it writes anything. It also
writes images/parameter_counts.json.

--check     writes nothing
--narrow    writes only images_narrow/: some cases with numbers between layers rounded to bfloat16
--spread    writes nothing; prints, for these cases, the share of stored numbers that jitter changes, forward and
            then backward
"""

import argparse
import json
import os
import sys

import numpy as np
import torch

import images_torch as net

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 10
SHAKE, SHAKES = 2.0 ** -22, 4  # four units in the last place of a float32; number of runs
MOST_ROUNDING = {"loss": 1e-5, "gradient": 1e-3, "training": 1e-4, "state": 1e-4, "eval": 1e-3}


def case(model, h, w, c, classes, n, optimizer="momentum", lr=0.01, **config):
    return dict(model=model, image=[h, w, c], classes=classes, n=n, optimizer=optimizer, lr=lr, config=config)


CASES = {
    "mnist_cnn": case("mnist_cnn", 28, 28, 1, 10, 12, lr=0.003),
    "mnist_cnn_adadelta": case("mnist_cnn", 28, 28, 1, 10, 12, "adadelta", 1.0),
    "mnist_cnn_smoothing": case("mnist_cnn", 23, 30, 2, 7, 5, lr=0.003, label_smoothing=0.1),
    "lenet": case("lenet", 28, 28, 1, 10, 9, lr=0.003),
    "alexnet": case("alexnet", 67, 99, 3, 7, 4, lr=1e-4),
    "alexnet_cifar": case("alexnet_cifar", 32, 28, 3, 10, 6, lr=0.003),
    "vgg16": case("vgg16", 33, 32, 3, 7, 2, lr=2e-5),
    "resnet20": case("resnet20", 32, 32, 3, 10, 16, lr=2e-4),
    "resnet_cifar_groups": case("resnet_cifar", 29, 34, 3, 10, 8, lr=2e-4, depth=14, batch_norm_samples=3, batch_norm_epsilon=1e-3,
                                batch_norm_momentum=0.75, label_smoothing=0.05),
    "resnet56": case("resnet56", 32, 32, 3, 10, 8, lr=2e-4),
    "resnet18": case("resnet18", 40, 40, 3, 7, 8, lr=2e-4),
    "resnet34": case("resnet34", 40, 40, 3, 7, 4, lr=2e-4),
    "resnet50": case("resnet50", 40, 42, 3, 7, 5, lr=2e-4, pool_padding="same"),
    "resnet50_v1.5": case("resnet50_v1.5", 40, 42, 3, 7, 5, lr=2e-4),
    "resnet_key": case("resnet", 40, 42, 3, 7, 5, lr=2e-4, depth=50, resnet_version="v1", batch_norm_samples=3),
    "resnet101": case("resnet101", 40, 40, 3, 7, 4, lr=2e-4),
    "resnet152": case("resnet152", 40, 40, 3, 7, 4, lr=2e-4),
}


# With the number of the first sample: in the first samples a unit of mnist_cnn's hidden layer is so near zero that
# jitter decides its ReLU.
NARROW = {"mnist_cnn": 4, "mnist_cnn_smoothing": 0, "lenet": 24, "resnet20": 0, "resnet_cifar_groups": 0}
NARROW_STEPS, NARROW_RUNS, NARROW_ALLOWED = 3, 16, 6


def measures(name, x):
    """Returns the norm, and the product with the fixed vector of that name."""
    x = np.asarray(x, np.float64)
    return [float(np.sqrt((x * x).sum())), float((x.ravel() * net.formula("dot/" + name, x.size)).sum())]


def batch_of(c, dtype):
    h, w, ch = c["image"]
    first = c.get("first", 0)
    x = net.images(first + c["n"], h, w, ch)[first:]
    label = (net.bits("label", first + c["n"])[first:] % np.uint64(c["classes"])).astype(np.int64)
    return torch.tensor(x, dtype=dtype), torch.tensor(label)


def run(c, dtype, shaken=None, narrow=False, steps=STEPS, jitter=None):
    """Computes the results of a case in one precision. shaken: a seed; each weight is off by up to SHAKE of itself.
    jitter: a seed for numbers that are rounded to 16 bits."""
    x, label = batch_of(c, dtype)
    m = net.Model(c, dtype, narrow, jitter)
    if shaken is not None:
        rng = torch.Generator().manual_seed(shaken)
        with torch.no_grad():
            m.loss(x, label, training=True)  # creates the weights
            assert m.params
            for p in m.params.values():
                p.mul_(1.0 + SHAKE * (2.0 * torch.rand(p.shape, generator=rng, dtype=dtype) - 1.0))
    out = {}
    make = {"momentum": lambda p: torch.optim.SGD(p, lr=c["lr"], momentum=0.9),
            "adadelta": lambda p: torch.optim.Adadelta(p, lr=c["lr"], rho=0.95, eps=1e-7)}[c["optimizer"]]
    losses, opt = [], None
    for step in range(steps):
        loss, nll, logits = m.loss(x, label, training=True)
        if opt is None:
            opt = make(list(m.params.values()))
        opt.zero_grad()
        loss.backward()  # of the sum, as in run_dist: after a division by n a rounded gradient would be another number
        for p in m.params.values():
            p.grad.div_(c["n"])
        losses.append(loss.item() / c["n"])
        if step == 0:
            rank = (logits > logits.gather(1, label[:, None])).sum(1)
            out.update(loss_sum=loss.item(), nll_sum=nll.item(), n_correct=int((rank == 0).sum()), n_top5=int((rank < 5).sum()),
                       least_margin=float((logits.sort(1)[0].diff(dim=1)).min()),
                       gradients={k: measures(k, p.grad.numpy()) for k, p in m.params.items()})
        opt.step()
        m.follow()
    with torch.no_grad():
        loss, nll, _ = m.loss(x, label, training=False)
    out.update(losses=losses, eval_loss=loss.item() / c["n"], eval_nll=nll.item() / c["n"],
               states={k: measures(k, v.numpy()) for k, v in m.states.items()},
               shapes={k: list(p.shape) for k, p in m.params.items()})
    return out


def gap(a, b):
    """Returns the largest difference of two tables of (norm, product), as a share of the norm. The gradient of some
    betas is only rounding (the next batch norm removes what they add), so a norm counts as at least 0.01."""
    return max(max(abs(p - q) for p, q in zip(a[k], b[k])) / max(a[k][0], 0.01) for k in a)


def rounding(exact, low):
    """Returns how far another computation is from the exact one."""
    rel = lambda p, q: abs(p - q) / abs(p)
    return dict(loss=max(rel(exact["loss_sum"], low["loss_sum"]), rel(exact["nll_sum"], low["nll_sum"])),
                gradient=gap(exact["gradients"], low["gradients"]),
                training=max(map(rel, exact["losses"], low["losses"])),
                state=gap(exact["states"], low["states"]) if exact["states"] else 0.0,
                eval=rel(exact["eval_loss"], low["eval_loss"]))


def make(name, c):
    check = net.compare_with_torchvision(c, *batch_of(c, torch.float64))
    exact = run(c, torch.float64)
    # PyTorch's float32 is one sample of rounding, and may be close by chance. Weights that are off by some units in the
    # last place change the exact computation as much as the rounding of another algorithm, such as Winograd's.
    others = [run(c, torch.float32)] + [run(c, torch.float64, seed) for seed in range(SHAKES)]
    rs = [rounding(exact, o) for o in others]
    r = {k: max(one[k] for one in rs) for k in rs[0]}
    for k, most in MOST_ROUNDING.items():
        if not r[k] < most:
            sys.exit("%s: rounding moves it by %.1e in %s: another seed or smaller steps" % (name, r[k], k))
    print("%-20s %9d parameters  loss %.4f -> %.4f  margin %.0e  rounding: %s%s" % (
        name, sum(int(np.prod(s)) for s in exact["shapes"].values()), exact["losses"][0], exact["losses"][-1],
        exact["least_margin"], "  ".join("%s %.0e" % kv for kv in r.items()), "  = torchvision" if check else ""), flush=True)
    short = lambda v: [float("%.10g" % x) for x in v]
    return dict(
        c, loss_sum=exact["loss_sum"], nll_sum=exact["nll_sum"], n_correct=exact["n_correct"], n_top5=exact["n_top5"],
        losses=exact["losses"], eval_loss=exact["eval_loss"], eval_nll=exact["eval_nll"],
        rounding={k: float("%.2g" % v) for k, v in r.items()},
        parameters=[[k, exact["shapes"][k]] + short(v) for k, v in exact["gradients"].items()],
        states=[[k] + short(v) for k, v in exact["states"].items()])


def make_narrow(name, c):
    """Makes the first pass and some losses. A number near the middle of two bfloat16 numbers may be rounded to the
    other one if it is summed in another order. Runs with jitter show how far results move then, for the norm and the
    product of each gradient. A network without rounding must be distinguishable: farther away than NARROW_ALLOWED
    times that."""
    exact = run(c, torch.float64, narrow=True, steps=NARROW_STEPS)
    others = [run(c, torch.float64, None, True, NARROW_STEPS, seed) for seed in range(NARROW_RUNS)]
    rms = lambda x: float(np.sqrt(np.mean(np.square(x))))
    rs = [rounding(exact, o) for o in others]
    r = {k: rms([one[k] for one in rs]) for k in ("loss", "training")}
    wide = run(c, torch.float64, steps=NARROW_STEPS)
    far = rounding(exact, wide)
    off = lambda o, k, i: abs(o["gradients"][k][i] - exact["gradients"][k][i]) / max(exact["gradients"][k][0], 0.01)
    spread = {k: [max(rms([off(o, k, i) for o in others]), 2.0 ** -23) for i in (0, 1)] for k in exact["gradients"]}
    told = max(off(wide, k, i) / spread[k][i] / NARROW_ALLOWED for k in spread for i in (0, 1))
    if told < 2:
        sys.exit("%s: without rounding it is %.1f times what is allowed" % (name, told))
    print("%-20s loss %.4f  rounding: %s, gradients %.0e to %.0e  from float64: %s, gradients %.0f times what is allowed" % (
        name, exact["losses"][0], "  ".join("%s %.0e" % kv for kv in r.items()), min(map(min, spread.values())), max(map(max, spread.values())),
        "  ".join("%s %.0e" % (k, far[k]) for k in r), told), flush=True)
    short = lambda v: [float("%.10g" % x) for x in v]
    return dict(first=c["first"], loss_sum=exact["loss_sum"], nll_sum=exact["nll_sum"], losses=exact["losses"], optimizer=c["optimizer"],
                lr=c["lr"], rounding={k: float("%.2g" % v) for k, v in r.items()}, from_float64={k: float("%.2g" % far[k]) for k in ("loss", "gradient", "training")},
                parameters=[[k] + short(v) + [float("%.2g" % x) for x in spread[k]] for k, v in exact["gradients"].items()])


def print_spread(name, c):
    def stored(seed):
        x, label = batch_of(c, torch.float64)
        m = net.Model(c, torch.float64, True, seed)
        m.stored = []
        m.loss(x, label, training=True)[0].backward()
        return m.stored
    shares = [float((a != b).double().mean()) for a, b in zip(stored(None), stored(0))]
    print("%-20s %s" % (name, " ".join("%.4f" % s for s in shares)), flush=True)


def text(d):
    """Writes JSON with one line for each parameter."""
    rows = []
    for k, v in d.items():
        if k in ("parameters", "states"):
            rows.append('"%s": [\n%s\n]' % (k, ",\n".join("  " + json.dumps(r) for r in v)))
        else:
            rows.append('"%s": %s' % (k, json.dumps(v)))
    return "{\n" + ",\n".join(rows) + "\n}\n"


def counts():
    """Counts trainable parameters and multiply-adds of one image, at the published sizes."""
    rows = []
    for model, h, c, classes in (
            ("mnist_cnn", 28, 1, 10), ("lenet", 28, 1, 10), ("alexnet", 227, 3, 1000), ("alexnet", 227, 3, 1001), ("alexnet_cifar", 32, 3, 10), ("vgg11", 224, 3, 1000),
            ("vgg16", 224, 3, 1000), ("vgg19", 224, 3, 1000), ("resnet20", 32, 3, 10), ("resnet32", 32, 3, 10),
            ("resnet44", 32, 3, 10), ("resnet56", 32, 3, 10), ("resnet110", 32, 3, 10), ("resnet20", 32, 3, 100),
            ("resnet18", 224, 3, 1000), ("resnet34", 224, 3, 1000), ("resnet50", 224, 3, 1000), ("resnet50", 224, 3, 1001),
            ("resnet50_v1.5", 224, 3, 1000), ("resnet50_v1.5", 224, 3, 1001), ("resnet101", 224, 3, 1000),
            ("resnet101_v1.5", 224, 3, 1000), ("resnet152", 224, 3, 1000), ("resnet152_v1.5", 224, 3, 1000)):
        n, macs, first = net.count(case(model, h, h, c, classes, 1))
        known = net.torchvision_count(model, classes)
        if known not in (None, n):
            sys.exit("%s has %d parameters, torchvision's %d" % (model, n, known))
        rows.append(dict(model=model, image=[h, h, c], classes=classes, parameters=n, macs=macs, first_macs=first))
    return rows


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--only", default="")
    a.add_argument("--check", action="store_true")
    a.add_argument("--narrow", action="store_true")
    a.add_argument("--spread", action="store_true")
    args = a.parse_args()
    torch.set_num_threads(1)
    if args.spread:
        for name, first in NARROW.items():
            if args.only in name:
                print_spread(name, dict(CASES[name], first=first))
        return
    folder = "images_narrow" if args.narrow else "images"
    os.makedirs(os.path.join(HERE, folder), exist_ok=True)
    if not args.only and not args.narrow:
        rows = counts()
        if not args.check:
            with open(os.path.join(HERE, "images", "parameter_counts.json"), "w") as f:
                f.write("[\n" + ",\n".join("  " + json.dumps(r) for r in rows) + "\n]\n")
    for name, c in CASES.items():
        if args.only in name and (not args.narrow or name in NARROW):
            made = text(make_narrow(name, dict(c, first=NARROW[name])) if args.narrow else make(name, c))
            if not args.check:
                with open(os.path.join(HERE, folder, name + ".json"), "w") as f:
                    f.write(made)


if __name__ == "__main__":
    main()
