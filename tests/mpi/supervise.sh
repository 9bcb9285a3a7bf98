#!/bin/bash
# supervise.sh -- tests run_dist --restarts.
#
# The script tests which ends lead to another start, when --restarts gives up, how it handles signals, which hosts it
# leaves out, and that no process outlives it. The first launcher is a script of a few lines that ends in a given way.
# The second one is mpirun: a rank is killed, and the run ends with the bytes of the undisturbed run.
# timeout: 400
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
same=$PWD/${BUILD:-build/release}/tests/support/npz_same
work=$(mktemp -d "${TMPDIR:-/tmp}/supervise.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2

# A launcher. Each start reads a line "STATUS STEP" of `plan` (STEP -: no new checkpoint) and ends in this way.
mkdir bin
cat > bin/fake << 'END'
#!/bin/bash
echo "$*" >> calls
read -r status step < plan
sed -i 1d plan
mkdir -p f
[ "$step" = - ] || echo "model-$step.npz" > f/checkpoint
case $status in
sleep) exec sleep "$NAP" ;;
said) echo "stopped on request at step $step, checkpoint saved" >> f/run.log; exit 1 ;;
killed) kill -9 $$ ;;
*) exit "$status" ;;
esac
END
printf '#!/bin/bash\nexec fake "$@"\n' > bin/mpirun
printf '#!/bin/bash\necho "$*" >> asked\nfor h in $(cat dead); do case " $* " in *" $h "*) exit 255 ;; esac; done\n' > bin/ssh
chmod 755 bin/*
again() { # PLAN with ',' for line ends, flags: supervises the launcher; prints its output and the number of starts
    tr , '\n' <<< "$1" > plan
    shift
    rm -rf f calls asked
    PATH=$work/bin:$PATH timeout 60 "$PROG" --restart_delay=0.01 "$@"
    local status=$?
    echo "starts: $(wc -l < calls 2> /dev/null || echo 0)"
    return $status
}
line=(-- fake --logdir=f)
expect "ends well at once" 0 "starts: 1" again "0 5" --restarts=3 "${line[@]}"
expect "two failures, then well" 0 "starts: 3" again "9 10,137 20,0 30" --restarts=3 "${line[@]}"
expect "says why: code, meaning, step" 0 "restart 1 of 3 in 0.01 s: the run ended with 9 (a rank or a host was lost) after [0-9]* s, checkpoint of step 10" \
    again "9 10,0 30" --restarts=3 "${line[@]}"
expect "waits twice as long each time" 0 "restart 3 of 3 in 0.04 s" again "9 1,9 2,9 3,0 4" --restarts=3 "${line[@]}"
expect "and in run.log, where there is one" 0 "restart 2 of 3" bash -c ": > f/run.log; $(declare -f again); work=$work PROG=$PROG
    rm() { command rm -f calls asked; }; again '9 1,9 2,0 3' --restarts=3 -- fake --logdir=f > /dev/null 2>&1; cat f/run.log"
expect "gives up when no step is gained" 9 "3 starts in a row have left no new checkpoint" again "9 5,9 -,9 -,9 -,0 9" --restarts=99 "${line[@]}"
expect "after the third" 9 "starts: 3" again "9 -,9 -,9 -,0 9" --restarts=99 "${line[@]}"
expect "a step between counts anew" 0 "starts: 6" again "9 -,9 -,9 3,9 -,9 -,0 9" --restarts=99 "${line[@]}"
expect "an older checkpoint is no gain" 9 "starts: 4" again "9 5,9 4,9 3,9 2,0 9" --restarts=99 "${line[@]}"
expect "no more starts than asked for" 9 "no start is left of --restarts=1" again "9 1,9 2,0 3" --restarts=1 "${line[@]}"
expect "none at all" 9 "starts: 1" again "9 1,0 2" --restarts=0 "${line[@]}"
for s in 2 4 5 6 110 124 126 127; do
    expect "$s: not again" $s "starts: 1" again "$s 1,0 2" --restarts=3 "${line[@]}"
done
for s in 1 3 7 8 9 70 134 137 139 205 255; do expect "$s: again" 0 "starts: 2" again "$s 1,0 2" --restarts=3 "${line[@]}"; done
expect "75: asked to stop, not again" 75 "starts: 1" again "75 1,0 2" --restarts=3 "${line[@]}"
expect "mpirun's 1 after a stop: 75" 75 "starts: 1" again "said 7,0 8" --restarts=3 "${line[@]}"
expect "the launcher is killed: a signal in words" 0 "ended with 137 (a process was ended by signal 9, Killed" again "killed 1,0 2" --restarts=3 "${line[@]}"

# The command line.
while IFS='|' read -r args want; do
    # shellcheck disable=SC2086 # words
    expect "refused: $args" 2 "$want" timeout 20 "$PROG" $args
done << 'END'
--restarts=3|--restarts=N needs the command to start
--restarts=3 --|--restarts=N needs the command to start
--restarts=x -- fake --logdir=f|flag '--restarts' must be an integer
-- fake --logdir=f|what follows is a command for --restarts=N
--restart_delay=3|--restart_delay is for --restarts=N
--restarts=3 --config_file=x.json -- fake --logdir=f|--config_file stands in front of --
--restarts=3 -- true|has no --logdir
--restarts=3 -- ./missing --logdir=f|cannot start './missing': No such file
--restarts=3 --drop_dead_hosts -- mpirun -np 4 run_dist --logdir=f|needs an mpirun that names its hosts
--restarts=3 --drop_dead_hosts -- mpirun -np 1 -H a:1 run_dist --logdir=f : -np 1 run_dist|several programs
END
expect "the log folder in front of --" 0 "starts: 2" again "9 1,0 2" --restarts=1 --logdir=f -- fake
expect "the log folder in two words" 0 "starts: 2" again "9 1,0 2" --restarts=1 -- fake --logd f
nested() { OMPI_COMM_WORLD_RANK=0 timeout 20 "$PROG" --restarts=1 -- fake --logdir=f; }
expect "under mpirun" 2 "mpirun must not start it" nested

# Hosts. The first one is this machine; node9 does not answer.
unset OMPI_MCA_plm_rsh_agent # tests/run sets it: no ssh
here=$(uname -n)
echo node9 > dead
expect "all hosts at first, then those that live" 0 "no ssh login on node9" again "9 1,0 2" --restarts=1 --drop_dead_hosts -- \
    mpirun -np 6 -H "$here:2,node8:2,node9:2" -mca plm_rsh_args "-p 12345" run_dist --logdir=f
expect "the first start is as it was typed" 0 "^-np 6 -H $here:2,node8:2,node9:2 " head -n 1 calls
expect "then without the host and its ranks" 0 "^-np 4 -H $here:2,node8:2 -mca plm_rsh_args -p 12345 run_dist --logdir=f" tail -n 1 calls
expect "asked as mpirun would" 0 "BatchMode=yes .*-p 12345 -- node8 true" cat asked
expect "this host is not asked" 1 "" grep -w -- "$here" asked
mkdir tmp
export TMPDIR=$work/tmp
printf '%s slots=2\n# two more\nnode8 slots=4\n node9 slots=4 max_slots=4\n' "$here" > hosts
expect "a hostfile" 0 "" again "9 1,0 2" --restarts=1 --drop_dead_hosts -- mpirun --hostfile hosts -np 10 run_dist --logdir=f
expect "another hostfile, fewer ranks" 0 "^--hostfile .*/run_dist_hosts.* -np 6 run_dist" tail -n 1 calls
expect "which is removed" 0 "^0$" bash -c "ls '$work/tmp' | wc -l"
echo node8 node9 > dead
expect "this host alone" 0 "" again "9 1,0 2" --restarts=1 --drop_dead_hosts -- mpirun -n 6 --host "$here:2,node8:2,node9:2" run_dist --logdir=f
expect "its two ranks" 0 "^-n 2 --host $here:2 run_dist" tail -n 1 calls
expect "a host that comes back" 0 "" again "9 1,9 2,0 3" --restarts=2 --drop_dead_hosts -- bash -c \
    'case $(wc -l < calls 2> /dev/null) in 2) : > dead ;; esac; exec mpirun "$@"' mpirun -np 2 -H "$here:1,node8:1" run_dist --logdir=f
