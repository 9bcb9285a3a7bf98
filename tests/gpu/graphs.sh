#!/bin/sh
# graphs.sh -- training, and evaluation of images, with CUDA graphs gives the same bytes as without, while everything changes that may:
# batches, ids, masks, learning rate, loss scale, the last batch, ranks, the device's memory; and batches that go up ahead are the same
# ones. Images are small, which saves minutes where kernels are host code; with CASES=all they are those of MNIST. Run by tests/run, which
# sets BUILD, PROG and MPIRUN; without a GPU backend it is skipped.
# timeout: 900
. "$(dirname "$0")/../support/toy.sh"
skip() { printf 'skip: %s\n0 passed, 0 failed, 1 skipped\n' "$1"; exit 0; }
"$PROG" --version | grep -q '^backends: .*cuda' || skip "$PROG has no GPU backend"
# The build with the driver runs it (make CUDA=fake); that with the kernels alone does with CASES=all.
if [ -e "${BUILD:-build/cuda}/tests/support/emulated/gpu_emulated.cc.o" ] && [ "${CASES:-}" != all ]; then
    printf 'skip: make CUDA=fake runs it; here with CASES=all\n0 passed, 0 failed, 1 skipped\n'
    exit 0
fi
same=$PWD/${BUILD:-build/cuda}/tests/support/npz_same
work=$(mktemp -d "${TMPDIR:-/tmp}/gpu_graphs.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 410 11
"$PROG" --config_file=toy.json --logdir=first --max_steps=1 --set device=cuda > first.txt 2>&1
[ $? -ne 3 ] || [ "${RD_REQUIRE_GPU:-0}" = 1 ] || skip "$(grep -m 1 error: first.txt)"
sed 's/"data\/train/"data\/ragged/' toy.json > ragged.json
for side in src tgt; do cp data/train.$side data/ragged.$side; done
cp toy.json rnn.json
toy_transformer 410 11
mv toy.json transformer.json
mv rnn.json toy.json
# Sentences of six words, so that shapes recur: 410 = 25 x 16 + 10, the last batch is another shape.
for side in src tgt; do
    awk '{ s = $0; while (split(s, w, " ") < 6) s = s " " $0; n = split(s, w, " "); for (i = 1; i <= 6; i++) printf "%s%s", w[i], i < 6 ? " " : "\n" }' \
        data/train.$side > even && mv even data/train.$side
done
cat > net.json << 'END'
{
    "model": "mnist_cnn", "dataset": "synthetic_images", "synthetic_samples": 110, "image_size": 14, "image_channels": 3, "n_classes": 10,
    "batch_size": 32, "optimizer": "Momentum", "opt_momentum": 0.9, "learning_rate": 0.01, "lr_scaling": "none", "augmentation": "none",
    "print_samples": false, "histogram_frequency": 0, "image_frequency": 0, "threads": 1, "data_threads": 1, "num_gpus": 1, "seed": 3
}
END
# A batch has 74 KiB in either shape: below 64 KiB nothing goes up ahead.
[ "${CASES:-}" != all ] || sed -i 's/"image_size": 14, "image_channels": 3/"image_size": 28, "image_channels": 1/' net.json

t() { # np, folder, config, arguments: trains
    n=$1 dir=$2 config=$3
    shift 3
    ranks "$n" "$PROG" --config_file="$config.json" --logdir="$dir" --summary_frequency=1 --set device=cuda "$@"
}
# both WHAT NP CONFIG STEPS SHARE ARGUMENTS...: the same weights, losses and norms; graphs did at least SHARE percent of the launches.
both() {
    what=$1 np=$2 config=$3 steps=$4 share=$5
    shift 5
    expect "$what, graphs" 0 "" t "$np" "with$id" "$config" --max_steps="$steps" "$@"
    expect "$what, single launches" 0 "" t "$np" "without$id" "$config" --max_steps="$steps" --set cuda_graphs=off "$@"
    expect "$what: the same weights" 0 "" "$same" "with$id/model-$steps.npz" "without$id/model-$steps.npz"
    for d in with without; do sed 's/"step_s".*"loss"/"loss"/; s/,"[a-z_]*_s":[^,}]*//g; s/,"wall_time":[^,}]*//' "$d$id/metrics.jsonl" |
        tr ',' '\n' | grep -e '"loss' -e '"step"' -e '"grad_norm"' > "$d$id.curve"; done
    expect "$what: the same curve" 0 "" cmp "with$id.curve" "without$id.curve"
    [ "$(wc -l < "with$id.curve")" -ge "$steps" ] || expect "$what: there is a curve" 0 "" false
    percent=$(sed -n 's/^.*CUDA graphs: .* of the steps (\([0-9]*\)[.0-9]* %).*/\1/p' "with$id/run.log" | tail -1)
    expect "$what: ${percent:-0} % of the launches were in graphs, $share at least" 0 "" [ "${percent:-0}" -ge "$share" ]
    expect "$what: none without" 1 "" grep -q "CUDA graphs" "without$id/run.log"
    mv "with$id" "$what"
    id=$((id + 1))
}
id=0

# shellcheck disable=SC2317 # called by name
evaluated() {
    t 1 images net --mode=eval --set synthetic_eval_samples=160 --set eval_batch_size=32 "$@"
}
# shellcheck disable=SC2317 # called by name
resumed() { # the same run in two starts
    t 1 "$1" toy --max_steps=11 && t 1 "$1" toy --max_steps=34
}
{
# Dropout, Adam with its step number, clipping, a rate that decays in steps, three epochs with an uneven last batch.
both "sentences" 1 toy 60 80 --set use_decay=true --set use_staircase_decay=true --set min_learning_rate=0 --set begin_decay_at=10 --set decay_steps=7 --set decay_rate=0.7
both "sentences of many lengths" 1 ragged 40 5
both "recurrent layers by own kernels" 1 toy 30 80 --set cudnn_rnn=off
both "recurrent layers by cuDNN, of many lengths" 1 ragged 30 5 --set cudnn_rnn=on
gnmt='--set encoder_type=gnmt --set encoder_layers=4 --set decoder_layers=4 --set attention_type=gnmt_v2'
# shellcheck disable=SC2086 # several words
{
both "layers along the diagonal" 1 toy 12 60 $gnmt --set cudnn_rnn=off
both "layers along the diagonal, mixed" 1 toy 12 60 $gnmt --set dtype=mixed
expect "layers one by one on the processor" 0 "" ranks 1 "$PROG" --config_file=toy.json --logdir=gnmt --summary_frequency=1 --max_steps=12 --set device=cpu $gnmt
}
expect "their losses" 0 "" close_curves loss 1e-5 12 gnmt "layers along the diagonal"
of_transformer < toy.json > transformer.json
for way in products blocks; do
    RD_CUDA_ATTEND=$way
    export RD_CUDA_ATTEND
    both "attention by $way" 1 transformer 12 60 --set dtype=mixed
    unset RD_CUDA_ATTEND
done
expect "other sums by another way" 1 "" "$same" "attention by products/model-12.npz" "attention by blocks/model-12.npz"
expect "but close" 0 "" close_curves loss 1e-2 12 "attention by products" "attention by blocks"
both "accumulated batches" 1 toy 24 60 --set iter_size=2
both "micro-batches" 1 toy 24 60 --set deterministic=any --set micro_batches=4
both "mixed" 1 toy 30 70 --set dtype=mixed
both "a Transformer, mixed" 1 transformer 12 60 --set dtype=mixed
both "a Transformer of other norms, mixed" 1 transformer 8 50 --set dtype=mixed --set norm=post --set recompute=layer
both "images" 1 net 24 70 # fetched ahead into pinned memory; whole batches are read from there, the last one goes with the upload buffer
expect "all but the first went up beside the step before" 0 "batches: 17 of 18 were uploaded" cat images/run.log
both "images of 16 bits" 1 net 24 70 --set dtype=mixed
both "accumulated images" 1 net 6 50 --set iter_size=2
# An evaluation takes the place of a batch that went up.
both "images with evaluations" 1 net 24 60 --mode=train_eval --set eval_frequency=8 --set synthetic_eval_samples=70 --set eval_batch_size=32
expect "the same weights as without evaluations" 0 "" "$same" "images with evaluations/model-24.npz" images/model-24.npz
expect "the same evaluations" 0 "" close_curves loss 0 3 "images with evaluations/eval" "without$((id - 1))/eval"
expect "evaluation, four batches of five in graphs" 0 "CUDA graphs: .* ([78][0-9.]* %)" evaluated
mv images/eval evaluated
expect "evaluation, single launches" 0 "accuracy" evaluated --set cuda_graphs=off
expect "the same evaluation" 0 "" close_curves loss 0 1 evaluated images/eval
expect "images that are made" 0 "batches: 6 of 7 were uploaded" "$PROG" --mode=bench --config_file=net.json --set device=cuda --set bench_synthetic=true \
    --set bench_warmup=2 --set bench_steps=5
expect "images on the processor" 0 "" ranks 1 "$PROG" --config_file=net.json --logdir=cpu --summary_frequency=1 --max_steps=24 --set device=cpu
expect "their losses" 0 "" close_curves loss 1e-4 24 cpu images
expect "in two starts" 0 "resuming" resumed two
expect "in one" 0 "" t 1 one toy --max_steps=34 --set cuda_graphs=off
expect "the same weights" 0 "" "$same" one/model-34.npz two/model-34.npz
expect "a gradient that is not finite is skipped" 0 "step 9 skipped" env RD_FAULT=nan:0:9:compute "$PROG" --config_file=toy.json \
    --logdir=nan --max_steps=14 --set device=cuda
expect "also without graphs" 0 "step 9 skipped" env RD_FAULT=nan:0:9:compute "$PROG" --config_file=toy.json \
    --logdir=nan_off --max_steps=14 --set device=cuda --set cuda_graphs=off
expect "the same weights after it" 0 "" "$same" nan/model-14.npz nan_off/model-14.npz
expect "the next step has fresh gradients" 1 "" grep "step 1[0-4] skipped" nan/run.log
expect "evaluation between steps" 0 "evaluation at step 8" t 1 te toy --mode=train_eval --max_steps=16 --set eval_frequency=4
expect "evaluation, single launches" 0 "" t 1 te_off toy --mode=train_eval --max_steps=16 --set eval_frequency=4 --set cuda_graphs=off
expect "the same weights with evaluations" 0 "" "$same" te/model-16.npz te_off/model-16.npz
if grep -q emulated first.txt; then
    # A loss scale that changes, on a card of float16.
    RD_EMULATED_SM=75
    export RD_EMULATED_SM
    both "float16" 1 toy 30 70 --set dtype=mixed --set loss_scale=1e9
    both "images of float16" 1 net 16 60 --set dtype=mixed --set loss_scale=1e9
    unset RD_EMULATED_SM
    RD_EMULATED_GPUS=2
    export RD_EMULATED_GPUS
    both "two GPUs" 2 toy 24 70 --set batch_size=8 --set bucket_mb=0.01
    unset RD_EMULATED_GPUS
    RD_EMULATED_GRAPHS=0
    export RD_EMULATED_GRAPHS
    expect "no graph can be made" 0 "launched one by one from here on: \(GPU 0: cudaGraphCreate\|RD_EMULATED_GRAPHS is 0\)" t 1 none toy --max_steps=11
    unset RD_EMULATED_GRAPHS
    expect "no memory can be pinned" 0 "" env RD_EMULATED_PAGE_LOCKED=0 "$PROG" --config_file=net.json --logdir=pageable --summary_frequency=1 \
        --max_steps=24 --set device=cuda
    expect "the same images" 0 "" "$same" pageable/model-24.npz images/model-24.npz
    expect "it trains all the same" 0 "" t 1 off toy --max_steps=11 --set cuda_graphs=off
    expect "to the same weights" 0 "" "$same" none/model-11.npz off/model-11.npz
fi
}
summary
