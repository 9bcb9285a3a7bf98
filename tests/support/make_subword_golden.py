#!/usr/bin/env python3
"""Writes tests/unit/subword/: a text, and the models and pieces that other programs make of it.

    python3 tests/support/make_subword_golden.py

odd.txt has what texts hold apart from plain words: other spaces, marks of subwords, emoji, combining characters,
control characters. odd.codes and odd.pieces are subword-nmt's, learned from that text and applied to it. odd.vocab has
the pieces that occur three times or more, with their counts, and odd.glossaries has patterns; odd.limited has the pieces
with that vocabulary (--vocabulary, --vocabulary-threshold 3), odd.glossed with the patterns (--glossaries), odd.both with
both. twice.* are a small case of the same kind. points.txt has characters at random, of those that Unicode 14 has.

The tokenizers are trained by Hugging Face's tokenizers from odd.txt. bytes.json is GPT-2's form, with vocab.json and
merges.txt beside it. llama.json has a pattern of its own, ignore_merges, and added tokens. NAME.ids has the ids of
odd.txt as one text, then those of each line of points.txt. gpt2.tiktoken has the same tokens in tiktoken's form, and
tiktoken.ids are tiktoken's. PATTERN.splits has the bytes of the pieces of these texts, from the pre-tokenizers, and for
cl100k from the module regex.

unigram.model and sp_bpe.model are SentencePiece's, trained from odd.txt: one with byte_fallback and rules of its own
for normalisation (the usual ones have 240 kB), one without. NAME.ids is as above, but line by line, with - for a line that
has two best results. NAME.joined has each line after encoding and decoding.
Needs subword-nmt==0.3.8, tokenizers==0.23.3, tiktoken==0.14.0, regex, sentencepiece==0.2.3.
"""
import base64
import collections
import io
import json
import pathlib
import random
import tempfile
import unicodedata

import regex
import sentencepiece
import tiktoken
import tokenizers
from subword_nmt.apply_bpe import BPE, read_vocabulary
from subword_nmt.learn_bpe import learn_bpe
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

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
an antelope carriage return\r
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


GLOSSARIES = ["hugs?", r"[0-9]+", "lo(?:w|st)", "x{3}", "the", "\u65e5", r"[.']", "est$", "@", "na|ve"]


def limited(text, codes, pieces):
    """The vocabulary, and the pieces with it, with glossaries, and with both."""
    counts = collections.Counter(p for line in io.StringIO(pieces, newline="\n") for p in line.strip("\r\n ").split(" ") if p)
    vocab = "".join("%s %d\n" % kv for kv in sorted(counts.items(), key=lambda kv: (-kv[1], kv[0])) if kv[1] >= 3)

    def apply(**how):
        if "vocab" in how:
            how["vocab"] = read_vocabulary(io.StringIO(how["vocab"], newline="\n"), 3)
        model = BPE(io.StringIO(codes), **how)
        return "".join(model.process_line(line) for line in io.StringIO(text, newline="\n"))

    return vocab, apply(vocab=vocab), apply(glossaries=GLOSSARIES), apply(vocab=vocab, glossaries=GLOSSARIES)


# Two merges make abc. The piece in front of a glossary is looked for without its mark.
TWICE = dict(codes="#version: 0.2\na b\nb c\nab c\na bc\nabc d</w>\na b</w>\n", glossaries="x\n",
             vocab="a@@ 9\nbc@@ 9\nd 9\nab 9\nx@@ 9\n", txt="abcd xabcd\nabxab ab\n" + "abcxd bcd\n" * 30)


def twice():
    model = BPE(io.StringIO(TWICE["codes"]), vocab=read_vocabulary(io.StringIO(TWICE["vocab"]), 3), glossaries=["x"])
    return "".join(model.process_line(line) for line in io.StringIO(TWICE["txt"]))


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
          r"\s+(?!\S)|\s")


