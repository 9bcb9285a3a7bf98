#!/usr/bin/env python3
"""Writes the corpora of the fuzz targets checkpoint, packed, hosts and render into tests/fuzz/corpus.

The targets say what their inputs look like. The pictures of render are those of the corpus of jpeg."""
import bz2
import gzip
import io
import lzma
import os
import struct
import tarfile
import zipfile

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fuzz", "corpus")


def put(target, name, data):
    os.makedirs(os.path.join(OUT, target), exist_ok=True)
    with open(os.path.join(OUT, target, name), "wb") as f:
        f.write(data)


# ---- hosts: a byte of dead hosts, then a list, a hostfile or a line
HOSTS = {
    "list": (2, "a:2,b:2,c:2"),
    "list-repeated": (1, "a,b,b,c,a:3"),
    "list-stars": (4, "a:*,b:*,c:4"),
    "list-empty-entries": (1, ",a,,b:,:2,c:0,d:-1"),
    "list-huge": (1, "a:9223372036854775807,a:9223372036854775807,b:9223372036854775807,c"),
    "list-user": (2, "me@a:2,b.example.org:4096,10.0.0.1:4,127.0.0.1"),
    "list-option": (1, "a,-oProxyCommand=touch${IFS}x:2,b"),
    "list-words": (2, "a,b -o x,c"),
    "list-six": (1, "fe80::1,[::1]:2,a"),
    "list-long": (1, "a," + "n" * 300 + ":2," + "m" * 127),
    "file": (2, "# three\na slots=2\n\n b slots=4 max_slots=8 # the big one\nc slots = 2\n"),
    "file-doctor": (1, "a slots=2 port=2222 user=me\nb max-slots=3\nme@c:4\n"),
    "file-crlf": (1, "a slots=2\r\nb slots=2\r\n"),
    "file-huge": (1, "a slots=9223372036854775807\nb slots=9223372036854775807\nc slots=-9223372036854775808\n"),
    "file-wrong": (1, "a slots=2 colour=red\nb port=99999\n"),
    "file-no-end": (4, "a\nb\nc slots=2"),
    "line": (2, "mpirun -np 6 -H a:2,b:2,c:2 run_dist --logdir=d"),
    "line-file": (1, "mpirun --hostfile hosts -np 8 run_dist"),
    "line-equals": (4, "mpirun --np=6 --host=a:2,b:2,c:2 p"),
    "line-agent": (1, "mpirun -H a,b -mca plm_rsh_agent 'ssh -x : rsh' -mca plm_rsh_args '-F /k -p 22' p"),
    "line-several": (1, "mpirun -np 1 -H a,b p : -np 1 q"),
    "line-huge": (1, "mpirun -np 9223372036854775807 -H a:*,b:*,c p"),
    "line-srun": (0, "srun --mpi=pmix run_dist --lo a"),
    "line-ports": (0, "--mca btl_tcp_port_min_v4 46000 --mca btl_tcp_port_range_v4 2147483647 "
                      "--mca oob_tcp_dynamic_ipv4_ports 46000-46049,47000"),
    "line-quotes": (0, "a -x \"X=it's\" --mca plm_rsh_args '-i \"key file\"' -x 'Y=`id`;#\\n'"),
    "line-no-end": (0, "a -x 'X"),
    "line-doctor": (0, "-np 4 --bind-to core --map-by node -H a:2 --allow-run-as-root"),
}
for name, (dead, text) in HOSTS.items():
    put("hosts", name, bytes([dead]) + text.encode())


# ---- checkpoint: the files of a log folder
ARRAYS = "w <f4 2,3\nw/Adam <f4 2,3\nb <f4 4\ns <f8 \n"
PROGRESS = ('"updates": 5, "skipped": 0, "epoch": 1, "batch": 2, "samples": 8, "samples_hash": 7, "global_batch": 4, '
            '"best_step": 3, "best": 0.5, "best_before": -1, "loss_scale": 1024.0, "loss_scale_good_steps": 3, '
            '"plateau": {"factor": 0.5, "best": 0.5, "has_best": true, "wait": 1, "cooldown": 0, "cuts": 1}')


