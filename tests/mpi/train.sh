#!/bin/sh
# train.sh -- tests what training promises on any number of ranks.
#
# The curve is the same. Every sample occurs once per epoch. Resumed runs end with the same bytes. Evaluations and
# translations are the same. tests/run runs it and sets BUILD, PROG and MPIRUN.
# timeout: 600
# beside
. "$(dirname "$0")/../support/toy.sh"
same=$PWD/${BUILD:-build/release}/tests/support/npz_same
work=$(mktemp -d "${TMPDIR:-/tmp}/train.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 410 61
all_leave_together
t() { # np, folder, arguments: trains
    n=$1 dir=$2
    shift 2
    ranks "$n" "$PROG" --config_file=toy.json --logdir="$dir" "$@"
}
quiet() { "$@" > out.txt 2>&1 || { cat out.txt; return 1; }; }

# The curve. Only the order of float sums may differ.
expect "np 1, batch 16" 0 "" t 1 one --max_steps=200 --summary_frequency=1
expect "np 2, batch 8" 0 "" t 2 two --max_steps=200 --summary_frequency=1 --set batch_size=8
expect "np 4, batch 4" 0 "" t 4 four --max_steps=200 --summary_frequency=1 --set batch_size=4
expect "losses of np 2 and 1" 0 "" close_curves loss 1e-4 200 one two
expect "losses of np 4 and 1" 0 "" close_curves loss 1e-4 200 one four
expect "samples of np 2 and 1" 0 "" close_curves epoch_samples_hash 0 200 one two
expect "samples of np 4 and 1" 0 "" close_curves epoch_samples_hash 0 200 one four
expect "another seed is another curve" 1 "" quiet sh -c "
    '$PROG' --config_file=toy.json --logdir=seed --max_steps=3 --summary_frequency=1 --seed=6 > /dev/null
    sed -n 's/.*\"loss\":\([^,]*\).*/\1/p' seed/metrics.jsonl > s.col
    [ \$(wc -l < s.col) -eq 3 ] || exit 2
    sed -n 's/.*\"loss\":\([^,]*\).*/\1/p' one/metrics.jsonl | head -n 3 | cmp - s.col"

# Each rank keeps only its share of the data. Accumulation.
expect "split data" 0 "" t 2 split --max_steps=30 --summary_frequency=1 --set batch_size=8 --split_data_per_rank
expect "samples of split and whole data" 0 "" close_curves epoch_samples_hash 0 30 one split
expect "losses of split and whole data" 0 "" close_curves loss 1e-4 30 one split
expect "iter_size, np 1" 0 "" t 1 iter1 --max_steps=30 --summary_frequency=1 --set iter_size=3
expect "iter_size, np 2" 0 "" t 2 iter2 --max_steps=30 --summary_frequency=1 --set iter_size=3 --set batch_size=8
expect "losses with iter_size" 0 "" close_curves loss 1e-4 30 iter1 iter2

# The weight of an update is that of its samples. The curve is the same for the whole epoch at once, as a batch that is
# not full, and in two parts.
buckets='--set bucket_src=[14] --set bucket_tgt=[14]'
# shellcheck disable=SC2086 # $buckets is several words
expect "an epoch a step" 0 "" t 1 full --max_steps=4 --summary_frequency=1 $buckets --set batch_size=410
# shellcheck disable=SC2086
expect "an epoch a step, batch not full" 0 "" t 2 over --max_steps=4 --summary_frequency=1 $buckets --set batch_size=700
# shellcheck disable=SC2086
expect "an epoch a step, in two parts" 0 "" t 1 parts --max_steps=4 --summary_frequency=1 $buckets --set batch_size=205 --set iter_size=2
for key in loss grad_norm; do
    expect "$key of a batch not full" 0 "" close_curves $key 1e-4 4 full over
    expect "$key in two parts" 0 "" close_curves $key 1e-4 4 full parts
done

# Three ranks, and last batches that do not divide: 410 samples, each once per epoch, by the sum of the hashes of their
# ids.
epoch_ends() { sed -n 's/.*"epoch_samples":410,"epoch_samples_hash":\([0-9]*\).*/\1/p' "$1/metrics.jsonl"; }
expect "np 3, uneven" 0 "epoch 4 done" t 3 three --summary_frequency=1 --set batch_size=5
expect "all samples, once an epoch" 0 "" sh -c "[ '$(epoch_ends one | head -n 1)' != '' ] && [ '$(epoch_ends three | sort -u)' = '$(
    epoch_ends one | sort -u)' ] && [ $(epoch_ends three | wc -l) -eq 4 ]"

