#!/bin/sh
# data.sh -- runs tests/mpi/data.c alone and on 1 to 4 ranks, with lines to translate on standard input.
#
# tests/run runs it and sets BUILD and MPIRUN.
# shellcheck source=tests/support/toy.sh
# beside
. "$(dirname "$0")/../support/toy.sh"
prog=${BUILD:-build/release}/tests/mpi/data
run="timeout 60 $MPIRUN"
unset OMPI_COMM_WORLD_SIZE PMIX_RANK PMI_SIZE SLURM_NTASKS SLURM_PROCID
input=$(mktemp) || exit 2
trap 'rm -f "$input"' EXIT
i=0
while [ $i -lt 120 ]; do
    line=w1 k=0
    while [ $k -lt $((i % 9)) ]; do
        line="$line w$k" k=$((k + 1))
    done
    echo "$line"
    i=$((i + 1))
done > "$input"
alone() { "$prog" < "$input"; }
# shellcheck disable=SC2086 # $run is several words
fed() { $run -np "$1" "$prog" < "$input"; }
expect "world of one" 0 "" alone
for np in 1 2 3 4; do expect "np $np" 0 "" fed $np; done
summary
