#!/bin/bash
# hosts.sh -- tests the watch on two hosts with a network between them.
#
# tests/support/fakecluster makes the hosts on this machine. On the other host a rank is stopped or killed, the cable
# is cut, or the power fails. Each time the job ends on both hosts (with CASES=all: within seconds), and the first
# line names the cause. If a firewall blocks the connection of the watch, each host watches its own ranks.
# timeout: 400
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
# shellcheck source=tests/support/made_hosts.sh
. "$(dirname "$0")/../support/made_hosts.sh"
watch=${BUILD:-build/release}/tests/mpi/watch
made_hosts 2
shown=$work/out

start() { # WHAT STEPS
    # shellcheck disable=SC2086 # $pinned is several words
    timeout 100 "$nodes" exec node1 mpirun --allow-run-as-root --hostfile "$FAKECLUSTER_DIR/hostfile" -mca plm_rsh_args "-p 12345" $pinned \
        -x ASAN_OPTIONS -x LSAN_OPTIONS -np 4 "$PWD/$watch" "$@" > "$shown" 2>&1
}
pinned=
said() { # NAME TEXT
    expect "$1" 0 "$2" cat "$shown"
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
    : > "$shown" # the output of the round before has a step 20, too
    start fine 2000 &
    job=$!
    wait_until 60 grep -q "^step 20" "$shown"
    "$nodes" $how node2
    expect "node2 $how: gone from both hosts" 0 "^0 are" gone 8 "^$PWD/$watch "
    wait $job
    said "node2 $how: the loss is named" "(node2, .*) is gone"
    "$nodes" heal node2 > /dev/null 2>&1
done

# A firewall that lets only ssh and the pinned ports of MPI pass. The job takes longer than stall_abort_s.
pinned="-mca oob_tcp_dynamic_ipv4_ports 46000-46049 -mca btl_tcp_port_min_v4 46050 -mca btl_tcp_port_range_v4 100"
fence() { # K: drops TCP from ports that the kernel chooses to ports that it chooses
    "$nodes" exec "node$1" sh -c 'echo 50000 60000 > /proc/sys/net/ipv4/ip_local_port_range && ip rule add pref 100 lookup local &&
        ip rule del pref 0 && ip rule add pref 50 iif eth0 ipproto tcp dport 50000-60000 sport 50000-60000 blackhole' 2> /dev/null
}
if PATH=$PATH:/usr/sbin:/sbin && fence 1 && fence 2; then
    expect "behind a firewall a job goes on" 0 "" start fine 100
    said "it is told" "1 of 1 other hosts cannot open a TCP connection to rank 0's host"
    said "to its end" "^done"
    expect "a rank of the other host is stopped there" 8 "" start stop 10
    said "its own host names it" "rank 3 (node2, .*) has been computing step 5 for .* more than stall_abort_s"
else
    echo "skip: no firewall can be made here"
fi
summary
