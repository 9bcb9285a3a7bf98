#!/bin/bash
# descriptors.sh -- tests that tests pass in a shell that holds further files open.
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/descriptors.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cat > "$work/seen.sh" << 'END'
#!/bin/bash
ls -l /proc/$$/fd > "$SEEN"
END
chmod +x "$work/seen.sh"
export SEEN=$work/seen
held() { # COMMAND...: runs it with files open for reading and writing, of small and of large numbers
    "$@" 3< /dev/null 4> "$work/four" 7<> "$work/seven" 12< "$work" 200< /dev/null
}
expect "a case with a limit of open files" 0 "1 passed, 0 failed" held env -u RD_TIMES "$root/tests/cli/run" run_few_files
expect "a test under tests/run" 0 "1 passed, 0 failed" held env -u RD_TIMES "$root/tests/run" --logs "$work/logs" "$work/seen.sh"
expect "the files are closed" 1 "" grep -E "/(four|seven)$|(3|12|200) -> " "$SEEN"
summary
