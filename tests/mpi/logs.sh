#!/bin/bash
# logs.sh -- tests what the user sees when eight ranks print at the same time.
#
# Lines are whole, and none is lost. The user sees all lines of rank 0, and the warnings and errors of the other ranks,
# which name their rank.
# timeout: 60
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
logs=$PWD/${BUILD:-build/release}/tests/mpi/logs
work=$(mktemp -d "${TMPDIR:-/tmp}/logs.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
# shellcheck disable=SC2086 # $MPIRUN is several words
timeout 50 $MPIRUN -np 8 "$logs" run.log > out 2> err < /dev/null
status=$?
expect "eight ranks" 0 "" [ $status -eq 0 ]
count() { # PATTERN FILE
    grep -c -x -E -- "$1" "$2"
}
expect "rank 0's lines, all of them" 0 "^25$" count "info [0-9]+ of rank 0 x{60} end" out
expect "nothing else on standard output" 0 "^25$" grep -c "" out
expect "its warnings are its own" 0 "^25$" count "warning: line [0-9]+ of rank 0 x* end" err
for r in 1 2 3 4 5 6 7; do
    expect "rank $r says whose its warnings are" 0 "^25$" count "\[rank $r, [^ ]+\] warning: line [0-9]+ of rank $r x* end" err
done
expect "one error, of the last rank" 0 "^1$" count "\[rank 7, [^ ]+\] run_dist: error: something of rank 7" err
expect "no line is torn, none is more" 0 "^201$" grep -c "" err
expect "run.log has those of rank 0" 0 "^50$" grep -c "of rank 0 " run.log
expect "and only those" 0 "^50$" grep -c "" run.log
summary
