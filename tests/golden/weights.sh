#!/bin/sh
# weights.sh -- compares language models with transformers, see tests/support/check_weights.py. Only with CASES=all: it
# takes a minute. RD_PYTHON is a Python with the modules.
# timeout: 900
. tests/support/python_check.sh
python_check "weights of language models in transformers" tests/support/check_weights.py numpy torch transformers tokenizers \
    safetensors