def manifest(step, progress=PROGRESS, arrays="$A", version=1):
    return '{"format_version": %s, "step": %s, %s, "arrays": [%s]}' % (version, step, progress, arrays)


def npz(name, step, arrays=ARRAYS, **kw):
    return "@%s\n%s\n%s\n" % (name, arrays, manifest(step, **kw))


def changed(old, new):
    assert old in PROGRESS
    return PROGRESS.replace(old, new)


BIG, LEAST = "9223372036854775807", "-9223372036854775808"
METRICS = '@metrics.jsonl\n{"step": 3, "loss": 1.5}\n{"step": 5, "loss": 1.25}\n{"step": 9, "loss": 1}\n{"step": 10, "lo'
FOLDERS = {
    "empty": "",
    "one": npz("model-5.npz", 5) + "@checkpoint\nmodel-5.npz\n" + METRICS,
    "two": npz("model-5.npz", 5) + npz("model-9.npz", 9) + "@checkpoint\nmodel-5.npz\n" + METRICS,
    "best-newer": npz("model-5.npz", 5) + npz("best-9.npz", 9),
    "same-step": npz("model-5.npz", 5) + npz("best-5.npz", 5),
    "newest-flipped": npz("model-5.npz", 5) + npz("model-9.npz!2000", 9),
    "newest-cut": npz("model-5.npz", 5) + npz("model-9.npz~700", 9),
    "all-cut": npz("model-5.npz~600", 5) + npz("best-9.npz~0", 9),
    "newer-format": npz("model-5.npz", 5) + npz("model-9.npz", 9, version=2),
    "names-nothing": npz("model-5.npz", 5) + "@checkpoint\n../../etc/passwd\n",
    "names-gone": "@checkpoint\nmodel-7.npz\n",
    "names-long": npz("model-5.npz", 5) + "@checkpoint\nmodel-" + "9" * 600 + ".npz\n",
    "odd-names": npz("model-05.npz", 5) + npz("model--5.npz", 5) + npz("model-" + BIG + ".npz", 5) +
                 npz("model-9223372036854775808.npz", 5) + npz("xmodel-5.npz", 5),
    "links": npz("real-5.npz", 5) + "@>model-5.npz\nreal-5.npz\n@>model-6.npz\nmodel-6.npz\n@>best-7.npz\nnothing\n",
    "folders": "@/model-5.npz\n@/checkpoint\n@/metrics.jsonl\n" + npz("best-3.npz", 3),
    "temporary": npz("model-5.npz", 5) + "@model-9.npz.tmp.999999\nx\n@checkpoint.tmp.1\ny\n@metrics.jsonl.tmp.0\n",
    "other-step": npz("model-5.npz", 3) + METRICS,
    "epoch-negative": npz("model-5.npz", 5, progress=changed('"epoch": 1', '"epoch": -1')),
    "epoch-least": npz("model-5.npz", 5, progress=changed('"epoch": 1', '"epoch": ' + LEAST)),
    "epoch-most": npz("model-5.npz", 5, progress=changed('"epoch": 1', '"epoch": 1000000000000000')),
    "epoch-real": npz("model-5.npz", 5, progress=changed('"epoch": 1', '"epoch": 1.5')),
    "updates-negative": npz("model-5.npz", 5, progress=changed('"updates": 5', '"updates": -1')),
    "updates-big": npz("model-5.npz", 5, progress=changed('"updates": 5', '"updates": ' + BIG)),
    "step-big": npz("model-5.npz", BIG) + METRICS,
    "inner": npz("model-5.npz", 5, progress='"meta": {%s}' % changed('"batch": 2', '"batch": -2')),
    "inner-list": npz("model-5.npz", 5, progress='"meta": [1]'),
    "plateau": npz("model-5.npz", 5, progress=changed('"factor": 0.5', '"factor": 0')),
    "scale": npz("model-5.npz", 5, progress=changed("1024.0", "-1")),
    "twice": npz("model-5.npz", 5, progress='"step": 6'),
    "no-arrays": npz("model-5.npz", 5, arrays=""),
    "array-twice": npz("model-5.npz", 5, arrays="w <f4 2\nw <f4 2\n"),
    "array-missing": "@model-5.npz\nw <f4 2\n\n" + manifest(5, arrays="") + "\n",
    "array-more": "@model-5.npz\n\n" + manifest(
        5, arrays='{"name": "x", "shape": [1], "dtype": "<f4", "crc32c": "00000000"}') + "\n",
    "array-wrong": "@model-5.npz\nw <f4 2\n\n" + manifest(
        5, arrays='{"name": "w", "shape": [3], "dtype": "<f4", "crc32c": "00000000"}') + "\n",
    "array-names": npz("model-5.npz", 5, arrays="../w <f4 1\n/w <f4 1\nmanifest.json |u1 1\nw\u00e9 <f4 1\n"),
    "array-shapes": npz("model-5.npz", 5, arrays="a <f4 0,9223372036854775807\nb |u1 1,1,1,1,1,1\nc <f2 3\nd |b1 2\n"),
    "metrics": '@metrics.jsonl\n{"step": 3}\n\n[1]\n{"step": "x"}\n{"a": 1}\n{"step": -1}\n{"step": 1e3}\n{"step": 0}',
    "metrics-nul": '@metrics.jsonl\n{"step": 0}\n\0\0\0\n{"a": "\\u0000"}\n',
    "metrics-gzip": b"@metrics.jsonl\n" + gzip.compress(b'{"step": 0}\n', mtime=0),
    "zip": b"@model-5.npz\nPK\5\6" + bytes(18),
}
for name, text in FOLDERS.items():
    put("checkpoint", name, text if isinstance(text, bytes) else text.encode())


