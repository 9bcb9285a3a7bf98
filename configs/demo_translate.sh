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
DATA=${DATA:-data/en_de}
SOURCE=${SOURCE:-} TARGET=${TARGET:-}
NAME=demo_translate CONFIG=configs/en_de_transformer.json
. configs/demo_parts.sh

if [ -n "$SOURCE" ] || [ -n "$TARGET" ]; then
    say "1. The text: $SOURCE and $TARGET"
    set -- --set source_file="$SOURCE" --set target_file="$TARGET"
    DATA=
else
    say "1. The text: 153,000 sentence pairs in $DATA"
    if [ ! -s "$DATA/test.raw.de" ] && ! run configs/get_en_de "$DATA"; then
        no_text "SOURCE=my.en TARGET=my.de configs/demo_translate.sh learns from your own text, a sentence a line"
    fi
    set -- --set data_location="$DATA"
fi
# A quarter of the width of transformer_small, which pays in five minutes. The rate is at its highest after 200 updates.
set -- --config_file=$CONFIG --logdir="$LOGDIR" "$@" --set subword_size=4000 --set encoder_layers=2 \
    --set decoder_layers=2 --set d_model=128 --set n_heads=4 --set ff_dim=512 --set max_seq_len=40 \
    --set learning_rate=0.003 --set warmup_steps=200

train "$@" --set print_samples=false
if [ -n "$DATA" ]; then
    say "3. BLEU on 300 sentences that training had not"
    evaluate "$@"
fi

say "4. Translations"
cat > "$LOGDIR/lines.en" << 'END'
Click the button to open the settings.
The file could not be saved.
This package contains the documentation.
END
answer "$@" --set infer_batch_size=1 < "$LOGDIR/lines.en" > "$LOGDIR/lines.de"
[ "$(wc -l < "$LOGDIR/lines.de")" -eq 3 ] || exit 70
paste -d '\n' "$LOGDIR/lines.en" "$LOGDIR/lines.de" | sed 'n; s/^/> /'
if is_asked; then
    echo "Your turn: type a sentence; Ctrl-D ends. It knows manuals and phrases, and little else."
    answer "$@" --set infer_batch_size=1
fi
where_to_look "subword model and vocabulary"
