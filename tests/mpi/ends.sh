#!/bin/bash
# ends.sh -- tests what ends a training, and that run.log, the last checkpoint and --mode=runs name it: lengths, early
# stopping, max_hours, --stop_at_step; and the best checkpoints that stay (checkpoint_keep_best), also after a kill.
# timeout: 200
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
case $PROG in /*) ;; *) PROG=$PWD/$PROG ;; esac
same=$PWD/${BUILD:-build/release}/tests/support/npz_same # needs: support/npz_same
work=$(mktemp -d "${TMPDIR:-/tmp}/ends.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 64 10
t() { # np, folder, arguments: trains and evaluates
    local n=$1 dir=$2
    shift 2
    ranks "$n" "$PROG" --config_file=toy.json --mode=train_eval --set best_monitor=loss --logdir="$dir" \
        --summary_frequency=1 "$@"
}
ended() { # FOLDER: what --mode=runs and the newest checkpoint say
    "$PROG" --mode=runs --logdir="$1" --format=json | sed -n 's/.*"ended_by": "\(.*\)".*/runs \1/p'
    unzip -p "$1/$(cat "$1/checkpoint")" manifest.json 2> /dev/null | grep -o '"ended_by": *"[a-z_]*"' | sed 's/.*"\([a-z_]*\)"$/manifest \1/'
}
by() { # NAME FOLDER
    local want
    want=$(printf 'runs %s\nmanifest %s' "$1" "$1")
    command -v unzip > /dev/null || want="runs $1"
    [ "$(ended "$2")" = "$want" ] || ended "$2"
    [ "$(ended "$2")" = "$want" ]
}

expect "num_epochs" 0 "^done: step 20 in .*, ended by num_epochs, peak" t 1 epochs
expect "is named" 0 "" by num_epochs epochs
expect "started again: still named" 0 "nothing to do: step 20" t 1 epochs
expect "by the runs" 0 "" by num_epochs epochs
expect "max_steps" 0 "ended by max_steps" t 2 steps --max_steps=6 --set batch_size=8
expect "is named, too" 0 "" by max_steps steps
expect "max_epochs" 0 "^done: step 10 .*ended by max_epochs" t 1 most --set max_epochs=2
expect "max_samples" 0 "^done: step [345] .*ended by max_samples" t 1 samples --set max_samples=40
expect "stop_patience" 0 "^done: step 6 .*ended by stop_patience" t 1 patience --set eval_frequency=2 --set stop_patience=2 \
    --set learning_rate=0
expect "the table says so" 0 "^\. *done stop_patience  *6" "$PROG" --mode=runs --logdir=patience
expect "stop_min_delta: small gains do not count" 0 "^done: step 6 .*ended by stop_patience" t 1 delta --set eval_frequency=2 \
    --set stop_patience=2 --set stop_min_delta=100

# ---- max_hours ----
expect "max_hours" 75 "^stopped by max_hours (1e-06) at step 1, checkpoint saved; the same command goes on" t 1 hours \
    --set max_hours=1e-6
expect "is named" 0 "" by max_hours hours
expect "the table says so" 0 "^\. *stopped max_hours  *1/20" "$PROG" --mode=runs --logdir=hours
expect "two ranks agree" 75 "^stopped by max_hours (1e-06) at step 2" t 2 hours --set max_hours=1e-6 --set batch_size=8
expect "without it the run goes on" 0 "done: step 20" t 1 hours --set max_hours=0
expect "hours enough" 0 "ended by max_steps" t 1 enough --set max_hours=1 --max_steps=2
now=$(date +%s)
expect "the job's start counts" 75 "stopped by max_hours (1) at step 1" \
    env SLURM_JOB_START_TIME=$((now - 4000)) "$PROG" --config_file=toy.json --logdir=job --set max_hours=1 --set max_hours_from=job
expect "only where it is asked for" 0 "ended by max_steps" \
    env SLURM_JOB_START_TIME=$((now - 4000)) "$PROG" --config_file=toy.json --logdir=job --set max_hours=1 --max_steps=3
expect "--restarts: the first start counts, and 75 is the end" 75 "stopped by max_hours (0.0001) at step" \
    "$PROG" --restarts=3 -- "$PROG" --config_file=toy.json --logdir=again --set max_hours=0.0001 --max_steps=1000000
expect "a wrong one" 2 "'max_hours' must be a number, 0 .. 1000000" t 1 no --set max_hours=-1

# ---- --stop_at_step ----
expect "--stop_at_step" 75 "^stopped by stop_at_step at step 5, checkpoint saved" t 1 parts --set eval_frequency=5 --stop_at_step=5
expect "after the evaluation" 0 "^1\$" grep -c '"step":5,' parts/eval/metrics.jsonl
expect "again: nothing more" 75 "^stopped by stop_at_step at step 5" t 1 parts --set eval_frequency=5 --stop_at_step=5
expect "two more" 75 "at step 7" t 2 parts --set eval_frequency=5 --stop_at_step=7 --set batch_size=8
rm -r parts
expect "in two parts" 75 "at step 7" t 1 parts --set eval_frequency=5 --stop_at_step=7
expect "to the end" 0 "ended by num_epochs" t 1 parts --set eval_frequency=5
expect "at once" 0 "ended by num_epochs" t 1 whole --set eval_frequency=5
expect "the same bytes" 0 "" cmp parts/model-20.npz whole/model-20.npz
expect "beyond the end" 0 "ended by num_epochs" t 1 beyond --stop_at_step=99

# ---- checkpoint_keep_best ----
k() { # FOLDER ARGUMENTS
    local dir=$1
    shift
    t 1 "$dir" --set eval_frequency=2 --set checkpoint_keep_best=3 --set learning_rate=0.3 --checkpoint_frequency=0 "$@"
}
kept() { (cd "$1" && ls best-*.npz top-*.npz | sort -t- -k2 -n | tr '\n' ' '); }
expect "the best three" 0 "done: step 20" k top
want=$(sed 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*/\2 \1/' top/eval/metrics.jsonl | sort -g | head -n 3 | awk '{ print $2 }')
files=$(awk 'NR == 1 { print "best-" $1 ".npz" } NR > 1 { print "top-" $1 ".npz" }' <<< "$want" | sort -t- -k2 -n | tr '\n' ' ')
expect "are those of the smallest losses" 0 "^$files\$" kept top
expect "a file holds its step" 0 "^step $(head -n 1 <<< "$want")\$" sh -c "
    '$PROG' --config_file=toy.json --mode=eval --logdir=apart --set checkpoint=top/best-$(head -n 1 <<< "$want").npz |
        sed -n 's/.*weights from .*, \(step [0-9]*\).*/\1/p'"
rm top/model-*.npz
expect "their mean" 0 "the mean of these 3 checkpoints is top/average-" "$PROG" --mode=average --best=3 --logdir=top
for fault in save:4 evaluate:8 update:11; do
    (export RD_FAULT="kill:0:${fault#*:}:${fault%:*}" && k "k$fault" > /dev/null 2>&1)
    expect "killed in $fault" 0 "done: step 20" k "k$fault"
    expect "the same files" 0 "^$files\$" kept "k$fault"
done
one=$(tail -n 1 <<< "$want")
expect "and bytes" 0 "" "$same" --manifest "top/top-$one.npz" "kupdate:11/top-$one.npz"
expect "a wrong number" 2 "'checkpoint_keep_best' must be an integer, 1 .. 64" k no --set checkpoint_keep_best=0
summary
