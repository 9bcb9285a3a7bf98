#!/bin/sh
# kill.sh -- tests that a run is never lost.
#
# SIGKILL ends one rank, or mpirun, at random moments, also inside a save. The same command continues the run, and the
# last checkpoint has the bytes of that of the undisturbed run. Then runs that evaluate, of text and of images, are
# killed and go on with another number of ranks each time: the best file never gets worse, and each sample of an epoch
# is used once. Last, the script tests the requests USR1, USR2 and TERM, and the lock.
#
# ROUNDS: maximum number of kills of the first run. STEPS: its length; the kills end with it. MORE: number of kills of
# each run that evaluates. CASES=all: thirty kills of each run. tests/run runs the script.
# beside, long
# timeout: 3000
. "$(dirname "$0")/../support/toy.sh"
[ "${CASES:-}" != all ] || { : "${ROUNDS:=30}" "${STEPS:=6000}" "${MORE:=30}"; }
ROUNDS=${ROUNDS:-4} MORE=${MORE:-3}
work=$(mktemp -d "${TMPDIR:-/tmp}/kill.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 410 30
steps=${STEPS:-1000}
# The run saves after every step, so most of the time it is inside a save.
run="$MPIRUN -np 2 $PROG --config_file=toy.json --max_steps=$steps --checkpoint_frequency=0 --summary_frequency=100"
# shellcheck disable=SC2086 # $run is several words
expect "undisturbed" 0 "done: step $steps" timeout 900 $run --logdir=whole

ended() { ! kill -0 "$1"; }
# killed ROUND FOLDER COMMAND: starts the command, which writes FOLDER and FOLDER.txt, and kills one of its processes
killed() {
    round=$1 dir=$2
    shift 2
    : > "$dir.txt" # it may still have the text that the script searches for below
    "$@" > "$dir.txt" 2>&1 &
    job=$!
    # Up to 2.2 s after the first step or, every third time, 0.8 s after the start. The digits come from the process id
    # and the round.
    if [ $((round % 3)) -ne 0 ]; then wait_until 60 grep -q "first step done" "$dir.txt"; else sleep 0.8; fi
    sleep "$(awk -v s="$job$round" 'BEGIN { srand(s); printf "%.3f", 2.2 * rand() }')"
    victim=$job
    [ $((round % 2)) -eq 0 ] || victim=$(pgrep -P $job run_dist | shuf -n 1)
    kill -9 "${victim:-$job}" 2> /dev/null
    wait $job
    for rank in $(cat "$dir/.lock" 2> /dev/null | tr -c '0-9' ' ' | awk '{ print $1 }'); do
        wait_until 60 ended "$rank"
    done
}
i=0 resumed=0
while [ $i -lt "$ROUNDS" ]; do
    i=$((i + 1))
    # shellcheck disable=SC2086
    killed $i killed $run --logdir=killed
    grep -q "resuming from" killed.txt && resumed=$((resumed + 1))
    [ ! -f killed/model-$steps.npz ] || break
done
# shellcheck disable=SC2086
expect "goes on after $i kills" 0 "" timeout 900 $run --logdir=killed
expect "resumed at least once" 0 "" [ $resumed -gt 0 ]
expect "the same bytes as undisturbed" 0 "" cmp whole/model-$steps.npz killed/model-$steps.npz
expect "every step once in the metrics" 0 "" sh -c "[ \"\$(sed -n 's/.*\"step\":\([0-9]*\),\"epoch\".*/\1/p' killed/metrics.jsonl |
    sort | uniq -d | wc -l)\" -eq 0 ]"
expect "no temporary file is left" 0 "" sh -c "! ls killed/*.tmp.* 2> /dev/null"

# Runs that evaluate. One, two, three and four ranks take turns, so the global batch changes within an epoch.
sentences 3000 99 data/long
cat > digits.json << 'END'
{
    "model": "mnist_cnn", "dataset": "synthetic_images", "image_size": 12, "image_channels": 1, "n_classes": 10,
    "synthetic_samples": 2003, "synthetic_eval_samples": 50, "batch_size": 3, "num_epochs": 1000, "optimizer": "sgd",
    "learning_rate": 0.01, "lr_scaling": "none", "seed": 4, "threads": 1, "histogram_frequency": 0, "image_frequency": 0
}
END
sed 's|data/train|data/long|g; s/"batch_size": 16, "num_epochs": 4/"batch_size": 3, "num_epochs": 1000, "eval_bleu": false/
    s/"learning_rate": 0.01/"learning_rate": 0.002/' toy.json > long.json
