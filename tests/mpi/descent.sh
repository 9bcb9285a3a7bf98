#!/usr/bin/env bash
# descent.sh -- tests a whole training step against calculus: a small step downhill lowers the loss by rate |gradient|^2.
#
# Each step has all samples, without dropout, so that the loss of the next step shows what the update did. The relation
# holds for the mean over the samples only if sums, weights, rates and update counts are right. tests/run runs the
# script and sets PROG and MPIRUN.
# timeout: 300
# beside
. "$(dirname "$0")/../support/toy.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/descent.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 64 10
whole='--set bucket_src=[14] --set bucket_tgt=[14] --set max_grad_norm=null --set encoder_dp_input_keep_prob=1.0
    --set encoder_dp_output_keep_prob=1.0 --set decoder_dp_input_keep_prob=1.0 --set decoder_dp_output_keep_prob=1.0'
t() { # np, folder, arguments: four steps of all samples
    # shellcheck disable=SC2086 # $whole is several words
    ranks "$1" "$PROG" --config_file=toy.json --max_steps=5 --logdir="$2" --summary_frequency=1 $whole "${@:3}"
}
# falls FOLDER FACTOR FROM TO: is the loss of each step FROM .. TO followed by one that is lower by
# FACTOR * learning_rate * grad_norm^2, within 5 %? Prints the ratios.
falls() {
    paste <(column loss "$1") <(column learning_rate "$1") <(column grad_norm "$1") | awk -v factor="$2" -v from="$3" -v to="$4" '
        NR > from && NR <= to + 1 {
            ratio = (loss - $1) / (factor * rate * norm * norm)
            printf "%.4f ", ratio
            if (!(ratio > 0.95 && ratio < 1.05)) bad = 1
            n++
        }
        { loss = $1; rate = $2; norm = $3 }
        END { exit bad || n != to - from + 1 }'
}

for np in 1 2 4; do
    expect "sgd, np $np" 0 "" t $np sgd$np --lr=0.05 --set optimizer=sgd --set batch_size=$((64 / np))
    expect "sgd, np $np: the loss falls as it should" 0 "" falls sgd$np 1 1 4
done
expect "parts of a batch" 0 "" t 2 iter --lr=0.05 --set optimizer=sgd --set batch_size=16 --set iter_size=2
expect "parts of a batch: the loss falls as it should" 0 "" falls iter 1 1 4
expect "a batch that is not full" 0 "" t 2 over --lr=0.05 --set optimizer=sgd --set batch_size=50
expect "a batch that is not full: the loss falls as it should" 0 "" falls over 1 1 4
expect "scaled by the ranks" 0 "" t 4 linear --lr=0.0125 --set lr_scaling=linear --set optimizer=sgd --set batch_size=16
expect "scaled by the ranks: the loss falls as it should" 0 "" falls linear 1 1 4
expect "scaled by the ranks: the rate" 0 "^0.05$" sh -c "sed -n 's/.*\"learning_rate\":\([^,]*\).*/\1/p' linear/metrics.jsonl | sort -u"
expect "rates by steps" 0 "" t 1 pieces --set 'piecewise_learning_rate_schedule=0.06;2;0.03;3;0.01' --lr=0.06 \
    --set lr_boundary_unit=steps --set optimizer=sgd --set batch_size=64
expect "rates by steps: two, one, the rest" 0 "^0.06 0.06 0.03 0.01 0.01 $" sh -c "
    sed -n 's/.*\"learning_rate\":\([^,]*\).*/\1/p' pieces/metrics.jsonl | tr '\n' ' '"
expect "rates by steps: the loss falls as it should" 0 "" falls pieces 1 1 4
# An epoch has each sample once: its hash is the sum of the upper halves of SplitMix64 of 0 .. 63.
for folder in sgd1 sgd4 iter over; do
    expect "$folder: each sample once" 0 "^150928808079$" sh -c "
        sed -n 's/.*\"epoch_samples_hash\":\([0-9]*\).*/\1/p' $folder/metrics.jsonl | sort -u"
done
expect "an epoch of 8 batches has 3 steps of 3 batches" 0 "done: step 3 " ranks 1 "$PROG" --config_file=toy.json --logdir=end \
    --set batch_size=8 --set iter_size=3 --set num_epochs=1 --set 'bucket_src=[14]' --set 'bucket_tgt=[14]'
expect "clipped" 0 "" t 2 clipped --lr=0.5 --set optimizer=sgd --set batch_size=32 --set max_grad_norm=0.01
expect "clipped: the step has the length 0.5 * 0.01" 0 "" sh -c "
    sed -n 's/.*\"grad_norm\":\([^,]*\).*/\1/p' clipped/metrics.jsonl > norms
    sed -n 's/.*\"loss\":\([^,]*\).*/\1/p' clipped/metrics.jsonl | paste - norms | awk '
        NR > 1 { r = (loss - \$1) / (0.5 * 0.01 * norm); if (!(r > 0.95 && r < 1.05)) bad = 1 } { loss = \$1; norm = \$2 }
        END { exit bad || NR != 5 }'"

# Adam with a large epsilon is a descent: its first update has the rate lr sqrt(1 - beta2) / epsilon. A skipped step does
# not count as an update.
adam='--set optimizer=adam --set adam_epsilon=1000 --lr=1500 --set batch_size=32'
# shellcheck disable=SC2086 # $adam is several words
expect "adam" 0 "" t 2 adam $adam
expect "adam: the first update" 0 "" falls adam 0.0000316228 1 1
# shellcheck disable=SC2086
expect "adam, stopped after two steps" 0 "" t 2 parts $adam --max_steps=2
# shellcheck disable=SC2086
expect "adam, resumed" 0 "resuming from" t 1 parts $adam --set batch_size=64
# sqrt(1 - 0.999^3) / 1000: the gradient hardly changes, so the mean of three is the third.
expect "adam: the third update, by another start" 0 "" falls parts 0.0000547449 3 3
# shellcheck disable=SC2086
RD_FAULT=nan:1:1:wait expect "adam, the first step skipped" 0 "step 1 skipped on all ranks" t 2 skip $adam
expect "adam: the first update after it" 0 "" falls skip 0.0000316228 2 2
summary
