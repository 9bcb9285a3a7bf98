"""The image models in PyTorch, for make_images.py.

They are written from the papers, the description of tf_cnn_benchmarks and Keras' example, only with layers of
torch.nn.functional. Images are NHWC, kernels (height, width, in, out), dense kernels (in, out)."""

import itertools

import numpy as np
import torch
import torch.nn.functional as F

DEPTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
VGG = {"vgg11": (1, 1, 2, 2, 2), "vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}


# ---- numbers by formula ----

def bits(name, n):
    """Element i of `name`: SplitMix64 of FNV-1a(name) + i, upper 24 bits."""
    h = 14695981039346656037
    for b in name.encode():
        h = (h ^ b) * 1099511628211 % 2 ** 64
    with np.errstate(over="ignore"):
        z = np.arange(n, dtype=np.uint64) + np.uint64(h)
        z = z * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))) >> np.uint64(40)


def formula(name, n):
    """Uniform in [-1, 1), exact in float32."""
    return bits(name, n).astype(np.float64) * 2.0 ** -23 - 1.0


def images(n, h, w, c):
    """Squares of 8 x 8 pixels with some noise, rounded to float32. Samples differ by more than the noise; otherwise
    batch norm would divide by almost nothing."""
    i, y, x, k = np.ogrid[:n, :h, :w, :c]
    rough = formula("square", n * 64 * 64 * c)[((i * 64 + y // 8) * 64 + x // 8) * c + k]
    return (0.75 * rough + 0.25 * formula("image", n * h * w * c).reshape(n, h, w, c)).astype(np.float32)


def initial(name, shape):
    """Kernels with variance 2 / fan_in, biases about 0, rounded to float32. A ReLU whose input is near zero may be
    on in float32 and off in float64, and in a deep network one such element is a percent of some gradient.
    Therefore norms have beta = 3 gamma, and norm1 has -3 gamma in about every fourth channel: few inputs are near
    zero, most channels are on, and some are off. In norm2 and norm3, which end the residual blocks, gamma is about
    1/4."""
    n = int(np.prod(shape))
    u, (layer, part) = formula(name, n), name.split("/")[-2:]
    middle = 0.25 if layer in ("norm2", "norm3") else 1.0
    if part == "kernel":
        v = u * np.sqrt(6.0 / np.prod(shape[:-1]))
    elif part == "gamma":
        v = middle * (1.0 + 0.25 * u)
    elif part == "beta":
        off = (layer == "norm1") & (bits("off/" + name, n) % np.uint64(4) == 0)
        v = middle * (np.where(off, -3.0, 3.0) + 0.25 * u)
    else:
        v = 0.125 * u
    return v.astype(np.float32).reshape(shape)


# ---- 16 bits ----

def bfloat16(x):
    """Rounds to the nearest bfloat16."""
    return x.to(torch.bfloat16).to(x.dtype)


class Rounded(torch.autograd.Function):
    """Rounds numbers, or their gradients, or both, as a model stores them."""

    @staticmethod
    def forward(ctx, x, there, back, store):
        ctx.back, ctx.store = back, store
        return store(x, not x.is_leaf) if there else x.clone()      # a leaf has one value for all its users

    @staticmethod
    def backward(ctx, g):
        return ctx.store(g, True) if ctx.back else g, None, None, None


def jitter(seed):
    """Changes numbers as float32 sums in another order may do: by at most 2^-22 of the number and 2^-22 of the root
    mean square of its array. None: no change."""
    if seed is None:
        return lambda x: x
    rng = torch.Generator().manual_seed(seed)
    return lambda x: x + 2.0 ** -22 * (x != 0) * (x.abs() + x.square().mean().sqrt()) * (2.0 * torch.rand(x.shape, generator=rng, dtype=x.dtype) - 1.0)


# ---- networks ----

class Model:
    """A network. All is computed in dtype.

    narrow: rounds to bfloat16 the stored results of layers on images and their gradients, the operands of products
    and convolutions, and what a convolution adds to the gradients of its kernel and image, unless it is a plain
    product. Results of dense layers are not rounded. seed: seed of jitter, which stands for other orders of sums."""

    def __init__(self, case, dtype, narrow=False, seed=None):
        self.case, self.dtype, self.params, self.states, self.seen, self.narrow = case, dtype, {}, {}, {}, narrow
        self.jitter, self.stored = jitter(seed), None
        self.config = dict(dict(batch_norm_samples=0, batch_norm_epsilon=1e-5, batch_norm_momentum=0.9, label_smoothing=0.0,
                                pool_padding="symmetric"), **case["config"])
        self.macs, self.first_macs = 0, 0

    # parameters are made at their first use

    def param(self, name, shape):
        if name not in self.params:
            self.params[name] = torch.tensor(initial(name, shape), dtype=self.dtype, requires_grad=True)
        return self.params[name]

    def count(self, macs):
        self.first_macs = self.first_macs or macs
        self.macs += macs

    def rounded(self, x, there, back):
        return Rounded.apply(x, there, back, self.store) if self.narrow else x

    def store(self, x, moves):
        """x as bfloat16. Appends it to self.stored if that is a list."""
        y = bfloat16(self.jitter(x) if moves else x)
        if self.stored is not None:
            self.stored.append(y.detach())
        return y

    def keep(self, x):
        return self.rounded(x, True, True)

    def relu(self, x):
        return self.keep(F.relu(x))

    def pool(self, x, *how):
        return self.keep(F.max_pool2d(x, *how))

    def conv(self, name, x, size, out, stride=1, pad=0, bias=False):
        k = self.param(name + "/kernel", (size, size, x.shape[1], out))
        b = self.param(name + "/bias", (out,)) if bias else None
        product = size == 1 and stride == 1
        k, x = self.rounded(k, True, not product), self.rounded(x, False, not product)
        y = self.keep(F.conv2d(x, k.permute(3, 2, 0, 1), None, stride, pad))
        y = y if b is None else y + b[None, :, None, None]
        self.count(y.shape[2] * y.shape[3] * size * size * x.shape[1] * out)
        return y

    def norm(self, name, x):
        gamma, beta = self.param(name + "/gamma", (x.shape[1],)), self.param(name + "/beta", (x.shape[1],))
        for k, v in (("/mean", 0.0), ("/variance", 1.0)):
            self.states.setdefault(name + k, torch.full((x.shape[1],), v, dtype=self.dtype))
        eps, group = self.config["batch_norm_epsilon"], self.config["batch_norm_samples"] or x.shape[0]
        col = lambda v: v[None, :, None, None]
        if not self.training:
            m, s = self.states[name + "/mean"], self.states[name + "/variance"]
            return col(gamma) * (x - col(m)) / torch.sqrt(col(s) + eps) + col(beta)
        parts, mean, variance = [], 0.0, 0.0
        for g in x.split(group):
            m, s = g.mean((0, 2, 3)), g.var((0, 2, 3), unbiased=False)
            parts.append((g - col(m)) / torch.sqrt(col(s) + eps))
            mean = mean + len(g) / len(x) * m.detach()
            variance = variance + len(g) / len(x) * g.detach().var((0, 2, 3), unbiased=True)
        self.seen[name + "/mean"], self.seen[name + "/variance"] = mean, variance
        return col(gamma) * torch.cat(parts) + col(beta)

    def follow(self):
        """Updates the running statistics with those of the last pass."""
        keep = self.config["batch_norm_momentum"]
        for k, v in self.seen.items():
            self.states[k] = keep * self.states[k] + (1 - keep) * v

    def dense(self, name, x, out):
        self.count(x.shape[1] * out)
        w = self.rounded(self.param(name + "/kernel", (x.shape[1], out)), True, False)
        return self.rounded(self.rounded(x, True, False) @ w, False, True) + self.param(name + "/bias", (out,))

    @staticmethod
    def flatten(x):
        return x.permute(0, 2, 3, 1).flatten(1)

    def logits(self, x, training):
        self.training = training
        x, model, classes = self.keep(x.permute(0, 3, 1, 2)), self.case["model"], self.case["classes"]
        if model == "mnist_cnn":
            x = self.relu(self.conv("mnist_cnn/conv1", x, 3, 32, bias=True))
            x = self.relu(self.conv("mnist_cnn/conv2", x, 3, 64, bias=True))
            x = F.relu(self.dense("mnist_cnn/dense1", self.flatten(self.pool(x, 2)), 128))
            return self.dense("mnist_cnn/dense2", x, classes)
        if model == "lenet":
            x = self.pool(self.relu(self.conv("lenet/conv1", x, 5, 32, pad=2, bias=True)), 2)
            x = self.pool(self.relu(self.conv("lenet/conv2", x, 5, 64, pad=2, bias=True)), 2)
            return self.dense("lenet/dense2", F.relu(self.dense("lenet/dense1", self.flatten(x), 512)), classes)
        if model == "alexnet":
            x = self.pool(self.relu(self.conv("alexnet/conv1", x, 11, 64, 4, bias=True)), 3, 2)
            x = self.pool(self.relu(self.conv("alexnet/conv2", x, 5, 192, pad=2, bias=True)), 3, 2)
            for i, out in ((3, 384), (4, 384), (5, 256)):
                x = self.relu(self.conv("alexnet/conv%d" % i, x, 3, out, pad=1, bias=True))
            return self.head("alexnet", self.pool(x, 3, 2))
        if model == "alexnet_cifar":
            # padding "SAME" of a pool of 3 with stride 2: behind the image where its size is even
            pool = lambda v: self.pool(F.pad(v, (0, 1 - v.shape[3] % 2, 0, 1 - v.shape[2] % 2)), 3, 2)
            lrn = lambda v: self.keep(F.local_response_norm(v, 9, 9 * (0.001 / 9.0), 0.75, 1.0))
            x = lrn(pool(self.relu(self.conv("alexnet_cifar/conv1", x, 5, 64, pad=2, bias=True))))
            x = pool(lrn(self.relu(self.conv("alexnet_cifar/conv2", x, 5, 64, pad=2, bias=True))))
            x = F.relu(self.dense("alexnet_cifar/dense1", self.flatten(x), 384))
            x = F.relu(self.dense("alexnet_cifar/dense2", x, 192))
            return self.dense("alexnet_cifar/dense3", x, classes)
        if model in VGG:
            for s, n in enumerate(VGG[model]):
                for i in range(n):
                    x = self.relu(self.conv("vgg/stage%d/conv%d" % (s + 1, i + 1), x, 3, (64, 128, 256, 512, 512)[s], pad=1, bias=True))
                x = self.pool(x, 2)
            return self.head("vgg", x)
        depth = self.config.get("depth") or int(model[len("resnet"):].split("_")[0])
        return self.resnet(x, depth) if depth in DEPTHS else self.cifar(x, depth)

    def head(self, family, x):
        x = F.relu(self.dense(family + "/dense1", self.flatten(x), 4096))
        x = F.relu(self.dense(family + "/dense2", x, 4096))
        return self.dense(family + "/dense3", x, self.case["classes"])

    def cifar(self, x, depth):
        x = self.relu(self.norm("resnet_cifar/norm1", self.conv("resnet_cifar/conv1", x, 3, 16, pad=1)))
        for stage in (1, 2, 3):
            for b in range(1, (depth - 2) // 6 + 1):
                at, width, stride = "resnet_cifar/stage%d/block%d/" % (stage, b), 8 << stage, 2 if stage > 1 and b == 1 else 1
                y = self.relu(self.norm(at + "norm1", self.conv(at + "conv1", x, 3, width, stride, 1)))
                y = self.norm(at + "norm2", self.conv(at + "conv2", y, 3, width, 1, 1))
                if stride == 2:                               # option A
                    more = (width - x.shape[1]) // 2
                    x = self.keep(F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, more, more)))
                x = self.relu(x + y)
        return self.dense("resnet_cifar/dense", self.keep(x.mean((2, 3))), self.case["classes"])

    def version(self):
        return self.config.get("resnet_version") or ("v1.5" if self.case["model"] in ("resnet",) or
                                                     self.case["model"].endswith("v1.5") else "v1")

    def resnet(self, x, depth):
        x = self.relu(self.norm("resnet/norm1", self.conv("resnet/conv1", x, 7, 64, 2, 3)))
        if self.config["pool_padding"] == "same":             # after a ReLU zeros have the same effect as minus infinity
            for d in (2, 3):
                total = max((-(-x.shape[d] // 2) - 1) * 2 + 3 - x.shape[d], 0)
                pad = (total // 2, total - total // 2)
                x = F.pad(x, pad + (0, 0) if d == 3 else (0, 0) + pad)
            x = self.pool(x, 3, 2)
        else:
            x = self.pool(x, 3, 2, 1)
        late = self.version() == "v1.5"
        for stage, n in enumerate(DEPTHS[depth]):
            for b in range(n):
                at, width, stride = "resnet/stage%d/block%d/" % (stage + 2, b + 1), 64 << stage, 2 if stage and b == 0 else 1
                out = width if depth < 50 else 4 * width
                if depth < 50:
                    y = self.relu(self.norm(at + "norm1", self.conv(at + "conv1", x, 3, width, stride, 1)))
                    y = self.conv(at + "conv2", y, 3, out, 1, 1)
                else:
                    y = self.relu(self.norm(at + "norm1", self.conv(at + "conv1", x, 1, width, 1 if late else stride)))
                    y = self.relu(self.norm(at + "norm2", self.conv(at + "conv2", y, 3, width, stride if late else 1, 1)))
                    y = self.conv(at + "conv3", y, 1, out)
                if stride == 2 or x.shape[1] != out:
                    x = self.keep(self.norm(at + "projection_norm", self.conv(at + "projection", x, 1, out, stride)))
                x = self.relu(self.norm(at + ("norm2" if depth < 50 else "norm3"), y) + x)
        return self.dense("resnet/dense", self.keep(x.mean((2, 3))), self.case["classes"])

    def loss(self, x, label, training):
        """Returns the sum of the smoothed loss over samples, the sum of -log p(label), and the logits."""
        y = self.logits(x, training)
        q = F.log_softmax(y, 1)
        nll, e = -q.gather(1, label[:, None]).sum(), self.config["label_smoothing"]
        return (1 - e) * nll - e * q.mean(1).sum(), nll, y.detach()


def count(case):
    """Returns the number of parameters, the multiply-adds of one image, and those of the first layer."""
    m = Model(case, torch.float32)
    h, w, c = case["image"]
    shapes = {}
    m.param = lambda name, shape: shapes.setdefault(name, torch.empty(shape, device="meta"))
    m.norm = lambda name, x: (m.param(name + "/gamma", (x.shape[1],)), m.param(name + "/beta", (x.shape[1],)), x)[2]
    m.logits(torch.empty((1, h, w, c), device="meta"), True)
    return sum(v.numel() for v in shapes.values()), m.macs, m.first_macs


# ---- torchvision ----

def torchvision_count(model, classes):
    import torchvision.models as tv
    name = model.split("_")[0]
    if model in VGG or model.startswith("resnet") and int(name[6:]) in DEPTHS:
        with torch.device("meta"):
            return sum(p.numel() for p in getattr(tv, name)(num_classes=classes).parameters())
    return None


def compare_with_torchvision(case, x, label):
    """Checks torchvision's module, if there is one, with the same weights: loss and gradients must agree to 1e-9."""
    import torchvision.models as tv
    name, config = case["model"].split("_")[0], case["config"]
    if "batch_norm_samples" in config or config.get("pool_padding") == "same" or torchvision_count(
            "resnet50" if name == "resnet" else case["model"], 7) is None:
        return False
    m = Model(case, torch.float64)
    loss, _, _ = m.loss(x, label, True)
    ours = dict(zip(m.params, torch.autograd.grad(loss, list(m.params.values()))))
    if case["model"] in VGG:
        module = getattr(tv, name)(num_classes=case["classes"], dropout=0.0).double()
        module.avgpool = torch.nn.Identity()
        h, w = x.shape[1] // 32, x.shape[2] // 32
        module.classifier[0] = torch.nn.Linear(512 * h * w, 4096).double()
        names = list(m.params)
    else:
        module = getattr(tv, name)(num_classes=case["classes"]).double()
        if m.version() == "v1":
            for b in module.modules():
                if isinstance(b, tv.resnet.Bottleneck) and b.conv2.stride == (2, 2):
                    b.conv1.stride, b.conv2.stride = (2, 2), (1, 1)
        names = []
        for _, block in itertools.groupby(m.params, lambda k: k.rsplit("/", 2)[0]):
            names += sorted(block, key=lambda k: "projection" in k)     # torchvision has the projection last
    turn = lambda v: v.permute(3, 2, 0, 1) if v.dim() == 4 else v.T if v.dim() == 2 else v
    with torch.no_grad():
        for p, k in zip(module.parameters(), names, strict=True):
            v = turn(m.params[k])
            if k == "vgg/dense1/kernel":                      # torchvision flattens channel by channel
                v = v.reshape(4096, h, w, 512).permute(0, 3, 1, 2).reshape(4096, -1)
            p.copy_(v)
    module.train()
    theirs = F.cross_entropy(module(x.permute(0, 3, 1, 2)), label, reduction="sum")
    theirs.backward()
    assert abs(theirs.item() - loss.item()) < 1e-9 * loss.item(), (theirs.item(), loss.item())
    for p, k in zip(module.parameters(), names):
        g = turn(ours[k])
        if k == "vgg/dense1/kernel":
            g = g.reshape(4096, h, w, 512).permute(0, 3, 1, 2).reshape(4096, -1)
        assert (p.grad - g).abs().max() < 1e-9 * max(g.abs().max().item(), 0.01), k
    return True
