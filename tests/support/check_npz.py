#!/usr/bin/env python3
"""Opens with NumPy the files that the unit tests of npz and checkpoint wrote.

    check_npz.py BUILD/tests/unit    the folder of the test programs

Runs each program so that it keeps its files. Then compares values, types, the order of members, the checksums of
the manifest (with its own CRC32C), and the constants that make archives reproducible. Prints one line. The exit
status is 1 if anything differs."""
import json
import os
import subprocess
import sys
import tempfile
import zipfile

import numpy as np


def crc32c(data):
    table = []
    for i in range(256):
        c = i
        for _ in range(8):
            c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
        table.append(c)
    crc = 0xFFFFFFFF
    for b in data:
        crc = table[(crc ^ b) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def run(program, folder):
    env = dict(os.environ, RD_TEST_KEEP=folder)
    done = subprocess.run([program], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{program} failed:\n{done.stdout.decode(errors='replace')}")


def check_types(folder):
    path = os.path.join(folder, "types.npz")
    want = {
        "model/weights/f4": np.array([[0, 0.25, 0.5], [-1, 1e-45, 3e38]], "<f4"),
        "f8": np.array([1e300, -0.0]),
        "f2": np.array([1.5, -2], "<f2"),
        "i4": np.array([-(2**31), 0, 2**31 - 1], "<i4").reshape(1, 3, 1),
        "scalar": np.array(-(2**63), "<i8"),
        "u1": np.array([0, 1, 2, 254, 255], "u1"),
        "none": np.zeros((0, 7), "<f4"),
    }
    with np.load(path) as z:
        assert list(z.files) == list(want) + ["manifest.json"], z.files
        for name, a in want.items():
            assert z[name].dtype == a.dtype and z[name].shape == a.shape, name
            assert z[name].tobytes() == a.tobytes(), name
    with zipfile.ZipFile(path) as z:
        assert z.testzip() is None
        for info in z.infolist():
            assert info.compress_type == zipfile.ZIP_STORED, info
            assert info.date_time == (1980, 1, 1, 0, 0, 0), info
        assert z.read("manifest.json") == b'{"step": 3}'


def check_checkpoint(folder):
    assert open(os.path.join(folder, "checkpoint")).read() == "model-42.npz\n"
    assert sorted(f for f in os.listdir(folder) if not f.startswith(".")) == ["checkpoint", "model-42.npz"]
    with np.load(os.path.join(folder, "model-42.npz")) as z:
        manifest = json.loads(z["manifest.json"])
        assert manifest["format_version"] == 1 and manifest["step"] == 42 and manifest["epoch"] == 4, manifest
        assert manifest["config"] == 'a "quoted" text'
        assert [e["name"] for e in manifest["arrays"]] == ["param/w", "ids"]
        for e in manifest["arrays"]:
            a = z[e["name"]]
            assert list(a.shape) == e["shape"] and a.dtype.str == e["dtype"], e
            assert f"{crc32c(a.tobytes()):08x}" == e["crc32c"], e
        assert (z["param/w"] == (42 + np.arange(1000) % 7).astype("<f4")).all()
        assert (z["ids"] == np.array([[1], [42], [3]], "<i4")).all()


assert crc32c(b"123456789") == 0xE3069283
for name, check in [("npz", check_types), ("checkpoint", check_checkpoint)]:
    with tempfile.TemporaryDirectory() as tmp:
        run(os.path.join(sys.argv[1], name), tmp)
        check(tmp)
print(f"numpy {np.__version__} reads the archives of npz and checkpoint: ok")
