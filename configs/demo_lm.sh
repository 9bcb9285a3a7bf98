#!/bin/sh
# demo_lm.sh -- two ranks learn to write from six novels of Jane Austen, for five minutes. Then you type, and they go on.
#
# The text comes from a Debian package (configs/get_novels: 1.6 MB, seconds, once). A small Llama with 2,000 subwords is
# trained on it; a longer training is configs/novels_bpe.json. `make demo-lm` builds the program and calls this script.
# Without a terminal, or with CI set, it continues three beginnings and ends.
#
# Environment: PROG, NP (ranks), LOGDIR, MINUTES (of this training; the next start continues it), DATA (folder of the
# novels), or SOURCE (a plain text file of your own).
# Exit code 3: the text cannot be fetched. Otherwise the code of the program, 0 if all is done.
set -eu
cd "$(dirname "$0")/.."
PROG=${PROG:-build/release/run_dist}
NP=${NP:-2}
LOGDIR=${LOGDIR:-logs/demo_lm}
MINUTES=${MINUTES:-5}
DATA=${DATA:-data/novels}
SOURCE=${SOURCE:-}
CONFIG=configs/novels_bpe.json

ranks="mpirun -q -np $NP --oversubscribe --bind-to none" # -q: no words about exit code 75
[ "$(id -u)" -ne 0 ] || ranks="$ranks --allow-run-as-root"
export OMPI_MCA_odls_base_sigkill_timeout=4 # Ctrl-C leaves time to save; mpirun waits as long after code 75
export OMPI_MCA_btl_vader_single_copy_mechanism=none # containers often forbid it; Open MPI then warns
seconds=$(awk -v m="$MINUTES" 'BEGIN { if (m !~ /^[0-9]+([.][0-9]+)?$/ || m * 60 < 1) exit 1; print m * 60 }') || {
    echo "demo_lm: MINUTES must be a number of minutes, not '$MINUTES'" >&2
    exit 2
}

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() {
    printf '$ %s\n' "$*"
    "$@"
}

if [ -n "$SOURCE" ]; then
    say "1. The text: $SOURCE"
    DATA=
    set -- --set source_file="$SOURCE"
else
    say "1. The text: six novels in $DATA, 4 MB"
    if { [ ! -s "$DATA/train.txt" ] || [ ! -s "$DATA/dev.txt" ]; } && ! run configs/get_novels "$DATA"; then
        cat >&2 << END

demo_lm: the text cannot be fetched: the lines above say why. It needs python3, apt-get with sources of Debian (or a
mirror), and a network. Without them:
  - SOURCE=my.txt configs/demo_lm.sh learns from your own text, best a megabyte or more;
  - make demo needs no network.
END
        exit 3
    fi
    set -- --set source_file="$DATA/train.txt" --set source_file_eval="$DATA/dev.txt"
fi
# Half the width of novels_bpe, which pays in five minutes. The rate stays, since the next start continues.
set -- --config_file=$CONFIG --logdir="$LOGDIR" "$@" --set subword_size=2000 --set n_embd=128 --set n_heads=4 \
    --set n_kv_heads=2 --set ff_dim=352 --set max_len=128 --set batch_tokens=2048 --set dropout_residual=0.0 \
    --set lr_policy=decay --set use_decay=false --set learning_rate=0.002 --set max_new_tokens=80

say "2. Training with $NP ranks for $MINUTES minutes (Ctrl-C stops and saves; the same command continues)"
# USR2 asks mpirun's ranks to save and stop, which ends with 75. mpirun must not read what is typed.
status=0
# shellcheck disable=SC2086 # a list of words
run timeout --foreground --preserve-status --signal=USR2 "$seconds" $ranks "$PROG" "$@" --max_steps=1000000 \
    --summary_frequency=50 --set threads=1 --set histogram_frequency=0 < /dev/null || status=$?
[ $status -eq 75 ] || [ $status -eq 0 ] || exit $status

if [ -n "$DATA" ]; then
    say "3. Loss on a part of the novels that training had not"
    # shellcheck disable=SC2086
    run $ranks "$PROG" "$@" --mode=eval --set threads=1 --set max_eval_samples=300 < /dev/null
fi

write() { "$PROG" "$@" --mode=infer --input=- 2> "$LOGDIR/infer.err" || cat "$LOGDIR/infer.err" >&2; }
say "4. What it writes behind three beginnings"
if [ -n "$DATA" ]; then
    printf '%s\n' "It was" "Elizabeth" "The morning" > "$LOGDIR/beginnings.txt"
else
    # The first words of three lines.
    awk 'NF > 1 && n < 3 { print $1, $2; n++ } END { while (n++ < 3) print "The" }' "$SOURCE" > "$LOGDIR/beginnings.txt"
fi
while IFS= read -r line; do
    printf '%s\n' "$line" | write "$@" > "$LOGDIR/text.txt"
    [ -s "$LOGDIR/text.txt" ] || exit 70
    sed 's/^/> /' "$LOGDIR/text.txt"
    echo
done < "$LOGDIR/beginnings.txt"
if [ -t 0 ] && [ -t 1 ] && [ -z "${CI:-}" ]; then
    echo "Your turn: type how a text begins; Ctrl-D ends. It has read little, and means nothing by it."
    write "$@"
fi

say "5. Where to look"
cat <<END
$LOGDIR/run.log          what you saw above
$LOGDIR/text             tokenizer
continue training        MINUTES=30 configs/demo_lm.sh
a better model           $CONFIG, for about an hour
start again              rm -r $LOGDIR && make demo-lm
END
