#!/usr/bin/env bash
# decode.sh -- tests the output of infer mode: text, n-best lists and JSON lines are the same bytes for every batch,
# number of threads and number of ranks. Limits of length and barred tokens act. tests/run sets PROG and MPIRUN.
# beside
. "$(dirname "$0")/../support/toy.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/decode.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 300 61
awk 'NR % 17 == 0 { print "" } { print }' data/test.src > in.txt
infer() { # np, arguments
    ranks "$1" "$PROG" --config_file=toy.json --logdir=one --mode=infer --input=in.txt "${@:2}" 2> err.txt
}
# Locks are of GPUs, so a CPU needs no such folder.
expect "training" 0 "" ranks 1 "$PROG" --config_file=toy.json --logdir=one --max_steps=120 --set lock_dir=/nonexistent

declare -A args
args[greedy]="--set decoder_type=greedy"
args[original]="--beam_width=4 --set length_penalty=1.0 --nbest=3 --output_format=json"
args[sockeye]="--beam_width=4 --set length_penalty_type=sockeye --nbest=4"
args[gnmt]="--beam_width=4 --set length_penalty_type=gnmt --nbest=2 --output_format=json"
args[covered]="--beam_width=4 --set length_penalty_type=gnmt --set coverage_penalty=0.3 --output_format=json"
args[marian]="--beam_width=4 --set length_penalty_type=marian --set length_penalty=0.6 --set bar_unk=true"
args[fairseq]="--beam_width=4 --set length_penalty_type=fairseq --nbest=4 --set min_length=3"
awk 'BEGIN { for (i = 97; i < 103; i++) printf "%c\t%c\t-0.5\n", i, i; print "q\ta\t-1" }' > same.lex
for s in a b c d e f; do for t in a b c d e f; do printf '%s\t%s\t0.1\n' $s $t; done; done > all.lex
args[short]="--beam_width=3 --set shortlist_file=same.lex --set length_penalty_type=gnmt --output_format=json"
args[drawn]="--set decoder_type=sampling --set sampling_top_p=0.9 --set sampling_top_k=5 --seed=7 --output_format=json"
for name in greedy original sockeye gnmt covered marian fairseq short drawn; do
    # shellcheck disable=SC2086 # several words
    {
        infer 1 ${args[$name]} > $name.want
        infer 1 ${args[$name]} --set infer_batch_size=7 --set threads=2 > $name.1
        infer 3 ${args[$name]} --set infer_batch_size=5 > $name.2
    }
    expect "$name: there is output" 0 "a" cat $name.want
    for i in 1 2; do expect "$name: the same bytes ($i)" 0 "" cmp $name.want $name.$i; done
done
for name in greedy original drawn; do
    # shellcheck disable=SC2086
    {
        infer 1 ${args[$name]} --set infer_batch_size=1 > $name.3
        infer 2 ${args[$name]} --set infer_batch_tokens=40 > $name.4
        infer 1 ${args[$name]} --input=- < in.txt > $name.5
    }
    for i in 3 4 5; do expect "$name: the same bytes ($i)" 0 "" cmp $name.want $name.$i; done
done
# A writer that waits: numbers of lines go on from one answer to the next.
# shellcheck disable=SC2086
{ head -n 20 in.txt; sleep 0.5; tail -n +21 in.txt; } |
    infer 2 ${args[drawn]} --input=- --set infer_batch_size=1 > drawn.6
expect "drawn: the same bytes in two parts" 0 "" cmp drawn.want drawn.6
for a in greedy original sockeye gnmt covered marian short drawn; do
    expect "$a differs from fairseq" 1 "" cmp -s $a.want fairseq.want
done

# shellcheck disable=SC2086
infer 1 ${args[drawn]} --seed=8 > other.txt
expect "another seed draws another text" 1 "" cmp -s drawn.want other.txt
# shellcheck disable=SC2086
infer 1 ${args[drawn]} --output_format=text --set sampling_temperature=0 > cold.txt
expect "temperature 0 is greedy" 0 "" cmp greedy.want cold.txt

# The best of a list is the text, the numbers count lines from 0, and scores fall.
# shellcheck disable=SC2086
infer 1 ${args[sockeye]} --nbest=1 --output_format=text > text.txt
expect "an empty line is an empty line" 0 "^$(grep -n '^$' in.txt | tr '\n' ' ')$" sh -c "grep -n '^$' text.txt | tr '\n' ' '"
awk -F ' [|][|][|] ' '!($1 in seen) { seen[$1] = 1; print $2 }' sockeye.want > first.txt
expect "the first of each list" 0 "" cmp text.txt first.txt
# shellcheck disable=SC2016 # awk's fields
expect "numbers and scores" 0 "^64 lines, 0 wrong, at most 4$" awk -F ' [|][|][|] ' '
    NF != 3 || $3 !~ /^-?[0-9]+[.][0-9][0-9][0-9][0-9]$/ { wrong++ }
    NR > 1 && $1 == at && $3 + 0 > score { wrong++ }
    NR > 1 && $1 != at && $1 != at + 1 { wrong++ }
    { at = $1; score = $3 + 0; if (++n[$1] > most) most = n[$1] }
    END { print at + 1 " lines, " wrong + 0 " wrong, at most " most }' sockeye.want
