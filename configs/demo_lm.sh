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
DATA=${DATA:-data/novels}
SOURCE=${SOURCE:-}
NAME=demo_lm CONFIG=configs/novels_bpe.json
. configs/demo_parts.sh

if [ -n "$SOURCE" ]; then
    say "1. The text: $SOURCE"
    DATA=
    set -- --set source_file="$SOURCE"
else
    say "1. The text: six novels in $DATA, 4 MB"
    if { [ ! -s "$DATA/train.txt" ] || [ ! -s "$DATA/dev.txt" ]; } && ! run configs/get_novels "$DATA"; then
        no_text "SOURCE=my.txt configs/demo_lm.sh learns from your own text, best a megabyte or more"
    fi
    set -- --set source_file="$DATA/train.txt" --set source_file_eval="$DATA/dev.txt"
fi
# Half the width of novels_bpe, which pays in five minutes. The rate stays, since the next start continues.
set -- --config_file=$CONFIG --logdir="$LOGDIR" "$@" --set subword_size=2000 --set n_embd=128 --set n_heads=4 \
    --set n_kv_heads=2 --set ff_dim=352 --set max_len=128 --set batch_tokens=2048 --set dropout_residual=0.0 \
    --set lr_policy=decay --set use_decay=false --set learning_rate=0.002 --set min_learning_rate=null \
    --set max_new_tokens=80

train "$@"
if [ -n "$DATA" ]; then
    say "3. Loss on a part of the novels that training had not"
    evaluate "$@"
fi

say "4. What it writes behind three beginnings"
if [ -n "$DATA" ]; then
    printf '%s\n' "It was" "Elizabeth" "The morning" > "$LOGDIR/beginnings.txt"
else
    # The first words of three lines.
    awk 'NF > 1 && n < 3 { print $1, $2; n++ } END { while (n++ < 3) print "The" }' "$SOURCE" > "$LOGDIR/beginnings.txt"
fi
while IFS= read -r line; do
    printf '%s\n' "$line" | answer "$@" > "$LOGDIR/text.txt"
    [ -s "$LOGDIR/text.txt" ] || exit 70
    sed 's/^/> /' "$LOGDIR/text.txt"
    echo
done < "$LOGDIR/beginnings.txt"
if is_asked; then
    echo "Your turn: type how a text begins; Ctrl-D ends. It has read little, and means nothing by it."
    answer "$@"
fi
where_to_look tokenizer
