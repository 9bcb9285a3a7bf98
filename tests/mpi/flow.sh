#!/bin/sh
# flow.sh -- tests sums in parts on 1 to 9 ranks of simulated hosts, with shared memory and without.
#
# With CASES=all it tests every size and every number of ranks. tests/run runs it and sets BUILD and MPIRUN.
# timeout: 3600
. "$(dirname "$0")/../support/toy.sh"
prog=${BUILD:-build/release}/tests/mpi/flow
unset OMPI_COMM_WORLD_SIZE PMIX_RANK PMI_SIZE SLURM_NTASKS SLURM_PROCID
on() { # ranks, hosts, arguments
    np=$1 hosts=$2
    shift 2
    # shellcheck disable=SC2086 # $MPIRUN is several words
    timeout ${LIMIT:-100} $MPIRUN -x RD_COMM_HOSTS="$hosts" "$@" -np "$np" "$prog"
}
expect "one rank" 0 "1 ranks on 1 hosts" "$prog"
if [ "${CASES:-}" = all ]; then
    LIMIT=1800
    for np in 1 2 3 4 5 6 7 8 9; do
        for hosts in 1 2 3 4 5 6 8 9; do
            [ "$hosts" -gt "$np" ] || expect "$np ranks, $hosts hosts" 0 "" on $np $hosts -x CASES=all
        done
    done
else
    expect "2 hosts" 0 "2 ranks on 2 hosts" on 2 2
    expect "2 hosts of 2 ranks" 0 "on between hosts" on 4 2
    expect "3 hosts, of 2, 2 and 1 rank" 0 "5 ranks on 3 hosts" on 5 3
    expect "6 hosts, in pairs and then three" 0 "6 ranks on 6 hosts" on 6 6
    expect "2 hosts of 3 ranks" 0 "6 ranks on 2 hosts" on 6 2
    expect "9 hosts" 0 "9 ranks on 9 hosts" on 9 9
    expect "2 hosts of 2 ranks, without shared memory" 0 "RD_COMM_SHARED=0" on 4 2 -x RD_COMM_SHARED=0
    expect "one host" 0 "through shared memory" on 3 1
fi
errors() { # hosts
    # shellcheck disable=SC2086
    timeout ${LIMIT:-100} $MPIRUN -x RD_COMM_HOSTS="$1" -np "$1" "$prog" error
}
expect "errors on 2 hosts" 0 "2 hosts, bfloat16" errors 2
expect "errors on 4 hosts" 0 "4 hosts, float16" errors 4
summary
