#!/bin/sh
# export.sh -- compares exported models with PyTorch and onnxruntime, see tests/support/check_export.py. Only with
# CASES=all: it takes some minutes. RD_PYTHON is a Python with the modules.
# timeout: 1500
if [ "$CASES" != all ]; then
    echo "skip: exported models in PyTorch and onnxruntime (CASES=all)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
for module in numpy torch onnx onnxruntime; do
    "$RD_PYTHON" -c "import $module" 2> /dev/null && continue
    echo "skip: exported models in PyTorch and onnxruntime ($RD_PYTHON has no module $module)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
done
work=$(mktemp -d "${TMPDIR:-/tmp}/export.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
if OMP_NUM_THREADS=1 "$RD_PYTHON" tests/support/check_export.py "${PROG:-$BUILD/run_dist}" "$work"; then
    echo "1 passed, 0 failed, 0 skipped"
else
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