expect "no host at all" 255 "no host answers" again "9 1,0 2" --restarts=3 --drop_dead_hosts -- mpirun -np 2 -H node8:1,node8:1 run_dist --logdir=f \
    < <(echo node8 > dead)

# Signals, and processes that are left.
started() { # flags: supervises the launcher in the background, with the pid in $sup; returns once the launcher runs
    rm -rf f calls
    PATH=$work/bin:$PATH timeout 60 "$PROG" --restart_delay=30 "$@" > said 2>&1 &
    sup=$!
    wait_until 60 [ -s calls ]
    sleep 0.2
}
export NAP=60.$$ # a number of seconds that no other process sleeps
sleepers() { pgrep -f "^sleep $NAP$" | wc -l; }
ended() { # SIGNAL: sends it, and waits for the end
    kill -"$1" "$(pgrep -P $sup | head -n 1)"
    wait $sup
    status=$?
}
report() {
    cat said
    echo "left: $(sleepers)"
    return $status
}
for s in TERM INT HUP; do
    echo "sleep 3" > plan
    started --restarts=5 "${line[@]}"
    ended $s
    expect "$s goes to the launcher, which is not started again" $((128 + $(kill -l $s))) "left: 0" report
done
echo "9 3" > plan
started --restarts=5 "${line[@]}"
wait_until 60 grep -q "in 30 s" said
ended TERM
expect "TERM between two starts: at once, 75" 75 "asked to stop between two starts" report
echo "sleep 3" > plan
started --restarts=5 "${line[@]}"
kill -9 "$(pgrep -P $sup | head -n 1)"
wait $sup 2> /dev/null
expect "killed itself: the launcher goes too" 0 "^0 are" gone 2 "^sleep $NAP$"
orphan() { # a launcher that fails and leaves a process in its own session
    timeout 60 "$PROG" --restarts=0 -- bash -c 'mkdir -p f; setsid sleep "$NAP" & sleep 0.2; exit 9' x --logdir=f
    local status=$?
    echo "left: $(sleepers)"
    return $status
}
expect "an orphan is ended" 9 "left: 0" orphan

