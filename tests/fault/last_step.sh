#!/bin/bash
# last_step.sh -- tests stops and kills around an evaluation at the end of an epoch and of the training (RD_FAULT,
# runner/run/fault.c).
#
# The same command goes on to the bytes of the run that nothing disturbed: weights, manifest, the last and the best file.
#
#   CASES=all tests/run tests/fault/last_step.sh     every phase of these steps; else a selection
#
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
case $PROG in /*) ;; *) PROG=$PWD/$PROG ;; esac
work=$(mktemp -d "${TMPDIR:-/tmp}/last_step.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 60 10 # 5 steps are an epoch
t() {      # folder
    timeout 100 "$PROG" --config_file=toy.json --mode=train_eval --set best_monitor=loss --set eval_frequency=10 \
        --max_steps=20 --checkpoint_frequency=0 --logdir="$1" > said.txt 2>&1
}
expect "undisturbed" 0 "" t whole

# kind, step, phase, the time that it begins in this step
some="int 10 evaluate 1
int 19 input 1
int 20 update 1
int 20 evaluate 2
kill 10 save 1
kill 20 save 1"
[ "${CASES:-}" != all ] || some=$(for kind in int kill; do for step in 9 10 11 19 20; do
    for phase in input compute wait exchange update save evaluate; do for nth in 1 2 3; do
        echo "$kind $step $phase $nth"
    done; done; done; done)
n=0
while read -r kind step phase nth; do
    rm -rf run
    if RD_FAULT=$kind:0:$step:$phase:$nth t run; then continue; fi # the phase does not begin so often
    n=$((n + 1))
    expect "$kind in step $step, $phase $nth: goes on" 0 "" t run
    expect "to the same last file" 0 "" cmp whole/model-20.npz run/model-20.npz
    expect "and best file" 0 "" cmp whole/best-20.npz run/best-20.npz
done <<< "$some"
expect "each case of the selection stopped the run" 0 "" [ $n -ge 6 ]
summary
