#!/bin/bash
# signals.sh -- tests requests at any moment: during a start, between steps, while saving, in an evaluation.
#
# USR1 saves, and the run continues. TERM, INT, USR2 and HUP save, and all ranks stop at the same step with code 75. A
# second signal ends the run at once. Then mpirun receives SIGTERM at random moments, with different kill delays. What
# the run reported as saved exists, and in the end the bytes are those of an undisturbed run.
#
#   CASES=all tests/run tests/mpi/signals.sh     18 moments; else four
#
# timeout: 600
# beside, long
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
same=$PWD/${BUILD:-build/release}/tests/support/npz_same
work=$(mktemp -d "${TMPDIR:-/tmp}/signals.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 210 30
sentences 1500 99 data/long
base=(--config_file=toy.json --max_steps=100000000 --summary_frequency=1)
# shellcheck disable=SC2206 # $MPIRUN is several words
mpi=($MPIRUN -np 2)

start() { # WORDS...: runs them in the background, with output in said; $job is the pid
    : > said # the text of the start before is not waited for
    timeout 100 "$@" > said 2>&1 < /dev/null &
    job=$!
    wait_until 60 pgrep -P $job
}
until_said() { wait_until 60 grep -q -- "$1" said; }
tell() { kill -"$1" "$(pgrep -P $job | head -n 1)"; }
ends() { # NAME STATUS TEXT: waits for the job to end
    timed wait $job
    status=$?
    expect "$1" "$2" "$3" told
}
told() {
    tail -n 40 said
    return $status
}
is_whole() { # FOLDER: tests its checkpoint with another start, which has nothing to do
    timeout 60 "$PROG" --config_file=toy.json --logdir="$1" --max_steps=1 > whole.txt 2>&1 && grep "nothing to do: step" whole.txt &&
        ! grep -i -E "damaged|older" whole.txt
}

# A request before the first step, and each kind of request between steps.
start "${mpi[@]}" "$PROG" "${base[@]}" --logdir=early
until_said "world:"
tell USR2
ends "USR2 in the start: saved and stopped" 75 "stopped on request at step [1-9][0-9]*,"
expect "a request that waits for a step is confirmed" 75 "^asked to stop: this step, then a checkpoint" \
    timeout 60 env RD_FAULT=int:0:3:input,slow:0:3:compute "$PROG" "${base[@]}" --logdir=confirmed
start "$PROG" "${base[@]}" --logdir=one
until_said "^step 3"
tell USR1
until_said "checkpoint model-"
expect "USR1 has saved" 0 "checkpoint model-" cat said
# A step line later than the save, in the same process: the run continues.
pid=$(pgrep -P $job)
behind_save() { sed '1,/^checkpoint model-/d' said | grep "^step [0-9]*[05] "; }
wait_until 60 behind_save
expect "and the run goes on" 0 "^$pid$" pgrep -P $job
expect "without a request to stop" 1 "" grep "stopped on request" said
for s in TERM INT USR2 HUP; do
    tell $s
    ends "$s, alone" 75 "stopped on request"
    start "$PROG" "${base[@]}" --logdir=one
    until_said "^step "
done
pid=$(pgrep -P $job)
kill -TERM "$pid"
kill -TERM "$pid"
ends "the same request twice within a moment is one" 75 "stopped on request"
start nohup "$PROG" "${base[@]}" --logdir=one
until_said "^step [0-9]*[05] "
n=$(grep -c "^step" said)
tell HUP
goes_on() { [ "$(grep -c "^step" said)" -gt $((n + 3)) ]; }
wait_until 60 goes_on
expect "under nohup HUP is nothing" 0 "" pgrep -P $job
tell TERM
ends "and TERM is what it was" 75 "stopped on request"

# A second signal while the run cannot act on the first: the run ends at once.
RD_FAULT=hang:0:7:input start "$PROG" "${base[@]}" --logdir=hangs
until_said "^step 6"
sleep 0.3
tell TERM
sleep 0.5
expect "a step that hangs: the first is not obeyed" 0 "" pgrep -P $job
tell TERM
ends "the second is" 143 ""

# A request to one rank alone: all ranks stop at the same step.
start "${mpi[@]}" "$PROG" "${base[@]}" --logdir=lone
until_said "^step 5"
kill -TERM "$(pgrep -f "^$PROG .*--logdir=lone" | tail -n 1)"
ends "TERM to one rank stops all" 75 "stopped on request"
expect "with a whole checkpoint" 0 "nothing to do" is_whole lone

# While saving, in a run that saves after every step.
start "${mpi[@]}" "$PROG" "${base[@]}" --checkpoint_frequency=0 --logdir=saves
until_said "^step 5"
tell USR2
ends "USR2 in saves" 75 "stopped on request"
expect "a whole checkpoint" 0 "nothing to do" is_whole saves

# In a long evaluation. The next start begins with it, and the run ends as without the request.
evaluated=(--mode=train_eval --max_steps=9 --set eval_frequency=5 --set eval_batch_size=1 --set source_file_eval=data/long.src
    --set target_file_eval=data/long.tgt)
expect "with evaluations, undisturbed" 0 "done: step 9" timeout 100 "${mpi[@]}" "$PROG" "${base[@]}" "${evaluated[@]}" --logdir=calm
RD_FAULT=slow:0:5:evaluate start "${mpi[@]}" "$PROG" "${base[@]}" "${evaluated[@]}" --logdir=asked
until_said "^step 5"
sleep 0.2
tell USR2
ends "USR2 in an evaluation" 75 "the evaluation at step 5 is left"
expect "soon" 0 "" in_time 8
expect "saved there" 0 "^model-5.npz" cat asked/checkpoint
expect "goes on, with the evaluation first" 0 "done: step 9" timeout 100 "${mpi[@]}" "$PROG" "${base[@]}" "${evaluated[@]}" --logdir=asked
figures() { sed 's/"eval_s".*//; s/"wall[^,]*,//' "$1/eval/metrics.jsonl"; }
expect "the same evaluations" 0 "" diff <(figures calm) <(figures asked)
expect "the same weights" 0 "" "$same" calm/model-9.npz asked/model-9.npz

# Many signals while oneDNN computes. Its generated code does not survive a handler on its stack: weights and heap were
# damaged. So each signal must be handled by another thread.
cat > many.json << END
{
    "model": "transformer", "encoder_layers": 1, "decoder_layers": 1, "d_model": 128, "n_heads": 4, "ff_dim": 512, "seed": 5,
    "src_vocab_file": "data/vocab.txt", "tgt_vocab_file": "data/vocab.txt", "source_file": "data/train.src",
    "target_file": "data/train.tgt", "bucket_src": [40], "bucket_tgt": [40], "batch_size": 200, "threads": 1,
    "histogram_frequency": 0
}
END
expect "many signals: undisturbed" 0 "done: step 20" timeout 100 "$PROG" --config_file=many.json --logdir=quiet --max_steps=20
start "$PROG" --config_file=many.json --logdir=many --max_steps=20
until_said "^world:"
pid=$(pgrep -P $job | head -n 1)
while kill -USR1 "$pid" 2> /dev/null; do sleep 0.005; done
ends "many signals" 0 "done: step 20"
expect "many signals: the same weights" 0 "" "$same" quiet/model-20.npz many/model-20.npz

# TERM to mpirun. From TERM to KILL its ranks have a number of seconds (odls_base_sigkill_timeout); mpirun itself waits
# twice as long. With 0 s only periodic saves count.
# Rows: seconds after the start, kill delay, text that the script waits for first. Each round continues in the same
# folder. The last one is in time on any machine.
rows="0.05 2|1.3 1|1.7 0|0.4 20 first step done"
[ "${CASES:-}" != all ] || rows="$rows|$(awk 'BEGIN { srand(2026); for (i = 0; i < 14; i++) printf "%s%.2f %d", i ? "|" : "", 4 * rand(), i % 3 == 0 ? 0 : i % 3 == 1 ? 1 : 4 }')"
saved_to() { sed -n 's/^[-0-9: ]*checkpoint model-\([0-9]*\)\.npz saved.*/\1/p; s/^[-0-9: ]*stopped on request at step \([0-9]*\),.*/\1/p' term/run.log 2> /dev/null | sort -n | tail -n 1; }
no_rank() { ! pgrep -f "^$PROG .*--logdir=term"; }
round=0 in_time=0 asked=0
while read -r moment delay first; do
    round=$((round + 1))
    start "${mpi[@]}" -mca odls_base_sigkill_timeout "$delay" "$PROG" --config_file=toy.json --max_steps=100000000 --summary_frequency=50 \
        --checkpoint_frequency=1 --logdir=term
    [ -z "$first" ] || until_said "$first"
    sleep "$moment"
    tell TERM
    if [ "$delay" -ge 20 ]; then # the ranks end soon, but mpirun would wait twice the delay
        wait_until 60 no_rank
        tell KILL
    fi
    wait $job
    status=$?
    wait_until 60 no_rank
    before=$asked asked=$(grep -c "^[-0-9: ]*stopped on request" term/run.log) # by then mpirun no longer reads the output of its ranks
    reported=$(saved_to) named=$(sed -n 's/^model-\([0-9]*\)\.npz.*/\1/p' term/checkpoint 2> /dev/null)
    [ "${asked:-0}" -gt "${before:-0}" ] && in_time=$((in_time + 1))
    # shellcheck disable=SC2016
    expect "TERM after $moment s, kill delay $delay" 0 "" bash -c '
        [ "$1" -ne 0 ] && [ "$1" -ne 124 ] || { echo "status $1"; exit 1; }
        [ "${2:-0}" -le "${3:-0}" ] || { echo "step $2 was reported as saved, but the newest is ${3:-none}"; exit 1; }' \
        bash $status "$reported" "$named"
    expect "TERM after $moment s: no rank is left" 1 "" pgrep -f "^$PROG .*--logdir=term"
    [ -z "$named" ] || expect "TERM after $moment s: the checkpoint is whole" 0 "nothing to do: step $named " is_whole term
done <<< "${rows//|/$'\n'}"
echo "$round rounds, $in_time of them saved in time; step ${named:-0}"
expect "some were in time" 0 "" [ $in_time -ge 1 ]
last=$((${named:-0} + 3))
expect "goes on to the end" 0 "done: step $last" timeout 100 "${mpi[@]}" "$PROG" --config_file=toy.json --max_steps=$last --logdir=term
expect "undisturbed" 0 "done: step $last" timeout 200 "${mpi[@]}" "$PROG" --config_file=toy.json --max_steps=$last --logdir=whole
expect "to the bytes of the undisturbed run" 0 "" "$same" whole/model-$last.npz term/model-$last.npz
summary
