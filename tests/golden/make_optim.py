#!/usr/bin/env python3
"""Writes tests/golden/optim_values.h: ten steps of every optimizer, computed without run_dist, in float64.

torch.optim: sgd, momentum, nesterov, adagrad, adadelta, and their weight decay; adamw. NumPy, from the formulas of
TensorFlow 1.4 (LARS of images: of MLPerf): adam, rmsprop, LARS, clipping, and the rows that momentum, nesterov,
rmsprop and adadelta skip. torch has other formulas there. Its adam has epsilon inside the bias correction. Its
rmsprop has epsilon outside the root, the rate outside the momentum, and a mean square that starts at 0. Its
clipping factor has 1e-6. It has no LARS.

    python3 tests/golden/make_optim.py > tests/golden/optim_values.h
"""
import numpy as np
import torch

STEPS, ROWS, COLS, BIAS = 10, 5, 3, 4
N = ROWS * COLS + BIAS
rng = np.random.default_rng(7)


def f32(x):
    return np.asarray(x, np.float32).astype(np.float64)


w0 = f32(rng.normal(0, 0.5, N))
w0[ROWS * COLS:] = 0  # a bias starts at zero, where LARS uses 1 / 16384
grads = f32(rng.normal(0, 1, (STEPS, N)) * 10.0 ** rng.integers(-3, 2, (STEPS, N)))
sparse = grads.copy()
for s in range(STEPS):
    for r in range(ROWS):
        if (s + r) % 3 == 0:
            sparse[s, r * COLS:(r + 1) * COLS] = 0
PARTS = [slice(0, ROWS * COLS), slice(ROWS * COLS, N)]


def run_torch(make, gs, falling=1.0):
    """make: a function of the list of two tensors, table and bias. The rate falls by a factor each step."""
    w = [torch.tensor(w0[p], dtype=torch.float64, requires_grad=True) for p in PARTS]
    opt = make(w)
    out = []
    for g in gs:
        for x, p in zip(w, PARTS):
            x.grad = torch.tensor(g[p])
        opt.step()
        for group in opt.param_groups:
            group["lr"] *= falling
        out.append(np.concatenate([x.detach().numpy() for x in w]))
    return out


def decay_table(w, decay):
    return [{"params": w[:1], "weight_decay": decay}, {"params": w[1:], "weight_decay": 0.0}]


class Adam:
    def __init__(self, lr, b1=0.9, b2=0.999, eps=1e-8):
        self.lr, self.b1, self.b2, self.eps, self.t = lr, b1, b2, eps, 0
        self.m, self.v = np.zeros(N), np.zeros(N)

    def __call__(self, w, g):
        self.t += 1
        self.m = self.b1 * self.m + (1 - self.b1) * g
        self.v = self.b2 * self.v + (1 - self.b2) * g * g
        lr = self.lr * np.sqrt(1 - self.b2 ** self.t) / (1 - self.b1 ** self.t)
        return w - lr * self.m / (np.sqrt(self.v) + self.eps)


class Sgd:
    def __init__(self, lr):
        self.lr = lr

    def __call__(self, w, g):
        return w - self.lr * g


def by_rows(w, g, update):
    """Calls update(w, g, where) for the elements whose row, or bias, is touched."""
    where = np.ones(N, bool)
    for r in range(ROWS):
        where[r * COLS:(r + 1) * COLS] = np.any(g[r * COLS:(r + 1) * COLS] != 0)
    return update(w, g, where)


class MomentumRows:
    def __init__(self, lr, mu=0.9):
        self.lr, self.mu, self.a = lr, mu, np.zeros(N)

    def __call__(self, w, g):
        def update(w, g, k):
            self.a = np.where(k, self.mu * self.a + g, self.a)
            return np.where(k, w - self.lr * self.a, w)
        return by_rows(w, g, update)


class NesterovRows:
    def __init__(self, lr, mu=0.9):
        self.lr, self.mu, self.a = lr, mu, np.zeros(N)

    def __call__(self, w, g):
        def update(w, g, k):
            self.a = np.where(k, self.mu * self.a + g, self.a)
            return np.where(k, w - self.lr * (g + self.mu * self.a), w)
        return by_rows(w, g, update)


