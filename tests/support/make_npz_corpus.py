#!/usr/bin/env python3
"""Writes NumPy's archives for tests/unit/npz.c and tests/fuzz/npz.c into tests/fuzz/corpus/npz.

Also prints the golden NPY headers of tests/unit/npz.c. The files were made with NumPy 2.4.6. Any version since 1.9
gives the same arrays."""
import io
import os
import struct
import sys
import zipfile

import numpy as np

out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fuzz", "corpus", "npz")


def member(array=None, version=None, raw=None):
    if raw is not None:
        return raw
    b = io.BytesIO()
    np.lib.format.write_array(b, array, version=version)
    return b.getvalue()


def archive(name, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(os.path.join(out, name), "w", compression) as z:
        for key, data in members.items():
            z.writestr(zipfile.ZipInfo(key), data, compress_type=compression)


def header(text, version=1):
    text = text.encode() + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text


every = {
    "f4": np.arange(6, dtype="<f4").reshape(2, 3) / 4,
    "f8": np.array([1e300, -0.0, np.inf]),
    "f2": np.array([1.5, -2], "<f2"),
    "i4": np.array([-1, 2**31 - 1], "<i4"),
    "i8": np.array([[[-(2**63)]]], "<i8"),
    "u1": np.arange(5, dtype="u1"),
    "b1": np.array([True, False]),
    "deep/er/name": np.float32(7),
    "empty": np.zeros((0, 3), "<f4"),
}
np.savez(os.path.join(out, "numpy-plain.npz"), **every)
np.savez_compressed(os.path.join(out, "numpy-compressed.npz"), **every)
one = np.arange(3, dtype="<f4")
archive("version-2.npz", {"x.npy": member(one, (2, 0))})
archive("version-3.npz", {"x.npy": member(one, (3, 0))})
archive("old-dict.npz", {"x.npy": header('{"shape":(3L,), "descr" : "<f4","fortran_order":False}') + one.tobytes()})
archive("fortran.npz", {"x.npy": member(np.asfortranarray(np.ones((2, 3), "<f4")))})
archive("big-endian.npz", {"x.npy": member(one.astype(">f4"))})
archive("structured.npz", {"x.npy": member(np.zeros(2, [("a", "<f4")]))})
archive("short-data.npz", {"x.npy": member(one)[:-1]})
archive("long-data.npz", {"x.npy": member(one) + b"x"})
huge = "{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 4), }"
archive("overflow.npz", {"x.npy": header(huge)})
archive("negative.npz", {"x.npy": header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }")})
archive("seven-dims.npz", {"x.npy": member(np.zeros((1,) * 7, "<f4"))})
archive("no-dict.npz", {"x.npy": header("[1, 2]")})
archive("long-header.npz", {"x.npy": b"\x93NUMPY\x02\x00\xff\xff\xff\x7f{}"})
archive("no-magic.npz", {"x.npy": b"\x93NUMPX" + member(one)[6:]})
archive("bomb.npz", {"x.npy": member(np.zeros(4 << 20, "u1"))}, zipfile.ZIP_DEFLATED)
many = member(np.zeros(600 << 10, "u1"))  # each of them is within the limit
archive("bombs.npz", {"x.npy": many, "y.npy": many, "z.npy": many}, zipfile.ZIP_DEFLATED)
archive("nothing.npz", {})
with zipfile.ZipFile(os.path.join(out, "twice.npz"), "w") as z:
    z.writestr(zipfile.ZipInfo("x.npy"), member(one))
    sys.stderr = io.StringIO()  # zipfile warns about the second name
    z.writestr(zipfile.ZipInfo("x.npy"), member(one))
whole = open(os.path.join(out, "version-2.npz"), "rb").read()
open(os.path.join(out, "cut.npz"), "wb").write(whole[:-10])
flipped = bytearray(whole)
flipped[whole.index(one.tobytes()) + 5] ^= 1
open(os.path.join(out, "flipped.npz"), "wb").write(flipped)

for descr, shape in [("<f4", ()), ("<f4", (3,)), ("<i8", (2, 3)), ("|u1", (0, 5)), ("<f8", (1, 2, 3, 4, 5, 6)),
                     ("<f4", (0,) + (100000000,) * 4 + (1,))]:
    b = io.BytesIO()
    np.lib.format.write_array_header_1_0(b, {"descr": descr, "fortran_order": False, "shape": shape})
    text = b.getvalue()[10:].decode().rstrip()
    print(descr, shape, len(b.getvalue()), repr(text))
