#!/bin/bash
# hosts.sh -- the watch on two hosts with a network between them, made on this machine by tests/support/fakecluster: a rank is stopped
# or killed on the other host, its cable is cut, its power fails. Each time the job is gone on both hosts within seconds, and the
# first line says who was to blame.
# timeout: 200
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
# shellcheck source=tests/support/made_hosts.sh
. "$(dirname "$0")/../support/made_hosts.sh"
watch=${BUILD:-build/release}/tests/mpi/watch
made_hosts 2
shown=$work/out

start() { # WHAT STEPS
    timeout 100 "$nodes" exec node1 mpirun --allow-run-as-root --hostfile "$FAKECLUSTER_DIR/hostfile" -mca plm_rsh_args "-p 12345" \
        -x ASAN_OPTIONS -x LSAN_OPTIONS -np 4 "$PWD/$watch" "$@" > "$shown" 2>&1
}
said() { # NAME TEXT
    expect "$1" 0 "" grep -q -- "$2" "$shown" || cat "$shown"
}

expect "two hosts, all is well" 0 "" start fine 10
said "the steps are done" "^done"
expect "a rank of the other host is stopped" 8 "" start stop 10
said "it is named" "rank 3 (node2, .*) has been computing step 5 for .* more than stall_abort_s"
start kill 10
said "a rank of the other host is killed" "rank 3 (node2, .*) is gone"
start root_kill 10
said "rank 0 is killed" "rank 0 .*is gone"
expect "after all this" 0 "^0 are" gone 5 "^$PWD/$watch "
for how in cut kill; do
    start fine 2000 &
    job=$!
    for _ in $(seq 300); do grep -q "^step 20" "$shown" && break || sleep 0.2; done
    "$nodes" $how node2
    expect "node2 $how: gone from both hosts within 8 s" 0 "^0 are" gone 8 "^$PWD/$watch "
    wait $job
    said "node2 $how: the loss is named" "(node2, .*) is gone"
    "$nodes" heal node2 > /dev/null 2>&1
done
summary
