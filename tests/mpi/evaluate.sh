#!/usr/bin/env bash
# evaluate.sh -- tests what an evaluation sums, against what is known without the program.
#
# tests/run runs the script and sets PROG and MPIRUN.
# timeout: 300
# beside
. "$(dirname "$0")/../support/toy.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/evaluate.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 100 61
evaluate() { # np, arguments: evaluates the weights after twenty steps; prints the record
    rm -rf one/eval
    ranks "$1" "$PROG" --config_file=toy.json --logdir=one --mode=eval "${@:2}" > out.txt 2>&1 || { cat out.txt; return 1; }
    cat one/eval/metrics.jsonl
}
expect "twenty steps" 0 "" ranks 1 "$PROG" --config_file=toy.json --logdir=one --max_steps=20

# The loss is that of all samples, however they are cut into batches: 61 at once, 8 times 7 and 5, 20 times 3 and 1.
for size in 61 7 3; do
    evaluate 1 --set eval_batch_size=$size > by$size.txt
    for key in loss loss_per_token accuracy; do
        expect "$key of batches of $size" 0 "" sh -c "
            sed -n 's/.*\"$key\":\([^,]*\).*/\1/p' by61.txt by$size.txt | awk '
                { x[NR] = \$1 } END { d = x[1] - x[2]; exit !(NR == 2 && x[1] > 0 && d * d <= (1e-6 * x[1]) ^ 2) }'"
    done
done
# Of the data, 61 sentences, or as many as max_eval_samples allows. Each target has its end token, too.
n_targets=$(head -n 7 data/dev.tgt | wc -w)
expect "all samples" 0 '"samples":61,"targets":'$(($(wc -w < data/dev.tgt) + 61)), cat by61.txt
expect "seven samples" 0 '"samples":7,"targets":'$((n_targets + 7)), evaluate 2 --set max_eval_samples=7
expect "no more than there are" 0 '"samples":61,' evaluate 1 --set max_eval_samples=1000

# A source without a word has an empty translation, and its reference counts once: 3 words and 2.
printf 'a b c\n\n' > data/blank.src
printf 'c b a\nd e\n' > data/blank.tgt
for np in 1 2 3; do
    expect "an empty source, np $np" 0 "ref_len=5)" evaluate $np --set source_file_eval=data/blank.src --set target_file_eval=data/blank.tgt
done
summary
