"""Measures PyTorch's speed with the image models of `make bench`, on the CPU or a GPU, and prints one JSON line.

    python torch_images.py FILE.json [--dtype float32|bfloat16] [--batch B] [--threads N] [--warmup N] [--steps N]
                           [--layout channels_last|contiguous] [--device cpu|cuda] [--tf32] [--upload] [--compile]
    python torch_images.py --jpeg DIR [--size 224] [--seconds 4]
    python torch_images.py --check

FILE.json is an experiment of ../ (mnist_cnn, resnet50). The model is that of the config, the batch is one fixed
batch of random images, as in `run_dist --mode=bench`. A step is forward, backward and the optimizer. Everything is
in channels-last memory format, which is the faster one on a CPU for these models. bfloat16 is torch.autocast with
float32 weights. cpu_share = CPU time / wall time: in a run well below 1 other programs used the CPU.
images_per_cpu_s counts only CPU time.

On a GPU the batch is there before the clock starts, unless --upload copies it from pinned memory in every step.
Nothing waits for the GPU between the measured steps. step_seconds_median is by the GPU's clock. Without --tf32,
float32 products and convolutions are float32. cuDNN chooses its convolutions by trial. --compile is torch.compile.

--jpeg measures what torchvision does with a training image of a class folder: read, decode, random resized crop,
flip, normalise. It does so with tensors (decode_jpeg) and with PIL, the default loader of ImageFolder, on one
thread. --check compares the parameter counts with the published ones.
"""

import argparse
import json
import os
import random
import resource
import time

import torch
import torch.nn.functional as F
from torch import nn

from step_clock import Clock

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def drop(x, p, training):
    """Inverted dropout; faster than F.dropout on a CPU."""
    if not training or p == 0.0:
        return x
    if x.is_cuda:
        return F.dropout(x, p)
    return x * ((torch.rand_like(x) >= p).to(x.dtype) / (1 - p))


class MnistCnn(nn.Module):
    def __init__(self, _config, classes=10):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.dense1, self.dense2 = nn.Linear(64 * 12 * 12, 128), nn.Linear(128, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = drop(x, 0.25, self.training)
        x = drop(F.relu(self.dense1(torch.flatten(x, 1))), 0.5, self.training)
        return self.dense2(x)


class Bottleneck(nn.Module):
    def __init__(self, c_in, width, stride, v15):
        super().__init__()
        c_out, first, second = 4 * width, 1 if v15 else stride, stride if v15 else 1
        self.conv1, self.bn1 = nn.Conv2d(c_in, width, 1, first, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, second, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, c_out, 1, bias=False), nn.BatchNorm2d(c_out)
        self.short = None
        if c_in != c_out or stride != 1:
            self.short = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        y += x if self.short is None else self.short(x)
        return F.relu(y, inplace=True)


class ResNet50(nn.Module):
    def __init__(self, config, classes=1000):
        super().__init__()
        v15 = config["model"].endswith("v1.5") or config.get("resnet_version") == "v1.5"
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks, c = [], 64
        for stage, n in enumerate((3, 4, 6, 3)):
            for i in range(n):
                blocks.append(Bottleneck(c, 64 << stage, 2 if stage and not i else 1, v15))
                c = 256 << stage
        self.blocks, self.dense = nn.Sequential(*blocks), nn.Linear(c, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x)), inplace=True), 3, 2, 1)
        return self.dense(self.blocks(x).mean((2, 3)))


MODELS = {"mnist_cnn": (MnistCnn, 28, 1, 10), "resnet50": (ResNet50, 224, 3, 1000), "resnet50_v1.5": (ResNet50, 224, 3, 1000)}


def optimizer_of(model, c):
    kind, lr = c.get("optimizer", "sgd").lower(), c["learning_rate"]
    if kind == "adadelta":
        return torch.optim.Adadelta(model.parameters(), lr=lr, rho=0.95, eps=1e-7, foreach=True)
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.0 if kind == "sgd" else c.get("opt_momentum", 0.9),
                           nesterov=kind == "nesterov", weight_decay=c.get("weight_decay", 0.0), fused=True)


def check():
    for name, classes, want in (("mnist_cnn", 10, 1199882), ("resnet50", 1000, 25557032), ("resnet50_v1.5", 1001, 25559081)):
        got = sum(p.numel() for p in MODELS[name][0]({"model": name}, classes).parameters())
        assert got == want, (name, got, want)
        print("%-14s %5d classes %9d parameters" % (name, classes, got))


