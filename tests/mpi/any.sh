#!/bin/sh
# any.sh -- tests deterministic "any": checkpoints have the same bytes for 1, 2, 4 and 8 ranks.
#
# The runs have dropout, and some continue with another number of ranks. The script also tests which settings are
# refused. tests/run runs it and sets BUILD, PROG and MPIRUN.
# timeout: 600
# beside
. "$(dirname "$0")/../support/toy.sh"
same=$PWD/${BUILD:-build/release}/tests/support/npz_same
work=$(mktemp -d "${TMPDIR:-/tmp}/any.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 410 61
t() { # np, samples per rank, folder, arguments: trains
    n=$1 size=$2 dir=$3
    shift 3
    ranks "$n" "$PROG" --config_file=toy.json --logdir="$dir" --set batch_size="$size" --set deterministic=any \
        --set micro_batches=8 "$@"
}
expect "np 1" 0 "" t 1 32 one --max_steps=50
expect "np 2" 0 "" t 2 16 two --max_steps=50
expect "np 4" 0 "" t 4 8 four --max_steps=50
expect "np 8" 0 "" t 8 4 eight --max_steps=50
for n in two four eight; do expect "$n ranks, the same bytes as one" 0 "" "$same" one/model-50.npz $n/model-50.npz; done
messages() { # the same; ranks sum by messages instead of shared memory
    (export RD_COMM_SHARED=0 && t 4 8 messages --max_steps=50)
}
expect "np 4 by messages" 0 "sums by messages" messages
expect "by messages, the same bytes" 0 "" "$same" one/model-50.npz messages/model-50.npz
expect "np 4, stopped at 20" 0 "" t 4 8 moved --max_steps=20
expect "np 2 goes on to 35" 0 "" t 2 16 moved --max_steps=35
expect "np 8 ends it" 0 "" t 8 4 moved --max_steps=50
expect "three numbers of ranks, the same bytes" 0 "" "$same" one/model-50.npz moved/model-50.npz
# Batch 18 has the last 2 of 410 samples: most of its 8 parts are empty.
expect "np 1, a short batch" 0 "" t 1 24 short1 --max_steps=20
expect "np 4, a short batch" 0 "" t 4 6 short4 --max_steps=20
expect "empty parts, the same bytes" 0 "" "$same" short1/model-20.npz short4/model-20.npz
# The test can fail: another division of the batch gives another order of sums, another seed another mask.
expect "4 parts" 0 "" t 1 32 cut4 --max_steps=50 --set micro_batches=4
expect "are other bytes" 1 "" "$same" one/model-50.npz cut4/model-50.npz
expect "level np" 0 "micro_batches is without effect: deterministic is np" t 2 16 np2 --max_steps=50 --set deterministic=np
expect "is other bytes" 1 "" "$same" one/model-50.npz np2/model-50.npz
# Settings that are refused.
expect "no micro_batches" 2 "needs 'micro_batches'" t 1 32 no --set micro_batches=0
expect "6 micro_batches" 2 "power of two" t 1 32 no --set micro_batches=6
expect "3 ranks" 2 "cannot be shared by 3 ranks" t 3 32 no
expect "more parts than samples" 2 "has no 64 'micro_batches'" t 1 32 no --set micro_batches=64
expect "iter_size" 2 "needs no more memory" t 1 32 no --set iter_size=2
expect "shards" 2 "split_data_per_rank" t 2 16 no --split_data_per_rank
summary
