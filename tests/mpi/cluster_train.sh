#!/bin/bash
# cluster_train.sh -- tests training on several hosts, and the loss of a host.
#
# tests/support/fakecluster makes the hosts on this machine. Four of them train to the losses of one. Only rank 0 needs
# to see the log folder. A host that is cut off for good ends the run in time. Then the same command on the remaining
# hosts, typed by hand or started by --restarts, continues the run and ends with the right number of steps.
# timeout: 500
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
# shellcheck source=tests/support/made_hosts.sh
. "$(dirname "$0")/../support/made_hosts.sh"
top=$(cd "$(dirname "$0")/../.." && pwd)
same=$top/${BUILD:-build/release}/tests/support/npz_same
case ${BUILD:-} in *asan*) skip "the sanitizers' settings do not travel to the hosts" ;; esac
made_hosts 4
export COLUMNS=200 # the lines of steps are whole
cd "$work" || exit 2
toy 64 16
mpirun=(mpirun --allow-run-as-root -mca plm_rsh_args "-p 12345" -mca oob_tcp_keepalive_time 2 -mca oob_tcp_keepalive_intvl 1
    -mca oob_tcp_keepalive_probes 2)
args=("$PROG" --config_file=toy.json --summary_frequency=1 --set deterministic=any --set micro_batches=8 --set stall_abort_s=25)
on() { timeout 100 "$nodes" exec node1 "$@"; }
hosts() { local k list=''; for k in $(seq "$1"); do list+=,node$k:2; done; echo "${list#,}"; } # N: the first N hosts, two ranks each

expect "4 hosts x 2 ranks" 0 "world: 8 ranks on 4 hosts" on "${mpirun[@]}" -H "$(hosts 4)" -np 8 "${args[@]}" --set batch_size=2 --max_steps=4 \
    --logdir=logs/eight
expect "8 ranks on one host" 0 "" ranks 8 "${args[@]}" --set batch_size=2 --max_steps=4 --logdir=logs/whole
expect "the same losses" 0 "4 values" close_curves loss 1e-6 4 logs/eight logs/whole
expect "the same bytes" 0 "" "$same" logs/eight/model-4.npz logs/whole/model-4.npz

# The other hosts see another, empty folder at the same path.
for k in 2 3 4; do "$nodes" exec node$k mount -t tmpfs none "$work/logs"; done
"$nodes" shape node2 1gbit none # and a slow cable between these two hosts
expect "rank 0 alone sees the log folder" 0 "done: step 4" on "${mpirun[@]}" -H "$(hosts 2)" -np 4 "${args[@]}" --set batch_size=4 --max_steps=4 \
    --logdir=logs/alone
expect "the steps say what share of the time goes to the exchange" 0 "^[-0-9: ]*step 4 .* exchange [0-9.]* %" cat logs/alone/run.log
"$nodes" shape node2 none none
there() { for k in 2 3 4; do "$nodes" exec node$k find "$work/logs" -mindepth 1; done; }
expect "nothing is written on the others" 0 "^0$" bash -c "$(declare -f there); nodes=$nodes work=$work; there | wc -l"

# node4 is cut off for good.
on "${mpirun[@]}" -H "$(hosts 4)" -np 8 "${args[@]}" --set batch_size=2 --max_steps=100000000 --checkpoint_frequency=1 --logdir=logs/cut > cut.txt 2>&1 &
job=$!
wait_until 60 grep -q "^checkpoint model-" cut.txt
"$nodes" cut node4
timed wait $job
status=$?
expect "a host cut off: the run fails" 0 "" [ "$status" -ne 0 ]
expect "in time" 0 "" in_time 40
expect "the host is named" 0 "node4" cat cut.txt
expect "no rank is left, there neither" 0 "^0 are" gone 15 "^$PROG .*--logdir=logs/cut"
last=$(sed -n 's/^model-\([0-9]*\)\.npz.*/\1/p' logs/cut/checkpoint)
expect "the same on two of the other hosts" 0 "done: step $((last + 5))" on "${mpirun[@]}" -H "$(hosts 2)" -np 4 "${args[@]}" --set batch_size=4 \
    --max_steps=$((last + 5)) --logdir=logs/cut
expect "from the last checkpoint" 0 "resuming from logs/cut/model-$last.npz" cat logs/cut/run.log
expect "undisturbed on one host" 0 "" ranks 4 "${args[@]}" --set batch_size=4 --max_steps=$((last + 5)) --logdir=logs/calm
expect "the same bytes in the end" 0 "" "$same" logs/cut/model-$((last + 5)).npz logs/calm/model-$((last + 5)).npz

# The same with --restarts, which notices by itself that node3 does not answer.
run=("${args[@]}" --set batch_size=4 --checkpoint_frequency=1 --logdir=logs/again)
on "$PROG" --restarts=3 --restart_delay=0.5 --drop_dead_hosts -- "${mpirun[@]}" -np 4 -H node1:2,node3:2 "${run[@]}" --max_steps=100000000 > again.txt 2>&1 &
job=$!
wait_until 60 grep -q "^checkpoint model-" again.txt
"$nodes" cut node3
resumed() { grep -q "^resuming from" again.txt && grep -q "2 ranks on 1 host" again.txt; }
saved_again() { [ "$(grep -c "^checkpoint model-" again.txt)" -ge 3 ]; }
wait_until 60 resumed
wait_until 60 saved_again
kill -TERM "$(pgrep -f "^$PROG --restarts=3 .*--logdir=logs/again" | head -n 1)"
wait $job
status=$?
expect "it goes on without that host" 0 "no ssh login on node3" cat again.txt
expect "with the ranks of the other" 0 "run_dist: 2 ranks on 1 of 2 hosts" cat again.txt
expect "from its checkpoint" 0 "resuming from logs/again/model-" cat again.txt
expect "and is stopped with 75" 0 "^75$" echo $status
expect "all is over" 0 "^0 are" gone 5 "^$PROG .*--logdir=logs/again"
summary
