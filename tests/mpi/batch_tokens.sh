#!/usr/bin/env bash
# batch_tokens.sh -- tests updates of about the same number of target tokens.
#
# An update is the same for every number of ranks and for every iter_size. A run goes on with another number of ranks,
# also after a kill within an update or at the end of an epoch. tests/run runs the script and sets BUILD, PROG and MPIRUN.
# timeout: 300
# beside
. "$(dirname "$0")/../support/toy.sh"
same=$PWD/${BUILD:-build/release}/tests/support/npz_same
work=$(mktemp -d "${TMPDIR:-/tmp}/batch_tokens.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 400 20
sed 's/"\(src_emb_size\|tgt_emb_size\|[a-z_]*cell_units\|attention_layer_size\)": 16/"\1": 4/g
    s/"batch_size": 16, "num_epochs": 4/"batch_tokens": 120, "num_epochs": 2/' toy.json > small.json
t() { # np, folder, arguments: trains
    n=$1 dir=$2
    shift 2
    ranks "$n" "$PROG" --config_file=small.json --logdir="$dir" --summary_frequency=1 --set record_sample_ids=true "$@"
}
# uses FOLDER EPOCH: prints how many samples the epoch used, how many of them are different, the first and the last
uses() {
    sed -n 's/.*"epoch":'"$2"',"samples":\[\(.*\)\].*/\1/p' "$1/samples.jsonl" | tr , '\n' | sort -n |
        awk '$1 != last || NR == 1 { different++ } NR == 1 { first = $1 } { last = $1 }
             END { print NR, different + 0, first, last }'
}
# each_update FOLDER: prints the samples of each step, sorted within the step
each_update() {
    sed 's/.*"step":\([0-9]*\).*"samples":\[\(.*\)\].*/\1,\2/' "$1/samples.jsonl" |
        awk -F, '{ for (i = 2; i <= NF; i++) print $1, $i }' | sort -n -k1,1 -k2,2
}

# The 400 sentences have 2717 target tokens with their end tokens: 22.6 updates of 120.
expect "one rank" 0 "update: about 120 target tokens, 17 samples on average, by 1 rank$" t 1 one
expect "23 updates an epoch" 0 "epoch 1 done at step 23: 400 samples" cat one/run.log
expect "the tokens are printed" 0 "target tokens of an update: mean 118, min 1[01][0-9], max 12[0-9], in 23 updates; \
padded .* they would be 1[12][0-9] ([0-9.]* % more)" cat one/run.log
# lr_scaling multiplies the rate of a rank's batch, and there is none.
expect "two ranks" 0 "lr_scaling linear is without effect: 'batch_tokens' means the same update" t 2 two \
    --set lr_scaling=linear
expect "four ranks" 0 "17 samples on average, by 4 ranks$" t 4 four
expect "one rank, four parts" 0 "" t 1 parts4 --set iter_size=4
expect "two ranks, split data, two parts" 0 "by 2 ranks, each in 2 parts (iter_size)" t 2 split --set iter_size=2 \
    --split_data_per_rank
each_update one > one.updates
for run in two four parts4 split; do
    expect "$run: the same losses" 0 "^46 values" close_curves loss 1e-5 46 one $run
    expect "$run: the same samples" 0 "" sh -c "cmp one.updates /dev/stdin" <<< "$(each_update $run)"
done
for epoch in 0 1; do expect "each sample of epoch $epoch once" 0 "^400 400 0 399\$" uses one $epoch; done
expect "another number of tokens is another run" 0 "epoch 1 done at step 14: 400 samples" t 1 other --set batch_tokens=200
expect "with other losses" 1 "46 values" close_curves loss 1e-5 46 one other
expect "the rate stays" 0 "^46 values, largest gap 0\$" close_curves learning_rate 0 46 one two

# deterministic any: the same bytes for every number of ranks.
any="--set deterministic=any --set micro_batches=4"
# shellcheck disable=SC2086 # $any is several words
{
    expect "any, one rank" 0 "" t 1 any1 $any
    expect "any, one rank up to step 30" 0 "" t 1 any4 $any --max_steps=30
    expect "any, then four" 0 "" t 4 any4 $any
}
expect "any: the same bytes after a change of ranks" 0 "" "$same" any1/model-46.npz any4/model-46.npz

# A kill within an update (its third part of four), and after the last update of an epoch.
killed() { # step, phase, folder: one rank is killed, and the same command goes on
    local status
    (export RD_FAULT="kill:0:$1:$2" && t 1 "$3" --set iter_size=4 --checkpoint_frequency=0)
    status=$?
    [ $status -ne 0 ] && t 1 "$3" --set iter_size=4 --checkpoint_frequency=0
}
expect "killed within an update" 0 "resuming from inside/model-29.npz" killed 30 compute:3 inside
expect "the same bytes" 0 "" "$same" parts4/model-46.npz inside/model-46.npz
expect "killed at the end of an epoch" 0 "resuming from end/model-23.npz" killed 24 input:1 end
expect "the same bytes" 0 "" "$same" parts4/model-46.npz end/model-46.npz
expect "and the same samples" 0 "" cmp parts4/samples.jsonl end/samples.jsonl

# The number of ranks and iter_size may change, since the updates stay.
expect "one rank up to step 9" 0 "" t 1 moved --max_steps=9
expect "three to the end" 0 "epoch 2 done at step 46: 400 samples" t 3 moved --set iter_size=2
expect "moved: the same losses" 0 "^46 values" close_curves loss 1e-5 46 one moved
expect "moved: the same samples" 0 "" sh -c "cmp one.updates /dev/stdin" <<< "$(each_update moved)"
# The number of tokens may change, too: the samples that are left are put into batches anew.
expect "tokens: 120" 0 "" t 1 tokens --max_steps=9
expect "tokens: 300" 0 "the global batch was 120 tokens and is 300 tokens: .* put into batches anew" \
    t 2 tokens --max_steps=12 --set batch_tokens=300
samples() { t 1 tokens --max_steps=17 --set batch_tokens=null --set batch_size=16; }
expect "tokens: 16 samples" 0 "was 300 tokens and is 16 samples" samples
expect "tokens: 60" 0 "was 16 samples and is 60 tokens" t 1 tokens --set batch_tokens=60
for epoch in 0 1; do expect "tokens: each sample of epoch $epoch once" 0 "^400 400 0 399\$" uses tokens $epoch; done

# Sockeye's buckets: a batch has pairs of one bucket. 25 updates are whole or a bucket's last one.
sed 's/"bucket_src": [^]]*], "bucket_tgt": [^]]*], //' small.json > buckets.json
b() { # np, folder, arguments
    ranks "$1" "$PROG" --config_file=buckets.json --logdir="$2" --summary_frequency=1 --set record_sample_ids=true \
        --set bucketing=sockeye --set bucket_width=3 "${@:3}"
}
expect "buckets" 0 "epoch 2 done at step 50: 400 samples" b 1 buckets1
expect "each is reported" 0 "bucket (12, 12): [0-9]* pairs, mean target length 1[01][.][0-9]" cat buckets1/run.log
expect "buckets, two ranks, two parts" 0 "" b 2 buckets2 --set iter_size=2
expect "buckets: the same losses" 0 "^50 values" close_curves loss 1e-5 50 buckets1 buckets2
expect "buckets, one rank up to step 30" 0 "" b 1 buckets3 --max_steps=30
expect "buckets, then three with other tokens" 0 "the global batch was 120 tokens and is 90 tokens" b 3 buckets3 \
    --set batch_tokens=90
for run in buckets1 buckets3; do
    for epoch in 0 1; do expect "$run: each sample of epoch $epoch once" 0 "^400 400 0 399\$" uses $run $epoch; done
done
expect "buckets, up to step 30" 0 "" b 1 buckets4 --max_steps=30
expect "another width is other data" 0 "the training data is not the one of the checkpoint: going on with a new epoch" \
    b 1 buckets4 --set bucket_width=4
expect "beside bucket_src" 2 "'bucketing' makes the buckets, but 'bucket_src' names others" t 1 no --set bucketing=sockeye
expect "an unknown rule" 2 "bucketing" b 1 no --set bucketing=sockeye4

# batch_sentences 16 is batch_size 16 of one rank.
expect "batch_size" 0 "" t 1 size --set batch_tokens=null --set batch_size=16
expect "batch_sentences" 0 "update: 16 samples, by 1 rank" t 1 sentences --set batch_tokens=null --set batch_sentences=16
expect "the same bytes" 0 "" "$same" "$(echo size/model-*.npz)" "$(echo sentences/model-*.npz)"
expect "three ranks, two parts" 0 "" t 3 sentences3 --set batch_tokens=null --set batch_sentences=16 --set iter_size=2
expect "the same losses" 0 "^50 values" close_curves loss 1e-5 50 sentences sentences3

# Keys that exclude each other.
expect "beside batch_size" 2 "'batch_tokens' beside 'batch_size', which is the batch of one rank; remove one of them" \
    t 1 no --set batch_size=8
expect "beside batch_sentences" 2 "'batch_tokens' beside 'batch_sentences', which counts samples" t 1 no \
    --set batch_sentences=8
expect "sentences beside batch_size" 2 "'batch_sentences' beside 'batch_size'" t 1 no --set batch_tokens=null \
    --set batch_sentences=8 --set batch_size=8
expect "none" 2 "missing key 'batch_size': .* or 'batch_tokens' or 'batch_sentences'" t 1 no --set batch_tokens=null
expect "independent" 2 "'sampling' independent has a batch for each rank" t 1 no --set sampling=independent
expect "fewer samples than ranks" 2 "'batch_sentences' 2 is less than one sample for each of 3 ranks" t 3 no \
    --set batch_tokens=null --set batch_sentences=2
expect "few samples for micro_batches" 2 "has 17 samples on average, too few for 32 'micro_batches'" t 1 no \
    --set deterministic=any --set micro_batches=32
for value in 0 -3 1.5 many 1e30; do
    expect "batch_tokens $value" 2 "batch_tokens" t 1 no --set batch_tokens=$value
done
cat > digits.json << 'END'
{
    "model": "mnist_cnn", "dataset": "synthetic_images", "image_size": 12, "image_channels": 1, "n_classes": 10,
    "synthetic_samples": 107, "synthetic_eval_samples": 20, "num_epochs": 1, "optimizer": "sgd", "batch_sentences": 12,
    "learning_rate": 0.01, "seed": 4, "threads": 1, "histogram_frequency": 0, "image_frequency": 0
}
END
image() { # np, folder, arguments
    n=$1 dir=$2
    shift 2
    ranks "$n" "$PROG" --config_file=digits.json --logdir="$dir" --summary_frequency=1 "$@"
}
expect "images have no tokens" 2 "'batch_tokens' counts target tokens, which the samples of 'synthetic_images' do not" \
    image 1 no --set batch_sentences=null --set batch_tokens=100
expect "images by samples" 0 "epoch 1 done at step 9: 107 samples" image 1 images1
expect "on two ranks in parts" 0 "epoch 1 done at step 9: 107 samples" image 2 images2 --set iter_size=2
expect "the same losses of images" 0 "^9 values" close_curves loss 1e-5 9 images1 images2
summary
