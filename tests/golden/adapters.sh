#!/bin/sh
# adapters.sh -- compares adapters of language models with PEFT, see tests/support/check_lora.py. Only with CASES=all: it takes
# a minute. RD_PYTHON is a Python with the modules.
# timeout: 900
. tests/support/python_check.sh
python_check "adapters of language models in PEFT" tests/support/check_lora.py numpy torch transformers tokenizers \
    safetensors peft
