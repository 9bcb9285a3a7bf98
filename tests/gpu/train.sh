#!/bin/sh
# train.sh -- training on GPUs keeps what it promises on processors: the same losses, on one GPU, on several by NCCL or through the
# hosts, from one device's checkpoint to the other's; and what it says where it cannot be. Run by tests/run, which sets BUILD, PROG and
# MPIRUN, on a machine with a GPU or on the emulated build; a program without a GPU backend skips it.
# timeout: 900
. "$(dirname "$0")/../support/toy.sh"
"$PROG" --version | grep -q '^backends: .*cuda' || { printf 'skip: %s has no GPU backend\n0 passed, 0 failed, 1 skipped\n' "$PROG"; exit 0; }
# The build with the driver runs it (make CUDA=fake); that with the kernels alone does with CASES=all.
if [ -e "${BUILD:-build/cuda}/tests/support/emulated/gpu_emulated.cc.o" ] && [ "${CASES:-}" != all ]; then
    printf 'skip: make CUDA=fake runs it; here with CASES=all\n0 passed, 0 failed, 1 skipped\n'
    exit 0
fi
same=$PWD/${BUILD:-build/cuda}/tests/support/npz_same
work=$(mktemp -d "${TMPDIR:-/tmp}/gpu_train.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 410 11
cat > net.json << 'END'
{
    "model": "resnet_cifar", "depth": 8, "dataset": "synthetic_images", "synthetic_samples": 96, "synthetic_eval_samples": 32, "image_size": 16,
    "image_channels": 3, "n_classes": 10, "batch_size": 16, "optimizer": "Momentum", "opt_momentum": 0.9, "learning_rate": 0.02,
    "lr_scaling": "none", "augmentation": "none", "print_samples": false, "histogram_frequency": 4, "image_frequency": 0, "threads": 1,
    "data_threads": 1, "num_gpus": 1, "seed": 3
}
END
"$PROG" --config_file=toy.json --logdir=first --max_steps=1 --set device=cuda > first.txt 2>&1
if [ $? -eq 3 ] && [ "${RD_REQUIRE_GPU:-0}" != 1 ]; then
    printf 'skip: %s\n0 passed, 0 failed, 1 skipped\n' "$(grep -m 1 error: first.txt)"
    exit 0
fi
emulated=$(grep -c 'device: emulated GPU' first.txt)
t() { # np, folder, arguments: trains
    n=$1 dir=$2
    shift 2
    ranks "$n" "$PROG" --config_file=toy.json --logdir="$dir" --summary_frequency=1 "$@"
}
one() { # rank, NAME=value, folder, arguments: trains with two ranks, of which that one has this in its environment
    rank=$1 alone=$2 dir=$3
    shift 3
    # shellcheck disable=SC2016 # the rank's shell fills them in
    ranks 2 sh -c '[ "$OMPI_COMM_WORLD_RANK" != "$1" ] || export "$2"; shift 2; exec "$@"' sh "$rank" "$alone" \
        "$PROG" --config_file=toy.json --logdir="$dir" --summary_frequency=1 "$@"
}
both() { # NAME=value, folder, arguments: the same, on both
    both=$1 dir=$2
    shift 2
    ranks 2 env "$both" "$PROG" --config_file=toy.json --logdir="$dir" --summary_frequency=1 "$@"
}
cuda='--set device=cuda'
two="$cuda --set batch_size=8"
share="$two --set allow_shared_gpu=true"

# shellcheck disable=SC2086 # these are several words
{
expect "the processor" 0 "" t 1 cpu --max_steps=20 --set device=cpu
expect "a GPU" 0 "device: .*GPU" t 1 gpu --max_steps=20 $cuda
for key in loss grad_norm accuracy; do
    expect "$key of the GPU" 0 "" close_curves $key 1e-4 20 cpu gpu
done
expect "two ranks share a GPU" 0 "through the hosts' memory, after backward: ranks share a GPU\|between ranks that share GPUs: .* by NCCL" t 2 shared --max_steps=20 $share
expect "their losses" 0 "" close_curves loss 1e-4 20 gpu shared
expect "two ranks on one GPU are refused" 3 "two ranks on one GPU" t 2 refused --max_steps=2 $two
expect "with a table" 3 "rank 1 .*GPU 0  *GPU-" t 2 refused --max_steps=2 $two
expect "one rank keeps all, also with the key shard" 0 "done: step 2" t 1 alone_shard --max_steps=2 $cuda --set shard=optimizer
expect "micro-batches, one rank" 0 "" t 1 any1 --max_steps=5 $cuda --set deterministic=any --set micro_batches=4
expect "micro-batches, two ranks" 0 "deterministic any" t 2 any2 --max_steps=5 $share --set deterministic=any --set micro_batches=4
expect "their losses" 0 "" close_curves loss 1e-12 5 any1 any2
expect "their weights are the same bytes" 0 "" "$same" any1/model-5.npz any2/model-5.npz
expect "iter_size" 0 "" t 1 iter --max_steps=4 $cuda --set iter_size=2
expect "iter_size on the processor" 0 "" t 1 iter_cpu --max_steps=4 --set device=cpu --set iter_size=2
expect "losses with iter_size" 0 "" close_curves loss 1e-4 4 iter iter_cpu

# Images, which mixed keeps in 16 bits between layers. A number has 8 bits there, and its rounding moves the loss by some parts of that.
for type in float32 mixed; do
    expect "images, $type" 0 "done: step 12" ranks 1 "$PROG" --config_file=net.json --logdir=net_$type --summary_frequency=1 --max_steps=12 $cuda --set dtype=$type
done
expect "the curve of mixed beside float32" 0 "" close_curves loss 2e-2 12 net_float32 net_mixed
expect "which is not that of float32" 1 "" close_curves loss 1e-6 12 net_float32 net_mixed
expect "evaluation in mixed" 0 "" ranks 1 "$PROG" --config_file=net.json --logdir=net_mixed --mode=eval $cuda --set dtype=mixed

# From one device to the other and back.
expect "begin on the processor" 0 "" t 1 mix --max_steps=6 --set device=cpu
expect "go on on the GPU" 0 "resuming from mix/model-6.npz" t 1 mix --max_steps=14 $cuda
expect "end on the processor" 0 "resuming from mix/model-14.npz" t 1 mix --max_steps=20 --set device=cpu
expect "losses across devices" 0 "" close_curves loss 1e-4 20 cpu mix

# Killed in a step, started again: as if nothing had been.
kill_and_go_on() {
    RD_FAULT=kill:0:9:compute t 1 killed --max_steps=20 $cuda --checkpoint_frequency=1 > /dev/null 2>&1
    [ ! -f killed/model-20.npz ] && t 1 killed --max_steps=20 $cuda
}
expect "killed in a step" 0 "done: step 20" kill_and_go_on
expect "losses after the kill" 0 "" close_curves loss 1e-4 20 gpu killed
expect "a gradient that is not finite is skipped" 0 "step 3 skipped" env RD_FAULT=nan:0:3:compute "$PROG" --config_file=toy.json \
    --logdir=nan --max_steps=4 $cuda

# Evaluation and inference of the same weights.
expect "evaluation on the processor" 0 "BLEU" t 1 cpu --mode=eval --set device=cpu
sed -n 's/,"eval_s".*//p' cpu/eval/metrics.jsonl > eval_cpu
expect "evaluation on the GPU" 0 "BLEU" t 1 cpu --mode=eval $cuda
figure() { sed -n '$s/.*"'"$2"'":\([^,}]*\).*/\1/p' "$1"; }
expect "the same score" 0 "" [ "$(figure eval_cpu accuracy)" = "$(figure cpu/eval/metrics.jsonl accuracy)" ]
t 1 cpu --mode=infer --set device=cpu > lines_cpu 2> /dev/null
t 1 cpu --mode=infer $cuda > lines_gpu 2> words
expect "the same translations" 0 "" cmp lines_cpu lines_gpu
t 2 cpu --mode=infer $cuda --set allow_shared_gpu=true --set infer_batch_size=3 > lines_two 2> words
expect "of two ranks, in other batches" 0 "" cmp lines_cpu lines_two
for device in cpu cuda; do
    t 1 cpu --mode=infer --set device=$device --beam_width=4 --set length_penalty=0.6 > beam_$device 2> words
    t 1 cpu --mode=infer --set device=$device --beam_width=3 --set dtype=mixed > mixed_$device 2> words
done
expect "the same translations of a beam" 0 "" cmp beam_cpu beam_cuda
expect "which greedy does not find" 1 "differ" cmp lines_cpu beam_cpu
expect "the same translations in mixed" 0 "" cmp mixed_cpu mixed_cuda
say_one() { echo "a b c" | t 1 cpu --mode=infer --input=- "$@"; }
expect "a sentence from a pipe" 0 "^$(say_one --set device=cpu 2> words)$" say_one $cuda
expect "train_eval" 0 "evaluation at step 4" t 1 te --mode=train_eval --max_steps=5 $cuda --set eval_frequency=4

# What TensorBoard gets of each variable.
for device in cpu cuda; do
    t 1 hist_$device --max_steps=2 --set device=$device --set histogram_frequency=1 > words 2>&1
    "$PROG" --events="$(echo hist_$device/events*)" | grep -E 'gradient_norm/|,histogram' | cut -d, -f1,3- | sort > variables_$device
done
same_variables() {
    paste -d, variables_cpu variables_cuda | awk -F, '{ d = $4 - $8; if (d < 0) d = -d
        if ($1 $2 $3 != $5 $6 $7 || d > 1e-4 * ($4 < 0 ? -$4 : $4)) { print; bad = 1 } } END { exit bad || NR < 40 }'
}
expect "norms and histograms of each variable" 0 "" same_variables

if [ "$emulated" -gt 0 ]; then
    RD_EMULATED_GPUS=2
    export RD_EMULATED_GPUS
    expect "two GPUs" 0 "summed by NCCL, as float32" t 2 nccl --max_steps=20 $two
    expect "losses of two GPUs" 0 "" close_curves loss 1e-4 20 gpu nccl
    expect "many buckets, narrow" 0 "as bfloat16 in 3 buckets" t 2 narrow --max_steps=8 $two --set bucket_mb=0.01 --set allreduce_dtype=bfloat16
    expect "losses of narrow sums" 0 "" close_curves loss 1e-3 8 gpu narrow
    expect "without NCCL" 0 "RD_COMM_NCCL=0" both RD_COMM_NCCL=0 hosts --max_steps=8 $two
    expect "losses without NCCL" 0 "" close_curves loss 1e-4 8 gpu hosts
    # Where waiting for the GPU would hang from then on: the process ends by itself, and says why before it gives back what it has.
    expect "a sum fails" 9 "a sum over ranks failed" both RD_EMULATED_NCCL_FAILS=8 fails --max_steps=20 $two
    expect "the first sum fails, of no step" 0 "hosts' memory, which is slower: rank [01] has no NCCL: \(NCCL: \)\?a sum over ranks failed" \
        both RD_EMULATED_NCCL_FAILS=1 first --max_steps=2 $two
    # All ranks take the same way, or none sets out.
    expect "NCCL that one rank does not want" 0 "after backward: RD_COMM_NCCL=0 on rank 1" one 1 RD_COMM_NCCL=0 alone --max_steps=2 $two
    expect "NCCL that one rank does not have" 0 "after backward: rank 1 has no NCCL" one 1 RD_EMULATED_NCCL=0 alone --max_steps=3 $two
    expect "another NCCL" 4 "NCCL and its settings differs: rank 1 .*'22703" one 1 RD_EMULATED_NCCL=22703 alone --max_steps=4 $two
    expect "other settings of NCCL" 4 "rank 1 .*NCCL_PROTO=LL .*rank 0 .*NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_NVLS_ENABLE=0" \
        one 1 NCCL_PROTO=LL alone --max_steps=4 $two
    expect "settings of a person" 0 "warning: the environment has NCCL_ALGO=Ring NCCL_PROTO=LL " both NCCL_PROTO=LL alone --max_steps=4 $two
    expect "another type of 16 bits" 4 "rank 1 .* float16', rank 0 .* bfloat16'" one 1 RD_EMULATED_SM=75 alone --max_steps=5 $two --set dtype=mixed
    expect "other GPUs of the same type" 0 "warning: GPUs of several kinds (rank 0: sm_90, rank 1: sm_80)" \
        one 1 RD_EMULATED_SM=80 alone --max_steps=5 $two --set dtype=mixed
    # A loss scale that adapts: an overflow on one rank is one on all, which go on with one scale.
    RD_EMULATED_SM=75 RD_FAULT=nan:0:3:compute
    export RD_EMULATED_SM RD_FAULT
    half="--set dtype=mixed --set loss_scale=512"
    expect "float16 overflows" 0 "step 3 skipped .* scaled by 256" t 1 half_one --max_steps=8 $cuda $half
    RD_FAULT=nan:1:3:compute
    expect "float16 overflows on one of two ranks" 0 "step 3 skipped .* scaled by 256" t 2 half_two --max_steps=8 $two $half \
        --set check_replicas_every=1
    unset RD_EMULATED_SM RD_FAULT
    expect "their losses" 0 "" close_curves loss 1e-3 8 half_one half_two
    RD_EMULATED_GPUS=1
    expect "NCCL between ranks that share a GPU" 0 "between ranks that share GPUs: gradients are summed by NCCL" \
        both RD_EMULATED_NCCL=23000 shared_nccl --max_steps=8 $share
    expect "their losses" 0 "" close_curves loss 1e-4 8 gpu shared_nccl
    expect "or the hosts' memory, if wanted" 0 "RD_COMM_NCCL=0" both RD_COMM_NCCL=0 shared_hosts --max_steps=2 $share
    expect "recurrent layers step by step" 0 "" t 1 own --max_steps=20 $cuda --set cudnn_rnn=off
    expect "losses of these" 0 "" close_curves loss 1e-4 20 gpu own
    expect "recurrent layers all at once" 0 "" t 1 whole --max_steps=20 $cuda --set cudnn_rnn=on
    expect "losses of these" 0 "" close_curves loss 1e-4 20 own whole
    expect "the other way from its checkpoint on" 0 "resuming from whole/model-20.npz, step 20" t 1 whole --max_steps=26 $cuda --set cudnn_rnn=off
    expect "step by step, further" 0 "resuming from own/model-20.npz, step 20" t 1 own --max_steps=26 $cuda --set cudnn_rnn=off
    expect "losses of these" 0 "" close_curves loss 1e-4 26 own whole
    expect "evaluation all at once" 0 "BLEU" t 1 cpu --mode=eval $cuda --set cudnn_rnn=on
    expect "the same score again" 0 "" [ "$(figure eval_cpu accuracy)" = "$(figure cpu/eval/metrics.jsonl accuracy)" ]
    expect "what cuDNN refuses" 0 "recurrent layer of .* not by cuDNN, .*cudnnRNNForward" env RD_EMULATED_CUDNN_REFUSES=cudnnRNNForward \
        "$PROG" --config_file=toy.json --logdir=refused_rnn --summary_frequency=1 --max_steps=20 $cuda --set cudnn_rnn=on
    expect "losses without it" 0 "" close_curves loss 1e-12 20 own refused_rnn
    expect "a persistent algorithm that fails" 0 "not by cuDNN, .*cudnnRNNForward" env RD_EMULATED_CUDNN_FAILS=cudnnRNNForward \
        "$PROG" --config_file=toy.json --logdir=persistent_fails --max_steps=2 $cuda --set cudnn_rnn=on
    expect "where the standard one fails" 3 "cuDNN: cudnnRNNForward: " env RD_EMULATED_CUDNN_FAILS=cudnnRNNForward "$PROG" \
        --config_file=toy.json --logdir=fails_rnn --max_steps=2 $cuda --set cudnn_rnn=on --set encoder_cell_units=136
    RD_EMULATED_GPUS=0
    expect "no GPU" 3 '"device" is "cuda", and there is no GPU' t 1 none --max_steps=2 $cuda
    expect "no GPU, auto" 0 "device auto: the CPU, because no GPU can be used" t 1 none --max_steps=2
    RD_EMULATED_GPUS=1
    expect "float16 scales the loss" 0 "scaled by" env RD_EMULATED_SM=75 "$PROG" --config_file=toy.json --logdir=half --max_steps=3 \
        $cuda --set dtype=mixed --set loss_scale=1e9
    expect "float16 that is asked for" 0 "mixed (float16)" env RD_CUDA_FLOAT16=1 "$PROG" --config_file=toy.json --logdir=half_asked --max_steps=1 \
        $cuda --set dtype=mixed
    expect "images of float16 scale it, too" 0 "step [0-9]* skipped" env RD_EMULATED_SM=75 "$PROG" --config_file=net.json --logdir=net_half \
        --summary_frequency=1 --max_steps=12 $cuda --set dtype=mixed --set loss_scale=1e9
    expect "and train" 0 "done: step 12" env RD_EMULATED_SM=75 "$PROG" --config_file=net.json --logdir=net_half16 --summary_frequency=1 \
        --max_steps=12 $cuda --set dtype=mixed --set loss_scale=16
    expect "the curve of float16 beside float32" 0 "" close_curves loss 2e-2 12 net_float32 net_half16
    wide="--set decoder_cell_units=256 --set attention_layer_size=256"
    t 1 wide --max_steps=1 --set device=cpu $wide > words 2>&1
    expect "memory too small for sentences" 3 "'infer_batch_size' 11 is too much for the memory of the GPU.*'infer_batch_size' [0-9]* may fit" \
        env RD_EMULATED_MEMORY=180000000 "$PROG" --config_file=toy.json --logdir=wide --mode=infer $cuda $wide --beam_width=1000 --set infer_batch_size=11
    expect "no cuBLAS: auto trains on the CPU" 0 "device auto: the CPU, because emulated GPU cannot be used: cuBLAS is needed" \
        env RD_EMULATED_CUBLAS=0 "$PROG" --config_file=toy.json --logdir=no_blas --max_steps=1
    expect "no cuBLAS: cuda is refused at the start" 3 "\"device\" is \"cuda\", and emulated GPU cannot be used: cuBLAS" \
        env RD_EMULATED_CUBLAS=0 "$PROG" --config_file=toy.json --logdir=no_blas2 --max_steps=1 $cuda
    expect "no cuDNN: sentences do without" 0 "device: emulated GPU" env RD_EMULATED_CUDNN=0 "$PROG" --config_file=toy.json --logdir=no_dnn --max_steps=1
    expect "no cuDNN: images go to the processor" 0 "cuDNN is needed" env RD_EMULATED_CUDNN=0 "$PROG" --config_file=net.json --logdir=no_dnn2 --max_steps=1
    expect "memory too small for the weights" 3 "the weights cannot fit into the GPU's memory, whatever the batch_size" env RD_EMULATED_MEMORY=1000000 "$PROG" \
        --config_file=toy.json --logdir=tiny --max_steps=1 $cuda --set encoder_cell_units=256
    expect "memory too small" 3 "'batch_size' 16 is too much for the memory of the GPU" env RD_EMULATED_MEMORY=100000000 "$PROG" \
        --config_file=toy.json --logdir=small --max_steps=3 $cuda
fi
}
summary
