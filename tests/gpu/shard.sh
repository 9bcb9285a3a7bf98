#!/bin/bash
# shard.sh -- tests the key shard on GPUs: each rank keeps and updates its part of the optimizer's state.
#
# Checkpoints are the same file with and without the key: on two and three ranks, by NCCL and by the hosts, with graphs and without, in
# float32 and mixed. A GPU needs less memory by what it does not keep. A run goes on with another number of ranks. Calls of NCCL that fail
# end the run with their name and code, and a flipped bit is found. CASES=all: more optimizers, ranks and calls. tests/run runs it and sets
# BUILD, PROG and MPIRUN.
# timeout: 600
. "$(dirname "$0")/../support/toy.sh"
build=$PWD/${BUILD:-build/fake}
[ -e "$build/tests/support/fake/fake_runtime.cc.o" ] || { printf 'skip: %s is no build with CUDA=fake\n0 passed, 0 failed, 1 skipped\n' "$build"; exit 0; }
work=$(mktemp -d "${TMPDIR:-/tmp}/gpu_shard.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 200 11
RD_EMULATED_GPUS=4
export RD_EMULATED_GPUS
# Optimizers, pieces in several stripes, and gradients for histograms: three ranks on one GPU.
expect "updates" 0 "PASSED" ranks 3 env RD_TEST_GPU=1 "$build/tests/mpi/shard"
t() { # ranks, folder, arguments: trains
    local np=$1 dir=$2
    shift 2
    ranks "$np" "$PROG" --config_file=toy.json --logdir="$dir" --set device=cuda --max_steps=6 --summary_frequency=2 \
        --set batch_size=$((12 / np)) --set bucket_mb=0.01 --set check_replicas_every=2 "$@"
}
s() { t "$@" --set shard=optimizer; }
pair() { # name, ranks, arguments: trains with and without the key
    local name=$1 np=$2
    shift 2
    expect "$name: without" 0 "done: step 6" t "$np" "$name.w" "$@"
    expect "$name: with it" 0 "done: step 6" s "$np" "$name.s" "$@"
    expect "$name: the same file" 0 "" cmp "$name.w/model-6.npz" "$name.s/model-6.npz"
}
# The average of the weights, evaluations with it, and gradients for histograms.
pair base 2 --mode=train_eval --set eval_frequency=3 --set ema=0.01 --set histogram_frequency=2
expect "base: the same best file" 0 "" sh -c 'cmp base.w/best-*.npz base.s/best-*.npz'
expect "the banner" 0 "shard optimizer: each of 2 GPUs keeps and updates its part" cat base.s/run.log
expect "NCCL sums during backward" 0 "summed by NCCL, .* during backward" cat base.s/run.log
pair mixed 3 --set dtype=mixed --set cuda_graphs=off --set iter_size=2 --set optimizer=adamw --set weight_decay=0.1
[ "${CASES:-}" != all ] || pair rows 3 --set optimizer=momentum --set learning_rate=0.1 --set lars_nu=0.001 --set max_grad_norm=null
any=(--set deterministic=any --set micro_batches=4 --set batch_size=6)
pair any 2 "${any[@]}"
expect "the hosts sum" 0 "deterministic any" cat any.s/run.log
RD_COMM_NCCL=0 s 3 late > late.txt 2>&1
expect "without NCCL" 0 "RD_COMM_NCCL=0" cat late/run.log

# A GPU has the less memory in use, as it keeps less: of n parts one.
wide=(--check --set encoder_cell_units=256 --set decoder_cell_units=256 --set attention_layer_size=256)
used() { sed -n 's/.*memory \([0-9]*\) bytes at most$/\1/p' "$1" | sort -n | tail -1; }
kept() { sed -n 's/.* optimizer  *\([0-9.]*\) MB.*/\1/p' "$1"; }
saves() { # ranks: the memory of a GPU with and without the key, and the state that it keeps
    RD_EMULATED_COUNT=1 t "$1" wide "${wide[@]}" > wide.w 2>&1
    RD_EMULATED_COUNT=1 s "$1" wide "${wide[@]}" > wide.s 2>&1
    awk -v n="$1" -v a="$(used wide.w)" -v b="$(used wide.s)" -v all="$(kept wide.w)" -v part="$(kept wide.s)" 'BEGIN {
        less = (1 - 1 / n) * all
        print a, b, all, part
        exit !(all > 10 && part > 0.97 * all / n && part < 1.03 * all / n && a - b > 0.97e6 * less && a - b < 1.03e6 * less)
    }'
}
expect "memory of two GPUs" 0 "" saves 2
[ "${CASES:-}" != all ] || expect "memory of three GPUs" 0 "" saves 3
expect "what the key would save" 0 "optimizer .* MB with shard optimizer)" cat wide.w
tight() { RD_EMULATED_MEMORY=20000000 "$@"; }
expect "too little memory for the state" 3 'set "shard": "optimizer", with which each of 2 GPUs keeps 1/2' tight t 2 wide "${wide[@]}"
expect "enough for half of it" 0 "checked: " tight s 2 wide "${wide[@]}"

