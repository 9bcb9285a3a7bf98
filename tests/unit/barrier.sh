#!/bin/sh
# barrier.sh -- the barrier's test (barrier.c) under ThreadSanitizer, where the compiler has it. Run by tests/run, which sets TMPDIR.
# timeout: 120
# beside
work=$(mktemp -d "${TMPDIR:-/tmp}/barrier.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$(dirname "$0")/../.." || exit 2
skip() { printf 'skip: %s\n0 passed, 0 failed, 1 skipped\n' "$1" && exit 0; }
printf 'int main(void) { return 0; }\n' > "$work/try.c"
{ mpicc -fsanitize=thread "$work/try.c" -o "$work/try" && "$work/try"; } > "$work/log" 2>&1 ||
    skip "no ThreadSanitizer: $(tail -n 1 "$work/log")"
mpicc -std=c11 -D_GNU_SOURCE -Iinclude -Itests/support -g -O1 -fsanitize=thread tests/unit/barrier.c runner/comm/host_barrier.c -lcmocka \
    -lpthread -o "$work/barrier" || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }
RD_ROUNDS=200 TSAN_OPTIONS=halt_on_error=1:exitcode=66 timeout 100 "$work/barrier"