# Resume: the same bytes with the same np, the same curve with another np.
expect "the first part" 0 "" t 2 part --max_steps=37 --summary_frequency=1 --set batch_size=8
expect "the second part" 0 "resuming from part/model-37.npz" t 2 part --max_steps=200 --summary_frequency=1 --set batch_size=8
expect "resume ends with the same bytes" 0 "" cmp part/model-200.npz two/model-200.npz
expect "resume leaves the same curve" 0 "" close_curves loss 0 200 two part
expect "a first part of np 4" 0 "" t 4 mixed --max_steps=50 --summary_frequency=1 --set batch_size=4
expect "then np 1" 0 "" t 1 mixed --max_steps=100 --summary_frequency=1
expect "resume with another np" 0 "" close_curves loss 1e-4 100 one mixed
expect "samples of resume with another np" 0 "" close_curves epoch_samples_hash 0 100 one mixed
expect "another global batch" 0 "done: step 110" t 3 mixed --max_steps=110 --set batch_size=7
expect "nothing to do" 0 "nothing to do" t 2 mixed --max_steps=110
expect "num_epochs is the end" 0 "done: step 104" t 1 epochs
expect "other shapes are refused" 6 "encoder_cell_units 16 -> 17" t 2 two --max_steps=300 --set encoder_cell_units=17
expect "another optimizer is refused" 6 "reset_optimizer" t 2 two --max_steps=300 --set optimizer=momentum
expect "unless asked for" 0 "starts anew" t 2 mixed --max_steps=111 --set optimizer=momentum --set reset_optimizer=true
printf '%s\n' b a c d e f > data/other.txt
expect "another vocabulary is refused" 6 "vocabulary" t 1 two --max_steps=300 --set src_vocab_file=data/other.txt
expect "not finite" 7 "lower learning_rate" t 2 nan --max_steps=100 --set loss_scale=1e30 --set init_scale=100 \
    --set softmax_temperature=0.001 --set encoder_use_skip_connections=true --set nonfinite_limit=4

# Ranks with different starts report that and do not hang.
# shellcheck disable=SC2086 # $MPIRUN is several words
expect "another config on one rank" 4 "config" timeout 60 $MPIRUN -np 1 "$PROG" --config_file=toy.json --logdir=odd : \
    -np 1 "$PROG" --config_file=toy.json --logdir=odd --set learning_rate=0.5
# shellcheck disable=SC2086
expect "another flag on one rank" 4 "max_steps=7" timeout 60 $MPIRUN -np 1 "$PROG" --config_file=toy.json --logdir=odd --max_steps=6 : \
    -np 1 "$PROG" --config_file=toy.json --logdir=odd --max_steps=7

# shellcheck disable=SC2086
expect "a trace on one rank" 4 "has '[^']*', rank 0 (.*) has '[^']* --trace" timeout 60 $MPIRUN -np 1 "$PROG" --config_file=toy.json \
    --logdir=odd --max_steps=6 --trace=odd.json : -np 1 "$PROG" --config_file=toy.json --logdir=odd --max_steps=6

# Evaluation and inference: the same results and lines for every number of ranks.
figures() { # np: prints the line of the score and the sums, without times
    rm -rf one/eval
    ranks "$1" "$PROG" --config_file=toy.json --logdir=one --mode=eval --set eval_batch_size=7 > out.txt 2>&1 || return 1
    sed 's/"eval_s".*//' one/eval/metrics.jsonl
}
lines() { # np, arguments
    n=$1
    shift
    ranks "$n" "$PROG" --config_file=toy.json --logdir=one --mode=infer "$@" 2> err.txt
}
figures 1 > f1.txt
for n in 2 3; do
    figures $n > f$n.txt
    expect "evaluation of np $n" 0 "" cmp f1.txt f$n.txt
