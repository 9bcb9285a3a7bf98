#!/bin/bash
# add_parts.sh -- adds one part of each kind to a copy of the tree, builds the copy and runs each part.
#
# The parts are in tests/parts, one folder for each, with paths as in the tree. runner/PARTS.md and models/ADDING.md
# describe how to add one: new files and at most one line elsewhere, which this script counts. With CASES=all the
# kernels for a GPU run as host code, too.
# timeout: 900
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
top=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD:-build/release}
cd "$top" || exit 2
if [ "$build" != build/release ] || ! git rev-parse --git-dir > /dev/null 2>&1; then
    echo "skipped: the copy is made from a git checkout, and built as build/release"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/add_parts.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
tree=$work/tree
mkdir "$tree" "$work/run"

# The copy has the objects of this build, so that make compiles only what a new part changes.
objects() { # build folder
    local one
    [ -f "$1/flags" ] || return 0
    mkdir -p "$tree/$1/tests"
    for one in flags gen runner models librd.a tests/support; do
        [ ! -e "$1/$one" ] || cp -a "$1/$one" "$tree/$1/$one"
    done
}
git ls-files -co --exclude-standard -z | while IFS= read -r -d '' f; do
    [ ! -f "$f" ] || printf '%s\0' "$f"
done | xargs -0 cp -p --parents -t "$tree"
objects build/release
cd "$tree" || exit 2
commit() { git add -A && git -c user.name=tests -c user.email=tests@localhost commit -qm "$1"; }
printf 'build/\n' >> .gitignore
git init -q . && commit tree || exit 2

