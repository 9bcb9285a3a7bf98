#!/bin/bash
# doctor.sh -- tests --mode=doctor on two hosts, without faults and with each fault that makes MPI hang, crash or crawl.
#
# tests/support/fakecluster makes the hosts on this machine. The doctor finds each fault by its name (with CASES=all:
# within half a minute), and no process is left on any host.
# timeout: 300
# beside, long
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
# shellcheck source=tests/support/made_hosts.sh
. "$(dirname "$0")/../support/made_hosts.sh"
export PATH=$PATH:/usr/sbin:/sbin
made_hosts 2

on() { "$nodes" exec "node$1" "${@:2}"; } # K COMMAND...
both() { on 1 "$@"; on 2 "$@"; }
doctor() { timeout 100 "$nodes" exec node1 "$PROG" --mode=doctor --hosts=node1:2,node2:2 --ssh_port=12345 "$@"; }
job() { # WORDS -- ARGS: the same inside a job; WORDS are for mpirun
    local words=()
    while [ "$1" != -- ]; do words+=("$1"); shift; done
    timeout 100 "$nodes" exec node1 mpirun --allow-run-as-root -mca plm_rsh_args "-p 12345" -H node1:2,node2:2 -np 4 \
        -x ASAN_OPTIONS -x LSAN_OPTIONS "${words[@]}" "$PROG" "${@:2}"
}
processes() { both pgrep -f "^$PROG |^(/[^ ]*/)?orted |^mpirun " | wc -l; }
none_left() { [ "$(processes)" -eq 0 ]; }
left() { # prints how many processes of the program or of mpirun are left on the two hosts, a minute later at most
    wait_until 60 none_left
    echo "$(processes) are left"
}

# examine NAME STATUS ARGS...: one examination from the launching host. finds TEXT...: searches its output. Faults do
# not hide each other, so one examination can have several.
examine() {
    timed doctor "${@:3}" > "$work/said" 2>&1
    expect "$1: exit code" 0 "" test $? -eq "$2"
    expect "$1: in half a minute" 0 "" in_time $((30 * ${RD_TIMEOUT_SCALE:-1}))
}
finds() {
    # shellcheck disable=SC2154 # of toy.sh
    local text before=$failed
    for text in "$@"; do expect "it says: $text" 0 "" grep -q -- "$text" "$work/said"; done
    [ "$failed" -eq "$before" ] || cat "$work/said"
}

# No fault: the report for users and for programs.
examine "two hosts in order" 0 --logdir="$work/logs"
usual=$naps
finds '^0 .*node1 ' '^3 .*node2 ' '^ok *root ' '^ok *ssh ' '^ok *names .*2 hosts' '^ok *ports ' '^ok *allreduce ' "^ok *logdir .*$work" '^ok *clocks ' \
    "^ok *line .*-H node1:2,node2:2 .*btl_tcp_if_include $FAKECLUSTER_SUBNET" '^verdict: \(ok\|warning\) '

# An interface of only one host, too few slots, a tiny /dev/shm, root.
on 1 ip link add eth9 type bridge && on 1 ip addr add 10.77.0.1/24 dev eth9 && on 1 ip link set eth9 up
on 2 mount -o remount,size=8m /dev/shm
unset OMPI_ALLOW_RUN_AS_ROOT # root gives no consent
examine "four faults" 3 --mpirun_args="-np 8 -mca btl_tcp_if_include eth9"
export OMPI_ALLOW_RUN_AS_ROOT=1
finds '^warning *root *you are root: mpirun refuses' 'do: .*--allow-run-as-root' 'FAILURE *interfaces *the interface eth9 of btl_tcp_if_include is missing on node2' 'FAILURE *slots *-np 8 asks for more than the 4 slots' \
    'FAILURE *shm */dev/shm of node2 has 8 MiB free' "do: .*btl_tcp_if_include $FAKECLUSTER_SUBNET"
on 1 ip link del eth9
on 2 mount -o remount,size=1g /dev/shm

