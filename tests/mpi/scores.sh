#!/usr/bin/env bash
# scores.sh -- tests the metrics of translations in runs: sacrebleu and chrf.
#
# The figures are the same for every number of ranks, and those of sacreBLEU for the output of infer mode (skipped if
# Python has no module sacrebleu). train_eval keeps the best checkpoint by them. tests/run runs the script and sets
# PROG, MPIRUN and RD_PYTHON.
# timeout: 300
# beside
. "$(dirname "$0")/../support/toy.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/scores.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 300 61
paste data/dev.src data/dev.tgt | awk -F '\t' '!seen[$1]++' > pairs.txt
cut -f 1 pairs.txt > data/dev.src
cut -f 2 pairs.txt > data/dev.tgt
# The targets as people write, in subwords.
for f in train dev; do
    sed -i "s/a/Hi,/g; s/b/it's/g; s/c/5-6/g; s/d/U.S./g; s/e/(x)/g; s/f/na@@ ïve\\&amp;/g" data/$f.tgt
done
printf '%s\n' Hi, "it's" 5-6 U.S. "(x)" na@@ "ïve&amp;" > data/words.txt
sed -i 's|"tgt_vocab_file": "data/vocab.txt"|"tgt_vocab_file": "data/words.txt", "bpe_used": true|' toy.json
evaluate() { # np, metric, arguments: prints the record
    rm -rf one/eval
    ranks "$1" "$PROG" --config_file=toy.json --logdir=one --mode=eval --set metric="$2" "${@:3}" > out.txt 2>&1 ||
        { cat out.txt; return 1; }
    sed 's/,"eval_s".*//' one/eval/metrics.jsonl
}
line() { sed -n 's/.*"score_line":"\([^"]*\)".*/\1/p' "$1"; }
theirs() { # metric, references...: prints sacreBLEU's line for out.hyp in the form of run_dist
    "$RD_PYTHON" - "$@" << 'END'
import sys
from sacrebleu.metrics import BLEU, CHRF
def read(path):
    return open(path, encoding="utf-8", newline="\n").read().split("\n")[:-1]
metric, name = {"sacrebleu": (BLEU(force=True), "sacreBLEU"), "chrf": (CHRF(), "chrF2")}[sys.argv[1]]
score = metric.corpus_score(read("out.hyp"), [read(p) for p in sys.argv[2:]])
signature = str(metric.get_signature()).partition("version")[0]
print("%s = %s [%sversion:" % (name, score.format(width=2).partition(" = ")[2], signature))
END
}
same_as_theirs() { # metric, record, references...
    local ours want
    ours=$(line "$2")
    want=$(theirs "$1" "${@:3}") || return 2
    echo "ours   $ours"
    echo "theirs $want"
    case $ours in "$want"*) ;; *) return 1 ;; esac
}
expect "training" 0 "" ranks 2 "$PROG" --config_file=toy.json --logdir=one --max_steps=120
expect "infer" 0 "" ranks 1 "$PROG" --config_file=toy.json --logdir=one --mode=infer --set source_file_test=data/dev.src \
    --inference_out=out.txt2
sed 's/@@ //g' out.txt2 > out.hyp
sed 's/@@ //g' data/dev.tgt > out.ref
# A second reference of each sentence: the words of another one.
{ tail -n +10 data/dev.tgt; head -n 9 data/dev.tgt; } > data/second.tgt
sed 's/@@ //g' data/second.tgt > out.ref2
cat data/dev.src data/dev.src > data/twice.src
cat data/dev.tgt data/second.tgt > data/twice.tgt
cat data/dev.tgt out.txt2 > data/right.tgt

