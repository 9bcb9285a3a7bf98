#!/usr/bin/env python3
"""Writes tests/unit/subword/: a text, and the models and pieces that other programs make of it.

    python3 tests/support/make_subword_golden.py

odd.txt has what texts hold apart from plain words: other spaces, marks of subwords, emoji, combining characters,
control characters. odd.codes and odd.pieces are subword-nmt's, learned from that text and applied to it.
Needs subword-nmt==0.3.8.
"""
import io
import pathlib
import random

from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

FOLDER = pathlib.Path(__file__).parent.parent / "unit/subword"
LINES = """\
the cat sat on the mat. the cat ate the rat.
hug pug pun bun hugs
low low low low low lower lower newest newest newest newest newest newest widest widest widest
 two  spaces   here and at the end 
no\u00a0break thin\u2009space ideographic\u3000space line\u2028separator
na\u00efve caf\u00e9 \u00c4\u00d6\u00dc \u00df na\u00efve caf\u00e9
\u65e5\u672c\u8a9e \u30c6\u30b9\u30c8 \u65e5\u672c\u8a9e \u30c6\u30b9\u30c8
\U0001f600\U0001f44d\U0001f3fd \U0001f600\U0001f600 a\U0001f600
e\u0301 e\u0301e\u0301 \u200b \ufeff
a@@ b@@ @@ @@@ a @@b</w> </w> w</w>
xxx xxxx xxxxx xx x aaaaaaaaaaaaaaaaaaaaaaa
tab\there\tand\tthere \x01\x7f control

I'm he's we'll they've you'd don't it'S I'M 12345 3.14 \u00bd \u00b2
\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u041f\u0440\u0438\u0432\u0435\u0442
carriage return\r
"""


def odd_text():
    rng = random.Random(1)
    letters = "abc\u00e4\u03b1\u65e5"
    return LINES + "".join(
        " ".join("".join(rng.choice(letters) for _ in range(rng.randint(1, 90))) for _ in range(rng.randint(1, 6))) + "\n"
        for _ in range(20))


def bpe(text):
    codes, pieces = io.StringIO(), io.StringIO()
    learn_bpe(io.StringIO(text, newline="\n"), codes, 150)
    codes.seek(0)
    model = BPE(codes)
    for line in io.StringIO(text, newline="\n"):
        pieces.write(model.process_line(line))
    return codes.getvalue(), pieces.getvalue()


def write(name, text):
    (FOLDER / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def main():
    text = odd_text()
    codes, pieces = bpe(text)
    write("odd.txt", text)
    write("odd.codes", codes)
    write("odd.pieces", pieces)


main()
