#!/usr/bin/env python3
"""make_normal_golden.py -- texts in normal forms, and ids of tokenizers with normalizers, by Hugging Face's tokenizers.

    python3 tests/support/make_normal_golden.py

Writes into tests/unit/subword/: forms.txt has lines with combining marks, Hangul, compatibility characters and
characters that decompose, in many orders. forms.nfc, .nfd, .nfkc and .nfkd have them in these forms. normal.json is a
tokenizer with the normalizer NFC and added tokens before and after it; several.json has a sequence of two. NAME.ids has
the ids of each line. Characters are those of Unicode 3.2, which all programs know. Needs tokenizers==0.23.3.
"""
import json
import pathlib
import random
import unicodedata

import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

FOLDER = pathlib.Path(__file__).parent.parent / "unit/subword"
OLD = unicodedata.ucd_3_2_0
LINES = """\
plain text, na\u00efve caf\u00e9
e\u0301 e\u0327\u0301 e\u0301\u0327 \u00e9\u0327 \u1e69 s\u0323\u0307 s\u0307\u0323
\u1112\u1161\u11ab\u1100\u1173\u11af \ud55c\uae00 \u1100\u1161 \u1100\u1161\u11a8 \uac00\u11a8
\u212b \u2126 \u212a \u037e \u1fef \u2000 \u0340 \u0958 \ufb1d \u2adc
\ufb01 \u2460 \u00bd \u00b2 \uff21 \u3000 \u00a0 \u2026 \u2075
\u0344 \u0f73 \u0f75 \u0f81 \u0308\u0301 a\u0345\u0301 \u03b1\u0345\u0313
low\u0301 hug hug\u0301 ca ca\u0301 \u212bngstrom A\u030angstrom \u00c5ngstrom
"""


def text():
    rng = random.Random(3)
    points = [chr(c) for c in range(0xA0, 0x110000) if not 0xD800 <= c < 0xE000 and OLD.category(chr(c)) not in ("Cn", "Co")]
    marks = [c for c in points if OLD.combining(c)]
    change = [c for c in points if OLD.normalize("NFKD", c) != c and not 0xAC00 <= ord(c) < 0xD7A4]
    letters = list("aeiouAs \u03b1\u0438\u0627\u0915")
    jamo = [chr(c) for c in (*range(0x1100, 0x1113), *range(0x1161, 0x1176), *range(0x11A8, 0x11C3), 0xAC00, 0xD55C, 0xD7A3)]
    out = []
    for k in range(110):
        some = [letters, marks, marks, change] if k < 60 else [jamo, marks] if k < 75 else [points, marks, change, letters]
        out.append("".join(rng.choice(rng.choice(some)) for _ in range(rng.randint(1, 24))))
    return LINES + "\n".join(out) + "\n"


def trained(normalizer, pre_tokenizer):
    t = Tokenizer(models.BPE())
    t.normalizer, t.pre_tokenizer, t.decoder = normalizer, pre_tokenizer, decoders.ByteLevel()
    t.train_from_iterator(text().split("\n"), trainers.BpeTrainer(
        vocab_size=420, min_frequency=2, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def write(name, content):
    (FOLDER / name).write_bytes(content.encode())


def lines(what):
    return "".join(what(line) + "\n" for line in text().split("\n")[:-1])


def write_tokenizer(name, t):
    write(name + ".json", t.to_str(pretty=True))
    write(name + ".ids", lines(lambda line: " ".join(map(str, t.encode(line, add_special_tokens=False).ids))))


def main():
    assert tokenizers.__version__ == "0.23.3"
    write("forms.txt", text())
    for form in "NFC", "NFD", "NFKC", "NFKD":
        n = getattr(normalizers, form)()
        write("forms." + form.lower(), lines(n.normalize_str))
    t = trained(normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=False))
    t.add_tokens([AddedToken("hug", normalized=True), AddedToken("A\u030angs", normalized=False),
                  AddedToken("\u00c5ng", normalized=True), AddedToken("ca", normalized=False)])
    write_tokenizer("normal", t)
    write_tokenizer("several", trained(normalizers.Sequence([normalizers.NFKD(), normalizers.NFC()]),
                                       pre_tokenizers.ByteLevel(add_prefix_space=True)))
    assert json.loads(t.to_str())["normalizer"] == {"type": "NFC"}


main()