class RmspropRows:
    """tf.train.RMSPropOptimizer: the slot "rms" starts at ones."""

    def __init__(self, lr, decay=0.9, mu=0.9, eps=1.0, falling=1.0):
        self.lr, self.decay, self.mu, self.eps, self.falling = lr, decay, mu, eps, falling
        self.s, self.m = np.ones(N), np.zeros(N)

    def __call__(self, w, g):
        def update(w, g, k):
            s = self.decay * self.s + (1 - self.decay) * g * g
            m = self.mu * self.m + self.lr * g / np.sqrt(s + self.eps)
            self.s, self.m = np.where(k, s, self.s), np.where(k, m, self.m)
            self.lr *= self.falling
            return np.where(k, w - m, w)
        return by_rows(w, g, update)


class Lars:
    """MLPerf's ResNet: v = mu v + r lr (g + wd w), w -= v; biases plain."""

    def __init__(self, lr, eta, wd, eps=0.0, mu=0.9, falling=1.0):
        self.lr, self.eta, self.wd, self.eps, self.mu, self.falling = lr, eta, wd, eps, mu, falling
        self.v = np.zeros(N)

    def __call__(self, w, g):
        w = w.copy()
        for p, trust in zip(PARTS, (True, False)):
            r, wd = 1.0, 0.0
            if trust:
                nw, ng, wd = np.linalg.norm(w[p]), np.linalg.norm(g[p]), self.wd
                r = self.eta * nw / (ng + wd * nw + self.eps) if nw > 0 and ng > 0 else 1.0
            self.v[p] = self.mu * self.v[p] + r * self.lr * (g[p] + wd * w[p])
            w[p] -= self.v[p]
        self.lr *= self.falling
        return w


class AdadeltaRows:
    def __init__(self, lr, rho=0.95, eps=1e-8):
        self.lr, self.rho, self.eps, self.a, self.d = lr, rho, eps, np.zeros(N), np.zeros(N)

    def __call__(self, w, g):
        def update(w, g, k):
            a = self.rho * self.a + (1 - self.rho) * g * g
            u = np.sqrt(self.d + self.eps) / np.sqrt(a + self.eps) * g
            d = self.rho * self.d + (1 - self.rho) * u * u
            self.a, self.d = np.where(k, a, self.a), np.where(k, d, self.d)
            return np.where(k, w - self.lr * u, w)
        return by_rows(w, g, update)


def lars(nu):
    def scale(w, g):
        g = g.copy()
        for p in PARTS:
            nw, ng = np.linalg.norm(w[p]), np.linalg.norm(g[p])
            g[p] *= nu * nw / ng if nw > 0 and ng > 0 else 1 / 16384
        return g
    return scale


def decay(wd):
    def scale(w, g):
        g = g.copy()
        g[PARTS[0]] += wd * w[PARTS[0]]
        return g
    return scale


def clip_decay(c, wd):
    return lambda w, g: decay(wd)(w, clip(c)(w, g))


def clip(c):
    def scale(w, g):
        n = np.linalg.norm(g)
        return g * (c / n) if n > c else g
    return scale


def run_numpy(opt, gs, scale=lambda w, g: g):
    w, out = w0.copy(), []
    for g in gs:
        w = opt(w, scale(w, g))
        out.append(w.copy())
    return out


