#!/usr/bin/env bash
# best.sh -- tests that train_eval loses neither its newest nor its best checkpoint.
#
# A killed run goes on from a best file that is newer than every model file. A best file is replaced only by a better
# one that was measured in the same way. tests/run runs the script and sets PROG and MPIRUN.
# timeout: 300
# beside
. "$(dirname "$0")/../support/toy.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/best.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 200 30
sentences 30 31337 data/other
te() { # np, folder, arguments: train_eval by the loss
    n=$1 dir=$2
    shift 2
    ranks "$n" "$PROG" --config_file=toy.json --logdir="$dir" --mode=train_eval --set eval_bleu=false \
        --set batch_size=$((16 / n)) "$@"
}
score() { # folder: step and loss of its best file
    "$PROG" --config_file=toy.json --logdir="$1" --mode=eval --set checkpoint=best --set eval_bleu=false 2>&1 |
        sed -n 's/.*evaluation at step \([0-9]*\): loss \([0-9.]*\).*/\1 \2/p'
}
no_worse() { # step and loss before, folder
    local after
    after=$(score "$2")
    echo "before $1, after $after"
    awk -v a="$1" -v b="$after" 'BEGIN { split(a, x, " "); split(b, y, " "); exit !(y[2] != "" && y[2] <= x[2]) }'
}
files() { (cd "$1" && echo ./*-*.npz); }

# Without a model file: as after a kill before the first periodic save.
expect "a first run" 0 "best so far: best-60.npz" te 1 first --max_steps=60 --set eval_frequency=10
was=$(score first)
cp -r first lost
rm lost/model-* lost/checkpoint
expect "goes on from the best file" 0 "resuming from lost/best-60.npz, step 60" \
    te 2 lost --max_steps=62 --set eval_frequency=10
expect "which is not made worse" 0 "" no_worse "$was" lost
cp -r first train
rm train/model-* train/checkpoint
expect "also in train mode" 0 "resuming from train/best-60.npz, step 60" \
    ranks 1 "$PROG" --config_file=toy.json --logdir=train --max_steps=61
expect "also in eval mode" 0 "weights from lost2/best-60.npz" sh -c "
    mkdir lost2 && cp first/best-60.npz lost2 && '$PROG' --config_file=toy.json --logdir=lost2 --mode=eval"
expect "an older model file does not hide it" 0 "resuming from older/best-60.npz" sh -c "
    mkdir older && cp first/best-60.npz older && cp first/model-60.npz older/model-20.npz &&
    echo model-20.npz > older/checkpoint &&
    '$PROG' --config_file=toy.json --logdir=older --mode=train_eval --set eval_bleu=false --max_steps=60"
expect "a damaged one alone is no start at step 0" 6 "no whole checkpoint is left" sh -c "
    mkdir hurt && head -c 9000 first/best-60.npz > hurt/best-60.npz &&
    '$PROG' --config_file=toy.json --logdir=hurt --mode=train_eval --max_steps=1"

# The same bytes as an undisturbed run, from a best file too.
expect "whole" 0 "" te 1 whole --max_steps=80 --set eval_frequency=10
expect "after the loss" 0 "" te 1 first --max_steps=80 --set eval_frequency=10
expect "the same bytes" 0 "" cmp whole/model-80.npz first/model-80.npz

# After a restart a worse loss is not the best one.
cp -r whole worse
was=$(score worse)
expect "a rate that spoils the weights" 0 "evaluation at step 90" te 1 worse --max_steps=90 --set eval_frequency=5 \
    --set learning_rate=3 --set max_grad_norm=null
expect "does not replace the best file" 0 "^$was\$" score worse

# By an error rate, too, lower is better. The best file is that of the first lowest rate of all evaluations, also over
# resumes and with another number of ranks.
per_wer() { # np, arguments
    ranks "$1" "$PROG" --config_file=toy.json --logdir=per_wer --mode=train_eval --set metric=per_wer --set eval_frequency=10 \
        --set batch_size=$((16 / $1)) --set learning_rate=0.03 --set num_epochs=100 "${@:2}"
}
lowest() { # prints the file of the first lowest rate
    sed -n 's/.*"step":\([0-9]*\),.*"phoneme_error_rate":\([^,]*\).*/\2 \1/p' per_wer/eval/metrics.jsonl | sort -s -g -k1,1 |
        sed -n '1s/.* \(.*\)/best-\1.npz/p'
}
for last in 120 230 300; do
    expect "an error rate, up to step $last" 0 "" per_wer $((last == 230 ? 2 : 1)) --max_steps=$last
    expect "its lowest up to step $last" 0 "^$(lowest)$" sh -c "cd per_wer && ls best-*.npz"
done
expect "which is neither the first nor the last evaluation" 1 "" sh -c "echo '$(lowest)' | grep -e '-10.npz' -e '-300.npz'"

# Killed again and again: the best loss never gets worse.
was="0 1e30"
for i in 1 2 3 4; do
    touch seen; [ ! -e killed/run.log ] || cp killed/run.log seen; lines=$(grep -c "^[-0-9: ]*best so far" seen)
    "$PROG" --config_file=toy.json --logdir=killed --mode=train_eval --set eval_bleu=false --set batch_size=16 \
        --set eval_frequency=5 --summary_frequency=1 --max_steps=100000 > killed.txt 2>&1 &
    job=$!
    more() { [ "$(grep -c "^[-0-9: ]*best so far" killed/run.log)" -gt "$lines" ]; }
    wait_until 60 more
    sleep 0.0$i
    kill -KILL $job
    wait $job 2> /dev/null
    expect "kill $i" 0 "" no_worse "$was" killed
    newest=$(find killed -name '*-*.npz' | sed 's/.*-\([0-9]*\).npz/\1/' | sort -n | tail -n 1)
    expect "no record before it is lost" 0 "^$newest records$" sh -c "
        sed -n 's/.*\"step\":\([0-9]*\),.*/\1/p' killed/metrics.jsonl | awk '\$1 <= $newest' | sort -nu | wc -l | sed 's/\$/ records/'"
    was=$(score killed)
done

# Another evaluation: a new series. The best file of the old one stays.
expect "another evaluation set" 0 "warning: the evaluation is not the one of the best figure, .* (best-62.npz stays): evaluation data: .* -> " \
    te 1 lost --max_steps=100 --set eval_frequency=10 --set source_file_eval=data/other.src \
    --set target_file_eval=data/other.tgt
expect "both series have a file, the new one its best alone" 0 "^./best-62.npz ./best-90.npz ./model-" files lost
expect "the series goes on without a word" 1 "" sh -c "
    '$PROG' --config_file=toy.json --logdir=lost --mode=train_eval --set eval_bleu=false --max_steps=102 \
        --set source_file_eval=data/other.src --set target_file_eval=data/other.tgt 2>&1 | grep 'begins anew'"
cp -r first metric
expect "another metric" 0 'begins anew (best-[0-9]*.npz stays): .*figure: "loss" -> "BLEU", higher_is_better: false -> true' \
    ranks 1 "$PROG" --config_file=toy.json --logdir=metric --mode=train_eval --max_steps=90 --set eval_frequency=10
expect "another number of samples" 0 "begins anew .*max_eval_samples: 0 -> 7" \
    te 1 whole --max_steps=90 --set eval_frequency=10 --set max_eval_samples=7
# No evaluation beats the first by 10, so the third after it lowers the rate. One of other data begins anew.
plateau="--set plateau_factor=0.5 --set plateau_patience=3 --set plateau_min_delta=10 --set eval_frequency=10"
# shellcheck disable=SC2086 # $plateau is several words
expect "two evaluations of a plateau" 0 "" te 1 plateau --max_steps=30 $plateau
cp -r plateau plateau2
# shellcheck disable=SC2086
expect "the third" 0 "the rate falls to" te 1 plateau --max_steps=40 $plateau
# shellcheck disable=SC2086
expect "the first of other data" 0 "" te 1 plateau2 --max_steps=40 $plateau --set max_eval_samples=9
expect "does not lower the rate" 1 "" grep "the rate falls" plateau2/run.log
summary
