#!/bin/bash
# rows_hosts.sh -- tests sparse sums of embeddings between two and three hosts.
#
# tests/support/fakecluster makes the hosts on this machine. Results have the same bytes as with sums of the whole
# table, and hosts send far fewer bytes.
# timeout: 200
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
# shellcheck source=tests/support/made_hosts.sh
. "$(dirname "$0")/../support/made_hosts.sh"
rows=$PWD/${BUILD:-build/release}/tests/mpi/rows
same=$PWD/${BUILD:-build/release}/tests/support/npz_same
made_hosts 3
cd "$work" || exit 2

on() { # HOSTS NP COMMAND...
    local hosts=$1 np=$2
    shift 2
    timeout 100 "$nodes" exec node1 mpirun --allow-run-as-root -H "$hosts" -mca plm_rsh_args "-p 12345" -x ASAN_OPTIONS -x LSAN_OPTIONS \
        -x OMP_NUM_THREADS -np "$np" "$@"
}
expect "2 hosts x 2 ranks" 0 "2 hosts, .* and on between hosts" on node1:2,node2:2 4 "$rows"
expect "2 and 1 ranks" 0 "2 hosts, " on node1:2,node2:1 3 "$rows"
expect "3 hosts, one rank each" 0 "3 hosts, " on node1:1,node2:1,node3:1 3 "$rows"

toy 200 20
seq -f 'word%g' 6000 >> data/vocab.txt # rows that no sentence uses
# So few steps have no summary, whose measurement of the links would be counted, too.
t() { # FOLDER RULE: trains on two hosts with two ranks each
    on node1:2,node2:2 4 "$PROG" --config_file=toy.json --logdir="$work/$1" --max_steps=11 --set sparse_embeddings="$2"
}
sent() { # prints the bytes that node1 has sent so far
    "$nodes" exec node1 cat /sys/class/net/eth0/statistics/tx_bytes
}
a=$(sent)
expect "training by rows" 0 "" t sparse auto
b=$(sent)
expect "training, whole" 0 "" t whole never
c=$(sent)
expect "the same bytes" 0 "" "$same" sparse/model-11.npz whole/model-11.npz
# Two tables of about 6,000 rows of 16 numbers: 2 x 384 kB, which node1 sends every step if whole tables are summed.
expect "fewer bytes on the wire: $((b - a)) against $((c - b))" 0 "" test $((c - b - (b - a))) -gt $((11 * 2 * 300000))
summary