# ---- packed: how the bytes are packed, a place and a mask of a change, the bytes
PLAIN, GZIP, BZIP2, XZ, ZSTD, GZIP_HALVES, BZIP2_HALVES, GZIP_TWICE = range(8)
NO_ARCHIVE, TAR, ZIP, ZIP_STORED = range(4)


def packed(name, data, how=PLAIN, archive=NO_ARCHIVE, place=0, mask=0):
    put("packed", name, bytes([how | archive << 3]) + struct.pack("<I", place)[:3] + bytes([mask]) + data)


def zstd(blocks, size=None):
    """A frame of raw blocks without a checksum; (byte, n) is a block of n equal bytes."""
    out = b"\x28\xb5\x2f\xfd" + (b"\x00\x58" if size is None else b"\xa0" + struct.pack("<I", size))
    for i, b in enumerate(blocks):
        equal = isinstance(b, tuple)
        n = b[1] if equal else len(b)
        out += struct.pack("<I", (i == len(blocks) - 1) | equal << 1 | n << 3)[:3] + (b[0] if equal else b)
    return out


def tar(members, mode="w", form=tarfile.USTAR_FORMAT):
    b = io.BytesIO()
    with tarfile.open(fileobj=b, mode=mode, format=form) as t:
        for name, data in members:
            e = tarfile.TarInfo(name)
            e.size = len(data)
            t.addfile(e, io.BytesIO(data))
    data = b.getvalue()
    return data[:(len(data.rstrip(b"\0")) + 511) // 512 * 512 + 1024] if mode == "w" else data


def zipped(members, method=zipfile.ZIP_DEFLATED, comment=b""):
    b = io.BytesIO()
    with zipfile.ZipFile(b, "w", method) as z:
        for name, data in members:
            z.writestr(zipfile.ZipInfo(name), data, method)
        z.comment = comment
    return b.getvalue()


TEXT = b"a word\nand an other\n\xc3\xa9 \xff\n\nlast" + b" and so on" * 20
SHARD = tar([("a.jpg", b"j" * 600), ("a.cls", b"3\n"), ("b.cls", b"0"), ("b.png", b"k")])
for k, how in enumerate(["gzip", "bzip2", "xz", "zstd", "gzip-halves", "bzip2-halves", "gzip-twice"]):
    packed(how, TEXT, how=1 + k)
    packed(how + "-changed", TEXT, how=1 + k, place=40, mask=4)
    packed(how + "-nothing", b"", how=1 + k)
    packed(how + "-shard", SHARD, how=1 + k)
    packed(how + "-tar", TEXT, how=1 + k, archive=TAR)
    packed(how + "-zip", TEXT, how=1 + k, archive=ZIP)
for k, archive in enumerate(["tar", "zip", "zip-stored"]):
    packed(archive, TEXT, archive=1 + k)
    packed(archive + "-changed", TEXT, archive=1 + k, place=60, mask=1)
packed("bzip2-second-header", TEXT, how=BZIP2_HALVES, place=140, mask=1)
gz, bz, xz = gzip.compress(TEXT, mtime=0), bz2.compress(TEXT), lzma.compress(TEXT)
for name, data in {
    "text": TEXT, "zeros": bytes(600), "mark": b"\xef\xbb\xbfa\n", "two-bytes": b"\x1f\x8b",
    "gzip": gz, "gzip-two": gz + gz, "gzip-padded": gz + bytes(600), "gzip-rubbish": gz + b"rubbish",
    "gzip-cut": gz[:-5], "gzip-crc": gz[:-8] + b"\1" + gz[-7:], "gzip-bomb": gzip.compress(bytes(3 << 20), 9, mtime=0),
    "gzip-five-times": gzip.compress(gzip.compress(gzip.compress(gzip.compress(gz, mtime=0), mtime=0), mtime=0), mtime=0),
    "gzip-of-bzip2": gzip.compress(bz, mtime=0), "bzip2-of-gzip": bz2.compress(gz),
    "bzip2": bz, "bzip2-two": bz + bz, "bzip2-padded": bz + bytes(600), "bzip2-rubbish": bz + b"rubbish",
    "bzip2-cut": bz[:-5], "bzip2-level": bz[:3] + b":" + bz[4:], "bzip2-bomb": bz2.compress(bytes(3 << 20)),
    "bzip2-half-header": bz + b"BZh91AY", "bzip2-wrong-header": bz + b"BZh9" + b"x" + bz[5:],
    "xz": xz, "xz-two": xz + xz, "xz-padded": xz + bytes(8), "xz-padded-odd": xz + bytes(7), "xz-rubbish": xz + b"rubbish",
    "xz-cut": xz[:-5], "xz-alone": lzma.compress(TEXT, lzma.FORMAT_ALONE), "xz-bomb": lzma.compress(bytes(3 << 20)),
    "zstd": zstd([TEXT[:9], (b"x", 99), TEXT[9:]]), "zstd-size": zstd([TEXT], len(TEXT)),
    "zstd-wrong-size": zstd([TEXT], 7), "zstd-two": zstd([b"a\n"]) + zstd([b"b\n"]), "zstd-padded": zstd([TEXT]) + bytes(9),
    "zstd-skippable": b"\x50\x2a\x4d\x18\3\0\0\0abc" + zstd([TEXT]), "zstd-cut": zstd([TEXT])[:-5],
    "zstd-bomb": zstd([(b"x", 1 << 17)] * 20), "zstd-rubbish": zstd([TEXT]) + b"rubbish",
    "lrzip": gzip.compress(b"LRZI\0\6" + bytes(40), mtime=0), "lzop": b"\x89LZO\0\r\n\x1a\n" + bytes(40),
    "grzip": gzip.compress(b"GRZipII\0\2\4:)" + bytes(40), mtime=0), "lz4": b"\4\"M\x18\x64\x40\xa7" + bytes(9),
    "compress": b"\x1f\x9d\x90a\0", "uuencode": b"begin 644 m\n#86)C\n`\nend\n", "rpm": b"\xed\xab\xee\xdb\3" + bytes(99),
    "tar-member": tar([("other", b"x"), ("m", TEXT)]), "tar-gz-member": tar([("m", TEXT)], "w:gz"),
    "tar-pax": tar([("n" * 150 + ".jpg", b"x"), ("m", TEXT)], form=tarfile.PAX_FORMAT),
    "zip-member": zipped([("other", b"x"), ("m", TEXT)]), "zip-stored": zipped([("m", TEXT)], zipfile.ZIP_STORED),
    "zip-bzip2": zipped([("m", TEXT)], zipfile.ZIP_BZIP2), "zip-lzma": zipped([("m", TEXT)], zipfile.ZIP_LZMA),
    "zip-comment": zipped([("m", b"x\n")], comment=b"c" * 40), "zip-cut": zipped([("m", TEXT)])[:-30],
    "zip-nothing": zipped([]), "zip-bomb": zipped([("m", bytes(1 << 20))]),
    "seven-zip": b"7z\xbc\xaf\x27\x1c\0\4" + bytes(24), "rar": b"Rar!\x1a\7\0" + bytes(24), "cab": b"MSCF" + bytes(40),
    "mtree": b"#mtree\nm type=file contents=/etc/passwd\n", "cpio": b"070701" + b"0" * 104, "ar": b"!<arch>\nm/" + b" " * 46,
}.items():
    packed("raw-" + name, data)


# ---- render: seventeen bytes of options (the enum in render.c), then an image or pixels
AUGMENT = {"none": 0, "affine": 1, "crop": 2, "pad": 3, "flip": 4}


def render(name, data, encoded=True, h=0, w=0, eval_=False, augment="none", colour=True, norm=2, sizes=(17, 19), resize=0,
           pad=64, affine=(128, 128, 128, 128, 128), crop=(0, 255, 70, 140), seed=1, epoch=0):
    head = [encoded | h << 1 | w << 3, eval_ | AUGMENT[augment] << 1 | colour << 4 | norm << 5, *sizes, resize, pad, *affine,
            *crop, seed, epoch]
    assert len(head) == 17
    put("render", name, bytes(head) + data)


JPEG = os.path.join(OUT, "jpeg")
for name in sorted(os.listdir(JPEG)):
    with open(os.path.join(JPEG, name), "rb") as f:
        picture = f.read()[1:]
    for augment in AUGMENT:
        if len(picture) < 2500 and (augment in ("crop", "pad") or len(picture) < 500):
            render(name + "-" + augment, picture, augment=augment)
    if len(picture) < 1000:
        render(name + "-eval", picture, eval_=True, resize=140, colour=False, sizes=(64, 3))
PIXELS = bytes(i * 37 & 255 for i in range(1100))
for augment in AUGMENT:
    render("pixels-" + augment, PIXELS, encoded=False, h=1, w=2, augment=augment)
    render("pixels-same-" + augment, PIXELS, encoded=False, h=1, w=2, augment=augment, sizes=(0, 0))
    render("pixels-grey-" + augment, PIXELS, encoded=False, h=3, w=7, augment=augment, colour=False, sizes=(1, 1), norm=0)
render("one-row", PIXELS, encoded=False, h=0, w=7, augment="affine", sizes=(1, 11), affine=(255, 255, 255, 255, 255))
render("one-column", PIXELS, encoded=False, h=3, w=0, augment="affine", sizes=(11, 1), affine=(255, 255, 255, 255, 0))
render("turned", PIXELS, encoded=False, h=1, w=1, augment="affine", affine=(255, 255, 255, 0, 0), norm=6)
render("most-pad", PIXELS, encoded=False, h=1, w=1, augment="pad", pad=255)
render("thin-crop", PIXELS, encoded=False, h=3, w=7, augment="crop", crop=(0, 0, 255, 255), epoch=255)
render("resize", PIXELS, encoded=False, h=3, w=7, eval_=True, resize=255, sizes=(9, 9))
render("wrong-order", PIXELS, encoded=False, augment="crop", crop=(255, 0, 0, 0))
render("nothing", b"x")
