#!/usr/bin/env python3
"""Writes the files of tests/unit/meta_pkl.c and tests/fuzz/meta_pkl.c into tests/fuzz/corpus/meta_pkl.

Python's pickle module writes all of them. Files without "bad" in their name are as nanoGPT's prepare.py of characters makes
them, in each protocol from 2 on; the others are refused. The hostile ones would run code in Python: no reader may load
them.
"""
import os
import pickle

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fuzz", "corpus", "meta_pkl")


def put(name, data):
    with open(os.path.join(OUT, name), "wb") as f:
        f.write(data)


def meta(text):
    chars = sorted(list(set(text)))
    return {"vocab_size": len(chars), "itos": dict(enumerate(chars)), "stoi": {c: i for i, c in enumerate(chars)}}


class Runs:
    """What pickle runs when it is loaded."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


os.makedirs(OUT, exist_ok=True)
abc = meta("abc\n cab!")
wide = meta("\0\t\n é€😀" + "".join(map(chr, range(0x4e00, 0x4e00 + 1200))))
for protocol in (2, 3, 4, 5):
    put("abc%d" % protocol, pickle.dumps(abc, protocol))
put("wide2", pickle.dumps(wide, 2))
put("wide4", pickle.dumps(wide, 4))
other = ["é", "b", "日", "a", "ä", "\n"]  # not sorted, and with another key
put("order", pickle.dumps({"stoi": {c: i for i, c in enumerate(other)}, "itos": dict(enumerate(other)), "vocab_size": 6,
                           "name": "order", "more": {1: {}, "x": -70000}}))


def bad(name, data, protocol=4):
    put("bad_" + name, data if isinstance(data, bytes) else pickle.dumps(data, protocol))


whole = pickle.dumps(abc, 4)
bad("system", dict(abc, itos=Runs(os.system, "true")))
bad("system2", dict(abc, itos=Runs(os.system, "true")), 2)
bad("eval", Runs(eval, "1"))
bad("list", dict(abc, itos=list(abc["itos"].values())))
bad("tuple", dict(abc, vocab_size=(6,)))
bad("real", dict(abc, vocab_size=6.0))
bad("bytes", dict(abc, more=b"x"))
bad("none", dict(abc, more=None))
bad("true", dict(abc, vocab_size=True))
bad("huge", dict(abc, vocab_size=10**12))
bad("no_itos", {k: v for k, v in abc.items() if k != "itos"})
bad("size", dict(abc, vocab_size=5))
bad("size_more", dict(abc, vocab_size=7))
bad("size_none", {"vocab_size": 0, "itos": {}, "stoi": {}})
bad("size_text", dict(abc, vocab_size="6"))
bad("two", dict(abc, itos=dict(abc["itos"], **{}) | {5: "ab"}))
bad("empty", dict(abc, itos=abc["itos"] | {5: ""}))
bad("number", dict(abc, itos=abc["itos"] | {5: 7}))
bad("turned", dict(abc, stoi=abc["stoi"] | {"a": 5, "c": 3}))
bad("key", dict(abc, itos={str(k): v for k, v in abc["itos"].items()}))
bad("surrogate", dict(abc, itos=abc["itos"] | {5: "\ud800"}))
bad("int", 5)
bad("cut", pickle.dumps(abc, 2)[:-1])
bad("cut_string", whole[:40])
bad("behind", whole + b"x")
bad("protocol0", pickle.dumps(abc, 0))
bad("mark", b"\x80\x04u.")
bad("odd", b"\x80\x04}(K\x01u.")
bad("set", b"\x80\x04}K\x01s.")
bad("memo", b"\x80\x04h\x05.")
bad("memo_far", b"\x80\x04}r\xff\xff\xff\xff.")
bad("memo_none", b"\x80\x04}q\x05h\x03.")
bad("remember", b"\x80\x04\x94.")
bad("frame", b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f}.")
bad("long", b"\x80\x04X\xff\xff\xff\xffabc.")
bad("two_values", b"\x80\x04}}.")
bad("dict_key", b"\x80\x04}}}s.")
bad("mark_value", b"\x80\x04}K\x01(s.")
bad("twice", b"\x80\x04}(\x8c\x0avocab_sizeK\x01\x8c\x0avocab_sizeK\x01u.")
bad("itself", b"\x80\x04}\x94(\x8c\x0avocab_sizeK\x01\x8c\x04itosh\x00\x8c\x04stoih\x00u.")