cases = [
    # name, optimizer, lr, max_grad_norm, lars_nu, sparse gradients, values, other keys
    ("sgd", "sgd", 0.05, 0, 0, 0, run_torch(lambda p: torch.optim.SGD(p, lr=0.05), grads)),
    ("momentum", "momentum", 0.05, 0, 0, 0, run_torch(lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), grads)),
    ("adagrad", "adagrad", 0.1, 0, 0, 0,
     run_torch(lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.1, eps=0), grads)),
    ("adadelta", "adadelta", 100.0, 0, 0, 0, run_torch(lambda p: torch.optim.Adadelta(p, lr=100.0, rho=0.95, eps=1e-8), grads)),
    ("adam", "adam", 0.01, 0, 0, 0, run_numpy(Adam(0.01), grads)),
    ("sgd, sparse rows are dense", "sgd", 0.05, 0, 0, 1, run_torch(lambda p: torch.optim.SGD(p, lr=0.05), sparse)),
    ("adagrad, sparse rows are dense", "adagrad", 0.1, 0, 0, 1,
     run_torch(lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.1, eps=0), sparse)),
    ("adam, untouched rows decay", "adam", 0.01, 0, 0, 1, run_numpy(Adam(0.01), sparse)),
    ("momentum, untouched rows rest", "momentum", 0.05, 0, 0, 1, run_numpy(MomentumRows(0.05), sparse)),
    ("adadelta, untouched rows rest", "adadelta", 100.0, 0, 0, 1, run_numpy(AdadeltaRows(100.0), sparse)),
    ("sgd, clipped", "sgd", 0.05, 3.0, 0, 0, run_numpy(Sgd(0.05), grads, clip(3.0))),
    ("adam, clipped", "adam", 0.01, 3.0, 0, 0, run_numpy(Adam(0.01), grads, clip(3.0))),
    ("sgd, LARS", "sgd", 0.5, 0, 0.1, 0, run_numpy(Sgd(0.5), grads, lars(0.1))),
    ("adam, LARS", "adam", 0.01, 0, 0.001, 0, run_numpy(Adam(0.01), grads, lars(0.001))),
    ("nesterov", "nesterov", 0.05, 0, 0, 0, run_torch(lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True), grads)),
    ("nesterov, falling rate", "nesterov", 0.05, 0, 0, 0,
     run_torch(lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True), grads, 0.8), {"falling": 0.8}),
    ("nesterov, untouched rows rest", "nesterov", 0.05, 0, 0, 1, run_numpy(NesterovRows(0.05), sparse)),
    ("adadelta of Keras", "adadelta", 1.0, 0, 0, 0,
     run_torch(lambda p: torch.optim.Adadelta(p, lr=1.0, rho=0.95, eps=1e-7), grads), {"adadelta_epsilon": 1e-7}),
    ("rmsprop", "rmsprop", 0.05, 0, 0, 0, run_numpy(RmspropRows(0.05), grads)),
    ("rmsprop, falling rate, small epsilon", "rmsprop", 0.05, 0, 0, 0,
     run_numpy(RmspropRows(0.05, eps=1e-3, falling=0.8), grads), {"falling": 0.8, "rmsprop_epsilon": 1e-3}),
    ("rmsprop, untouched rows rest", "rmsprop", 0.05, 0, 0, 1, run_numpy(RmspropRows(0.05), sparse)),
    ("momentum, weight decay", "momentum", 0.05, 0, 0, 0,
     run_torch(lambda p: torch.optim.SGD(decay_table(p, 0.1), lr=0.05, momentum=0.9), grads), {"weight_decay": 0.1}),
    ("momentum, weight decay on all", "momentum", 0.05, 0, 0, 0,
     run_torch(lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1), grads),
     {"weight_decay": 0.1, "weight_decay_all": 1}),
    ("nesterov, weight decay", "nesterov", 0.05, 0, 0, 0,
     run_torch(lambda p: torch.optim.SGD(decay_table(p, 0.1), lr=0.05, momentum=0.9, nesterov=True), grads),
     {"weight_decay": 0.1}),
    ("adam, weight decay", "adam", 0.01, 0, 0, 0, run_numpy(Adam(0.01), grads, decay(0.1)), {"weight_decay": 0.1}),
    ("sgd, clipped, weight decay", "sgd", 0.05, 3.0, 0, 0, run_numpy(Sgd(0.05), grads, clip_decay(3.0, 0.1)),
     {"weight_decay": 0.1}),
    ("momentum, untouched rows decay", "momentum", 0.05, 0, 0, 1,
     run_torch(lambda p: torch.optim.SGD(decay_table(p, 0.1), lr=0.05, momentum=0.9), sparse), {"weight_decay": 0.1}),
    ("lars", "lars", 2.0, 0, 0, 0, run_numpy(Lars(2.0, 0.01, 0.0), grads), {"lars_eta": 0.01}),
    ("lars, weight decay, falling rate", "lars", 2.0, 0, 0, 0, run_numpy(Lars(2.0, 0.01, 0.1, falling=0.8), grads),
     {"lars_eta": 0.01, "weight_decay": 0.1, "falling": 0.8}),
    ("adamw", "adamw", 0.01, 0, 0, 0, run_torch(lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.0), grads)),
    ("adamw, weight decay", "adamw", 0.01, 0, 0, 0,
     run_torch(lambda p: torch.optim.AdamW(decay_table(p, 0.5), lr=0.01), grads), {"weight_decay": 0.5}),
    ("adamw, weight decay on all", "adamw", 0.01, 0, 0, 0,
     run_torch(lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.5), grads, 0.8),
     {"weight_decay": 0.5, "decay_exclude": '\\"none\\"', "falling": 0.8}),
    ("adamw, other betas and epsilon", "adamw", 0.01, 0, 0, 0,
     run_torch(lambda p: torch.optim.AdamW(decay_table(p, 0.1), lr=0.01, betas=(0.8, 0.95), eps=0.01), grads),
     {"weight_decay": 0.1, "adam_beta1": 0.8, "adam_beta2": 0.95, "adam_epsilon": 0.01}),
    ("adamw, untouched rows decay", "adamw", 0.01, 0, 0, 1,
     run_torch(lambda p: torch.optim.AdamW(decay_table(p, 0.5), lr=0.01), sparse), {"weight_decay": 0.5}),
    ("adamw, clipped", "adamw", 0.01, 3.0, 0, 0,
     run_torch(lambda p: torch.optim.AdamW(decay_table(p, 0.5), lr=0.01), [clip(3.0)(None, g) for g in grads]),
     {"weight_decay": 0.5}),
    ("lars, epsilon", "lars", 2.0, 0, 0, 0, run_numpy(Lars(2.0, 0.01, 0.1, eps=0.5), grads),
     {"lars_eta": 0.01, "lars_epsilon": 0.5, "weight_decay": 0.1}),
]



