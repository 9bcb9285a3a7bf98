#!/usr/bin/env python3
"""torch_gloo.py -- measures all_reduce of PyTorch's gloo on this machine, float32, for the sizes of
tests/bench/exchange.c.

    python tests/bench/peers/torch_gloo.py --ranks 2 [--max-mib 512]

Prints one line per size, "gloo KiB GB/s": bytes of one rank's tensor / time of the slowest rank, median over calls,
as in exchange.c.
"""
import argparse
import os
import statistics
import tempfile
import time


def work(rank, ranks, max_mib, store):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
    kib = 64
    while kib <= max_mib * 1024:
        n = kib * 256
        x = torch.zeros(n, dtype=torch.float32)
        in_a_row = 20 if kib < 1000 else 1
        calls = 10 if kib < 1000 else 15 if kib < 60000 else 5
        times = []
        for i in range(calls + 2):
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(in_a_row):
                dist.all_reduce(x)
            s = torch.tensor([(time.perf_counter() - begin) / in_a_row], dtype=torch.float64)
            dist.all_reduce(s, op=dist.ReduceOp.MAX)
            if i >= 2:
                times.append(float(s))
        if rank == 0:
            print("gloo %d %.2f" % (kib, kib * 1024e-9 / statistics.median(times)), flush=True)
        kib *= 2 if kib in (64, 128) or kib >= 262144 else 4
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--max-mib", type=int, default=512)
    a = p.parse_args()
    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, args=(a.ranks, a.max_mib, os.path.join(folder, "store")), nprocs=a.ranks)


if __name__ == "__main__":
    main()
