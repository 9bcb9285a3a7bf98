#!/usr/bin/env bash
# translation_tasks.sh -- trains a small Transformer to copy, sort and reverse digits, until perplexity and BLEU are those
# that Sockeye's system tests ask for. CASES=all: 10 seeds of each task; otherwise one seed of one task.
#
# Data and sizes: 10,000 lines of 1 to 9 digits, 2+2 layers, width 32, inner width 64, 16 sentences an update, Adam 1e-3.
# timeout: 1800
. "$(dirname "$0")/../support/toy.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/tasks.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
digits() { # count, seed, file, task
    awk -v n="$1" -v x="$2" -v f="$3" -v task="$4" 'BEGIN {
        for (i = 0; i < n; i++) {
            x = (x * 16807) % 2147483647; len = 1 + int(x / 1000) % 9; s = ""; t = ""; split("", count)
            for (k = 0; k < len; k++) {
                x = (x * 16807) % 2147483647; w = int(x / 1000) % 10; count[w]++
                s = s (k ? " " : "") w; t = task == "reverse" ? w (k ? " " : "") t : t (k ? " " : "") w
            }
            if (task == "sort") {
                t = ""
                for (w = 0; w < 10; w++) for (k = 0; k < count[w]; k++) t = t (t == "" ? "" : " ") w
            }
            print s > (f ".src"); print t > (f ".tgt")
        }
    }'
}
printf '%s\n' 0 1 2 3 4 5 6 7 8 9 > vocab.txt
cat > task.json << 'END'
{
    "model": "transformer", "src_vocab_file": "vocab.txt", "tgt_vocab_file": "vocab.txt", "weight_init": "sockeye",
    "encoder_layers": 2, "decoder_layers": 2, "d_model": 32, "ff_dim": 64, "label_smoothing": 0, "optimizer": "adam",
    "learning_rate": 0.001, "lr_policy": "decay", "batch_size": 16, "bucket_src": [12], "bucket_tgt": [12],
    "source_file": "train.src", "target_file": "train.tgt", "source_file_eval": "dev.src", "target_file_eval": "dev.tgt",
    "eval_frequency": 1000, "metric": "sacrebleu", "print_samples": false,
    "histogram_frequency": 0, "threads": 1
}
END
# learns TASK SEED UPDATES PERPLEXITY BLEU KEYS...: does the best of the checkpoints after every 1000 updates reach both on
# lines that it has not seen?
learns() {
    local task=$1 seed=$2 updates=$3 keys=("${@:6}")
    rm -rf log
    digits 10000 13 train "$task"
    digits 100 17 dev "$task"
    digits 200 19 test "$task"
    if ! "$PROG" --config_file=task.json --logdir=log --seed="$seed" --mode=train_eval --max_steps="$updates" "${keys[@]}" \
        > out.txt 2>&1 ||
        ! "$PROG" --config_file=task.json --logdir=log --mode=eval --set checkpoint=best --set source_file_eval=test.src \
            --set target_file_eval=test.tgt "${keys[@]}" > out.txt 2>&1; then
        cat out.txt
        return 2
    fi
    tail -n 1 log/eval/metrics.jsonl | sed -n 's/.*"perplexity":\([^,]*\),.*"sacreBLEU":\([^,]*\),.*/\1 \2/p' |
        awk -v ppl="$4" -v bleu="$5" '
            { print "perplexity " $1 ", BLEU " $2; ok = $1 <= ppl && $2 >= bleu } END { exit !ok }'
}
still="--set n_heads=2 --set dropout_attention=0 --set dropout_residual=0 --set dropout_ff=0"
# shellcheck disable=SC2086 # $still is several words
if [ "${CASES:-}" = all ]; then
    for seed in 1 2 3 4 5 6 7 8 9 10; do
        expect "copy, seed $seed" 0 "" learns copy $seed 4000 1.02 98 --set n_heads=4
        expect "sort, seed $seed" 0 "" learns sort $seed 6000 1.03 97 $still
        expect "reverse, seed $seed" 0 "" learns reverse $seed 6000 1.03 97 $still
    done
else
    expect "sort" 0 "" learns sort 1 2000 1.03 97 $still
    # Of 200 lines at most 4 differ with int8 weights.
    for type in float32 int8; do
        "$PROG" --config_file=task.json --logdir=log --mode=infer --set checkpoint=best --input=test.src $still \
            --set decode_dtype=$type > $type.txt 2> err.txt
    done
    expect "int8 translates as float32" 0 "" sh -c "
        paste -d'|' float32.txt int8.txt | awk -F'|' '{ same += \$1 == \$2 } END { print same \" of \" NR; exit !(NR == 200 && same >= 196) }'"
fi
# shellcheck disable=SC2086
expect "without learning it does not" 1 "perplexity" learns sort 1 50 1.03 97 $still
summary
