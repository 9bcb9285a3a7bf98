#!/bin/sh
# kill.sh -- tests that a run is never lost.
#
# SIGKILL ends one rank, or mpirun, at random moments, also inside a save. The same command continues the run, and the
# last checkpoint has the bytes of that of the undisturbed run. Then the script tests the requests USR1, USR2 and
# TERM, and the lock.
#
# ROUNDS: maximum number of kills. STEPS: length of the run; the kills end with it. CASES=all: thirty kills. tests/run
# runs the script.
# timeout: 900
. "$(dirname "$0")/../support/toy.sh"
[ "${CASES:-}" != all ] || { : "${ROUNDS:=30}" "${STEPS:=6000}"; }
ROUNDS=${ROUNDS:-8}
work=$(mktemp -d "${TMPDIR:-/tmp}/kill.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 410 30
steps=${STEPS:-1000}
# The run saves after every step, so most of the time it is inside a save.
run="$MPIRUN -np 2 $PROG --config_file=toy.json --max_steps=$steps --checkpoint_frequency=0 --summary_frequency=100"
# shellcheck disable=SC2086 # $run is several words
expect "undisturbed" 0 "done: step $steps" timeout 300 $run --logdir=whole

ended() { ! kill -0 "$1"; }
i=0 resumed=0
while [ $i -lt "$ROUNDS" ]; do
    i=$((i + 1))
    : > killed.txt # it may still have the text that the script searches for below
    # shellcheck disable=SC2086
    $run --logdir=killed > killed.txt 2>&1 &
    job=$!
    # Up to 2.2 s after the first step or, every third time, 0.8 s after the start. The digits come from the process id
    # and the round.
    if [ $((i % 3)) -ne 0 ]; then wait_until 60 grep -q "first step done" killed.txt; else sleep 0.8; fi
    sleep "$(awk -v s="$job$i" 'BEGIN { srand(s); printf "%.3f", 2.2 * rand() }')"
    victim=$job
    [ $((i % 2)) -eq 0 ] || victim=$(pgrep -P $job run_dist | head -n 1)
    kill -9 "${victim:-$job}" 2> /dev/null
    wait $job
    for rank in $(cat killed/.lock 2> /dev/null | tr -c '0-9' ' ' | awk '{ print $1 }'); do
        wait_until 60 ended "$rank"
    done
    grep -q "resuming from" killed.txt && resumed=$((resumed + 1))
    [ ! -f killed/model-$steps.npz ] || break
done
# shellcheck disable=SC2086
expect "goes on after $i kills" 0 "" timeout 300 $run --logdir=killed
expect "resumed at least once" 0 "" [ $resumed -gt 0 ]
expect "the same bytes as undisturbed" 0 "" cmp whole/model-$steps.npz killed/model-$steps.npz
expect "every step once in the metrics" 0 "" sh -c "[ \"\$(sed -n 's/.*\"step\":\([0-9]*\),\"epoch\".*/\1/p' killed/metrics.jsonl |
    sort | uniq -d | wc -l)\" -eq 0 ]"
expect "no temporary file is left" 0 "" sh -c "! ls killed/*.tmp.* 2> /dev/null"

# Requests. The run is so long that it has not ended yet.
run="$MPIRUN -np 2 $PROG --config_file=toy.json --max_steps=100000000 --summary_frequency=1000000"
request() { # signal
    : > asked.txt
    # shellcheck disable=SC2086
    $run --logdir=asked > asked.txt 2>&1 &
    job=$!
    wait_until 60 grep -q "first step done" asked.txt
    [ "$1" != LOCK ] || { timeout 60 "$PROG" --config_file=toy.json --logdir=asked; locked=$?; set -- USR2; }
    kill -"$1" $job
    if [ "$1" = USR1 ]; then
        wait_until 60 grep -q "checkpoint model-" asked.txt
        cp asked.txt before.txt # the stop also saves
        kill -USR2 $job
    fi
    wait $job
    status=$?
    tail -n 20 asked.txt
    [ -z "${locked:-}" ] || return $locked
    return $status
}
expect "USR2 stops and saves" 75 "stopped on request" request USR2
expect "USR1 saves and goes on" 75 "stopped on request" request USR1
expect "USR1 saved" 0 "checkpoint model-" grep "checkpoint model-" before.txt
# If mpirun receives TERM, the exit status is its own. Only the checkpoint counts.
expect "TERM stops and saves" 1 "stopped on request" request TERM
expect "so does Ctrl-C" 1 "stopped on request" request INT
expect "a second run in the same folder is refused" 2 "is in use by process" request LOCK
summary
