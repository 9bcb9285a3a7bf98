#!/bin/bash
# logdir.sh -- tests that a run saves only into the folder that it locked: the folder is moved, removed and made anew
# under it, and its .lock is removed and replaced. Another run in the new folder is never touched. With two ranks;
# CASES=all: also with one.
#
# timeout: 600
# beside, long
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/logdir.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 60 7
np=1 launch=()

start() { # FOLDER FLAGS...: run A in the background; $job is the process that takes signals
    local dir=$1
    shift
    rm -rf "$dir" moved
    : > said
    "${launch[@]}" "$PROG" --config_file=toy.json --logdir="$dir" --max_steps=100000000 --summary_frequency=1000000 "$@" \
        > said 2>&1 < /dev/null &
    job=$!
    wait_until 60 grep -q "first step done" said
}
ask_to_save() { kill -USR1 $job; }
ends() { # NAME STATUS TEXT: run A ends by itself
    local status
    wait_until 60 over || kill -KILL $job
    wait $job
    status=$?
    expect "$name, np $np: $1" "$2" "$3" told $status
}
over() { ! kill -0 "$job"; }
told() {
    grep "error:\|^stopped\|^warning" said
    return "$1"
}
other() { timeout 60 "$PROG" --config_file=toy.json --logdir="$1" --max_steps=30 > other.txt 2>&1; } # run B, to its end
other_starts() { # FOLDER: run B, in the background
    : > other.txt
    "$PROG" --config_file=toy.json --logdir="$1" --max_steps=100000000 --summary_frequency=1000000 > other.txt 2>&1 < /dev/null &
    pid=$!
    wait_until 60 grep -q "first step done" other.txt
}
other_ends() { # run B saves and stops
    kill -TERM $pid
    wait $pid
    expect "$name, np $np: the other run stops and has saved" 75 "stopped on request" told_other $?
}
told_other() {
    tail -n 2 other.txt
    return "$1"
}
files() { (cd "$1" && find . -type f -exec cksum {} + | sort); }
untouched() { expect "$name, np $np: the other run's files are untouched" 0 "" cmp before after; }

nps=2
[ "${CASES:-}" != all ] || nps="1 2"
for np in $nps; do
    launch=()
    # shellcheck disable=SC2206 # $MPIRUN is several words
    [ $np -eq 1 ] || launch=($MPIRUN -np $np)
    all_leave_together

    name="moved and made anew"
    start log
    mv log moved
    other log
    files log > before
    ask_to_save
    ends "ends" 3 "run_dist: error: log folder 'log' was replaced by another one during the run; nothing more is saved there; what this run saved is in '$PWD/moved'"
    files log > after
    untouched
    expect "$name, np $np: nothing is saved in the old one" 2 "" ls moved/checkpoint

    name="moved, and in use"
    start log
    mv log moved
    other_starts log
    ask_to_save
    ends "ends" 2 "run_dist: error: log folder 'log' was replaced, or lost its .lock, and is now in use by process $pid on host '$(hostname)'"
    other_ends
    expect "$name, np $np: only its checkpoint" 0 "" test "$(cat log/checkpoint)" = "$(cd log && ls model-*)"
    expect "$name, np $np: only its lines" 1 "" grep -q "error" log/run.log
    expect "$name, np $np: no error file" 2 "" ls log/errors

    name=".lock removed"
    start log
    rm log/.lock
    ask_to_save
    ends "ends" 3 "the file .lock of log folder 'log' was removed during the run"
    expect "$name, np $np: nothing is saved" 2 "" ls log/checkpoint

    name=".lock removed, and in use"
    start log
    rm log/.lock
    other_starts log
    ask_to_save
    ends "ends" 2 "lost its .lock, and is now in use by process $pid on host"
    other_ends

    name=".lock replaced"
    start log
    cp log/.lock x && mv x log/.lock
    ask_to_save
    ends "ends" 3 "was replaced by another one during the run"

    name=".lock is a link"
    start log
    mv log/.lock x && ln -s ../x log/.lock
    ask_to_save
    ends "ends" 3 "was replaced by another one during the run"

    name="removed"
    start log
    rm -rf log
    ask_to_save
    ends "ends" 3 "log folder 'log' was moved or removed during the run; nothing more is saved"
    expect "$name, np $np: it is not made again" 2 "" ls log

    name="noticed without a save"
    start log
    mv log moved
    mkdir log
    ends "ends" 3 "the file .lock of log folder 'log' was removed\|was replaced"
    expect "$name, np $np: nothing is written" 0 "" test -z "$(ls -A log)"

    name="stopped"
    start log
    mv log moved
    other log
    files log > before
    kill -USR2 $job
    ends "ends" 3 "was replaced by another one"
    files log > after
    untouched

    name="best checkpoint"
    start log --mode=train_eval --set eval_frequency=3000
    mv log moved
    other log
    files log > before
    ends "ends" 3 "was replaced by another one"
    files log > after
    untouched

    if [ $np -eq 2 ]; then
        name="a rank is lost"
        unset OMPI_MCA_odls_base_sigkill_timeout # the other rank has a second to report it
        start log
        mv log moved
        other log
        files log > before
        kill -KILL "$(pgrep -P $job | tail -n 1)"
        wait $job
        expect "$name: it is reported" 0 "rank [01] .* is gone" told 0
        files log > after
        untouched
    fi

    # A folder that was moved away and back is the same one.
    all_leave_together
    name="moved back"
    start log
    mv log moved && mv moved log
    ask_to_save
    wait_until 60 grep -q "checkpoint model-" said
    kill -USR2 $job
    ends "goes on" 75 "stopped on request"
done
summary
