#!/bin/sh
# image_data.sh -- runs tests/mpi/image_data.c alone and on 1 to 4 ranks. tests/run runs it and sets BUILD and MPIRUN.
# shellcheck source=tests/support/toy.sh
# beside
. "$(dirname "$0")/../support/toy.sh"
prog=${BUILD:-build/release}/tests/mpi/image_data
run="timeout 60 $MPIRUN"
unset OMPI_COMM_WORLD_SIZE PMIX_RANK PMI_SIZE SLURM_NTASKS SLURM_PROCID
expect "world of one" 0 "" "$prog"
for np in 1 2 3 4; do
    # shellcheck disable=SC2086 # $run is several words
    expect "np $np" 0 "" $run -np $np "$prog"
done
summary
