#!/bin/bash
# sweep.sh -- tests --sweep with runs that train: a failure among them, a second start, kills at any moment, halving,
# ranks, a second sweep in the folder, Ctrl-C, a Slurm script.
#
# The measure is a sweep that nothing disturbs: the same table, and the same bytes of the last checkpoints.
# timeout: 240
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
case $PROG in /*) ;; *) PROG=$PWD/$PROG ;; esac
work=$(mktemp -d "${TMPDIR:-/tmp}/sweep.XXXXXX") || exit 2
trap 'kill -9 $(jobs -p) 2> /dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 60 10
sweep() { # FOLDER FLAGS...
    local dir=$1
    shift
    timeout 100 "$PROG" --config_file=toy.json --mode=train_eval --set best_monitor=loss --logdir="$dir" \
        --summary_frequency=5 "$@"
}
grid=(--sweep 'learning_rate=0.01,0.003' --sweep 'encoder_cell_units=4,8' --set eval_frequency=10 --max_steps=20)
table() { # FOLDER: what must not depend on what happened on the way
    "$PROG" --mode=runs --logdir="$1" --format=json |
        awk '/"(run|state|steps|figure|best|best_step|ended_by|learning_rate|encoder_cell_units)":/'
    (cd "$1" && "$PROG" --version > /dev/null && sha256sum ./*/model-20.npz 2> /dev/null)
}
same_table() { # FOLDER FOLDER
    table "$1" > 1.table
    table "$2" > 2.table
    [ -s 1.table ] && diff 1.table 2.table
}

# ---- a grid, a failure, a second start ----
expect "a grid: the table has the best on top" 0 '^\* learning_rate=0.01,encoder_cell_units=8  done ' \
    eval 'sweep whole "${grid[@]}" 2> whole.err'
expect "each run is reported" 0 '^\[4/4\] .*: done, step 20, best loss [0-9.]*, ' cat whole.err
expect "done before: nothing starts" 0 '^sweep: 4 runs, 4 of them over before, .*nothing to start' sweep whole "${grid[@]}"
expect "four starts, no more" 0 '^4$' eval 'cat whole/*/run.log | grep -c " run_dist [0-9.]*: "'
echo '{"runs": {' > whole/sweep.json
expect "a damaged sweep.json: each run finds that it is done" 0 '^\[4/4\] .*: done, step 20' sweep whole "${grid[@]}"
expect "and trains no more" 0 '^4$' eval 'cat whole/*/run.log | grep -c " nothing to do: step 20"'
expect "one more value: one more run" 0 '^\[5/6\]' sweep whole "${grid[@]/0.003/0.003,0.02}"
rm -r whole/*0.02*
expect "another length: each run goes on" 0 '^\[4/4\].* step 25' sweep whole "${grid[@]/20/25}"
rm -r whole
sweep whole "${grid[@]}" > /dev/null 2>&1
expect "a run that diverges does not stop the others" 7 '^1 of 3 runs failed' \
    sweep bad --sweep learning_rate=0.01,1e6,0.003 --set eval_frequency=10 --max_steps=20
expect "the others are done" 0 '^2$' eval '"$PROG" --mode=runs --logdir=bad --format=csv | grep -c ",done,"'
mkdir -p no
touch 'no/seed=1'
expect "a folder that cannot be made" 3 '^\[1/2\] seed=2: done' sweep no --sweep seed=1,2 --max_steps=5
echo '{"base": "toy.json", "optimizer": "adam", "adam_beta2": 0.98}' > own.json
own() { timeout 100 "$PROG" --config_file=own.json --mode=train --logdir=own --sweep optimizer=adam,sgd --max_steps=2; }
expect "without the keys of the optimizer that a run replaces" 0 "own.json:1:[0-9]*: 'adam_beta2' belongs to optimizer adam or adamw; runs with another" own
expect "the command again: nothing to start" 0 "2 of them over before" own
expect "the optimizer's key where it is used" 0 '"value": 0.979' grep -A1 '"adam_beta2"' own/optimizer=adam/config.json
expect "a sweep in the folder of a run" 2 "is the log folder of a run" sweep no/seed=2 --sweep seed=3,4

# ---- kills ----
long=(--sweep 'learning_rate=0.01,0.003' --sweep 'encoder_cell_units=4,8' --set eval_frequency=10 --max_steps=20
    --checkpoint_frequency=0)
killed() { # FOLDER SECONDS WHOM FLAGS...: kills the sweep (9, INT), or its runs, after some time; then the command again
    local dir=$1 after=$2 whom=$3 pid status
    shift 3
    "$PROG" --config_file=toy.json --mode=train_eval --set best_monitor=loss --logdir="$dir" --summary_frequency=5 \
        "$@" > killed.out 2>&1 &
    pid=$!
    sleep "$after"
    case $whom in
    runs) pkill -9 -P $pid ;;
    *) kill -s "$whom" $pid 2> /dev/null ;;
    esac
    wait $pid
    status=$?
    sweep "$dir" "$@" > again.out 2>&1
    echo "first $status, again $?"
}
moments="0.15:9 0.5:INT"
[ "${CASES:-}" != all ] || moments=$(for _ in 1 2 3 4 5 6 7 8 9 10; do
    echo "0.$((RANDOM % 9))$((RANDOM % 10)):$(set -- 9 9 runs INT 9 && shift $((RANDOM % 5)) && echo "$1")"; done)
n=0
for m in $moments; do
    n=$((n + 1))
    expect "killed after ${m%:*} s (${m#*:})" 0 'again 0' killed "k$n" "${m%:*}" "${m#*:}" "${long[@]}"
    expect "the table of the sweep that nothing disturbed ($m)" 0 "" same_table whole "k$n"
done

# ---- Ctrl-C, and a second sweep meanwhile ----
"$PROG" --config_file=toy.json --logdir=stop --sweep seed=1,2,3 --sweep_jobs=2 --max_steps=1000000 \
    --summary_frequency=5 > stop.out 2> stop.err &
pid=$!
wait_until 60 grep -q '"step":20,' 'stop/seed=1/metrics.jsonl' 'stop/seed=2/metrics.jsonl'
expect "a second sweep in the folder" 2 "in use by process $pid" sweep stop --sweep seed=1,2,3 --max_steps=9
kill -INT $pid
wait $pid
expect "Ctrl-C: the running ones are saved" 75 "" eval "exit $?"
expect "both" 0 '^2$' eval 'cat stop/*/run.log | grep -c " stopped on request at step"'
expect "and says what is left" 0 '^3 of 3 runs are left; the same command goes on' cat stop.err

