#!/usr/bin/env python3
"""Makes the archive of the pronouncing dictionary that configs/g2p_cmudict.json trains on.

    python3 tests/support/make_g2p_archive.py FOLDER configs/data

FOLDER has {train,dev,test}.{en,ph}: one word per line as separate letters, and its phonemes. Writes
g2p_cmudict.LICENSE, and g2p_cmudict.tar.xz with these six files, the licence, and two vocabularies (letters.txt,
phonemes.txt: "token TAB count in train", most frequent first). The same input gives the same bytes: the archive has
no times, no owners, and a fixed order.
"""
import collections
import io
import lzma
import os
import sys
import tarfile

LICENSE = """CMUdict (the Carnegie Mellon Pronouncing Dictionary): spellings and pronunciations
in this archive are taken from it, with stress marks and second
pronunciations left out, and the words divided into train, dev and test.

Copyright (C) 1993-2015 Carnegie Mellon University. All rights reserved.

Redistribution and use in source and binary forms, with or without
modification, are permitted provided that the following conditions
are met:

1. Redistributions of source code must retain the above copyright
   notice, this list of conditions and the following disclaimer.
   The contents of this file are deemed to be source code.

2. Redistributions in binary form must reproduce the above copyright
   notice, this list of conditions and the following disclaimer in
   the documentation and/or other materials provided with the
   distribution.

This work was supported in part by funding from the Defense Advanced
Research Projects Agency, the Office of Naval Research and the National
Science Foundation of the United States of America, and by member
companies of the Carnegie Mellon Sphinx Speech Consortium. We acknowledge
the contributions of many volunteers to the expansion and improvement of
this dictionary.

THIS SOFTWARE IS PROVIDED BY CARNEGIE MELLON UNIVERSITY ``AS IS'' AND
ANY EXPRESSED OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO,
THE IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR
PURPOSE ARE DISCLAIMED.  IN NO EVENT SHALL CARNEGIE MELLON UNIVERSITY
NOR ITS EMPLOYEES BE LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL,
SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT
LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES; LOSS OF USE,
DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY
THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT
(INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE
OF THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.
"""


def vocabulary(text):
    counts = collections.Counter(text.decode().split())
    return "".join("%s\t%d\n" % t for t in sorted(counts.items(), key=lambda t: (-t[1], t[0]))).encode()


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder, out = sys.argv[1:]
    files = {}
    for split in ("train", "dev", "test"):
        for side in ("en", "ph"):
            with open(os.path.join(folder, "%s.%s" % (split, side)), "rb") as f:
                files["%s.%s" % (split, side)] = f.read()
    files["letters.txt"] = vocabulary(files["train.en"])
    files["phonemes.txt"] = vocabulary(files["train.ph"])
    files["LICENSE"] = LICENSE.encode()
    # Small files first: a reader stops at the member it wants.
    order = ["LICENSE", "letters.txt", "phonemes.txt", "dev.en", "dev.ph", "test.en", "test.ph", "train.en", "train.ph"]
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as t:
        for name in order:
            m = tarfile.TarInfo(name)
            m.size = len(files[name])
            m.mode = 0o644
            t.addfile(m, io.BytesIO(files[name]))
    packed = lzma.compress(raw.getvalue(), check=lzma.CHECK_CRC32, preset=9 | lzma.PRESET_EXTREME)
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "g2p_cmudict.tar.xz"), "wb") as f:
        f.write(packed)
    with open(os.path.join(out, "g2p_cmudict.LICENSE"), "w") as f:
        f.write(LICENSE)


if __name__ == "__main__":
    main()