# A firewall, by iptables if it is installed, else by routing rules.
close_ports() { # FIRST LAST: node2 drops TCP to these ports
    on 2 iptables -A INPUT -i eth0 -p tcp --dport "$1:$2" --syn -j DROP 2> /dev/null && return
    on 2 sh -c 'ip rule add pref 100 lookup local && ip rule del pref 0 && ip rule add pref 50 iif eth0 ipproto tcp dport '"$1-$2"' sport 1024-65534 blackhole' 2> /dev/null
}
open_ports() {
    on 2 iptables -F INPUT 2> /dev/null || on 2 sh -c 'ip rule del pref 50 && ip rule add pref 0 lookup local && ip rule del pref 100' 2> /dev/null
}

# One address on both hosts, as of Docker's bridge, behind a firewall that lets only ssh pass.
both sh -c 'ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up'
close_ports 20000 65534 && firewall=1 || { firewall=0 && echo "skip: no firewall can be made here"; }
examine "the same address on both" 3
finds 'FAILURE *addresses *the address 172.17.0.1 (docker0) exists on several hosts: node1, node2' "do: .*btl_tcp_if_include $FAKECLUSTER_SUBNET"
[ $firewall -eq 0 ] || finds "FAILURE *ports *node1 -> node2: $FAKECLUSTER_SUBNET.[0-9.]* (eth0) port [0-9]*: no answer, though ssh is open: a firewall"
open_ports

# lo is not excluded, and the pinned ports of MPI are closed.
close_ports 46000 46149
pinned="-mca oob_tcp_dynamic_ipv4_ports 46000-46049 -mca btl_tcp_port_min_v4 46050 -mca btl_tcp_port_range_v4 100"
examine "lo is not excluded" 3 --mpirun_args="-mca btl_tcp_if_exclude docker0 $pinned"
finds 'FAILURE *interfaces *lo is missing in btl_tcp_if_exclude (docker0' '^ok *addresses *left out by the settings: 172.17.0.1 (docker0)'
[ $firewall -eq 0 ] || finds 'FAILURE *ports *node1 -> node2: port 46[01][0-9]* of the range set for MPI: no answer: a firewall'
open_ports
expect "a run says so before MPI hangs" 3 "lo is missing in btl_tcp_if_exclude" job -mca btl_tcp_if_exclude docker0 -- --mode=doctor
both ip link del docker0

# One name for two hosts, and another program on one of them.
on 2 hostname node1
cp "$PROG" "$work/other" && printf x >> "$work/other"
on 2 mount --bind "$work/other" "$PROG"
examine "one name, another program" 4
finds "FAILURE *names *node1 and node2 both call themselves 'node1'" 'FAILURE *program *the program file differs: node2 has .*, node1 has '
on 2 umount "$PROG"
crash() { ASAN_OPTIONS="${ASAN_OPTIONS:-}:handle_segv=0" job -- --mode=doctor; } # the program has its own handler
expect "MPI crashes of the name, and a run says why" 3 "two hosts with one name or different builds of MPI cause that" crash
on 2 hostname node2

examine "the wrong port of ssh" 3 --ssh_port=2222
finds 'FAILURE *ssh *node2: ssh to port 2222 is refused'

# A slow link, and an impossible log folder. Then a job with a report for programs.
"$nodes" shape node2 1gbit none > /dev/null 2>&1
examine "a slow link" 3 --logdir=/proc/none
finds '^warning *links .*node[12] -> node[12] carries [01].[0-9]* Gbit/s, the level of 1 Gbit/s Ethernet' 'FAILURE *logdir *rank 0 (node1) cannot write to /proc'
"$nodes" shape node2 none none > /dev/null 2>&1
expect "inside a job, for programs" 0 '"verdict":"\(ok\|warning\)"' job -- --mode=doctor --json

"$nodes" cut node2
examine "a host that is gone" 3
finds 'FAILURE *ssh *node2: \(ssh to port 12345 gets no answer\|no answer over ssh (port 12345) in time\)'
"$nodes" heal node2 > /dev/null 2>&1
expect "no process is left" 0 "^0 are left" left
summary
