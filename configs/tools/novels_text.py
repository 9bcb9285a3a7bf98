"""Writes the six novels of Jane Austen as one text, from the Debian package r-cran-janeaustenr.

    apt-get download r-cran-janeaustenr && dpkg-deb -x r-cran-janeaustenr_*.deb FOLDER
    python3 configs/tools/novels_text.py FOLDER > novels.txt

The text has 4,025,028 bytes in 73,422 lines, without an LF behind the last one. Its SHA-256 begins with
1f48a6d7751aa607. The package stores R objects: each is a length, then a zlib stream with R's XDR serialisation. A
novel is a vector of strings, its lines.
"""
import hashlib
import pathlib
import struct
import sys
import zlib

STRINGS, TEXT = 16, 9  # R's STRSXP and CHARSXP


def strings(raw):
    """The vector of strings, or None if the object is something else. Its attributes are not read."""
    at = 2 + 12  # "X\n", versions
    (version,) = struct.unpack_from(">I", raw, 2)
    if version == 3:
        (n,) = struct.unpack_from(">I", raw, at)
        at += 4 + n
    flags, n = struct.unpack_from(">II", raw, at)
    if flags & 0xFF != STRINGS:
        return None
    at += 8
    out = []
    for _ in range(n):
        flags, size = struct.unpack_from(">Ii", raw, at)
        assert flags & 0xFF == TEXT and size >= 0
        out.append(raw[at + 8:at + 8 + size])
        at += 8 + size
    return out


def main():
    folder = pathlib.Path(sys.argv[1])
    files = list(folder.rglob("data/Rdata.rdb"))
    if not files:
        sys.exit("no data/Rdata.rdb")
    data = files[0].read_bytes()
    at, found = 0, []
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        stream = zlib.decompressobj()
        raw = stream.decompress(data[at + 4:])
        assert len(raw) == size
        found.append(strings(raw))
        at = len(data) - len(stream.unused_data)
    text = b"\n".join(b"\n".join(novel) for novel in found if novel)
    digest = hashlib.sha256(text).hexdigest()
    if not digest.startswith("1f48a6d7751aa607"):
        sys.exit(f"not the expected text: {len(text)} bytes, SHA-256 {digest}")
    sys.stdout.buffer.write(text)


main()