def jpeg(folder, size, limit):
    import torchvision
    from PIL import Image
    from torchvision import io
    from torchvision.transforms import v2
    files = sorted(os.path.join(d, f) for d, _, names in os.walk(folder) for f in names if f.lower().endswith((".jpg", ".jpeg")))
    random.Random(1).shuffle(files)
    finish = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    crop = [v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip()]
    by_tensor, by_pil = v2.Compose(crop + finish), v2.Compose(crop + [v2.PILToTensor()] + finish)
    ways = {"tensor": lambda f: by_tensor(io.decode_jpeg(io.read_file(f), mode=io.ImageReadMode.RGB)),
            "pil": lambda f: by_pil(Image.open(f).convert("RGB"))}
    out = dict(peer="torchvision", version=torchvision.__version__, size=size, files=len(files))
    for name, way in ways.items():
        n, bad, start, cpu = 0, 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - start < limit:
            try:
                way(files[(n + bad) % len(files)])
                n += 1
            except (RuntimeError, OSError):
                bad += 1
        out[name + "_images_per_s"] = round(n / (time.perf_counter() - start), 1)
        out[name + "_images_per_cpu_s"] = round(n / (time.process_time() - cpu), 1)
        out[name + "_refused"] = bad
    for unit in ("_images_per_s", "_images_per_cpu_s"):
        out[unit[1:]] = max(out["tensor" + unit], out["pil" + unit])
    print(json.dumps(out))


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("config", nargs="?")
    args.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    args.add_argument("--layout", default="channels_last", choices=("channels_last", "contiguous"))
    args.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    args.add_argument("--tf32", action="store_true")
    args.add_argument("--upload", action="store_true")
    args.add_argument("--compile", action="store_true")
    args.add_argument("--batch", type=int)
    args.add_argument("--threads", type=int, default=1)
    args.add_argument("--warmup", type=int, default=1)
    args.add_argument("--steps", type=int)
    args.add_argument("--jpeg")
    args.add_argument("--size", type=int, default=224)
    args.add_argument("--seconds", type=float, default=4.0)
    args.add_argument("--check", action="store_true")
    args = args.parse_args()
    torch.set_num_threads(args.threads)
    if args.check:
        return check()
    if args.jpeg:
        return jpeg(args.jpeg, args.size, args.seconds)
    with open(args.config) as f:
        c = json.load(f)
    make, side, channels, classes = MODELS[c["model"]]
    side, classes = c.get("image_size", side), c.get("n_classes", classes)
    size, steps = args.batch or c["batch_size"], args.steps or c["bench_steps"]
    gpu = args.device == "cuda"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.tf32
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(1)
    model, x = make(c, classes).train(), torch.randn(size, channels, side, side)
    if args.layout == "channels_last":
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, classes, (size,))
    host = x.pin_memory() if gpu and args.upload else None
    model, x, y = model.to(args.device), x.to(args.device), y.to(args.device)
    opt = optimizer_of(model, c)
    run = torch.compile(model) if args.compile else model
    clock, losses = Clock(gpu), []
    for step in range(args.warmup + steps):
        if step == args.warmup:
            clock.start()
        if host is not None:
            x.copy_(host, non_blocking=True)
        opt.zero_grad()
        with torch.autocast(args.device, torch.bfloat16, enabled=args.dtype == "bfloat16"):
            loss = F.cross_entropy(run(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.detach() if gpu else loss.item())
        if step >= args.warmup:
            clock.step()
    clock.stop()
    print(json.dumps(dict(
        peer="torch", version=torch.__version__, config=args.config, dtype=args.dtype, device=args.device, tf32=args.tf32,
        threads=args.threads, batch=size, image_size=side, layout=args.layout, compiled=args.compile, steps=steps,
        parameters=sum(p.numel() for p in model.parameters()), images_per_s=round(size * steps / clock.seconds, 2),
        images_per_cpu_s=round(size * steps / clock.cpu, 2), step_seconds_median=round(clock.median(), 5),
        loss_first=round(float(losses[0]), 4), loss_last=round(float(losses[-1]), 4),
        cpu_share=round(clock.cpu / clock.seconds / args.threads, 3),
        peak_device_mib=round(torch.cuda.max_memory_allocated() / 2 ** 20) if gpu else None,
        peak_rss_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))))


if __name__ == "__main__":
    main()