def points_text():
    assert unicodedata.unidata_version == "14.0.0"
    rng = random.Random(2)
    # Spaces and what is nearly one; contractions in other cases; then any characters.
    near = [chr(c) for c in (*range(9), *range(11, 33), 0x7F, 0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x2010), 0x2028,
                             0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF, 0x17F)]
    assigned = [chr(c) for c in range(33, 0x110000)
                if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co") or c % 4096 == 0 and not 0xD800 <= c < 0xE000]
    lines = []
    for k in range(60):
        some = near + list("aZ19.'\"") if k < 20 else list("'sStTmMdDlLrReEvV \u017f") if k < 30 else assigned
        lines.append("".join(rng.choice(some if rng.random() < 0.7 else near if k < 20 else assigned)
                             for _ in range(rng.randint(1, 60))))
    return "\n".join(lines) + "\n"


def trained(pre_tokenizer, size, specials):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizer
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(odd_text().split("\n"), trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, special_tokens=specials, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def ids_of(encode):
    return "".join(" ".join(map(str, encode(text))) + "\n" for text in (odd_text(), *points_text().split("\n")[:-1]))


def splits_of(pieces):
    return ids_of(lambda text: [len(p.encode()) for p in pieces(text)])


def write_tokenizer(name, t):
    write(name + ".json", t.to_str(pretty=True))
    write(name + ".ids", ids_of(lambda text: t.encode(text, add_special_tokens=False).ids))


def bytes_of(shown):
    table = {c: b for b, c in zip((*range(33, 127), *range(161, 173), *range(174, 256)),
                                  map(chr, (*range(33, 127), *range(161, 173), *range(174, 256))))}
    others = [b for b in range(256) if b not in table.values()]
    table.update({chr(256 + k): b for k, b in enumerate(others)})
    return bytes(table[c] for c in shown)


def byte_bpe():
    t = trained(pre_tokenizers.ByteLevel(add_prefix_space=False), 400, ["<|endoftext|>"])
    # Its text form would be found in raw text, which run_dist never does: odd.txt has no such token.
    write_tokenizer("bytes", t)
    model = json.loads(t.to_str())["model"]
    vocab = {k: v for k, v in model["vocab"].items()}
    write("vocab.json", json.dumps(vocab, ensure_ascii=False))
    write("merges.txt", "#version: 0.2\n" + "".join(" ".join(m) + "\n" for m in model["merges"]))

    ranks = {bytes_of(k): v - 1 for k, v in vocab.items() if v > 0}
    write("gpt2.tiktoken", "".join(f"{base64.b64encode(k).decode()} {v}\n" for k, v in sorted(ranks.items(), key=lambda kv: kv[1])))
    other = tiktoken.Encoding("small", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": len(ranks)})
    write("tiktoken.ids", ids_of(other.encode_ordinary))

    t = trained(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                         pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), 380, [])
    # A token that no merge makes: ignore_merges finds it.
    whole = json.loads(t.to_str())
    whole["model"]["vocab"]["\u0120antelope"] = len(whole["model"]["vocab"])
    t = Tokenizer.from_str(json.dumps(whole))
    t.model.ignore_merges = True
    t.add_special_tokens([AddedToken("<|begin of text|>", normalized=False, special=True)])
    t.add_tokens([AddedToken("hug", normalized=False), AddedToken("hugs", normalized=False),
                  AddedToken("ca", normalized=False)])
    write_tokenizer("llama", t)

    # As SmolLM: each digit is a piece, before GPT-2's pattern. The model has merges of digits, which it must not use.
    digits = json.loads(trained(pre_tokenizers.ByteLevel(add_prefix_space=False), 380, []).to_str())
    for pair in ("1", "2"), ("2", "0"), ("0", "0"), ("\u0120", "1"), ("\u0120", "2"), ("3", "1"):
        digits["model"]["vocab"].setdefault("".join(pair), len(digits["model"]["vocab"]))
        digits["model"]["merges"].append(list(pair))
    t = Tokenizer.from_str(json.dumps(digits))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)])
    write_tokenizer("digits", t)

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    write("gpt2.splits", splits_of(lambda text: [bytes_of(p).decode() for p, _ in byte_level.pre_tokenize_str(text)]))
    split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    write("llama.splits", splits_of(lambda text: [p for p, _ in split.pre_tokenize_str(text)]))
    write("cl100k.splits", splits_of(regex.compile(CL100K).findall))


def tie(sp, line):
    """Whether two segmentations have the same score up to rounding: versions of the library choose differently."""
    try:
        best = [sum(map(sp.get_score, ids)) for ids in sp.nbest_encode(line, nbest_size=2)]
    except RuntimeError:  # a model without scores of whole lines
        return False
    return len(best) > 1 and abs(best[0] - best[1]) < 1e-3


def sentence_piece(name, **how):
    lines = odd_text().split("\n")[:-1]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, minloglevel=2, **how)
    write(name + ".model", model.getvalue())
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    lines += points_text().split("\n")[:-1]
    write(name + ".ids", "".join(("-" if tie(sp, line) else " ".join(map(str, sp.encode(line)))) + "\n" for line in lines))
    write(name + ".joined", "".join(sp.decode_pieces(sp.encode(line, out_type=str)) + "\n" for line in lines))


def sentence_pieces():
    with tempfile.NamedTemporaryFile("w") as rules:
        # ae, a capital letter, a wide letter, a no-break space.
        rules.write("E4\t61 65\n41\t61\nFF21\t61\nA0\t20\n1F3FD\t\n")
        rules.flush()
        sentence_piece("unigram", vocab_size=400, byte_fallback=True, normalization_rule_tsv=rules.name)
    sentence_piece("sp_bpe", vocab_size=200, model_type="bpe", normalization_rule_name="identity", character_coverage=0.98,
                   remove_extra_whitespaces=False)


def write(name, text):
    (FOLDER / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def main():
    text = odd_text()
    codes, pieces = bpe(text)
    write("odd.txt", text)
    write("odd.codes", codes)
    write("odd.pieces", pieces)
    write("odd.glossaries", "\n".join(GLOSSARIES) + "\n")
    for name, made in zip(("vocab", "limited", "glossed", "both"), limited(text, codes, pieces)):
        write("odd." + name, made)
    for name, made in dict(TWICE, both=twice()).items():
        write("twice." + name, made)
    write("points.txt", points_text())
    assert tokenizers.__version__ == "0.23.3" and tiktoken.__version__ == "0.14.0"
    assert sentencepiece.__version__ == "0.2.3"
    byte_bpe()
    sentence_pieces()


main()
