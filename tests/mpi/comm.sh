#!/bin/sh
# comm.sh -- runs tests/mpi/comm.c on 1 to 4 ranks, with shared memory and without, and tests how starts and runs end.
#
# With CASES=all it also runs 10,000 rounds beside other programs. tests/run runs it and sets BUILD and MPIRUN.
# timeout: 400
. "$(dirname "$0")/../support/toy.sh"
prog=${BUILD:-build/release}/tests/mpi/comm
run="timeout 60 $MPIRUN"
unset OMPI_COMM_WORLD_SIZE PMIX_RANK PMI_SIZE SLURM_NTASKS SLURM_PROCID
expect "world of one" 0 "one rank" "$prog"
for np in 1 2 3 4; do
    # shellcheck disable=SC2086 # $run is several words
    expect "np $np" 0 "$([ $np -eq 1 ] || echo through shared memory)" $run -np $np "$prog"
    # shellcheck disable=SC2086
    expect "np $np by MPI alone" 0 "$([ $np -eq 1 ] || echo RD_COMM_SHARED=0)" $run -x RD_COMM_SHARED=0 -np $np "$prog"
done
# shellcheck disable=SC2086
expect "two hosts" 0 "through shared memory" $run -x RD_COMM_HOSTS=2 -np 4 "$prog"
# No file may have a byte, and neither may shared memory. Ranks therefore send messages, and MPI's own messages use the
# loopback interface.
# shellcheck disable=SC2086,SC2016
expect "no memory to share" 0 "100 rounds, sums by messages (a host's ranks cannot share .* MiB: " $run -mca btl self,tcp -np 3 \
    sh -c 'trap "" XFSZ; ulimit -f 0; exec "$0" rounds 100' "$prog"
: "${CASES:=}"
# shellcheck disable=SC2086
expect "10,000 rounds, four ranks" 0 "10000 rounds" $run -np 4 "$prog" rounds
if [ "$CASES" = all ]; then # beside three programs that always run: about ten milliseconds per round on two CPUs
    loops=
    for _ in 1 2 3; do
        (exec sh -c 'while :; do :; done') &
        loops="$loops $!"
    done
    # shellcheck disable=SC2086
    expect "10,000 rounds under load" 0 "10000 rounds" timeout 1500 $MPIRUN -np 4 "$prog" rounds
    # shellcheck disable=SC2086
    kill $loops
fi
# shellcheck disable=SC2086
expect "an abort ends all ranks" 7 "" $run -np 3 "$prog" abort
# shellcheck disable=SC2086
expect "a watchdog's abort ends all ranks" 8 "" $run -np 3 "$prog" watchdog
expect "mpirun of another MPI" 3 "different MPI libraries" env OMPI_COMM_WORLD_SIZE=4 "$prog"
expect "srun without PMIx" 3 "srun --mpi=pmix" env SLURM_NTASKS=4 SLURM_PROCID=0 "$prog"
expect "plain start inside salloc" 0 "one rank" env SLURM_NTASKS=4 "$prog"
expect "plain start in a batch script" 0 "one rank" env SLURM_NTASKS=4 SLURM_PROCID=0 ENVIRONMENT=BATCH "$prog"
summary
