#!/bin/bash
# lint_finds.sh -- each rule of tests/lint is broken once in a copy of the tree, and lint reports it.
# timeout: 600
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/lint_finds.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$top" || exit 2
# Sanitizers change no symbol that lint reads, and the copy is built without them.
case $BUILD in *asan* | *tsan*) skipped=1; echo "skip: lint_finds.sh is for builds without sanitizers"; summary; exit ;; esac
(git ls-files 2> /dev/null || find . -type f -not -path './build/*' | sed 's|^./||') | tar -cf - -T - | tar -xf - -C "$work"
mkdir -p "$work/build/release"
for one in flags gen runner models; do # the objects without the programs; what is missing make builds
    [ ! -e "$BUILD/$one" ] || cp -a "$BUILD/$one" "$work/build/release/$one"
done
cd "$work" || exit 2

# For all scripts, shellcheck takes half a minute. Here lint sees only a few as scripts: the others lose their first line.
grep -rlE '^#!.*\b(ba)?sh$' .ci configs docker tests --exclude-dir=corpus | grep -v -x -e tests/lint -e tests/mutate |
    xargs sed -i '1s/^#!.*//'

# A circle: tree_sum.c is used by host_sum.c, and now it uses that. A symbol from the right: base uses run.
cat >> runner/comm/tree_sum.c << 'END'
extern int rd_lint_circle(void);
extern int rd_lint_circle(void)
{
    extern void rd_host_free(void *);
    rd_host_free(0);
    return 0;
}
END
cat >> runner/base/strbuf.c << 'END'
extern int rd_lint_upward(void);
extern int rd_lint_upward(void)
{
    extern int rd_lint_circle(void);
    return rd_lint_circle();
}
END
# An include from the right, a public name in two headers, a long line, a mark of unfinished work, two files of one name,
# a line that tests/mutations knows otherwise, a script with a variable that is never set, a declaration behind a label.
sed -i 's|^#include "rd/clock.h"|&\n#include "rd/optim.h"|' runner/base/clock.c
sed -i 's|^static inline void rd_turn8(|int rd_tape_check(void *t);\n&|' include/rd/turn.h # two files include it
printf '/* %0120d */\n' 7 >> runner/base/arena.c
printf '/* %s: later */\n' TO""DO >> runner/base/crc32c.c
sed -i '0,/^done:$/s//&\n    const int late = 0; (void)late;/' runner/base/file.c
mkdir -p runner/io/twice && cp runner/base/clock.c runner/io/twice/clock.c
sed -i 's/^int64_t rd_now_ns(void)$/int64_t rd_now_ns( void )/' runner/base/clock.c
sed -i 's/mu \* ai);/ai * mu);/' runner/optim/optimizers/nesterov.c
printf '#!/bin/sh\n[ $never = set ]\n' > docker/broken
make -s -k -j2 objects > make.log 2>&1
tests/lint build/release > lint.log 2>&1
rc=$?
expect "lint fails" 0 '' test $rc -ne 0
finds() { expect "lint finds $1" 0 '' grep -qE -- "$2" lint.log; }
finds "a circle of objects" 'a circle of [0-9]+ objects:.*runner/comm/tree_sum\.c'
finds "a symbol from the right" 'runner/base/strbuf\.c takes rd_lint_circle from runner/comm/tree_sum\.c, to its right'
finds "an include from the right" 'runner/base/clock\.c: runner/base must not use runner/optim'
finds "a public name in two headers" 'rd_tape_check\(\) is declared in include/rd/tape\.h, too'
finds "a long line" 'runner/base/arena\.c:[0-9]+: 126 columns'
finds "a mark of unfinished work" 'runner/base/crc32c\.c:[0-9]+:.*later'
finds "a declaration behind a label" 'runner/base/file\.c:[0-9]+: a declaration behind a label'
finds "a mutation that no longer fits" 'stale: [0-9]+ runner/optim/optimizers/nesterov\.c'
finds "two files of one name" 'more than one file is called clock\.c'
if command -v shellcheck > /dev/null; then
    finds "what shellcheck finds" 'never is referenced but not assigned'
else
    skipped=$((skipped + 1))
fi
if command -v clang-format > /dev/null; then
    make -s format-check FILES=runner/base/clock.c > format.log 2>&1
    expect "format-check finds an unformatted line" 0 '' grep -q 'runner/base/clock\.c:.*clang-format' format.log
fi
summary
