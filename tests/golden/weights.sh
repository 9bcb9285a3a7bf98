#!/bin/sh
# weights.sh -- compares language models with transformers, see tests/support/check_weights.py. Only with CASES=all: it
# takes a minute. RD_PYTHON is a Python with the modules.
# timeout: 900
if [ "$CASES" != all ]; then
    echo "skip: weights of language models in transformers (CASES=all)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
for module in numpy torch transformers tokenizers safetensors; do
    "$RD_PYTHON" -c "import $module" 2> /dev/null && continue
    echo "skip: weights of language models in transformers ($RD_PYTHON has no module $module)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
done
work=$(mktemp -d "${TMPDIR:-/tmp}/weights.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
if OMP_NUM_THREADS=1 "$RD_PYTHON" tests/support/check_weights.py "${PROG:-$BUILD/run_dist}" "$work"; then
    echo "1 passed, 0 failed, 0 skipped"
else
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
