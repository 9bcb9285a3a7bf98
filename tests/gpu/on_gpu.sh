#!/bin/sh
# on_gpu.sh -- the tests that are for either backend, on the GPU's: ops against references in double, golden values, optimizers. In the
# builds without a GPU also float16, and blocks and threads in other orders. Run by tests/run, which sets BUILD.
# timeout: 900
# needs: ops/* golden/gpt golden/images golden/optim golden/seq2seq golden/transformer unit/optim_step
build=$PWD/${BUILD:-build/cuda}
log=$(mktemp "${TMPDIR:-/tmp}/on_gpu.XXXXXX") || exit 2
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0

count() { # a word of cmocka's closing lines
    sed -n "s/^\[ *$1 *\] \([0-9]*\) test(s).*/\1/p" "$log" | awk '{ n += $1 } END { print n + 0 }'
}

on_gpu() { # name, program and arguments
    name=$1
    shift
    "$@" > "$log" 2>&1
    rc=$? p=$(count PASSED) f=$(count FAILED) s=$(count SKIPPED)
    if [ $rc -ne 0 ] || [ "$f" -gt 0 ]; then
        [ "$f" -gt 0 ] || f=1
        printf '%s on the GPU: status %d\n' "$name" $rc
        grep -v -e '^\[ RUN ' -e '^\[ *OK ' "$log"
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

on_gpu gpu_basics "$build/tests/gpu/gpu_basics"
if [ $passed -eq 0 ] && [ $failed -eq 0 ]; then
    echo "no GPU here"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
on_gpu lstm "$build/tests/gpu/lstm"
export RD_TEST_DEVICE=cuda
# Without a GPU the two builds share the work: CUDA=fake runs the driver, CUDA=emulated the kernels with threads in other orders. CASES=all:
# each runs all.
kernels='' driver=''
[ ! -e "$build/tests/support/fake/fake_runtime.cc.o" ] || driver=yes
[ ! -e "$build/tests/support/emulated/gpu_emulated.cc.o" ] || kernels=yes
all=''
[ "${CASES:-}" != all ] || all=yes
tests='tests/golden/optim.c tests/unit/optim_step.c'
[ -n "$kernels" ] && [ -z "$all" ] || tests="tests/ops/*.c $tests tests/golden/gpt.c tests/golden/seq2seq.c tests/golden/transformer.c"
[ -n "$kernels$driver" ] && [ -z "$all" ] || tests="tests/golden/images.c $tests" # a minute
for t in $tests; do on_gpu "${t%.c}" "$build/${t%.c}"; done
if [ -z "$kernels" ] || [ -n "$all" ]; then
    on_gpu "tests/golden/images of 16 bits" env RD_TEST_ONLY='16 bits: *' "$build/tests/golden/images"
    for rnn in off on; do on_gpu "ops, cudnn_rnn $rnn" env RD_TEST_CUDNN_RNN=$rnn "$build/tests/gpu/ops"; done
fi
if [ -z "$driver" ] || [ -n "$all" ]; then
    on_gpu "tests/golden/seq2seq, cudnn_rnn off" env RD_TEST_CUDNN_RNN=off "$build/tests/golden/seq2seq"
fi
if [ -n "$kernels" ] || { [ -n "$driver" ] && [ -n "$all" ]; }; then
    for order in backwards random; do
        on_gpu "ops, $order" env RD_EMULATED_ORDER=$order "$build/tests/gpu/ops"
        on_gpu "search, $order" env RD_EMULATED_ORDER=$order "$build/tests/ops/search"
    done
fi
if [ -n "$driver" ] || { [ -n "$kernels" ] && [ -n "$all" ]; }; then
    on_gpu "ops, float16" env RD_EMULATED_SM=75 "$build/tests/gpu/ops"
    on_gpu "attention, float16 of later GPUs" env RD_CUDA_FLOAT16=1 RD_TEST_ONLY='attend*' "$build/tests/gpu/ops"
    for t in image_ops image_conv; do on_gpu "$t, float16" env RD_EMULATED_SM=75 "$build/tests/ops/$t"; done
    on_gpu "ops, cudnn_rnn on, float16" env RD_EMULATED_SM=75 RD_TEST_CUDNN_RNN=on "$build/tests/gpu/ops"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
