# python_check.sh -- for scripts of tests/golden: runs a check in Python of the program that takes minutes. Only with
# CASES=all, and only if RD_PYTHON has the modules.
# shellcheck shell=sh disable=SC2154 # tests/run sets CASES, RD_PYTHON, BUILD

# python_check WHAT SCRIPT MODULE...: the script gets the program and a folder. Prints the counting line, and ends.
python_check() {
    what=$1 script=$2 missing=
    shift 2
    [ "$CASES" = all ] || missing="CASES=all"
    for module; do
        [ -n "$missing" ] || "$RD_PYTHON" -c "import $module" 2> /dev/null || missing="$RD_PYTHON has no module $module"
    done
    if [ -n "$missing" ]; then
        echo "skip: $what ($missing)"
        echo "0 passed, 0 failed, 1 skipped"
        exit 0
    fi
    work=$(mktemp -d "${TMPDIR:-/tmp}/check.XXXXXX") || exit 2
    trap 'rm -rf "$work"' EXIT
    if OMP_NUM_THREADS=1 "$RD_PYTHON" "$script" "${PROG:-$BUILD/run_dist}" "$work"; then
        echo "1 passed, 0 failed, 0 skipped"
        exit 0
    fi
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
}
