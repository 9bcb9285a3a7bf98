#!/bin/bash
# raw_text.sh -- trains from two raw text files alone: vocabularies and subword model come from the text. Every number
# of ranks makes the same files and batches, and a log folder has all that is needed to translate.
# needs: support/npz_same
# timeout: 300
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
bpe=${BUILD:-build/release}/run_dist-bpe
case $bpe in /*) ;; *) bpe=$PWD/$bpe ;; esac
same=${BUILD:-build/release}/tests/support/npz_same
case $same in /*) ;; *) same=$PWD/$same ;; esac
case $PROG in /*) ;; *) PROG=$PWD/$PROG ;; esac
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 300 24
# Words of several letters, capitals, punctuation, an accent, a word of one side alone.
for f in data/*.src data/*.tgt; do
    sed -i 's/a/Haus/g; s/b/house,/g; s/c/na\xc3\xafve/g; s/d/(low)/g; s/e/lower/g; s/f/newest/g; s/$/./' "$f"
done
sed -i 's/Haus/Baum/g' data/*.tgt
cat > raw.json << 'END'
{
    "source_file": "data/train.src", "target_file": "data/train.tgt",
    "source_file_eval": "data/dev.src", "target_file_eval": "data/dev.tgt",
    "num_epochs": 4, "metric": "sacrebleu",
    "encoder_type": "bidirectional", "encoder_cell_type": "lstm", "encoder_cell_units": 16, "encoder_layers": 1,
    "encoder_dp_input_keep_prob": 0.8, "encoder_dp_output_keep_prob": 0.9, "encoder_use_skip_connections": false,
    "decoder_cell_type": "lstm", "decoder_cell_units": 16, "decoder_layers": 1,
    "decoder_dp_input_keep_prob": 0.8, "decoder_dp_output_keep_prob": 0.9, "decoder_use_skip_connections": false,
    "src_emb_size": 16, "tgt_emb_size": 16, "attention_type": "luong", "luong_scale": true, "attention_layer_size": 16,
    "optimizer": "Adam", "learning_rate": 0.01, "max_grad_norm": 3.0, "lr_scaling": "none", "seed": 5,
    "print_samples": false, "histogram_frequency": 0, "threads": 1, "record_sample_ids": true
}
END
# run NP BATCH LOGDIR ARGS: trains with a global batch of 24
run() {
    ranks "$1" "$PROG" --config_file=raw.json --logdir="$3" --set batch_size="$2" --max_steps=12 --summary_frequency=1 "${@:4}"
}

# ---- the files ----
sub='--set subword=bpe --set subword_size=25'
# shellcheck disable=SC2086 # $sub is several words
{
expect "one rank makes vocabularies and codes" 0 "vocabularies and subword model kept in np1/text" run 1 24 np1 $sub
expect "two ranks" 0 "kept in np2/text" run 2 12 np2 $sub
expect "four ranks" 0 "kept in np4/text" run 4 6 np4 $sub
}
"$bpe" learn 25 data/train.src data/train.tgt > codes
expect "the codes are those of both sides" 0 "" cmp codes np1/text/subword.model
# count FILE: its words as sort and uniq count them, the most frequent first, ties from the end
count() {
    "$bpe" apply codes "$1" | tr ' ' '\n' | LC_ALL=C sort | uniq -c | LC_ALL=C sort -k1,1nr -k2,2r |
        awk '{ printf "%s\t%d\n", $2, $1 }'
}
count data/train.src > count.src
count data/train.tgt > count.tgt
expect "the source vocabulary" 0 "" cmp count.src np1/text/vocab.source.txt
expect "the target vocabulary" 0 "" cmp count.tgt np1/text/vocab.target.txt
expect "the sides differ" 1 "" cmp -s count.src count.tgt
for np in 2 4; do
    expect "np $np makes the same files" 0 "" diff -r np1/text np$np/text
    expect "np $np has the same batches" 0 "" cmp np1/samples.jsonl np$np/samples.jsonl
    expect "np $np has the same losses" 0 "" close_curves loss 1e-5 12 np1 np$np
done
expect "the ids of twelve steps are recorded" 0 "" test "$(wc -l < np1/samples.jsonl)" -eq 12

# ---- prepare mode ----
# shellcheck disable=SC2086
{
expect "prepare, two ranks" 0 "prepared; train with --logdir=pre" \
    ranks 2 "$PROG" --config_file=raw.json --logdir=pre --mode=prepare $sub
expect "prepare makes what training makes" 0 "" diff -r np1/text pre/text
expect "prepare once more" 0 "pre/text is there already, made of this text" \
    ranks 1 "$PROG" --config_file=raw.json --logdir=pre --mode=prepare $sub
expect "training takes it" 0 "vocabularies of pre/text, made of this text" run 1 24 pre $sub
expect "training made nothing" 0 "" test "$(grep -c "kept in pre/text" pre/run.log)" -eq 1
expect "with the same losses" 0 "" close_curves loss 0 12 np1 pre
# ---- lines that are read again when they are used ----
expect "offsets, one rank" 0 "16 bytes a pair: lines are read again" run 1 24 again1 $sub --set ids_in_memory=never
expect "offsets, two ranks" 0 "lines are read again" run 2 12 again2 $sub --set ids_in_memory=never
expect "one rank: the same weights" 0 "" "$same" np1/model-12.npz again1/model-12.npz
expect "two ranks: the same weights" 0 "" "$same" np2/model-12.npz again2/model-12.npz
# ---- stop and go on ----
expect "five steps" 0 "" ranks 1 "$PROG" --config_file=raw.json --logdir=part --set batch_size=24 --max_steps=5 --summary_frequency=1 $sub
expect "and seven more" 0 "vocabularies of part/text, made of this text" run 1 24 part $sub
expect "are the same weights" 0 "" "$same" np1/model-12.npz part/model-12.npz
}

# ---- limits of pieces, as in subword-nmt ----
printf '%s\n' 'new(?:est)?' > patterns
limits='--set bpe_vocab_threshold=60 --set bpe_glossaries=patterns'
# shellcheck disable=SC2086
{
expect "limits of pieces" 0 "pieces of the source: [0-9]* of [0-9]* occur 60 times or more" run 1 24 limits1 $sub $limits
expect "limits of pieces, two ranks" 0 "" run 2 12 limits2 $sub $limits
expect "the same files" 0 "" diff -r limits1/text limits2/text
expect "and losses" 0 "" close_curves loss 1e-5 12 limits1 limits2
expect "the codes are the same ones" 0 "" cmp codes limits1/text/subword.model
expect "pieces that occur often are listed" 0 "" sh -c '[ -s $0 ] && awk "\$2 < 60 { exit 1 }" $0' limits1/text/subword.source.pieces
expect "a rare piece is split" 0 "" awk '
    FNR == NR { piece[$1]; next }
    { p = $1; sub(/@@$/, "", p); if (length(p) > 1 && p !~ /^new(est)?$|^[^ -~]+$/ && !($1 in piece) && !(p in piece)) exit 1 }' \
    limits1/text/subword.source.pieces limits1/text/vocab.source.txt
expect "without limits it is not" 1 "" awk '
    FNR == NR { piece[$1]; next }
    { p = $1; sub(/@@$/, "", p); if (length(p) > 1 && p !~ /^new(est)?$|^[^ -~]+$/ && !($1 in piece) && !(p in piece)) exit 1 }' \
    limits1/text/subword.source.pieces np1/text/vocab.source.txt
expect "a glossary is one word" 0 "" grep -q '^newest[@.]*	' limits1/text/vocab.source.txt
rm patterns
for np in 1 2; do
    expect "np $np translates with limits" 0 "24 lines" ranks $np "$PROG" --config_file=raw.json --logdir=limits1 --mode=infer \
        --input=data/dev.src --inference_out=limits.$np
done
expect "and says the same" 0 "" cmp limits.1 limits.2
expect "no marks of subwords are left there" 1 "" grep -q '@@' limits.1
expect "limits of another scheme" 2 "'bpe_vocab_threshold' works with subword bpe, not byte_bpe" \
    run 1 24 none --set bpe_vocab_threshold=2
printf 'a(b\n' > patterns
expect "a broken pattern" 2 "the glossary 'a(b' is no regular expression" run 1 24 none $sub $limits
expect "no file of patterns" 5 "bpe_glossaries.*no-file" run 1 24 none $sub --set bpe_glossaries=no-file
}

# ---- the log folder has all that is needed ----
mkdir away && mv data/train.* away
for np in 1 2; do
    expect "np $np translates raw lines" 0 "24 lines" \
        ranks $np "$PROG" --config_file=raw.json --logdir=np1 --mode=infer --input=data/dev.src --inference_out=out.$np
done
expect "a checkpoint brings the files of its folder" 0 "" \
    ranks 1 "$PROG" --config_file=raw.json --mode=infer --set checkpoint=np1/model-12.npz --input=data/dev.src --inference_out=out.file
expect "and says the same" 0 "" cmp out.1 out.file
expect "any number of ranks gives the same text" 0 "" cmp out.1 out.2
expect "no marks of subwords are left" 1 "" grep -q '@@' out.1
expect "the model says something" 0 "" grep -q '[a-z]' out.1
# shellcheck disable=SC2016
expect "lines from a pipe" 0 "" sh -c 'head -n 3 data/dev.src | "$0" --config_file=raw.json --logdir=np1 --mode=infer --input=- > out.pipe' "$PROG"
expect "are translated alike" 0 "" cmp -n "$(wc -c < out.pipe)" out.pipe out.1
for metric in sacrebleu chrf bleu; do
    score=$(ranks 1 "$PROG" --config_file=raw.json --logdir=np1 --mode=eval --set target_file_eval=out.1 --set metric=$metric --set batch_size=5)
    expect "$metric compares texts as infer mode writes them" 0 "= 1*100.00\|= 1.0*" echo "$score"
    echo "$score" | grep -i "$metric\|chrf" >> scores
done
expect "three scores" 0 "" test "$(grep -c 100.00 scores)" -eq 3
expect "not against other texts" 1 "" sh -c '"$0" --config_file=raw.json --logdir=np1 --mode=eval --set batch_size=5 | grep -q "sacreBLEU = 100"' "$PROG"
mv away/train.* data

# ---- what is refused ----
# shellcheck disable=SC2086
{
expect "other rules, with a checkpoint" 2 "subword_size 25 -> 30: the checkpoints in 'np1' were trained with the other value" \
    run 1 24 np1 --set subword=bpe --set subword_size=30
expect "the same words without the subwords" 6 "'subword model' is another one there" \
    run 1 24 child --set init_from=np1 --set src_vocab_file=np1/text/vocab.source.txt \
    --set tgt_vocab_file=np1/text/vocab.target.txt --set max_unknown=1
head -n 200 data/train.src > data/less.src
head -n 199 data/train.tgt > data/less.tgt
expect "unequal numbers of lines, before any work" 5 "'data/less.src' has 200 lines, 'data/less.tgt' has 199" \
    run 2 12 bad $sub --set source_file=data/less.src --set target_file=data/less.tgt
expect "no model is left" 1 "" test -e bad/text/subword.model
expect "no log folder" 2 "there is no log folder 'empty'" \
    ranks 1 "$PROG" --config_file=raw.json --logdir=empty --mode=infer --input=data/dev.src
mkdir empty
expect "a log folder without vocabularies" 2 "and empty/text has no vocabularies" \
    ranks 1 "$PROG" --config_file=raw.json --logdir=empty --mode=infer --input=data/dev.src
printf '#version: 0.2\nl o\n' > np2/text/subword.model
expect "another model file" 5 "np2/text/subword.model' is not the file that was kept" \
    ranks 2 "$PROG" --config_file=raw.json --logdir=np2 --mode=infer --input=data/dev.src
expect "nothing to prepare" 2 "mode prepare has nothing to do for dataset synthetic_images" \
    ranks 1 "$PROG" --config_file=raw.json --logdir=pre2 --mode=prepare --set model=lenet --set dataset=synthetic_images --allow_unknown_keys
}
summary
