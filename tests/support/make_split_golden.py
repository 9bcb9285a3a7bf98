#!/usr/bin/env python3
"""Prints the images that belong to the evaluation data with eval_fraction, for tests/cli/folders_split.

    python3 tests/support/make_split_golden.py

An image "CLASS/NAME" does if mix64(FNV-1a of it, begun with the offset basis xor splitmix64(split_seed)) * 2^-64 is
below eval_fraction. make_hash_golden.py checks the same functions against published values.
"""
import contextlib
import io

with contextlib.redirect_stdout(io.StringIO()):  # it prints its own values
    from make_hash_golden import fnv, mix64, splitmix64

NAMES = [f"{c}/{i:02}.jpg" for c in ("ant", "bee") for i in range(1, 13)]


def evaluated(seed, fraction, names):
    return [n for n in names if (mix64(fnv(n.encode(), 0xCBF29CE484222325 ^ splitmix64(seed))) >> 11) * 2.0**-53 < fraction]


for seed in (0, 1):
    print(f"seed {seed}:", *evaluated(seed, 0.3, NAMES))
many = [f"cat/{i}.jpg" for i in range(20000)]
print("of 20000 images", len(evaluated(0, 0.1, many)))
