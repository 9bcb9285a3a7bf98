#!/bin/bash
# watch.sh -- tests what the watch reports, and that the job ends, when a rank dies, stops, or hangs.
#
# The watch ignores a slow save, a long evaluation and a paused job. With CASES=all the script also tests how soon the
# job ends.
# timeout: 600
# beside, long
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
watch=$PWD/${BUILD:-build/release}/tests/mpi/watch
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck disable=SC2086 # $MPIRUN is several words
run() { timeout 100 $MPIRUN "$@"; }

# check NAME STATUS TEXT SECONDS NP WHAT. STATUS "any": also mpirun's own code for a killed rank
check() {
    local name=$1 status=$2 text=$3 seconds=$4 np=$5 what=$6 got
    timed run -np "$np" "$watch" "$what" > "$work/out" 2>&1
    got=$?
    # shellcheck disable=SC2016
    expect "$name" 0 "" sh -c '
        [ "$1" = any ] && [ "$2" -ne 0 ] && [ "$2" -ne 124 ] || [ "$1" = "$2" ] || { echo "status $2, not $1"; cat "$5"; exit 1; }
        [ -z "$3" ] || grep -q -- "$3" "$5" || { echo "no \"$3\""; cat "$5"; exit 1; }
        [ -z "$4" ] || { echo "$4"; exit 1; }' \
        sh "$status" "$got" "$text" "$(in_time "$seconds")" "$work/out"
    expect "$name: no rank is left" 0 "^0 are" gone 2 "^$watch $what\$"
}
quiet() { # NAME NP WHAT: the job succeeds, and the watch warns (WARNS yes) or not
    check "$1" 0 "^done" 30 "$2" "$3"
    expect "$1: $4" 0 "" sh -c "[ \$(grep -c 'no progress' '$work/out') $5 ]"
}
quiet "all is well, 1 rank" 1 fine "no word" "-eq 0"
quiet "all is well, 3 ranks" 3 fine "no word" "-eq 0"
usual=$naps
quiet "ranks that share no memory" 3 unshared "no word" "-eq 0"
expect "and that is said" 0 "cannot watch each other" cat "$work/out"
paused() { # stops all ranks for 2 s in the middle; rank 0 continues a moment before the others
    : > "$work/out" # the output before has a step 10, too
    run -np 3 "$watch" fine 40 &
    local job=$! pid
    wait_until 60 grep -q "^step 10" "$work/out"
    pgrep -f "^$watch fine 40\$" | xargs kill -STOP
    sleep 2
    for pid in $(pgrep -f "^$watch fine 40\$"); do
        kill -CONT "$pid"
        sleep 0.02
    done
    wait $job
}
paused > "$work/out" 2>&1
expect "a paused job goes on" 0 "^done" cat "$work/out"
expect "a paused job: no word" 1 "" grep "no progress" "$work/out"
quiet "a save that takes longer than a step may" 3 save "no word" "-eq 0"
quiet "an evaluation that takes longer than a step may" 3 evaluate "no word" "-eq 0"
quiet "a straggler" 3 straggle "one warning" "-eq 1"
check "a stopped rank" 8 "rank 2 (.*) has been computing step 5 for $(seconds "[2-5]") s; 2 ranks wait for it; that is more than stall_abort_s" 15 3 stop
check "a rank that is stopped while it waits" 8 "rank 2 (.*) has been waiting for the others in step 5 for $(seconds "[1-5]") s; 2 ranks wait for it; that is more" 15 3 stop_waiting
check "a rank that hangs" 8 "no progress: rank 2 (.*) has been computing step 5 for $(seconds "[1-3]") s; 2 ranks wait" 15 3 hang
check "a rank that hangs in its input" 8 "rank 1 (.*) has been reading the batch of step 5" 15 2 input
check "rank 0 is stopped" 8 "rank 0 (.*) has been computing step 5" 15 3 root_stop
check "a killed rank" any "rank 2 (.*) is gone: .* last computing step 5" 6 3 kill
check "rank 0 is killed" any "rank 0 (.*) is gone" 6 3 root_kill
check "a rank that leaves with its own message" 5 "line 7 of a file" 6 3 leave
expect "nobody adds to that message" 1 "" grep -q "is gone" "$work/out"
for hosts in 1 2 3; do
    export RD_COMM_HOSTS=$hosts
    check "a rank that hangs on its way out, $hosts hosts" 5 "line 7 of a file" 10 3 leave_late
    expect "nobody adds to that message, $hosts hosts" 1 "" grep -q "is gone\|no progress\|stall_abort_s" "$work/out"
    check "ranks that notice a failure before its rank reports it, $hosts hosts" 5 "line 7 of a file" 10 3 cause
    expect "they report nothing, $hosts hosts" 1 "" grep -q "another rank ended" "$work/out"
done
unset RD_COMM_HOSTS
if [ "${CASES:-}" = all ]; then
    check "a failure that no rank reports" 9 "another rank ended" 15 3 no_cause
    expect "and no rank is blamed" 1 "" grep -q "no progress\|stall_abort_s" "$work/out"
fi
expect "another host ends the job" 0 "^told \(8 \|0 .*no answer\)" run -x RD_COMM_HOSTS=2 -np 4 "$watch" code
expect "beats that cannot be are not taken" 0 "^good 1, other 0, code 0\|^good 0, .*no answer" run -x RD_COMM_HOSTS=2 -np 4 "$watch" beats
summary
