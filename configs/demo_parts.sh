# demo_parts.sh -- what demo_translate.sh and demo_lm.sh share. They source it in the folder above configs, with NAME (of
# the demo) and CONFIG set.
# shellcheck shell=sh disable=SC2154
PROG=${PROG:-build/release/run_dist}
NP=${NP:-2}
LOGDIR=${LOGDIR:-logs/$NAME}
MINUTES=${MINUTES:-5}

ranks="mpirun -q -np $NP --oversubscribe --bind-to none" # -q: no words about exit code 75
[ "$(id -u)" -ne 0 ] || ranks="$ranks --allow-run-as-root"
export OMPI_MCA_odls_base_sigkill_timeout=4 # Ctrl-C leaves time to save; mpirun waits as long after code 75
export OMPI_MCA_btl_vader_single_copy_mechanism=none # containers often forbid it; Open MPI then warns
hours=$(awk -v m="$MINUTES" 'BEGIN { if (m !~ /^[0-9]+([.][0-9]+)?$/ || m * 60 < 1) exit 1; printf "%.7f", m / 60 }') || {
    echo "$NAME: MINUTES must be a number of minutes, not '$MINUTES'" >&2
    exit 2
}

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() {
    printf '$ %s\n' "$*"
    "$@"
}

# no_text EXAMPLE: says what to do without the text, and ends
no_text() {
    cat >&2 << END

$NAME: the text cannot be fetched: the lines above say why. It needs python3, apt-get with sources of Debian
(or a mirror), and a network. Without them:
  - $1;
  - make demo needs no network.
END
    exit 3
}

# train FLAG...: trains for some minutes
train() {
    say "2. Training with $NP ranks for $MINUTES minutes (Ctrl-C stops and saves; the same command continues)"
    # After max_hours the ranks save and stop, which ends with 75. mpirun must not read what is typed.
    status=0
    # shellcheck disable=SC2086 # a list of words
    run $ranks "$PROG" "$@" --max_steps=1000000 --set max_hours="$hours" --summary_frequency=50 --set threads=1 \
        --set histogram_frequency=0 < /dev/null || status=$?
    [ $status -eq 75 ] || [ $status -eq 0 ] || exit $status
}

# evaluate FLAG...: scores 300 samples
evaluate() {
    # shellcheck disable=SC2086
    run $ranks "$PROG" "$@" --mode=eval --set threads=1 --set max_eval_samples=300 < /dev/null
}

# answer FLAG...: prints what the model makes of standard input
answer() { "$PROG" "$@" --mode=infer --input=- 2> "$LOGDIR/infer.err" || cat "$LOGDIR/infer.err" >&2; }

# is_asked: is there somebody who can type?
is_asked() { [ -t 0 ] && [ -t 1 ] && [ -z "${CI:-}" ]; }

# where_to_look WHAT: says what LOGDIR/text holds, and how to go on
where_to_look() {
    say "5. Where to look"
    cat << END
$LOGDIR/run.log          what you saw above
$LOGDIR/text             $1
continue training        MINUTES=30 configs/$NAME.sh
a better model           $CONFIG, for about an hour
start again              rm -r $LOGDIR && make $(echo "$NAME" | tr _ -)
END
}
