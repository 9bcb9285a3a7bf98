#!/bin/sh
# readers.sh -- reads files of run_dist with other programs: checkpoints with numpy, event files with TensorBoard.
# If a Python module is missing, its check is skipped, or fails with RD_REQUIRE_PYTHON=1.
# needs: unit/npz unit/checkpoint unit/events
passed=0 failed=0 skipped=0

# check MODULE COMMAND...: runs a Python script that needs the module
check() {
    module=$1
    shift
    if ! "$RD_PYTHON" -c "import $module" 2> /dev/null; then
        echo "skip: $* ($RD_PYTHON has no module $module)"
        if [ "$RD_REQUIRE_PYTHON" = 1 ]; then failed=$((failed + 1)); else skipped=$((skipped + 1)); fi
    elif "$RD_PYTHON" "$@"; then
        passed=$((passed + 1))
    else
        echo "FAILED: $*"
        failed=$((failed + 1))
    fi
}

check numpy tests/support/check_npz.py "$BUILD/tests/unit"
check tensorboard tests/support/check_events.py --unit "$BUILD/tests/unit"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
