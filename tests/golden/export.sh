#!/bin/sh
# export.sh -- compares exported models with PyTorch and onnxruntime, see tests/support/check_export.py. Only with
# CASES=all: it takes some minutes. RD_PYTHON is a Python with the modules.
# timeout: 1500
. tests/support/python_check.sh
python_check "exported models in PyTorch and onnxruntime" tests/support/check_export.py numpy torch onnx onnxruntime