twice='--set multi_reference=true --set source_file_eval=data/twice.src --set target_file_eval=data/twice.tgt'
for metric in sacrebleu chrf; do
    case $metric in sacrebleu) figure=sacreBLEU ;; *) figure=chrF2 ;; esac
    for np in 1 2 3; do
        evaluate $np $metric > $metric.$np
        # shellcheck disable=SC2086 # $twice is several words
        evaluate $np $metric $twice > $metric.two.$np
    done
    expect "$metric: a figure and its line" 0 "\"$figure\":[1-9][0-9.]*,\"score_line\":\"$figure = [1-9].*nrefs:1|" cat $metric.1
    expect "$metric: two references" 0 "nrefs:2|" cat $metric.two.1
    for np in 2 3; do
        expect "$metric of np $np" 0 "" cmp $metric.1 $metric.$np
        expect "$metric of np $np, two references" 0 "" cmp $metric.two.1 $metric.two.$np
    done
    # shellcheck disable=SC2086
    expect "$metric: all is right by the second reference" 0 "$figure = 100.00 " evaluate 1 $metric $twice \
        --set target_file_eval=data/right.tgt
    if "$RD_PYTHON" -c "import sacrebleu" 2> /dev/null; then
        expect "$metric is sacreBLEU's" 0 "" same_as_theirs $metric $metric.1 out.ref
        expect "$metric is sacreBLEU's, two references" 0 "" same_as_theirs $metric $metric.two.1 out.ref out.ref2
    elif [ "$RD_REQUIRE_PYTHON" = 1 ]; then
        echo "FAILED: $RD_PYTHON has no module sacrebleu"
        failed=$((failed + 1))
    else
        echo "skip: $RD_PYTHON has no module sacrebleu"
        skipped=$((skipped + 1))
    fi

    # The best checkpoint is the first of the highest figure, and the plateau rule watches the figure.
    expect "train_eval by $metric" 0 "$figure .*; the rate falls to" ranks 2 "$PROG" --config_file=toy.json --logdir=te.$metric --mode=train_eval \
        --set metric=$metric --set eval_frequency=10 --set learning_rate=0.03 --set num_epochs=100 --max_steps=150 \
        --set plateau_factor=0.5 --set plateau_monitor=figure --set plateau_patience=1 --set plateau_min_delta=200
    best=$(sed -n 's/.*"step":\([0-9]*\),.*"'$figure'":\([^,]*\).*/\2 \1/p' te.$metric/eval/metrics.jsonl |
        sort -s -g -r -k1,1 | sed -n '1s/.* \(.*\)/best-\1.npz/p')
    expect "$metric: TensorBoard's results of the run have the figure once" 0 "^metrics/$figure \$" sh -c \
        "cat te.$metric/events.out.tfevents.* | tr -c '[:print:]' '\\n' | sed /session_start_info/q |
            grep -o -e metrics/$figure -e Eval_BLEU_Score | sort -u | tr '\\n' ' '"
    expect "$metric: the best checkpoint" 0 "^$best$" sh -c "cd te.$metric && ls best-*.npz"
done

# A second metric: both scores of the same sentences, each as if it were alone.
figure() { sed -n 's/.*"'"$1"'":\([^,]*\),.*/\1/p'; }
bleu=$(evaluate 1 sacrebleu | figure sacreBLEU) chrf=$(evaluate 1 chrf | figure chrF2)
expect "both scores" 0 "\"sacreBLEU\":$bleu,\"chrF2\":$chrf,\"score_line\":\"sacreBLEU = .*\"second_score_line\":\"chrF2 = " \
    evaluate 2 sacrebleu --set second_metric=chrf
expect "the first one decides" 0 "best so far: best-[0-9]*.npz (chrF2 " ranks 1 "$PROG" --config_file=toy.json --logdir=two \
    --mode=train_eval --max_steps=10 --set metric=chrf --set second_metric=sacrebleu
expect "twice the same" 1 "'second_metric' is chrf, as 'metric' is; leave it out" evaluate 1 chrf --set second_metric=chrf
expect "an unknown one" 1 "second_metric" evaluate 1 chrf --set second_metric=bleurt
summary
