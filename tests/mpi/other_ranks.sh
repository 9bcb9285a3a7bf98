#!/usr/bin/env bash
# other_ranks.sh -- tests that a run goes on with another number of ranks, or another batch size.
#
# The epoch goes on with the samples that are left: each comes once. The learning rate goes on from the samples seen,
# and the mean of the epoch includes the steps before the restart. tests/run runs the script and sets BUILD, PROG and
# MPIRUN.
# timeout: 900
# beside, long
. "$(dirname "$0")/../support/toy.sh"
same=$PWD/${BUILD:-build/release}/tests/support/npz_same
work=$(mktemp -d "${TMPDIR:-/tmp}/other_ranks.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 400 20
sed 's/"\(src_emb_size\|tgt_emb_size\|[a-z_]*cell_units\|attention_layer_size\)": 16/"\1": 4/g
    s/"batch_size": 16, "num_epochs": 4/"batch_size": 5, "num_epochs": 2/' toy.json > small.json
cat > digits.json << 'END'
{
    "model": "mnist_cnn", "dataset": "synthetic_images", "image_size": 12, "image_channels": 1, "n_classes": 10,
    "synthetic_samples": 107, "synthetic_eval_samples": 20, "batch_size": 4, "num_epochs": 2, "optimizer": "sgd",
    "learning_rate": 0.01, "lr_scaling": "none", "seed": 4, "threads": 1, "histogram_frequency": 0, "image_frequency": 0
}
END
t() { # np, folder, config, arguments: trains
    n=$1 dir=$2 config=$3
    shift 3
    ranks "$n" "$PROG" --config_file="$config" --logdir="$dir" --summary_frequency=1 --set record_sample_ids=true "$@"
}
# uses FOLDER EPOCH: prints how many samples the epoch used, how many of them are different, the first and the last
uses() {
    sed -n 's/.*"epoch":'"$2"',"samples":\[\(.*\)\].*/\1/p' "$1/samples.jsonl" | tr , '\n' | sort -n |
        awk '$1 != last || NR == 1 { different++ } NR == 1 { first = $1 } { last = $1 }
             END { print NR, different + 0, first, last }'
}
newest() { find "$1" -name 'model-*.npz' | sort -t- -k2n | tail -n 1; }
# chain NAME CONFIG N STEPS1 STEPS2 STEPS3 ARGUMENTS: one, two, three and four ranks; the last to the end of epoch 2
chain() {
    local name=$1 config=$2 n=$3 to1=$4 to2=$5 to3=$6
    shift 6
    expect "$name: one rank" 0 "" t 1 "$name" "$config" --max_steps="$to1" "$@"
    expect "$name: two" 0 "the global batch was .* that are left are put into batches anew" \
        t 2 "$name" "$config" --max_steps="$to2" "$@"
    expect "$name: three" 0 "resuming from $name/model-$to2.npz" t 3 "$name" "$config" --max_steps="$to3" "$@"
    expect "$name: four" 0 "epoch 2 done .*: $n samples" t 4 "$name" "$config" "$@"
    for epoch in 0 1; do
        expect "$name: each sample of epoch $epoch once" 0 "^$n $n 0 $((n - 1))\$" uses "$name" $epoch
    done
    expect "$name: the ranks had the planned samples" 0 "^1\$" sh -c "
        sed -n 's/.*\"epoch_samples\":$n,\"epoch_samples_hash\":\([0-9]*\).*/\1/p' $name/metrics.jsonl | sort -u | wc -l"
}
chain buckets small.json 400 20 32 40
chain split small.json 400 20 32 40 --split_data_per_rank
chain images digits.json 107 7 11 13
chain one_by_one digits.json 107 9 12 15 --set batch_size=1
# A step may end one epoch and begin the next: only the samples of each epoch are counted.
expect "iter_size: one rank" 0 "" t 1 iter small.json --max_steps=9 --set iter_size=2
expect "iter_size: two" 0 "" t 2 iter small.json --max_steps=16 --set iter_size=2
expect "iter_size: three" 0 "" t 3 iter small.json --max_steps=22 --set iter_size=2
expect "iter_size: four" 0 "epoch 2 done .*: 400 samples" t 4 iter small.json --set iter_size=2
expect "iter_size: the first mean has its samples alone" 0 "epoch 1 done .*: 400 samples" cat iter/run.log
for epoch in 0 1; do
    expect "iter_size: each sample of epoch $epoch once" 0 "^400 400 0 399\$" uses iter $epoch
done
# The epoch ends where fewer samples are left than a global batch: 107 - 28 - 32 - 24 = 23.
drop="--set drop_last_batch=true"
# A run that has ended its epoch does not go back to it.
# shellcheck disable=SC2086 # $drop is several words
{
    expect "drop: an epoch of 3 batches" 0 "epoch 1 done at step 3: 96 samples" t 2 ended digits.json --max_steps=3 \
        $drop --set batch_size=16
    expect "drop: the next epoch" 0 "epoch 2 done at step 29: 104 samples" t 1 ended digits.json --max_steps=29 $drop
    expect "drop: the first one has ended once" 0 "^1\$" grep -c "epoch 1 done" ended/run.log
    expect "drop: one rank" 0 "" t 1 drop digits.json --max_steps=7 $drop
    expect "drop: two" 0 "" t 2 drop digits.json --max_steps=11 $drop
    expect "drop: three" 0 "" t 3 drop digits.json --max_steps=13 $drop
    expect "drop: four" 0 "epoch 1 done at step 14: 100 samples" t 4 drop digits.json --max_steps=14 $drop
    expect "no sample twice" 0 "^100 100 " uses drop 0
}
expect "one step" 0 "" t 1 step small.json --max_steps=1
expect "and two ranks" 0 "epoch 1 done" t 2 step small.json --max_steps=60
expect "each sample once after one step" 0 "^400 400 0 399\$" uses step 0
expect "other batch sizes: 5" 0 "" t 1 sizes small.json --max_steps=20
expect "other batch sizes: 37" 0 "" t 1 sizes small.json --max_steps=24 --set batch_size=37
expect "other batch sizes: 1" 0 "" t 1 sizes small.json --max_steps=40 --set batch_size=1
expect "another seed" 0 "the order of the samples changes" t 1 sizes small.json --max_steps=50 --set batch_size=1 --seed=9
expect "other batch sizes: all that is left" 0 "epoch 2 done" t 2 sizes small.json --set batch_size=400 --seed=9
for epoch in 0 1; do
    expect "other batch sizes: each sample of epoch $epoch once" 0 "^400 400 0 399\$" uses sizes $epoch
done
any="--set deterministic=any --set micro_batches=4"
# shellcheck disable=SC2086
{
    expect "deterministic any: a global batch of 8" 0 "" t 1 any small.json --max_steps=20 $any --set batch_size=8
    expect "of 16 on two ranks" 0 "" t 2 any small.json --max_steps=30 $any --set batch_size=8
    cp -r any any4
    expect "to the end" 0 "" t 2 any small.json $any --set batch_size=8
    expect "to the end on four" 0 "" t 4 any4 small.json $any --set batch_size=4
}
expect "deterministic any: each sample once" 0 "^400 400 0 399\$" uses any 0
expect "deterministic any: the same bytes" 0 "" "$same" "$(newest any)" "$(newest any4)"
# Each rank has its own order of all samples, so an epoch goes on at the same number of samples: 20 x 4 = 80 of 107.
expect "independent: one rank" 0 "" t 1 own digits.json --max_steps=20 --set sampling=independent
expect "independent: two" 0 "epoch 1 done at step 23" t 2 own digits.json --max_steps=26 --set sampling=independent

# After the change, a resume on the same ranks ends with the same bytes.
expect "one rank" 0 "" t 1 whole small.json --max_steps=10
cp -r whole parts
expect "two without a stop" 0 "" t 2 whole small.json --max_steps=60
expect "two, stopped in the epoch" 0 "" t 2 parts small.json --max_steps=20
expect "and again" 0 "" t 2 parts small.json --max_steps=33
expect "and to the end" 0 "" t 2 parts small.json --max_steps=60
expect "the same bytes" 0 "" cmp whole/model-60.npz parts/model-60.npz
expect "the same samples" 0 "" cmp whole/samples.jsonl parts/samples.jsonl

# The mean of an epoch includes the steps before a restart.
epochs() { sed -n 's/.*\(epoch [0-9]* done .*\), [^,]*$/\1/p' "$1/run.log" | sed 's/, [0-9,.]* images.s, input wait [^,]*//'; }
tag() { for f in "$1"/events.out.tfevents.*; do "$PROG" --events="$f" | grep "$2"; done | sed 's/^\([^,]*\),[^,]*,/\1,/' | sort -u; }
expect "an undisturbed run" 0 "epoch 2 done" t 2 mean small.json
expect "stopped" 0 "" t 2 mean2 small.json --max_steps=13
expect "and stopped again" 0 "" t 2 mean2 small.json --max_steps=31
expect "to the end" 0 "epoch 1 done at step [0-9]*: 400 samples, mean loss" t 2 mean2 small.json
expect "the same lines" 0 "" sh -c "[ '$(epochs mean)' = '$(epochs mean2)' ] && [ '$(epochs mean | wc -l)' -eq 2 ]"
expect "the same mean losses of epochs" 0 "" sh -c "[ '$(tag mean per_epoch/loss)' = '$(tag mean2 per_epoch/loss)' ] &&
    [ '$(tag mean per_epoch/loss | wc -l)' -eq 2 ]"
expect "images" 0 "epoch 2 done" t 2 mean3 digits.json
expect "images, stopped" 0 "" t 2 mean4 digits.json --max_steps=9
expect "images, to the end" 0 "epoch 1 done at step [0-9]*: 107 samples, mean loss" t 2 mean4 digits.json
expect "the same lines of images" 0 "" sh -c "[ '$(epochs mean3)' = '$(epochs mean4)' ] && [ '$(epochs mean3 | wc -l)' -eq 2 ]"
# With rate 0 and without dropout, the mean of an epoch is that of the data, for any ranks.
fixed="--set learning_rate=0 --set encoder_dp_input_keep_prob=1 --set encoder_dp_output_keep_prob=1
    --set decoder_dp_input_keep_prob=1 --set decoder_dp_output_keep_prob=1"
loss() { sed -n 's/.*epoch 1 done .*mean loss \([0-9.]*\).*/\1/p' "$1"; }
# shellcheck disable=SC2086
{
    expect "one rank" 0 "epoch 1 done" t 1 fixed small.json --max_steps=90 $fixed
    expect "one, then three" 0 "" t 1 fixed3 small.json --max_steps=30 $fixed
    expect "three" 0 "epoch 1 done" t 3 fixed3 small.json --max_steps=60 $fixed
    expect "the same mean" 0 "^[0-9.]\+\$" sh -c "[ '$(loss fixed/run.log)' = '$(loss fixed3/run.log)' ] && echo '$(loss fixed/run.log)'"
}

# A checkpoint of an earlier program.
if command -v python3 > /dev/null; then
    cat > earlier.py << 'END'
import json, sys, zipfile
path = sys.argv[1]
with zipfile.ZipFile(path) as z:
    files = {n: z.read(n) for n in z.namelist()}
m = json.loads(files["manifest.json"])
for key in "schedule", "epoch_sums":
    del m[key]
files["manifest.json"] = json.dumps(m).encode()
with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
    for n, data in files.items():
        z.writestr(n, data)
END
    expect "earlier: the first part" 0 "" t 2 earlier small.json --max_steps=13
    python3 earlier.py earlier/model-13.npz || exit 2
    cp -r earlier earlier3
    expect "earlier: the mean is not known" 0 "epoch 1 done at step [0-9]*: its mean loss is not known" t 2 earlier small.json
    expect "earlier: the next one is" 0 "epoch 2 done at step [0-9]*: 400 samples, mean loss" cat earlier/run.log
    expect "earlier: the same weights" 0 "" "$same" "$(newest earlier)" "$(newest mean)"
    expect "earlier: three ranks" 0 "epoch 2 done" t 3 earlier3 small.json
    expect "earlier: each sample once" 0 "^400 400 0 399\$" uses earlier3 0
else
    skipped=$((skipped + 6))
fi

# The learning rate of each step: four ranks for 6 steps, one for 6, two for 4. x: steps of one rank before step s;
# e: epochs before it; p: share of an epoch that the step is; n: ranks.
# Without CASES=all only some policies: unit/schedule has all of them.
rates() { # name, formula of the rate, arguments
    local name=$1 formula=$2
    shift 2
    case ${CASES:-}$name in
    all* | staircase | "pieces by epochs" | warm-up | "cosine to the end of the run") ;;
    *) return ;;
    esac
    rm -rf rates
    for world in "4 6" "1 12" "2 16"; do
        # shellcheck disable=SC2086 # np and steps
        set -- $world "$@"
        expect "$name: np $1" 0 "" t "$1" rates small.json --max_steps="$2" --set 'bucket_src=[14]' --set 'bucket_tgt=[14]' \
            --set learning_rate=0.01 --set lr_scaling=linear "${@:3}"
        shift 2
    done
    expect "$name" 0 "" sh -c "sed -n 's/.*\"learning_rate\":\([^,]*\),.*/\1/p' rates/metrics.jsonl | awk '
        function max(a, b) { return a > b ? a : b }
        function min(a, b) { return a < b ? a : b }
        { s = NR - 1; n = s < 6 ? 4 : s < 12 ? 1 : 2
          x = s < 6 ? 4 * s : s < 12 ? 24 + s - 6 : 30 + 2 * (s - 12)
          e = 5 * x / 400; p = 5 * n / 400; want = $formula; gap = \$1 - want; if (gap < 0) gap = -gap
          if (gap > 1e-9) { print \"step\", NR, \"has\", \$1, \"wanted\", want; bad = 1 } }
        END { exit bad || NR != 16 }'"
}
decay="--set use_decay=true --set decay_rate=0.5 --set min_learning_rate=0"
# shellcheck disable=SC2086
{
    rates staircase 'n * 0.01 * (x < 8 ? 1 : 0.5 ^ int((x - 8) / 6))' $decay --set begin_decay_at=8 \
        --set decay_steps=6 --set use_staircase_decay=true
    rates exponential 'sqrt(n) * max(0.004, 0.01 * (x < 8 ? 1 : 0.5 ^ ((x - 8) / 16)))' $decay --set begin_decay_at=8 \
        --set decay_steps=16 --set use_staircase_decay=false --set min_learning_rate=0.004 --set lr_scaling=sqrt
    rates none '0.01 * (s < 4 ? 1 : 0.5 ^ int((s - 4) / 3))' $decay --set begin_decay_at=4 --set decay_steps=3 \
        --set use_staircase_decay=true --set lr_scaling=none
}
rates "pieces by steps" 'n * (x < 22 ? 0.01 : x < 28 ? 0.02 : x < 34 ? 0.03 : 0.04)' \
    --set 'piecewise_learning_rate_schedule=0.01;22;0.02;28;0.03;34;0.04' --set lr_boundary_unit=steps
rates "pieces by epochs" 'n * (e < 0.26 ? 0.01 : e < 0.35 ? 0.02 : e < 0.42 ? 0.03 : 0.04)' \
    --set 'piecewise_learning_rate_schedule=0.01;0.26;0.02;0.35;0.03;0.42;0.04'
rates polynomial 'n * 0.01 * (1 - min(1, max(0, (x - 4) / 40))) ^ 2' --set lr_policy=polynomial --set lr_power=2 \
    --set begin_decay_at=4 --set decay_steps=40
rates "polynomial by epochs" 'n * (0.002 + 0.008 * (1 - e / 0.5))' --set lr_policy=polynomial --set decay_end_epoch=0.5 \
    --set min_learning_rate=0.002
rates cosine 'n * 0.01 * 0.5 * (1 + cos(3.14159265358979 * min(1, x / 40)))' --set lr_policy=cosine --set decay_steps=40
rates "cosine by epochs" 'n * 0.01 * 0.5 * (1 + cos(3.14159265358979 * e))' --set lr_policy=cosine --set decay_end_epoch=1
rates wsd 'n * 0.01 * (1 - sqrt(min(1, max(0, (x - 8) / 40))))' --set lr_policy=wsd --set begin_decay_at=8 \
    --set decay_steps=40
rates "wsd by epochs" 'n * (0.002 + 0.008 * (1 - sqrt(max(0, (e - 0.25) / 0.75))))' --set lr_policy=wsd \
    --set decay_fraction=0.75 --set decay_end_epoch=1 --set min_learning_rate=0.002
rates "inv_sqrt of Sockeye" 'n * 0.01 * min(1, (x + 1) / 16) / sqrt(x + 1 > 16 ? x + 1 : 16)' --set lr_policy=inv_sqrt \
    --set warmup_steps=16
rates "inv_sqrt of fairseq" 'sqrt(n) * (x < 16 ? 0.001 + 0.009 * x / 16 : 0.01 * sqrt(16 / x))' --set lr_policy=inv_sqrt \
    --set inv_sqrt_form=fairseq --set warmup_init_lr=0.001 --set warmup_steps=16 --set lr_scaling=sqrt
rates "warm-up" '0.01 * (1 + (n - 1) * min(1, x / 32))' --set warmup_steps=32
rates "warm-up by epochs" '0.01 * (e < 0.4 ? 1 + (n - 1) * min(1, (e + p) / 0.4) : n)' --set warmup_epochs=0.4
rates "warm-up from a start" '0.01 * n * (0.2 + 0.8 * min(1, x / 32))' --set warmup_steps=32 --set warmup_start=0.2
# A step of four times as many samples: the 8 steps before are 2 steps of today, and the decay begins at 3.
for key in batch_size=20 iter_size=4; do
    rm -rf rates
    # shellcheck disable=SC2086 # $decay is several words
    {
        decay="--set use_decay=true --set begin_decay_at=3 --set decay_steps=1 --set decay_rate=0.5
            --set use_staircase_decay=true --set min_learning_rate=0 --set lr_scaling=linear --set learning_rate=0.01"
        expect "8 steps" 0 "" t 1 rates small.json --max_steps=8 $decay
        expect "$key" 0 "" t 1 rates small.json --max_steps=12 $decay --set $key
    }
    expect "the schedule after $key" 0 "^0.01 0.01 0.005 0.0025 \$" sh -c "
        sed -n 's/.*\"learning_rate\":\([^,]*\),.*/\1/p' rates/metrics.jsonl | tail -n 4 | tr '\n' ' '"
done
# Without its own end the schedule ends with the run: after step 16, at 38 / 80 epochs.
rates "cosine to the end of the run" '(s < 12 ? $1 : n * 0.01 * 0.5 * (1 + cos(3.14159265358979 * e / 0.475)))' \
    --set lr_policy=cosine --set num_epochs=null
summary