done
expect "evaluation has a score" 0 "BLEU" cat f1.txt
lines 1 > i1.txt
expect "a line for each line" 0 "" sh -c "[ $(wc -l < i1.txt) -eq 61 ]"
for n in 2 3; do
    lines $n --set infer_batch_size=$((n * 3)) > i$n.txt
    expect "inference of np $n" 0 "" cmp i1.txt i$n.txt
done
awk '{ l[NR] = $0 } END { for (i = NR; i > 0; i--) print l[i] }' data/test.src > data/back.src
lines 2 --set source_file_test=data/back.src | awk '{ l[NR] = $0 } END { for (i = NR; i > 0; i--) print l[i] }' > back.txt
expect "lines in the order of the input" 0 "" cmp i1.txt back.txt
lines 2 --inference_out=file.txt > stdout.txt
expect "inference into a file" 0 "" cmp i1.txt file.txt
expect "and nothing on standard output" 0 "" sh -c "[ ! -s stdout.txt ]"
beam="--set decoder_type=beam_search --beam_width=3 --set length_penalty=1.0"
# shellcheck disable=SC2086 # $beam is several words
lines 1 $beam > b1.txt
# shellcheck disable=SC2086
lines 3 $beam --set infer_batch_size=5 > b3.txt
expect "beam search: a line for each line" 0 "" sh -c "[ $(wc -l < b1.txt) -eq 61 ]"
expect "beam search of np 3" 0 "" cmp b1.txt b3.txt
printf 'a b c\n\nd e f f\n' > in.txt
expect "standard input, an empty line" 0 "" sh -c \
    "[ \"\$('$PROG' --config_file=toy.json --logdir=one --mode=infer --input=- < in.txt 2> err.txt | wc -l)\" -eq 3 ]"

# One source with two targets, of which the second is the model's output. With multi_reference the two are one sentence,
# and it is right.
awk 'NR == 1 { print; print }' data/test.src > data/twice.src
{ echo "f f f f f f f f f f f f"; head -n 1 i1.txt; } > data/twice.tgt
for multi in true false; do
    expect "multi_reference $multi" 0 "" t 2 one --mode=eval --set multi_reference=$multi --set metric=per_wer \
        --set source_file_eval=data/twice.src --set target_file_eval=data/twice.tgt
    tail -n 1 one/eval/metrics.jsonl > $multi.txt
done
expect "the best of two targets" 0 '"word_error_rate":0.0,' cat true.txt
expect "two targets on their own" 0 '"word_error_rate":50.0,' cat false.txt

# train_eval evaluates between steps and keeps the best checkpoint.
expect "train_eval" 0 "evaluation at step 20" t 2 te --mode=train_eval --max_steps=45 --set eval_frequency=20
expect "the best is kept" 0 "" sh -c "ls te/best-*.npz && [ \$(wc -l < te/eval/metrics.jsonl) -eq 3 ]"
expect "evaluation of the best" 0 "BLEU" t 1 te --mode=eval --set checkpoint=best
expect "evaluation changes no step" 0 "" sh -c "
    $(command -v sh) -c 'exec \"\$0\" \"\$@\"' '$PROG' --config_file=toy.json --logdir=tt --max_steps=45 > /dev/null &&
    $(command -v sh) -c 'exec \"\$0\" \"\$@\"' '$PROG' --config_file=toy.json --logdir=tu --max_steps=45 --mode=train_eval \
        --set eval_frequency=10 > /dev/null && '$same' tt/model-45.npz tu/model-45.npz"
expect "bench" 0 '"tokens_per_s":' ranks 2 "$PROG" --config_file=toy.json --mode=bench --set bench_format=json \
    --set bench_steps=3 --set bench_warmup=1 --set bench_synthetic=true --set bench_vocab=50
summary