def row(x):
    return "{" + ", ".join("%.9g" % v if float("%.9g" % v) == v else "%.17g" % v for v in x) + "}"


def table(name, x, typ, dims):
    print("static const %s %s%s = {" % (typ, name, dims))
    for r in x:
        print("    " + row(r) + ",")
    print("};")


print("/* Written by tests/golden/make_optim.py with torch %s and numpy %s, seed 7, float64.\n * Do not edit. */"
      % (torch.__version__.split("+")[0], np.__version__))
print("#ifndef OPTIM_VALUES_H\n#define OPTIM_VALUES_H\n")
print("enum { STEPS = %d, ROWS = %d, COLS = %d, BIAS = %d, N = %d };" % (STEPS, ROWS, COLS, BIAS, N))
print("static const double first[N] = %s;" % row(w0))
table("grads", grads, "double", "[STEPS][N]")
table("sparse_grads", sparse, "double", "[STEPS][N]")
print("static const struct golden {\n    const char *name, *optimizer;\n    double lr;\n    int sparse;\n"
      "    double falling;\n    const char *keys;\n    double after[STEPS][N];\n} golden[] = {")
for name, opt, lr, c, nu, sp, out, *other in cases:
    keys = dict(other[0]) if other else {}
    falling = keys.pop("falling", 1)
    if "weight_decay_all" in keys:
        keys["weight_decay_all"] = "true"
    for key, value in (("lars_nu", nu), ("max_grad_norm", c)):
        if value:
            keys = dict({key: value}, **keys)
    text = ", ".join('\\"%s\\": %s' % (k, v if isinstance(v, str) else "%g" % v) for k, v in keys.items())
    print('    {"%s", "%s", %g, %d, %g, "%s", {' % (name, opt, lr, sp, falling, text))
    for r in out:
        print("        " + row(r) + ",")
    print("    }},")
print("};\n#endif")
