#!/bin/sh
# demo_translate.sh -- two ranks learn from real text to translate English to German, for five minutes. Then you type.
#
# The text comes from Debian packages (configs/get_en_de: 30 MB, one to four minutes, once). A small Transformer is
# trained on it; a longer training is configs/en_de_transformer.json. `make demo-translate` builds the program and
# calls this script. Without a terminal, or with CI set, it translates three sentences and ends.
#
# Environment: PROG, NP (ranks), LOGDIR, MINUTES (of this training; the next start continues it), DATA (folder of the
# text), or SOURCE and TARGET (two plain text files of your own, with the same number of lines).
# Exit code 3: the text cannot be fetched. Otherwise the code of the program, 0 if all is done.
set -eu
cd "$(dirname "$0")/.."
PROG=${PROG:-build/release/run_dist}
NP=${NP:-2}
LOGDIR=${LOGDIR:-logs/demo_translate}
MINUTES=${MINUTES:-5}
DATA=${DATA:-data/en_de}
SOURCE=${SOURCE:-} TARGET=${TARGET:-}
CONFIG=configs/en_de_transformer.json

ranks="mpirun -q -np $NP --oversubscribe --bind-to none" # -q: no words about exit code 75
[ "$(id -u)" -ne 0 ] || ranks="$ranks --allow-run-as-root"
export OMPI_MCA_odls_base_sigkill_timeout=4 # Ctrl-C leaves time to save; mpirun waits as long after code 75
export OMPI_MCA_btl_vader_single_copy_mechanism=none # containers often forbid it; Open MPI then warns
seconds=$(awk -v m="$MINUTES" 'BEGIN { if (m !~ /^[0-9]+([.][0-9]+)?$/ || m * 60 < 1) exit 1; print m * 60 }') || {
    echo "demo_translate: MINUTES must be a number of minutes, not '$MINUTES'" >&2
    exit 2
}

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() {
    printf '$ %s\n' "$*"
    "$@"
}

if [ -n "$SOURCE" ] || [ -n "$TARGET" ]; then
    say "1. The text: $SOURCE and $TARGET"
    set -- --set source_file="$SOURCE" --set target_file="$TARGET"
    DATA=
else
    say "1. The text: 153,000 sentence pairs in $DATA"
    if [ ! -s "$DATA/test.raw.de" ] && ! run configs/get_en_de "$DATA"; then
        cat >&2 << END

demo_translate: the text cannot be fetched: the lines above say why. It needs python3, apt-get with sources of Debian
(or a mirror), and a network. Without them:
  - SOURCE=my.en TARGET=my.de configs/demo_translate.sh learns from your own text, a sentence a line;
  - make demo needs no network.
END
        exit 3
    fi
    set -- --set data_location="$DATA"
fi
# A quarter of the width of transformer_small, which pays in five minutes. The rate is at its highest after 200 updates.
set -- --config_file=$CONFIG --logdir="$LOGDIR" "$@" --set subword_size=4000 --set encoder_layers=2 \
    --set decoder_layers=2 --set d_model=128 --set n_heads=4 --set ff_dim=512 --set max_seq_len=40 \
    --set learning_rate=0.003 --set warmup_steps=200

say "2. Training with $NP ranks for $MINUTES minutes (Ctrl-C stops and saves; the same command continues)"
# USR2 asks mpirun's ranks to save and stop, which ends with 75. mpirun must not read what is typed.
status=0
# shellcheck disable=SC2086 # a list of words
run timeout --foreground --preserve-status --signal=USR2 "$seconds" $ranks "$PROG" "$@" --max_steps=1000000 \
    --summary_frequency=50 --set threads=1 --set histogram_frequency=0 --set print_samples=false < /dev/null || status=$?
[ $status -eq 75 ] || [ $status -eq 0 ] || exit $status

if [ -n "$DATA" ]; then
    say "3. BLEU on 300 sentences that training had not"
    # shellcheck disable=SC2086
    run $ranks "$PROG" "$@" --mode=eval --set threads=1 --set max_eval_samples=300 < /dev/null
fi

translate() { "$PROG" "$@" --mode=infer --input=- --set infer_batch_size=1 2> "$LOGDIR/infer.err" || cat "$LOGDIR/infer.err" >&2; }
say "4. Translations"
cat > "$LOGDIR/lines.en" << 'END'
Click the button to open the settings.
The file could not be saved.
This package contains the documentation.
END
translate "$@" < "$LOGDIR/lines.en" > "$LOGDIR/lines.de"
[ "$(wc -l < "$LOGDIR/lines.de")" -eq 3 ] || exit 70
paste -d '\n' "$LOGDIR/lines.en" "$LOGDIR/lines.de" | sed 'n; s/^/> /'
if [ -t 0 ] && [ -t 1 ] && [ -z "${CI:-}" ]; then
    echo "Your turn: type a sentence; Ctrl-D ends. It knows manuals and phrases, and little else."
    translate "$@"
fi

say "5. Where to look"
cat <<END
$LOGDIR/run.log          what you saw above
$LOGDIR/text             subword model and vocabulary
continue training        MINUTES=30 configs/demo_translate.sh
a better model           $CONFIG, for about an hour
start again              rm -r $LOGDIR && make demo-translate
END
