#!/usr/bin/env bash
# predict.sh -- tests that images are classified with the same bytes on any number of ranks, from a folder, a list and a
# pipe, and that a pipe is answered as it is written.
# beside
. "$(dirname "$0")/../support/toy.sh"
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
. "$ROOT/tests/support/pictures.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/predict.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
picture_classes
expect "train_eval" 0 "done: step 12" ranks 2 "$PROG" --config_file=x.json --logdir=log --mode=train_eval --max_steps=12 --set batch_size=4 \
    --set eval_frequency=6 --set image_frequency=0
mv d gone
mkdir in
i=0
while [ $i -lt 1030 ]; do # more than a block
    ln -s "../gone/train/$([ $((i % 3)) -eq 0 ] && echo ant || echo bee)/$((i % 7)).jpg" "in/$i.png"
    i=$((i + 1))
done
rm in/500.png
echo broken > in/500.png
infer() { # np, arguments
    n=$1
    shift
    ranks "$n" "$PROG" --config_file=x.json --logdir=log --mode=infer --set top_k=2 --set batch_size=4 "$@" 2> err.txt
}
infer 1 --input=in > one.tsv
expect "a row for each image" 0 "" sh -c "[ \$(wc -l < one.tsv) -eq 1031 ]"
expect "and one of them broken" 0 "in/500.png.*not a JPEG" grep "not a JPEG" one.tsv
infer 3 --input=in --inference_out=three.tsv
expect "a folder on three ranks" 0 "" cmp one.tsv three.tsv
tail -n +2 one.tsv | cut -f 1 > list
infer 2 --input=- < list > list.tsv
expect "a list on standard input" 0 "" cmp one.tsv list.tsv
head -n 40 list > few
# shellcheck disable=SC2002 # a pipe is what is tested
cat few | infer 2 --input=- --set infer_batch_size=1 > pipe.tsv
infer 1 --input=few --set infer_batch_size=1 > single.tsv
expect "a pipe" 0 "" cmp single.tsv pipe.tsv
same_classes() { head -n 41 one.tsv | cut -f 1,2 | cmp - <(cut -f 1,2 pipe.tsv); }
expect "the batch does not decide" 0 "" same_classes

mkfifo to from
ask() { # np: sends each path after the answer to the one before
    infer "$1" --input=- --output_format=text < to > from &
    pid=$!
    exec 4> to 5< from
    for path in in/0.png in/1.png missing in/2.png; do
        echo "$path" >&4
        read -r answer <&5 || break
        echo "$path $answer"
    done > answers.txt
    exec 4>&- 5<&-
    wait $pid
}
expect "questions and answers on two ranks" 0 "" ask 2
expect "each in time" 0 "" sh -c "[ \$(wc -l < answers.txt) -eq 4 ] && grep -q '^missing \$' answers.txt"

# An evaluation leaves the same files on any number of ranks.
mv gone d
for n in 1 3; do
    expect "evaluation on $n ranks" 0 "in full: log/eval/" ranks $n "$PROG" --config_file=x.json --logdir=log --mode=eval --set eval_batch_size=5
    mkdir "files$n"
    cp log/eval/*.tsv log/eval/*.png "files$n"
done
expect "the same files" 0 "" diff -r files1 files3

summary
