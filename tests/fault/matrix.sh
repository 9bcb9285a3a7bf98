#!/bin/bash
# matrix.sh -- tests faults of one rank at a step, in a phase (RD_FAULT, runner/run/fault.c).
#
# Each job ends with the right exit code and message, and no process is left. The same command without the fault
# continues to the bytes of the undisturbed run. With CASES=all the job also ends in time.
#
#   CASES=all tests/run tests/fault/matrix.sh     every case; else a selection
#
# timeout: 1500
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
same=$PWD/${BUILD:-build/release}/tests/support/npz_same
work=$(mktemp -d "${TMPDIR:-/tmp}/matrix.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 210 30
t() { # np, folder: 12 steps, a save after about every third step
    local np=$1 dir=$2
    shift 2
    timeout 100 $MPIRUN -np "$np" "$PROG" --config_file=toy.json --logdir="$dir" --max_steps=12 --checkpoint_frequency=0 \
        --set batch_size=$((16 / np)) --set check_replicas_every=1 "$@" < /dev/null
}
for np in 2 4; do
    timed t $np whole$np > said.txt 2>&1
    expect "$np ranks, undisturbed" 0 "done: step 12" cat said.txt
    usual=$naps
done

# kind, exit status (any: not 0, the launcher decides), message, seconds at most (with CASES=all)
kinds="kill|any|is gone|8
exit|any|is gone|8
stop|8|stall_abort_s allows|12
hang|8|stall_abort_s allows|12
data|5|bad data at step|8
memory|3|no memory at step|8
slow|0|done: step 12|20
nan|0|skipped on all ranks|20
flip|7|holds other weights|8"

one() { # np rank step phase kind status text seconds
    local name="$5 in rank $2 of $1, step $3, $4" status limits=()
    rm -rf run
    case $5 in stop | hang) limits=(--set stall_warn_s=1 --set stall_abort_s=2) ;; esac # a healthy run on a busy machine may exceed these
    RD_FAULT=$5:$2:$3:$4 timed t "$1" run "${limits[@]}" > said.txt 2>&1
    status=$?
    # shellcheck disable=SC2016
    expect "$name" 0 "" bash -c '
        { [ "$1" = any ] && [ "$2" -ne 0 ] && [ "$2" -ne 124 ]; } || [ "$1" = "$2" ] || { echo "status $2, not $1"; tail -n 8 said.txt; exit 1; }
        grep -q -- "$3" said.txt || { echo "no \"$3\""; tail -n 8 said.txt; exit 1; }
        grep -q -- "$3" run/run.log || { echo "no \"$3\" in run.log"; tail -n 8 run/run.log; exit 1; }
        case $5 in data | memory) ! grep -n "is gone" said.txt || exit 1 ;; esac # the other ranks, which the launcher ends
        [ -z "$4" ] || { echo "$4"; exit 1; }
        [ -z "$(ls run/*.tmp.* 2> /dev/null)" ] || [ "$5" = kill ] || { echo "half a file"; ls run; exit 1; }' \
        bash "$6" "$status" "$7" "$(in_time "$8")" "$5"
    expect "$name: no process is left" 0 "^0 are" gone 4 "^$PROG .*--logdir=run --max_steps=12"
    [ "$5" != nan ] || return 0
    expect "$name: goes on" 0 "step 12" t "$1" run
    expect "$name: to the same bytes" 0 "" "$same" "whole$1/model-12.npz" run/model-12.npz
}
n=0 each=17
case ${BUILD:-} in *asan*) each=40 ;; esac # sanitizers are slow, and the selection also runs without them
while IFS='|' read -r kind status text seconds; do
    for np in 2 4; do
        for rank in 0 $((np - 1)); do
            for phase in input compute wait exchange update; do
                case $kind:$phase in
                nan:wait | flip:update) ;;
                nan:* | flip:* | slow:input | slow:update | data:wait | memory:wait | data:exchange | memory:exchange) continue ;;
                esac
                n=$((n + 1))
                [ "${CASES:-}" = all ] || [ $((n % each)) -eq 1 ] || [ "$kind:$np$rank" = flip:43 ] || continue
                one $np $rank 7 $phase "$kind" "$status" "$text" "$seconds"
            done
        done
    done
done <<< "$kinds"
echo "$n cases in all"
summary