export OMPI_MCA_plm_rsh_agent=sh
# mpirun, with a save after every step. Rank 1 is killed in the middle of the run.
toy 210 30
run=(--config_file=toy.json --max_steps=120 --checkpoint_frequency=0 --summary_frequency=10)
# shellcheck disable=SC2206 # $MPIRUN is several words
mpi=($MPIRUN -np 2 "$PROG")
expect "undisturbed" 0 "done: step 120" timeout 150 "${mpi[@]}" "${run[@]}" --logdir=whole
: > said # it still has the steps of earlier jobs
timeout 200 "$PROG" --restarts=3 --restart_delay=0.1 -- "${mpi[@]}" "${run[@]}" --logdir=killed > said 2>&1 &
sup=$!
wait_until 60 grep -q "^step 30 " said
kill -9 "$(pgrep -f "^$PROG --config_file=toy.json .*--logdir=killed" | tail -n 1)"
wait $sup
status=$?
expect "a rank killed: ends well" 0 "done: step 120" bash -c "cat said; exit $status"
expect "after one restart, from a checkpoint" 0 "restart 1 of 3 .* checkpoint of step" cat said
expect "resumed" 0 "resuming from killed/model-" cat said
expect "to the bytes of the undisturbed run" 0 "" "$same" whole/model-120.npz killed/model-120.npz
expect "run.log tells it too" 0 "restart 1 of 3" cat killed/run.log
: > said
timeout 120 "$PROG" --restarts=3 -- "${mpi[@]}" "${run[@]}" --max_steps=100000000 --logdir=stopped > said 2>&1 &
sup=$!
wait_until 60 grep -q "^step 20" said
ended TERM
expect "TERM: the ranks save, 75" 75 "stopped on request at step" report
expect "the step is saved" 0 "" bash -c "grep -q \"model-\$(sed -n 's/^stopped on request at step \([0-9]*\),.*/\1/p' said)\.npz\" stopped/checkpoint"
expect "no rank is left" 1 "" pgrep -f "^$PROG --config_file=toy.json .*--logdir=(stopped|killed)"
expect "a config that is wrong: once, its code" 2 "same at another start" timeout 60 "$PROG" --restarts=3 -- "${mpi[@]}" "${run[@]}" \
    --set batch_size=0 --logdir=bad
summary