# new_part NAME LINES: copies the part into the tree, and checks that it changes LINES lines of files that were there.
new_part() {
    cp -r "tests/parts/$1/." .
    if [ "$1" = op ]; then
        # One more declaration changes no object. With the header's old time, make does not compile those 79 files again.
        cp -p include/rd/ops.h "$work/old_time"
        sed -i '/^RD_C_END/i rd_var *rd_op_cube(rd_tape *t, rd_var *x);' include/rd/ops.h
        [ "${CASES:-}" = all ] || touch -r "$work/old_time" include/rd/ops.h
    fi
    git add -A
    expect "$1: new files" 0 "^A" git diff --cached --name-status
    expect "$1: $2 lines elsewhere" 0 "" test "$2" = "$(git diff --cached --diff-filter=a --numstat |
        awk '{ n += $1 + $2 } END { print n + 0 }')"
    commit "$1"
}
for part in model dataset text_metric class_metric optimizer cell subword; do new_part $part 0; done
new_part op 1
for part in tests/parts/*; do
    expect "$part is added" 0 "$(basename "$part")" git log --format=%s
done

jobs=$(nproc 2> /dev/null || echo 2)
expect "build" 0 "" make -j"$jobs" all build/release/tests/ops/cube \
    build/release/tests/support/subword_tool
PROG=$tree/build/release/run_dist
cd "$work/run" || exit 2

# --- model, dataset, optimizer and class metric in one training
cat > stripes.json << 'END'
{
    "model": "two_dense", "stripes_noise": 0.4, "batch_size": 32, "optimizer": "signum", "signum_momentum": 0.8,
    "learning_rate": 0.003, "num_epochs": 4, "eval_epochs": 1, "seed": 3, "threads": 1, "histogram_frequency": 0
}
END
run() { ranks "$1" "$PROG" --config_file=stripes.json "${@:2}"; }
last() { column "$1" "$2" | tail -n 1; }
at_least() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a >= b) }'; }
expect "train with all four" 0 "worst class [0-9]" run 1 --mode=train_eval --logdir=log --summary_frequency=5
expect "the model learns" 0 "" at_least "$(last accuracy log/eval)" 0.9
expect "the class metric has a figure" 0 "" at_least "$(last accuracy_worst_class log/eval)" 0.7
expect "the figure in TensorBoard" 0 "accuracy_worst_class" "$PROG" --events="$(ls log/eval/events* | head -n 1)"
expect "accuracy still decides" 0 "best so far: best-[0-9]*.npz (accuracy" cat log/run.log
expect "counts of two ranks" 0 "worst class" run 2 --mode=eval --logdir=log
expect "the same figure" 0 "" test "$(column accuracy_worst_class log/eval | tail -n 2 | sort -u | wc -l)" = 1
expect "the dataset's key counts" 0 "" run 1 --mode=eval --logdir=log --set stripes_noise=1.0
expect "noise alone is not recognised" 1 "" at_least "$(last accuracy log/eval)" 0.7
expect "the optimizer's key" 0 "signum: share of the mean gradient" "$PROG" --help=signum_momentum
expect "train with another momentum" 0 "" run 1 --mode=train --logdir=other --set signum_momentum=0.0 --max_steps=20 \
    --summary_frequency=5
expect "the optimizer's key counts" 0 "" test "$(last loss other)" != "$(column loss log | sed -n 5p)"
expect "not with another optimizer" 2 "'signum_momentum' belongs to optimizer signum" run 1 --mode=train --logdir=none \
    --set optimizer=sgd
expect "not with another dataset" 2 "'stripes_noise' belongs to dataset stripes" run 1 --mode=train --logdir=none \
    --set dataset=synthetic_images

# --- text metric
toy 200 30
toy_run() { ranks 1 "$PROG" --config_file=toy.json "$@"; }
expect "the text metric" 0 "length ratio: [0-9]* of [0-9]* tokens" toy_run --mode=train_eval --logdir=text \
    --max_steps=10 --set metric=length_ratio --set eval_frequency=10
expect "its figure" 0 '"length_ratio":[0-9]' cat text/eval/metrics.jsonl

# --- recurrent cell
expect "train with the cell" 0 "" toy_run --mode=train --logdir=cell --max_steps=40 --summary_frequency=1 \
    --set encoder_cell_type=linear_rnn --set decoder_cell_type=linear_rnn
expect "the loss falls by a tenth" 0 "" awk -v a="$(column loss cell | head -n 1)" -v b="$(last loss cell)" \
    'BEGIN { exit !(b < 0.9 * a) }'

# --- subword scheme
printf 'abcd e fgh\n' > line
subword() { "$tree/build/release/tests/support/subword_tool" "$@"; }
expect "the subword scheme" 0 "^ab+ cd e fg+ h$" subword segment byte_pairs - line
expect "it has no model to train" 2 "has no model to train" subword train byte_pairs 9 0 line model

# --- op
expect "the op on a CPU" 0 "1 test(s)" "$tree/build/release/tests/ops/cube"
if [ "${CASES:-}" = all ]; then
    cd "$top" && objects build/emulated && cd "$tree" || exit 2
    expect "build with kernels as host code" 0 "" make CUDA=emulated OPT=-O2 -j"$jobs" all build/emulated/tests/ops/cube
    expect "the op on a GPU" 0 "1 test(s)" env RD_TEST_DEVICE=cuda build/emulated/tests/ops/cube
    cd "$work/run" || exit 2
    PROG=$tree/build/emulated/run_dist
    for device in cuda cpu; do
        expect "the optimizer on $device" 0 "" run 1 --mode=train --logdir="stripes_$device" --set device=$device \
            --max_steps=20 --summary_frequency=5
        expect "the cell on $device" 0 "" toy_run --mode=train --logdir="toy_$device" --set device=$device \
            --max_steps=5 --summary_frequency=1 --set encoder_cell_type=linear_rnn
    done
    expect "losses of both devices, optimizer" 0 "" close_curves loss 1e-3 5 stripes_cuda stripes_cpu
    expect "losses of both devices, cell" 0 "" close_curves loss 1e-3 5 toy_cuda toy_cpu
else
    skipped=1
fi
summary
