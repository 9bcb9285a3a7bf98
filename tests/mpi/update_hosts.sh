#!/bin/bash
# update_hosts.sh -- tests one copy of the weights per host, on two hosts.
#
# tests/support/fakecluster makes the hosts on this machine, which may have different numbers of ranks. Results have the
# bytes of a run without shared memory. A fault in the copy of one host is reported.
# timeout: 200
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
# shellcheck source=tests/support/made_hosts.sh
. "$(dirname "$0")/../support/made_hosts.sh"
same=$PWD/${BUILD:-build/release}/tests/support/npz_same
made_hosts 2
cd "$work" || exit 2
toy 210 30

t() { # hosts, ranks, folder, arguments: trains
    local hosts=$1 n=$2 dir=$3
    shift 3
    timeout 100 "$nodes" exec node1 mpirun --allow-run-as-root --oversubscribe --host "$hosts" -mca plm_rsh_args "-p 12345" \
        -x RD_FAULT -x RD_COMM_SHARED -x OMP_NUM_THREADS -x ASAN_OPTIONS -x LSAN_OPTIONS -np "$n" "$PROG" --config_file="$PWD/toy.json" \
        --logdir="$PWD/$dir" --set batch_size=8 --max_steps=10 --set check_replicas_every=1 "$@"
}
export RD_FAULT='' RD_COMM_SHARED=1
expect "2 and 2 ranks" 0 "done: step 10" t node1:2,node2:2 4 even
expect "1 and 3 ranks" 0 "done: step 10" t node1:1,node2:3 4 uneven
RD_COMM_SHARED=0
expect "2 and 2, each for itself" 0 "every rank keeps and updates all weights for itself" t node1:2,node2:2 4 alone
RD_COMM_SHARED=1
expect "the same bytes" 0 "" "$same" even/model-10.npz alone/model-10.npz
expect "2 and 2 ranks go on" 0 "done: step 14" t node1:2,node2:2 4 even --max_steps=14
RD_FAULT=flip:3:5:update
expect "a bit flips in the copy of node2" 7 "host node2 (2 ranks, one copy) holds other weights than its last update left, first in '" \
    t node1:2,node2:2 4 flip
RD_FAULT=wrong:1:5:update
expect "an update of node2 went wrong" 7 "host node2 (3 ranks, one copy) holds other weights than rank 0, first in '" \
    t node1:1,node2:3 4 wrong
summary
