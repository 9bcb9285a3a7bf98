#!/usr/bin/env bash
# mutate.sh -- tests tests/mutate on a small tree, whose "tests" search its one source file for text.
. "$(dirname "$0")/../support/toy.sh"
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/mutate.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
mkdir -p tree/tests/unit tree/runner
cp "$here/mutate" tree/tests/
touch tree/tests/unit/sum.sh
cat > tree/runner/sum.c << 'END'
int twice(int x)
{
    return x + x;
}
int sum(int x, int y)
{
    return x + y;
}
END
# T=unit/sum: refuses what it calls a syntax error, hangs on a loop, and wants the sum and the double.
cat > tree/Makefile << 'END'
test:
	@! grep -n 'syntax' runner/sum.c
	@! grep -q 'for (;;)' runner/sum.c || sleep 60
	@if grep -q 'return x + y;' runner/sum.c; then echo "1 passed, 0 failed, 0 skipped"; else echo "0 passed, 1 failed, 0 skipped"; exit 1; fi
END
list() { printf '%s\n' "$@" > tree/tests/mutations; }
mutate() { env -u MUTATIONS -u BUILD bash tree/tests/mutate "$@"; }
one="runner/sum.c:sum unit/sum"

list "# a comment" "$one" "-return x + y;" "+return x - y;" "" "runner/sum.c unit/sum" "-return x + x;" "+return 3 * x;" \
    "" "$one" "-return x + y;" "+syntax x + y;" "$one" "-x + y" "+x - y" "= only an example"
expect "the list fits" 0 "^mutations: 4 in the list, 0 stale$" mutate --check
expect "a run: not all are caught" 1 "^mutations: 3 run, 1 caught (0 timed out), 1 survived, 1 not built; 1 equivalent not run; [0-9]* s$" \
    mutate --jobs 2
mutate --jobs 2 > run.txt 2>&1
expect "the score" 0 "^score: 33.3 %$" cat run.txt
expect "the survivor is shown" 0 "^survived: 2 runner/sum.c$" cat run.txt
expect "with its new text" 0 "^    +return 3 \* x;$" cat run.txt
expect "the tree is as before" 0 "^2$" grep -c "return x + [xy];" tree/runner/sum.c
expect "without the unchanged run" 0 "^score: 100.0 %$" mutate --trust 1
expect "one by its number" 0 "^score: 100.0 %$" mutate 1
expect "some by a part of a name" 1 "^mutations: 3 run" mutate sum.c
expect "an unknown one" 2 "no mutation has 17" mutate 17
list "$one" "-return x + y;" "+for (;;) {}"
expect "one that never ends is caught" 0 "^mutations: 1 run, 1 caught (1 timed out)" mutate --limit 2
asked_to_end() {
    mkdir copies
    env -u MUTATIONS -u BUILD TMPDIR="$work/copies" bash tree/tests/mutate > run.txt 2>&1 &
    job=$!
    wait_until 60 sh -c "grep -q ';;' copies/*/1/runner/sum.c"
    kill -TERM $job
    wait $job
    status=$?
    echo "copies: $(ls copies)"
    return $status
}
expect "one that is asked to end does, without its copies" 130 "^copies: $" asked_to_end

list "runner/sum.c unit/sum" "-return x" "+return y"
expect "a text that occurs twice is stale" 1 "^stale: 1 runner/sum.c: the text does not occur exactly once: return x$" mutate --check
expect "no run then" 1 "^stale: 1 " mutate
list "runner/sum.c:twice unit/sum" "-return x" "+return y"
expect "but not within one function" 0 "0 stale" mutate --check
list "runner/sum.c:twice unit/sum" "-y" "+x"
expect "text of another function is stale" 1 "^stale: 1 runner/sum.c:twice: " mutate --check
list "runner/none.c unit/sum" "-y" "+x"
expect "a missing file" 1 "^stale: 1 runner/none.c: there is no such file" mutate --check
list "$one" "-x + y" "+x - y" "runner/sum.c unit/none" "-x + x" "+x"
expect "a missing test" 1 "^stale: there is no test unit/none$" mutate --check
list "$one" "-x + y" "$one" "-x + y" "+y"
expect "a mutation without new text" 2 "tests/mutations:3: the mutation above has no + line" mutate --check
list "$one" "+y"
expect "one without old text" 2 "tests/mutations:2: a + line without a - line" mutate --check
list "runner/sum.c" "-x + y" "+y"
expect "one without a test" 2 "tests/mutations:1: no test is named" mutate --check
sed -i 's/x + y/x - y/' tree/runner/sum.c
list "$one" "-x - y" "+x"
expect "tests that fail without a change" 1 "the tests do not pass without a change" mutate
summary