expect "JSON has a line for each line" 0 '^{"line":63,"text":"[a-f ]*","score":-[0-9.]*,"tokens":[0-9]*,"source_tokens":[0-9]*,"nbest":\[' \
    tail -n 1 gnmt.want
expect "of an empty line" 0 '^{"line":16,"text":"","score":0.0000,"tokens":0,"source_tokens":0}$' sed -n 17p gnmt.want
if "$RD_PYTHON" -c "" 2> /dev/null; then
    expect "JSON is read by another program" 0 "^64 64 2$" "$RD_PYTHON" -c '
import json
rows = [json.loads(line) for line in open("gnmt.want")]
ok = [r for r in rows if "nbest" not in r or r["nbest"][0]["text"] == r["text"]]
print(len(rows), len(ok), max(len(r.get("nbest", [])) for r in rows))'
else
    skipped=$((skipped + 1))
fi

# Lengths: of the words of a translation.
words() { awk '$0 != "" && (!n++ || NF < low) { low = NF } NF > high { high = NF } END { print low, high }' "$1"; }
infer 1 --set min_length=6 > min.txt
expect "min_length" 0 "^6 " words min.txt
infer 1 --set max_length_factor=0 --set max_length_offset=2 > max.txt
expect "max_length_offset" 0 " 2$" words max.txt
# shellcheck disable=SC2086
infer 1 ${args[fairseq]} --nbest=1 --set min_length=9 --set max_length_factor=0 --set max_length_offset=9 > exact.txt
expect "both, in a beam" 0 "^9 9$" words exact.txt

# Half of the target words are unknown.
printf '%s\n' a b c > data/few.txt
few() {
    ranks 1 "$PROG" --config_file=toy.json --logdir=few --set tgt_vocab_file=data/few.txt --set max_unknown=1 \
        --set print_unk=true "$@" 2> err.txt
}
expect "training with unknown words" 0 "" few --max_steps=60
few --mode=infer > unk.txt
few --mode=infer --beam_width=3 --set bar_unk=true > barred.txt
expect "unknown words are words" 0 "<UNK>" cat unk.txt
expect "unless they are barred" 1 "" grep -q UNK barred.txt
expect "and a word takes their place" 0 "" grep -q "[abc]" barred.txt

# A shortlist of all words changes nothing. One of each word alone leaves the words of the source.
infer 1 > plain.txt
infer 2 --set shortlist_file=all.lex --set infer_batch_size=9 > all.txt
expect "a shortlist of all words" 0 "" cmp plain.txt all.txt
infer 1 --set shortlist_file=all.lex --set shortlist_k=2 > some.txt
expect "the first two of equal ones" 1 "" grep -q '[c-f]' some.txt
infer 2 --set shortlist_file=same.lex > same.txt
expect "what is read is printed" 0 "shortlist: 6 pairs of words from same.lex, 1 of unknown words left out" cat err.txt
expect "words of the source alone" 0 "^64 lines, 0 other words$" sh -c "paste in.txt same.txt | awk -F '\t' '
    { split(\$2, w, \" \"); for (i in w) if (!index(\$1, w[i])) wrong++ } END { print NR \" lines, \" wrong + 0 \" other words\" }'"
expect "evaluation takes it" 0 "shortlist: 6 pairs" ranks 2 "$PROG" --config_file=toy.json --logdir=one --mode=eval \
    --set shortlist_file=same.lex

wrong() { infer 1 "$@" || { status=$?; cat err.txt; return $status; }; }
expect "a list of greedy search" 2 "nbest 3 needs a beam that is as wide, but beam_width is 1; add --beam_width=3" wrong --nbest=3
expect "a list as text" 2 "nbest 2 needs output_format nbest or json" wrong --nbest=2 --beam_width=2 --output_format=text
expect "int8 of a recurrent model" 2 "'decode_dtype' int8 works for Transformers, but the model is 'seq2seq'" wrong \
    --set decode_dtype=int8
expect "another type" 2 "decode_dtype" wrong --set decode_dtype=int4
expect "an unknown form" 2 "output_format" wrong --output_format=xml
printf 'a\tb\t0.5\nb c 0.1\n' > bad.lex
expect "a wrong line of a lexicon" 5 "bad.lex:2: a lexicon's line is: source word, TAB" wrong --set shortlist_file=bad.lex
expect "a lexicon that is not there" 5 "none.lex" wrong --set shortlist_file=none.lex
expect "coverage with another rule" 2 "coverage_penalty 0.2 needs length_penalty_type gnmt, fairseq or marian, but it is sockeye" \
    wrong --beam_width=2 --set length_penalty_type=sockeye --set coverage_penalty=0.2
expect "coverage below 0" 2 "coverage_penalty" wrong --set coverage_penalty=-1
expect "no length" 2 "both 0" wrong --set max_length_factor=0
expect "the speed is printed" 0 "64 lines in .*, [0-9,]* words, [0-9,]* words/s" sh -c "$(printf '%q ' "$PROG") \
    --config_file=toy.json --logdir=one --mode=infer --input=in.txt 2>&1 > out.txt"
summary
