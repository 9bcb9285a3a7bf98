#!/usr/bin/env python3
"""Writes the files of tests/unit/safetensors.c and tests/fuzz/safetensors.c into tests/fuzz/corpus/safetensors.

Files without "bad" in their name come from the library safetensors (0.8.0; the files of other versions may order arrays
otherwise). The others are damaged on purpose; the library refuses each of them, which this script checks.
"""
import json
import os
import struct

import numpy as np
from safetensors import SafetensorError, TensorSpec, deserialize, serialize

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fuzz", "corpus", "safetensors")


def put(name, data):
    with open(os.path.join(OUT, name), "wb") as f:
        f.write(data)


def good(name, arrays, metadata=None):
    specs = {k: TensorSpec(dtype=t, shape=v.shape, data_ptr=v.ctypes.data, data_len=v.nbytes) for k, (t, v) in arrays.items()}
    put(name, bytes(serialize(specs, metadata)))


def bad(name, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    whole = struct.pack("<Q", len(text) if length is None else length) + text + data
    try:
        deserialize(whole)
    except (SafetensorError, OverflowError):
        put("bad_" + name, whole)
        return
    raise SystemExit("the library reads " + name)


def entry(dtype, shape, begin, end, **more):
    return dict(dtype=dtype, shape=shape, data_offsets=[begin, end], **more)


os.makedirs(OUT, exist_ok=True)
good("types", {
    "f32": ("float32", np.arange(6, dtype="<f4").reshape(2, 3) / 4), "f64": ("float64", np.array([1e300, -0.0])),
    "f16": ("float16", np.array([1.5, -2], "<f2")), "bf16": ("bfloat16", np.array([0x3FC0, 0xC000], "<u2")),
    "i64": ("int64", np.array([-1, 2**62])), "i32": ("int32", np.array([-5], "<i4")), "i16": ("int16", np.array([7, -7], "<i2")),
    "i8": ("int8", np.array([-1, 1, 2], "i1")), "u8": ("uint8", np.array([255], "u1")), "bool": ("bool", np.array([True, False])),
    "scalar": ("float32", np.array(2.5, "<f4")), "empty": ("float32", np.zeros((3, 0, 2), "<f4"))},
    {"format": "pt", "words": "ä b"})
good("nothing", {})
good("five", {"w": ("float32", np.array([[1, 2], [3, 4]], "<f4")), "b": ("float16", np.array([0.5, -1], "<f2")),
              "n": ("int64", np.array([7])), "a": ("float32", np.zeros((0, 3), "<f4")),
              "s": ("float32", np.array(2.5, "<f4"))}, {"format": "np"})
one = struct.pack("<f", 1.0)
bad("length_over_file", {}, length=1000)
bad("length_huge", {}, length=2**63)
bad("length_zero", {}, b"      ", length=0)
bad("not_json", b"{\"a\": ")
bad("not_object", b"[1, 2]")
bad("type_unknown", {"a": entry("F99", [1], 0, 4)}, one)
bad("shape_negative", {"a": entry("F32", [-1], 0, 4)}, one)
bad("shape_overflow", {"a": entry("F32", [2**33, 2**33], 0, 4)}, one)
bad("shape_text", {"a": entry("F32", ["1"], 0, 4)}, one)
bad("shape_other", {"a": entry("F32", [2], 0, 4)}, one)
bad("place_behind", {"a": entry("F32", [2], 0, 8)}, one)
bad("place_turned", {"a": entry("F32", [1], 4, 0)}, one)
bad("place_negative", {"a": entry("F32", [1], -4, 0)}, one)
bad("place_huge", {"a": entry("F32", [1], 2**64, 2**64 + 4)}, one)
bad("place_real", {"a": entry("F32", [1], 0, 4.0)}, one)
bad("place_one", {"a": dict(dtype="F32", shape=[1], data_offsets=[0])}, one)
bad("place_missing", {"a": dict(dtype="F32", shape=[1])}, one)
bad("overlap", {"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 2, 6)}, one + b"xx")
bad("same_place", {"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 0, 4)}, one)
bad("gap", {"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 8, 12)}, one * 3)
bad("rest", {"a": entry("F32", [1], 0, 4)}, one + b"more")
bad("metadata_number", {"__metadata__": {"a": 1}})
bad("metadata_list", {"__metadata__": ["a"]})
with open(os.path.join(OUT, "types"), "rb") as f:
    whole = f.read()
put("bad_cut", whole[:-1])
put("bad_cut_header", whole[:100])
put("bad_short", b"\0\0\0")
put("bad_seven", b"\x02\0\0\0\0\0\0")
put("bad_empty", b"")
# The library takes the last of two entries of a name, and any name; run_dist takes neither.
twice = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
put("bad_twice", struct.pack("<Q", len(twice)) + twice + one)
for name, key in (("bad_name_empty", ""), ("bad_name_long", "x" * 200), ("bad_name_control", "a\x1b[2J")):
    text = json.dumps({key: entry("F32", [1], 0, 4)}).encode()
    put(name, struct.pack("<Q", len(text)) + text + one)
text = json.dumps({"a": entry("F32", [1] * 7, 0, 4)}).encode()
put("bad_dimensions", struct.pack("<Q", len(text)) + text + one)
