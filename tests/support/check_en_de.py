#!/usr/bin/env python3
"""check_en_de.py TRANSLATION DATA -- scores a translation of DATA/test.raw.en twice, with sacreBLEU.

First as it is, against DATA/test.raw.de. Then by tokens, against DATA/test.de: the lines become tokens by the rule of
configs/tools/get-parallel-corpus, as for models that learn from train.de. Both must have the same number of lines."""
import importlib.machinery
import importlib.util
import os
import sys

import sacrebleu

if len(sys.argv) != 3:
    sys.exit(__doc__)
tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../configs/tools/get-parallel-corpus")
loader = importlib.machinery.SourceFileLoader("corpus", tool)
corpus = importlib.util.module_from_spec(importlib.util.spec_from_loader("corpus", loader))
sys.dont_write_bytecode = True
loader.exec_module(corpus)


def lines(path):
    with open(path, encoding="utf-8") as f:
        return f.read().split("\n")[:-1]


def tokens(text):
    return " ".join(corpus.RE_TOK.findall(text))


hypothesis = lines(sys.argv[1])
raw, tokenised = (lines(os.path.join(sys.argv[2], "test." + name)) for name in ("raw.de", "de"))
if len(hypothesis) != len(raw):
    sys.exit("%s has %d lines, and test.raw.de %d" % (sys.argv[1], len(hypothesis), len(raw)))
if [tokens(x) for x in raw] != tokenised:
    sys.exit("test.de does not have the tokens of test.raw.de: get the text again (configs/get_en_de)")
print("text:  ", sacrebleu.corpus_bleu(hypothesis, [raw]))
print("tokens:", sacrebleu.corpus_bleu([tokens(x) for x in hypothesis], [tokenised], tokenize="none", force=True))
