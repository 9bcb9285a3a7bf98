#!/bin/sh
# demo.sh -- two ranks learn from the CMU Pronouncing Dictionary how English words sound.
#
# Training takes some minutes on two cores. Then the demo prints error rates on words that the model has
# not seen, and lets you try your own words. `make demo` builds the program and calls this script.
#
# Environment: PROG, NP (ranks), LOGDIR, STEPS (a higher number continues where the last demo ended).
set -eu
cd "$(dirname "$0")/.."
PROG=${PROG:-build/release/run_dist}
NP=${NP:-2}
LOGDIR=${LOGDIR:-logs/demo}
STEPS=${STEPS:-3000}
CONFIG=configs/g2p_cmudict.json

ranks="mpirun -np $NP --oversubscribe --bind-to none"
[ "$(id -u)" -ne 0 ] || ranks="$ranks --allow-run-as-root"
export OMPI_MCA_odls_base_sigkill_timeout=60 # Ctrl-C leaves time to save
export OMPI_MCA_btl_vader_single_copy_mechanism=none # containers often forbid it; Open MPI then warns

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() {
    printf '$ %s\n' "$*"
    "$@"
}

# "tensor" -> "t e n s o r": the model reads characters.
letters() { tr '[:upper:]' '[:lower:]' | sed 's/[^a-z'\''.-]//g; s/./& /g; s/ $//'; }
pronounce() { letters | "$PROG" --config_file=$CONFIG --logdir="$LOGDIR" --mode=infer --input=- 2> "$LOGDIR/infer.err" || cat "$LOGDIR/infer.err" >&2; }

say "1. Training with $NP ranks, to step $STEPS (Ctrl-C stops and saves; the same command continues)"
# The config's schedule is made for an hour. Here the learning rate begins to fall after 60 % of the steps.
# shellcheck disable=SC2086 # a list of words
run $ranks "$PROG" --config_file=$CONFIG --logdir="$LOGDIR" --max_steps="$STEPS" --summary_frequency=50 \
    --set begin_decay_at=$((STEPS * NP * 6 / 10)) --set decay_steps=$((STEPS * NP / 10))

say "2. Error rates on the 5,000 test words; training had neither these words nor inflections of them"
# shellcheck disable=SC2086
run $ranks "$PROG" --config_file=$CONFIG --logdir="$LOGDIR" --mode=eval \
    --set 'source_file_eval=configs/data/g2p_cmudict.tar.xz!test.en' --set 'target_file_eval=configs/data/g2p_cmudict.tar.xz!test.ph'

say "3. Words that are in no dictionary"
words="gradient tensorboard spaghettification quixotic rundist blog wifi kubernetes"
for w in $words; do echo "$w"; done > "$LOGDIR/words.txt"
pronounce < "$LOGDIR/words.txt" > "$LOGDIR/sounds.txt"
paste "$LOGDIR/words.txt" "$LOGDIR/sounds.txt" | expand -t 24
if [ -t 0 ] && [ -t 1 ]; then
    echo "Your turn: type a word, an empty line ends."
    while printf '> ' && read -r word && [ -n "$word" ]; do echo "$word" | pronounce; done
fi

say "4. Where to look"
cat <<END
$LOGDIR/run.log          what you saw above
$LOGDIR/metrics.jsonl    loss, learning rate, tokens per second: one line per summary
$LOGDIR/model-*.npz      checkpoints: numpy.load opens them
curves                   tensorboard --logdir logs
continue training        STEPS=$((STEPS * 4)) configs/demo.sh
start again              rm -r $LOGDIR && make demo
END