evaluates() { # np, folder, config, arguments
    np=$1 dir=$2 config=$3
    shift 3
    # shellcheck disable=SC2086
    [ "$np" -eq 1 ] || set -- $MPIRUN -np "$np" "$PROG" "$@"
    [ "$np" -gt 1 ] || set -- "$PROG" "$@"
    exec "$@" --config_file="$config" --logdir="$dir" --mode=train_eval --checkpoint_frequency=0 \
        --summary_frequency=100 --set eval_frequency=20 --set record_sample_ids=true
}
# figure FOLDER CONFIG KEY: evaluates the best file of the folder
figure() {
    rm -rf best
    mkdir best && cp "$1"/best-*.npz best && "$PROG" --config_file="$2" --logdir=best --mode=eval --set checkpoint=best \
        > best.txt 2>&1 && sed -n 's/.*"'"$3"'":\([^,}]*\).*/\1/p' best/eval/metrics.jsonl
}
# no_worse SIGN BEFORE FOLDER CONFIG KEY: SIGN is -1 where lower is better. BEFORE "": there was no best file
no_worse() {
    now=
    [ -z "$2$(find "$3" -name 'best-*.npz')" ] || now=$(figure "$3" "$4" "$5")
    echo "before '$2', after '$now'"
    awk -v sign="$1" -v a="$2" -v b="$now" 'BEGIN { exit !(a == "" || (b != "" && sign * b >= sign * a)) }'
}
# once FOLDER N: prints the epochs whose samples are not 0 .. N - 1, each once, and the number of epochs
once() {
    sed 's/.*"epoch":\([0-9]*\),"samples":\[\(.*\)\].*/\1,\2/' "$1/samples.jsonl" | awk -F, -v n="$2" '
        { if ($1 >= epochs) epochs = $1 + 1; for (k = 2; k <= NF; k++) seen[$1, $k]++ }
        END {
            for (e = 0; e < epochs; e++) {
                bad = 0
                for (k = 0; k < n; k++) if (seen[e, k] != 1) bad++
                if (bad) print "epoch", e, "has", bad, "samples not once"
                wrong += bad
            }
            for (k in seen) all++
            print (all == n * epochs && !wrong ? epochs " whole epochs" : "other samples")
        }'
}
# series FOLDER CONFIG N SIGN KEY: kills the run MORE times. N: samples of an epoch; SIGN, KEY: of the best figure
series() {
    dir=$1 config=$2 n=$3 sign=$4 key=$5 best='' i=0 resumed=0
    while [ $i -lt "$MORE" ]; do
        i=$((i + 1))
        killed $i "$dir" evaluates $((i % 4 + 1)) "$dir" "$config"
        grep -q "resuming from" "$dir.txt" && resumed=$((resumed + 1))
        expect "$dir, kill $i: the best is no worse" 0 "" no_worse "$sign" "$best" "$dir" "$config" "$key"
        [ -z "$(find "$dir" -name 'best-*.npz')" ] || best=$(figure "$dir" "$config" "$key")
    done
    expect "$dir: resumed" 0 "" [ $resumed -gt 0 ]
    expect "$dir: has a best file" 0 "" [ "$best" != "" ]
    epochs=$(($(tail -n 2 "$dir/samples.jsonl" | sed -n 's/.*"epoch":\([0-9]*\),.*/\1/p' | tail -n 1) + 1))
    expect "$dir: to the end of the epoch" 0 "epoch $epochs done" timeout 300 "$PROG" --config_file="$config" \
        --logdir="$dir" --set num_epochs=$epochs --set record_sample_ids=true
    expect "$dir: each sample of $epochs epochs once" 0 "^$epochs whole epochs\$" once "$dir" "$n"
    expect "$dir: no temporary file is left" 0 "" sh -c "! ls $dir/*.tmp.* 2> /dev/null"
}
series text long.json 3000 -1 loss
series images digits.json 2003 1 accuracy

# Requests. The run is so long that it has not ended yet.
run="$MPIRUN -np 2 $PROG --config_file=toy.json --max_steps=100000000 --summary_frequency=10"
behind_save() { sed '1,/^checkpoint model-/d' asked.txt | grep -E "^step [0-9]+ "; }
request() { # signal
    : > asked.txt
    # shellcheck disable=SC2086
    $run --logdir=asked > asked.txt 2>&1 &
    job=$!
    wait_until 60 grep -q "first step done" asked.txt
    [ "$1" != LOCK ] || { timeout 60 "$PROG" --config_file=toy.json --logdir=asked; locked=$?; set -- USR2; }
    kill -"$1" $job
    if [ "$1" = USR1 ]; then
        wait_until 60 behind_save # a step line later than the save: the run has continued
        cp asked.txt before.txt   # the stop also saves
        kill -0 $job || return 1
        kill -USR2 $job
    fi
    wait $job
    status=$?
    # mpirun may end before it has passed on the last lines. run.log has them.
    wait_until 60 sh -c "tail -n 2 asked/run.log | grep -q 'stopped on request'"
    tail -n 20 asked.txt
    tail -n 2 asked/run.log
    [ -z "${locked:-}" ] || return $locked
    return $status
}
expect "USR2 stops and saves" 75 "stopped on request" request USR2
expect "USR1 saves and goes on" 75 "stopped on request" request USR1
expect "USR1 saved" 0 "checkpoint model-" grep "checkpoint model-" before.txt
expect "USR1 is no request to stop" 1 "" grep "stopped on request" before.txt
# If mpirun receives TERM, the exit status is its own. Only the checkpoint counts.
expect "TERM stops and saves" 1 "stopped on request" request TERM
expect "so does Ctrl-C" 1 "stopped on request" request INT
expect "a second run in the same folder is refused" 2 "is in use by process" request LOCK
summary
