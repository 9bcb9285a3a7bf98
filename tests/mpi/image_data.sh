#!/bin/sh
# image_data.sh -- tests/mpi/image_data.c alone and on 1 to 4 ranks. Run by tests/run, which sets BUILD and MPIRUN.
prog=${BUILD:-build/release}/tests/mpi/image_data
run="timeout 60 ${MPIRUN:-mpirun --allow-run-as-root --oversubscribe --bind-to none}"
unset OMPI_COMM_WORLD_SIZE PMIX_RANK PMI_SIZE SLURM_NTASKS SLURM_PROCID
failed=0 passed=0
expect() { # name, command...
    name=$1
    shift
    if out=$("$@" 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s\n%s\n' "$name" "$out"
    fi
}
expect "world of one" "$prog"
for np in 1 2 3 4; do
    # shellcheck disable=SC2086 # $run is several words
    expect "np $np" $run -np $np "$prog"
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
