#!/bin/sh
# update.sh -- tests one copy of the weights per host, which the ranks update in shares.
#
# The script runs tests/mpi/update.c on 1 to 4 ranks. Trainings with and without shared memory end with the same
# bytes. A flipped bit in the copy is found. tests/run runs it and sets BUILD, PROG and MPIRUN.
# timeout: 400
# beside
. "$(dirname "$0")/../support/toy.sh"
prog=$PWD/${BUILD:-build/release}/tests/mpi/update
same=$PWD/${BUILD:-build/release}/tests/support/npz_same
work=$(mktemp -d "${TMPDIR:-/tmp}/update.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
alone() { # ranks use messages, and each updates its own weights
    (export RD_COMM_SHARED=0 && "$@")
}
for np in 1 2 3 4; do expect "np $np" 0 "PASSED" ranks $np "$prog"; done
expect "np 2, each for itself" 0 "PASSED" alone ranks 2 "$prog"
# shellcheck disable=SC2086 # $MPIRUN is several words
expect "2 and 1 on two hosts" 0 "PASSED" env RD_COMM_HOSTS=2 timeout 100 $MPIRUN -np 3 "$prog"

toy 210 30
t() { # np, folder, arguments: trains
    n=$1 dir=$2
    shift 2
    ranks "$n" "$PROG" --config_file=toy.json --logdir="$dir" --set batch_size=8 --max_steps=12 --checkpoint_frequency=0 \
        --set check_replicas_every=1 --set histogram_frequency=4 --summary_frequency=4 "$@"
}
for np in 2 3; do
    expect "$np ranks" 0 "done: step 12" t $np shared$np
    expect "$np ranks, each for itself" 0 "every rank keeps and updates all weights for itself" alone t $np alone$np
    expect "$np ranks, the same bytes" 0 "" "$same" shared$np/model-12.npz alone$np/model-12.npz
done
# Runs with private copies continue with the optimizer's state of a shared copy, and the other way round.
expect "6 steps" 0 "done: step 6" t 2 moved --max_steps=6
expect "on without shared memory" 0 "done: step 9" alone t 2 moved --max_steps=9
expect "on with it" 0 "done: step 12" t 2 moved
expect "to the same bytes" 0 "" "$same" shared2/model-12.npz moved/model-12.npz

flip() { # kind and rank, np, folder
    (export RD_FAULT="$1:7:update" && t "$2" "$3")
}
expect "a bit flips in the copy" 7 "host .* (2 ranks, one copy) holds other weights than its last update left, first in '" flip flip:1 2 f1
expect "a bit flips in a rank's own" 7 "rank 2 holds other weights than most ranks, first in '" alone flip flip:2 3 f2
RD_COMM_HOSTS=2 && export RD_COMM_HOSTS
expect "a host's copy goes another way" 7 "host .* (2 ranks, one copy) holds other weights than rank 0's host, first in '" flip wrong:2 4 f4
unset RD_COMM_HOSTS
expect "with two ranks, rank 0 counts" 7 "rank 1 holds other weights than rank 0, first in '" alone flip wrong:1 2 f3
expect "whichever array it is" 7 "rank 1 holds other weights than most ranks, first in '" alone flip wrongfirst:1 3 f5
expect "which is another one" 0 "^2$" sh -c "grep -h 'holds other weights' f2/errors/*.json f5/errors/*.json | sed \"s/.*first in '\([^']*\)'.*/\1/\" | sort -u | wc -l"
small() { (export RD_FAULT=grad:1:7:update && t 3 f6 --set optimizer=sgd --set learning_rate=1e-30); } # the fault changes no weight
expect "a rank's gradient is not that of the others" 7 "at step 7 rank 1 (.*) has a gradient of norm .*, rank 0 one of" alone small

# A copy of more than 2^20 numbers is sent to the other ranks in pieces.
{ cat data/vocab.txt && seq -f 'word%g' 70000; } > data/large.txt
large() { t 2 large --set src_vocab_file=data/large.txt "$@"; }
expect "a large table" 0 "done: step 2" alone large --max_steps=2
expect "from a checkpoint to all ranks" 0 "done: step 4" alone large --max_steps=4
summary