# ---- halving ----
half=(--sweep 'learning_rate=0.01,0.003' --sweep 'encoder_cell_units=4,8' --max_steps=40 --sweep_halving=10)
expect "halving" 0 '^round 2, step 20: the best 1 of 2 go on' sweep half "${half[@]}"
expect "one run reaches the end" 0 '^1$' eval 'ls half/*/model-40.npz | wc -l'
best=$(cd half && ls ./*/model-40.npz)
plain() {
    sweep plain --set eval_frequency=10 --set learning_rate="$(sed 's/.*rate=\([0-9.]*\).*/\1/' <<< "$best")" \
        --set encoder_cell_units="$(sed 's/.*units=\([0-9]*\).*/\1/' <<< "$best")" --max_steps=40
}
expect "the same without rounds" 0 "done: step 40" plain
expect "and the same bytes" 0 "" cmp "half/$best" plain/model-40.npz
expect "halving, killed" 0 "again 0" killed half2 0.9 9 "${half[@]}"
expect "the same winner, the same bytes" 0 "" cmp "half/$best" "half2/$best"
expect "no run went further than in the whole one" 0 "" eval \
    'diff <(cd half && ls -d */model-?0.npz) <(cd half2 && ls -d */model-?0.npz)'
# Each run gets a stop request right before the evaluation that the round compares.
few=(--sweep 'learning_rate=0.01,0.003' --max_steps=20 --sweep_halving=10)
expect "halving, stopped before an evaluation" 75 "" eval 'export RD_FAULT=int:0:9:update; sweep half3 "${few[@]}"'
expect "goes on" 0 '^round 1, step 10: the best 1 of 2 go on' sweep half3 "${few[@]}"
expect "to the end" 0 '^half3/learning_rate=0.01/model-20.npz$' eval 'ls half3/*/model-20.npz'

# ---- ranks ----
expect "two ranks for each run" 0 '^\[2/2\] ' sweep np --sweep seed=1,2 --sweep_ranks=2 --max_steps=5 --set batch_size=8
expect "they are ranks of one job" 0 '^2$' eval 'cat np/*/run.log | grep -c " world: 2 ranks on 1 host"'
expect "the same under mpirun" 0 '^\[2/2\] ' ranks 2 "$PROG" --config_file=toy.json --mode=train_eval \
    --set best_monitor=loss --logdir=under --sweep seed=1,2 --max_steps=5 --set batch_size=8
expect "with the same weights" 0 "" cmp np/seed=1/model-5.npz under/seed=1/model-5.npz
expect "--np does the same" 0 "1 at a time\|2 at a time" sweep np3 --sweep seed=1,2 --np=2 --max_steps=5 --set batch_size=8
expect "with these weights, too" 0 "" cmp np/seed=1/model-5.npz np3/seed=1/model-5.npz
on_hosts() { # if a run fails, its own output tells why
    sweep hosts --sweep seed=1,2,3 --hosts=localhost:2 --max_steps=3 && return
    local status=$?
    tail -n 20 hosts/*/sweep.out
    return $status
}
expect "hosts" 0 '2 at a time on 1 host' on_hosts

# ---- Slurm ----
expect "a script" 0 "array.sh is written: 2 tasks" sweep "slurm x" --sweep 'delimiter=" "' --sweep seed=1,2 --max_steps=3 \
    --sweep_slurm=array.sh --sweep_jobs=1
expect "two tasks, one at a time" 0 "^#SBATCH --array=0-1%1$" cat array.sh
expect "nothing was started" 1 "" test -e slurm*/*/run.log
mkdir bin
printf '#!/bin/sh\nwhile case $1 in -*) true ;; *) false ;; esac; do shift; done\nexec "$@"\n' > bin/srun
printf '#!/bin/sh\necho "$*" >> requeued\n' > bin/scontrol
chmod +x bin/*
expect "a task trains its run" 0 "done: step 3" env PATH="$work/bin:$PATH" SLURM_JOB_ID=1 SLURM_ARRAY_TASK_ID=1 bash array.sh
expect "in its folder" 0 "" grep -q "done: step 3" "slurm x/delimiter=_,seed=2~"*/run.log
expect "a task that the sweep does not have" 2 "has no task 7" env SLURM_ARRAY_TASK_ID=7 bash array.sh
summary