if [ "${CASES:-}" = all ]; then # an overflow on one rank is one on all
    half=(--set dtype=mixed --set loss_scale=512)
    skips() { RD_EMULATED_SM=75 RD_FAULT=nan:1:3:compute "$@"; }
    expect "float16 overflows" 0 "step 3 skipped .* scaled by 256" skips s 2 half.s "${half[@]}"
    expect "without the key" 0 "step 3 skipped .* scaled by 256" skips t 2 half.w "${half[@]}"
    expect "the same file" 0 "" cmp half.w/model-6.npz half.s/model-6.npz
fi

# Another number of ranks, of which one needs no parts; CPUs go on, too.
expect "four ranks go on with the state of two" 0 "resuming from any.s/model-6.npz" s 4 any.s "${any[@]}" --max_steps=9 --set batch_size=3
expect "without the key" 0 "resuming from any.w/model-6.npz" t 4 any.w "${any[@]}" --max_steps=9 --set batch_size=3
expect "the same file" 0 "" cmp any.w/model-9.npz any.s/model-9.npz
expect "one rank goes on" 0 "resuming from base.s/model-6.npz" s 1 base.s --max_steps=8
expect "CPUs go on" 0 "resuming from base.w/model-6.npz" s 2 base.w --max_steps=8 --set device=cpu --set ema=0.01

# A call of the second rank fails. Rank 0 sees a lost rank, and the second one reports later; the exit code is that of the cause.
one() { # "NAME=value ...", folder: trains with two ranks, the second of which has them
    # shellcheck disable=SC2016 # the rank's shell fills them in
    ranks 2 sh -c '[ "$OMPI_COMM_WORLD_RANK" != 1 ] || export $1; shift; exec "$@"' sh "$1" "$PROG" --config_file=toy.json --logdir="$2" \
        --set device=cuda --max_steps=6 --set batch_size=6 --set shard=optimizer --set stall_abort_s=20
}
calls="ncclGroupEnd:1"
[ "${CASES:-}" != all ] || calls="ncclGroupStart:2 ncclBroadcast:4 $calls"
for call in $calls; do
    expect "$call fails" 3 "rank 1.*NCCL: ${call%:*}" one "RD_FAKE_FAIL=$call RD_EMULATED_ABORT_MS=1000" fails
    expect "$call: rank 0 reports nothing" 1 "" grep -q "error: .*of weights over ranks failed" fails/run.log
done
expect "a rank is lost in the copy" 9 "NCCL: a copy of weights over ranks failed" one RD_EMULATED_SPREAD_FAILS=2 lost
flip() { RD_FAULT=flip:1:5:update s 2 flip --set check_replicas_every=1; }
expect "a bit flips" 7 "rank 1 holds other weights than its last update left, first in '" flip
summary
