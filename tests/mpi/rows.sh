#!/bin/sh
# rows.sh -- tests sparse sums of embeddings on 1 to 4 ranks, with shared memory and without.
#
# The checkpoints of trainings have the same bytes with and without sparse sums. tests/run runs it and sets BUILD, PROG
# and MPIRUN.
# timeout: 300
# beside
. "$(dirname "$0")/../support/toy.sh"
rows=$PWD/${BUILD:-build/release}/tests/mpi/rows
same=$PWD/${BUILD:-build/release}/tests/support/npz_same
work=$(mktemp -d "${TMPDIR:-/tmp}/rows.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
export OMPI_MCA_mpi_yield_when_idle=1 # ranks that wait for a message leave the CPU to the others
by_messages() { (export RD_COMM_SHARED=0 && "$@"); }
expect "one rank" 0 "1 hosts" "$rows"
for n in 2 3 4; do expect "$n ranks" 0 "in place" ranks $n "$rows"; done
hosts() { (n=$1 && shift && export RD_COMM_HOSTS="$n" && "$@"); }
expect "4 ranks on 2 hosts that are made up" 0 "2 hosts, .* and on between hosts" hosts 2 ranks 4 "$rows"
expect "3 ranks on 2 hosts" 0 "2 hosts, .* and on between hosts" hosts 2 ranks 3 "$rows"
for n in 2 3; do expect "$n ranks by messages" 0 "by messages" by_messages ranks $n "$rows"; done

toy 200 20
seq -f 'word%g' 900 >> data/vocab.txt # rows that no sentence uses
t() { # np, folder, arguments: trains
    n=$1 dir=$2
    shift 2
    ranks "$n" "$PROG" --config_file=toy.json --logdir="$dir" --max_steps=12 --set eval_batch_size=8 "$@"
}
# pair NAME NP ARGUMENTS: trains by rows and with whole tables, to the same bytes
pair() {
    what=$1 np=$2
    shift 2
    expect "$what, by rows" 0 "" t "$np" sparse --set sparse_embeddings=always "$@"
    expect "$what, whole" 0 "" t "$np" whole --set sparse_embeddings=never "$@"
    expect "$what, the same bytes" 0 "" "$same" sparse/model-12.npz whole/model-12.npz
    rm -rf sparse whole
}
pair "np 1" 1
pair "np 2" 2
pair "np 3, a last batch without samples for some" 3 --set batch_size=33
pair "iter_size 3" 2 --set iter_size=3 --set batch_size=4
pair "micro_batches" 2 --set deterministic=any --set micro_batches=8
pair "by momentum and clipping" 2 --set optimizer=Momentum --set max_grad_norm=0.1
pair "with decay" 2 --set weight_decay=0.01
expect "by messages, by rows" 0 "" by_messages t 2 sparse --set sparse_embeddings=always
expect "by messages, whole" 0 "" by_messages t 2 whole --set sparse_embeddings=never
expect "by messages, the same bytes" 0 "" "$same" sparse/model-12.npz whole/model-12.npz
expect "2 hosts, by rows" 0 "" hosts 2 t 4 rows2 --set sparse_embeddings=always
expect "2 hosts, whole" 0 "" hosts 2 t 4 whole2 --set sparse_embeddings=never
expect "2 hosts, the same bytes" 0 "" "$same" rows2/model-12.npz whole2/model-12.npz
expect "another seed" 0 "" t 2 other --set sparse_embeddings=always --set seed=6
expect "is other bytes" 1 "" "$same" whole/model-12.npz other/model-12.npz
expect "an unknown word" 2 "sparse_embeddings" t 1 no --set sparse_embeddings=some
summary
