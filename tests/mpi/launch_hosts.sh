#!/bin/bash
# launch_hosts.sh -- tests `run_dist --hosts=...` on two made hosts: start, stop, a killed rank, a killed and a cut host,
# a missing program, a closed ssh port, a busy log folder. Each failure is one line on standard error, the exit code is
# the run's own, and nothing is left on any host.
# timeout: 300
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
# shellcheck source=tests/support/made_hosts.sh
. "$(dirname "$0")/../support/made_hosts.sh"
case ${BUILD:-} in *asan*) skip "the sanitizers' settings do not travel to the hosts" ;; esac
made_hosts 2
cd "$work" || exit 2
toy 64 16
two=("--hosts=node1:2,node2:2" --ssh_port=12345)
on() { timeout 100 "$nodes" exec node1 "$@"; }

# quiet NAME STATUS LINE COMMAND...: on node1; standard error is this one line, or empty
quiet() {
    local name=$1 want=$2 line=$3 got
    shift 3
    timed on "$@" > out.txt 2> err.txt < /dev/null
    got=$timed_status
    if [ $got -eq "$want" ] && [ "$(grep -c . err.txt)" -eq $((${#line} > 0)) ] && { [ -z "$line" ] || grep -q -- "$line" err.txt; }; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s: status %d, wanted %d and the one line "%s"\n' "$name" $got "$want" "$line"
        tail -n 3 out.txt
        cat err.txt
    fi
}
begin() { # NAME
    "$nodes" exec node1 "$PROG" "${two[@]}" toy.json --logdir="$work/$1" --max_steps=100000000 --checkpoint_frequency=1 > "$1.txt" 2> "$1.err" < /dev/null &
    job=$!
    wait_until 60 grep -q "^checkpoint model-" "$1.txt"
    launcher=$(pgrep -f "^$PROG --hosts=.*--logdir=$work/$1" | head -n 1)
}
ended() { # NAME STATUS ERROR ("": none)
    timed wait $job
    expect "$1: status" 0 "" [ $timed_status -eq "$2" ]
    expect "$1: one line" 0 "^$((${#3} > 0)) " wc -l "$1.err"
    [ -z "$3" ] || expect "$1: the cause" 0 "$3" cat "$1.err"
    expect "$1: nothing is left" 0 "^0 are" gone 20 "^$PROG.*--logdir=$work/$1"
    expect "$1: no daemon is left" 0 "^0 are" gone 20 "^[^ ]*orted.*$work|^$PROG.*--logdir=$work/$1"
}

quiet "two hosts" 0 "" "$PROG" "${two[@]}" toy.json --logdir=logs/two --max_steps=12 --summary_frequency=4
expect "they are two" 0 "^world: 4 ranks on 2 hosts" cat out.txt
quiet "hosts without slots" 0 "" "$PROG" --np=4 --hosts=node1,node2 --ssh_port=12345 toy.json --logdir=logs/dealt --max_steps=4 --summary_frequency=1
expect "ranks are dealt" 0 "^world: 4 ranks on 2 hosts" cat out.txt
printf 'node1 slots=1 port=12345\nnode2 slots=1 port=12345\n' > hosts.txt
quiet "a hostfile" 0 "" "$PROG" --hostfile=hosts.txt toy.json --logdir=logs/file --max_steps=4
expect "its slots are the ranks" 0 "^world: 2 ranks on 2 hosts" cat out.txt
quiet "the line" 0 "" "$PROG" "${two[@]}" --dry_run toy.json
expect "names hosts, port and network" 0 "-np 4 --host node1:2,node2:2 --mca plm_rsh_args '-p 12345' .*btl_tcp_if_include 10\.[0-9.]*/24" cat out.txt
plan() { on "$PROG" --mode=plan --logdir=logs/two; }
expect "plan names the run" 0 "on 2 hosts, 4 ranks, by the run of logs/two" plan
expect "and has the links that it measured" 0 "^between hosts: .* (fitted to this run)" plan
expect "evaluation" 0 "BLEU" on "$PROG" "${two[@]}" toy.json --logdir=logs/two --mode=eval

quiet "too many ranks" 2 "^run_dist: error: --np=9 asks for more ranks than the 4 slots" "$PROG" --np=9 "${two[@]}" toy.json --logdir=logs/x
quiet "a closed port" 3 "^run_dist: error: node2: ssh to ssh's port is refused" "$PROG" --hosts=node1:2,node2:2 toy.json --logdir=logs/x
quiet "an unknown host" 3 "^run_dist: error: nodde2: the name cannot be resolved" "$PROG" --hosts=node1:2,nodde2:2 toy.json --logdir=logs/x
mkdir bin
cp "$PROG" bin/run_dist
"$nodes" exec node2 mount -t tmpfs none "$work/bin"
quiet "no program on one host" 3 "^run_dist: error: node2: the program is not there: .*/bin/run_dist" "$work/bin/run_dist" "${two[@]}" toy.json --logdir=logs/x
expect "within two seconds" 0 "" in_time 2
"$nodes" exec node2 cp "$PROG" "$work/bin/run_dist"
"$nodes" exec node2 sh -c "echo >> $work/bin/run_dist"
quiet "another program on one host" 4 "^run_dist: error: the program file differs: node2 has" "$work/bin/run_dist" "${two[@]}" toy.json --logdir=logs/x
quiet "a warning with --dry_run" 0 "^warning: .*node2" "$work/bin/run_dist" "${two[@]}" --dry_run toy.json
expect "nothing was started" 1 "" [ -e logs/x ]

begin stopped
quiet "a busy folder" 2 "^run_dist: error: log folder .* is in use by process .* on host 'node1'" "$PROG" "${two[@]}" toy.json --logdir="$work/stopped"
kill -INT "$launcher"
ended stopped 75 ""
expect "it has saved" 0 "^stopped on request at step .*, checkpoint saved" tail -n 1 stopped.txt
begin killed
# By its environment this rank is on node2. All hosts share the process table of this machine.
kill -KILL "$(pgrep -f "^$PROG toy.json --logdir=$work/killed" | while read -r p; do
    ! tr '\0' '\n' < /proc/"$p"/environ | grep -qx OMPI_COMM_WORLD_RANK=2 || echo "$p"; done)"
ended killed 9 "^run_dist: error: rank 2 on node2 was ended by signal 9"
for how in kill cut; do
    begin host_$how
    "$nodes" $how node2
    ended host_$how 9 "^run_dist: error: .*node2"
    expect "host_$how: in time" 0 "" in_time 20
    "$nodes" heal node2 > /dev/null 2>&1
done
quiet "the same command goes on" 0 "" "$PROG" "${two[@]}" toy.json --logdir="$work/host_cut" --max_steps=1
expect "from the checkpoint" 0 "^resuming from " cat out.txt
summary
