#!/usr/bin/env python3
"""Writes the corpora of the fuzz targets idx, cifar, tar, gunzip and jpeg into tests/fuzz/corpus.

These are small files by Python's gzip and tarfile and by Pillow, intact ones and damaged ones. Needs pillow and
numpy."""
import gzip
import io
import os
import struct
import tarfile

import numpy as np
from PIL import Image

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fuzz", "corpus")


def put(target, name, data):
    os.makedirs(os.path.join(OUT, target), exist_ok=True)
    with open(os.path.join(OUT, target, name), "wb") as f:
        f.write(data)


# ---- idx: two bytes for the length of the images, then both files
def idx(dims, data, kind=8):
    return bytes([0, 0, kind, len(dims)]) + b"".join(struct.pack(">I", d) for d in dims) + data


def pair(images, labels):
    return struct.pack(">H", len(images)) + images + labels


images, labels = idx([3, 2, 4], bytes(range(24))), idx([3], b"\0\x09\x05")
put("idx", "whole", pair(images, labels))
put("idx", "compressed", pair(gzip.compress(images, mtime=0), gzip.compress(labels, mtime=0)))
put("idx", "colour", pair(idx([1, 2, 2, 3], bytes(12)), idx([1], b"\1")))
put("idx", "label-out-of-range", pair(images, idx([3], b"\0\x0a\x05")))
put("idx", "labels-missing", pair(images, b""))
put("idx", "cut", pair(images[:-5], labels))
put("idx", "huge", pair(idx([0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF], b""), labels))
put("idx", "huge-compressed", pair(gzip.compress(idx([0x70000000, 1, 1], b""), mtime=0), labels))
put("idx", "floats", pair(idx([3, 2, 4], bytes(96), 13), labels))
put("idx", "gzip-cut", pair(gzip.compress(images, mtime=0)[:-12], labels))
put("idx", "zero", pair(idx([0, 2, 4], b""), idx([0], b"")))


# ---- tar
def tar(members, form=tarfile.GNU_FORMAT, **kw):
    b = io.BytesIO()
    with tarfile.open(fileobj=b, mode="w", format=form, **kw) as t:
        for name, data in members:
            e = tarfile.TarInfo(name)
            if isinstance(data, tuple):
                e.type, e.linkname = tarfile.LNKTYPE, data[0]
                t.addfile(e)
            elif isinstance(data, str):
                e.type, e.linkname = (tarfile.SYMTYPE, data) if data else (tarfile.DIRTYPE, "")
                t.addfile(e)
            else:
                e.size = len(data)
                t.addfile(e, io.BytesIO(data))
    return b.getvalue()


def short(data):
    """Removes most of the zeros that fill the last record."""
    n = len(data.rstrip(b"\0"))
    return data[:(n + 511) // 512 * 512 + 1024]


shard = short(tar([("a.jpg", b"j" * 700), ("a.cls", b"3\n"), ("d", ""), ("d/b.cls", b"0"), ("d/b.jpg", b"k"),
                   ("l", "a.jpg")]))
put("tar", "shard", shard)
long_names = [("n" * 120 + ".jpg", b"x"), ("n" * 120 + ".cls", b"1")]
accents = [("\u00e9.jpg", b"y"), ("\u00e9.cls", b"2")]
put("tar", "shard-pax", short(tar(long_names + accents, tarfile.PAX_FORMAT)))
put("tar", "shard-long", short(tar(long_names)))
inner = [short(tar([(name, b"abc")])) for name in ("p.JPEG", "q.JPEG")]
put("tar", "nested", short(tar([("n01.tar", inner[0]), ("n02.tar", inner[1])])))
put("tar", "compressed", gzip.compress(shard, mtime=0))
put("tar", "up", short(tar([("../a.jpg", b"x")])))
put("tar", "absolute", short(tar([("/a.jpg", b"x")])))
put("tar", "no-end", shard[:-1024])
put("tar", "cut", shard[:1100])
put("tar", "empty", bytes(1024))
put("tar", "class-word", short(tar([("a.jpg", b"x"), ("a.cls", b"cat")])))
linked = [("a.1.jpg", b"j" * 600), ("a.1.cls", b"3"), ("a.2.jpg", ("a.1.jpg",)), ("a.2.cls", ("./a.1.cls",)),
          ("a.3.jpg", ("a.2.jpg",)), ("a.3.cls", ("none",)), ("b.jpg", ("a.1.jpg",)), ("b.cls", b"1")]
put("tar", "hard-links", short(tar(linked)))
put("tar", "hard-links-compressed", gzip.compress(short(tar(linked)), mtime=0))
put("tar", "dots", short(tar([("k.1.jpg", b"x"), ("k.1.cls", b"1"), ("k.2.jpg", b"y"), ("k.2.cls", b"2"),
                              ("m.jpg", b"z"), ("m.mask.png", b"w"), ("m.cls", b"0")])))
bad = bytearray(shard)
bad[124:136] = b"77777777777\0"
put("tar", "size-huge-bad-sum", bytes(bad))
bad[148:156] = b" " * 8
bad[148:156] = b"%06o\0 " % sum(bad[:512])
put("tar", "size-huge", bytes(bad))
bad[124:136] = b"\x80" + b"\xff" * 11
bad[148:156] = b" " * 8
bad[148:156] = b"%06o\0 " % sum(bad[:512])
put("tar", "size-negative", bytes(bad))


# ---- gunzip: a byte of choices, then a file
one, two = gzip.compress(b"one " * 50, mtime=0), gzip.compress(b"two", mtime=0)
end = gzip.compress(b"", mtime=0)
put("gunzip", "one", b"\0" + one)
put("gunzip", "members", b"\0" + one + two + end)
put("gunzip", "padded", b"\0" + one + bytes(20))
put("gunzip", "garbage", b"\0" + one + b"more")
put("gunzip", "behind-zeros", b"\0" + one + bytes(2) + two)
put("gunzip", "flipped-first", b"\0" + one[:-8] + bytes([one[-8] ^ 1]) + one[-7:] + two)
put("gunzip", "cut", b"\0" + one + two[:-3])
put("gunzip", "twice", b"\0" + gzip.compress(one, mtime=0))
put("gunzip", "tar", b"\0" + gzip.compress(short(tar(linked)), mtime=0))
put("gunzip", "made", b"\5" + bytes(range(200)))


# ---- cifar: a byte of choices, then the archive, which is compressed because records are large
def record(label, n):
    return b"".join(label + bytes((i * 7 + k) & 255 for k in range(3072)) for i in range(n))


ten = [("c/batches.meta.txt", b"a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n"), ("c/data_batch_2.bin", record(b"\3", 1)),
       ("c/data_batch_1.bin", record(b"\1", 2)), ("c/test_batch.bin", record(b"\0", 1))]
hundred = [("c/train.bin", record(b"\7\x50", 1)), ("c/test.bin", record(b"\1\2", 1)),
           ("c/fine_label_names.txt", b"x\ny\n")]
z = lambda m: gzip.compress(short(tar(m)), mtime=0)
put("cifar", "ten-train", b"\1" + z(ten))
put("cifar", "ten-test", b"\0" + z(ten))
put("cifar", "hundred", b"\7" + z(hundred))
put("cifar", "hundred-coarse", b"\5" + z(hundred))
put("cifar", "both", b"\1" + z(ten + hundred))
put("cifar", "label", b"\1" + z([("data_batch_1.bin", record(b"\x0a", 1))]))
put("cifar", "size", b"\1" + z([("data_batch_1.bin", record(b"\1", 1)[:-1])]))
put("cifar", "nothing", b"\1" + z([("readme", b"x")]))


# ---- jpeg: a byte of choices before the file
def jpeg(mode, size=(24, 17), **kw):
    h = np.add.outer(np.arange(size[1]) * 9, np.arange(size[0]) * 5)
    a = np.stack([(h * (k + 1)) & 255 for k in range(4)], 2).astype(np.uint8)
    a = {"L": a[:, :, 0], "RGB": a[:, :, :3], "CMYK": a}[mode]
    b = io.BytesIO()
    Image.fromarray(a, mode).save(b, "JPEG", quality=60, **kw)
    return b.getvalue()


rgb = jpeg("RGB")
for k in range(8):
    put("jpeg", "rgb-%d" % k, bytes([k]) + rgb)
put("jpeg", "grey", b"\0" + jpeg("L"))
put("jpeg", "grey-to-grey", b"\5" + jpeg("L"))
put("jpeg", "cmyk", b"\0" + jpeg("CMYK"))
put("jpeg", "cmyk-to-grey", b"\6" + jpeg("CMYK"))
put("jpeg", "progressive", b"\1" + jpeg("RGB", progressive=True))
put("jpeg", "whole-chroma", b"\0" + jpeg("RGB", subsampling=0))
put("jpeg", "one-pixel", b"\3" + jpeg("RGB", size=(1, 1)))
put("jpeg", "cut", b"\0" + rgb[:-60])
put("jpeg", "cut-in-header", b"\0" + rgb[:300])
put("jpeg", "exif", b"\0" + rgb[:2] + b"\xff\xe1\x00\x20Exif\0\0" + b"\xff" * 24 + rgb[2:])
at = rgb.index(b"\xff\xc0")
put("jpeg", "huge", b"\0" + rgb[:at + 5] + b"\xff\xff\xff\xff" + rgb[at + 9:])
put("jpeg", "no-height", b"\0" + rgb[:at + 5] + b"\0\0" + rgb[at + 7:])
put("jpeg", "two-frames", b"\0" + rgb[:at] + rgb[at:at + 19] + rgb[at:])
put("jpeg", "png", b"\0\x89PNG\r\n\x1a\n")
put("jpeg", "empty", b"\0")
for mode in ("L", "RGB", "RGBA", "P", "1"):
    b = io.BytesIO()
    Image.open(io.BytesIO(rgb)).convert(mode).save(b, "PNG")
    put("jpeg", "png-" + mode.lower(), b"\0" + b.getvalue())
    put("jpeg", "png-%s-cut" % mode.lower(), b"\4" + b.getvalue()[:-40])
