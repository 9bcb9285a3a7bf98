#!/bin/sh
# fake.sh -- whole runs on the fake runtime (CUDA=fake): other orders of the streams give the same bytes; a call that fails, a kernel that
# faults and a library that lacks a function end the run with their message and code, on one rank and on two; no plan is made beside a sum.
# Run by tests/run, which sets BUILD, PROG and MPIRUN; other builds skip it.
# timeout: 300
. "$(dirname "$0")/../support/toy.sh"
build=$PWD/${BUILD:-build/fake}
[ -e "$build/tests/support/fake/fake_runtime.cc.o" ] || { printf 'skip: %s is no build with CUDA=fake\n0 passed, 0 failed, 1 skipped\n' "$build"; exit 0; }
same=$build/tests/support/npz_same
work=$(mktemp -d "${TMPDIR:-/tmp}/gpu_fake.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 200 11
cat > net.json << 'END'
{
    "model": "resnet_cifar", "depth": 8, "dataset": "synthetic_images", "synthetic_samples": 64, "image_size": 8, "image_channels": 3,
    "n_classes": 10, "batch_size": 4, "optimizer": "Momentum", "opt_momentum": 0.9, "learning_rate": 0.02, "lr_scaling": "none",
    "augmentation": "none", "print_samples": false, "histogram_frequency": 0, "image_frequency": 0, "threads": 1, "data_threads": 1,
    "num_gpus": 1, "seed": 3
}
END
t() { # np, folder, arguments: trains
    n=$1 dir=$2
    shift 2
    ranks "$n" "$PROG" --config_file="${config:-toy}.json" --logdir="$dir" --set device=cuda "$@"
}
with() { # NAME=value, np, folder, arguments: the same, on each rank
    var=$1 n=$2 dir=$3
    shift 3
    ranks "$n" env "$var" "$PROG" --config_file="${config:-toy}.json" --logdir="$dir" --set device=cuda "$@"
}
one() { # NAME=value, folder, arguments: the same with two ranks, the second of which has it
    alone=$1 dir=$2
    shift 2
    # shellcheck disable=SC2016 # the rank's shell fills them in
    ranks 2 sh -c '[ "$OMPI_COMM_WORLD_RANK" != 1 ] || export "$1"; shift; exec "$@"' sh "$alone" \
        "$PROG" --config_file=toy.json --logdir="$dir" --set device=cuda "$@"
}

# Streams run as late as possible, as soon as possible, or both in turn.
RD_EMULATED_GPUS=2
export RD_EMULATED_GPUS
for pace in lazy eager random; do
    expect "two GPUs, streams: $pace" 0 "summed by NCCL" with RD_FAKE_STREAMS=$pace 2 $pace --max_steps=5 --set batch_size=8 --set bucket_mb=0.01
done
for pace in eager random; do expect "the same weights: $pace" 0 "" "$same" lazy/model-5.npz $pace/model-5.npz; done

# The log says who computed LSTM layers: both directions, five steps.
expect "LSTM layers by cuDNN" 0 "LSTM layers in training: 10 passes by cuDNN, 0 by own kernels$" t 1 by_cudnn --max_steps=5
expect "by own kernels" 0 "LSTM layers in training: 0 passes by cuDNN, 10 by own kernels (cuDNN has no persistent algorithm for bfloat16)" \
    t 1 by_own --max_steps=5 --set dtype=mixed
expect "by own kernels, after a refusal" 0 "LSTM layers in training: 0 passes by cuDNN, 10 by own kernels (cuDNN refused the sizes)" \
    with RD_EMULATED_CUDNN_REFUSES=cudnnSetRNNDescriptor_v8 1 refused --max_steps=5

# In the first step all plans are made and no sum runs. The convolutions of later steps have the same shapes.
config=net
expect "images on two GPUs" 0 "plans beside sums 0" with RD_EMULATED_COUNT=1 2 net --max_steps=3 --set bucket_mb=0.01
expect "buckets are summed during backward" 0 "in [0-9]* buckets of about 0.01 MB, during backward" cat net/run.log
config=

# One call fails, in the step or before it; its name, "GPU 0", and code 3. Lasting: so do the calls of the way out.
for call in cudaStreamCreateWithFlags:1 cudaMalloc:12 cudaMemcpyAsync:3 cudaLaunchKernel:200 cublasLtMatmul:40 cudaEventSynchronize:2 cublasLtMatmulAlgoGetHeuristic:3 \
    cudaMallocHost:1; do
    name=${call%:*}
    [ "$name" != cudaLaunchKernel ] || name='[a-zA-Z_<>, ]*'
    expect "$call" 3 "error: .*GPU 0: .*$name: a failure of the fake" with RD_FAKE_FAIL=$call 1 fails --max_steps=3
    expect "$call and all later ones" 3 "error: .*GPU 0: .*: a failure of the fake" with RD_FAKE_FAIL="$call+" 1 fails_on --max_steps=3
done
expect "a kernel that faults" 3 "error: .*cudaErrorIllegalAddress, seen after kernel .*RD_CUDA_SYNC=1" with RD_FAKE_FAULT=100 1 fault --max_steps=3
expect "with its name" 3 "error: .*GPU 0: [a-zA-Z_<>, ]*: .*cudaErrorIllegalAddress" \
    ranks 1 env RD_FAKE_FAULT=100 RD_CUDA_SYNC=1 "$PROG" --config_file=toy.json --logdir=fault --set device=cuda --max_steps=3
expect "a graph that cannot be made" 0 "launched one by one from here on: GPU 0: cudaGraphInstantiate" with RD_FAKE_FAIL=cudaGraphInstantiate:1 1 graph --max_steps=20
expect "a library that is too old" 3 "has no cublasLtMatmul: it is too old" with RD_FAKE_LACKS=cublasLtMatmul 1 old --max_steps=1
expect "no way to compute a product" 3 "cuBLAS has no way to compute a product of" with RD_FAKE_NO_PRODUCT=1 1 none --max_steps=1
config=net
expect "no engine for a convolution" 3 "has no reproducible convolution for float32 of" with RD_FAKE_NO_ENGINE=1 1 none --max_steps=1
config=

# Each rank sees one GPU, and not the same one.
apart() { # folder, arguments
    dir=$1
    shift
    # shellcheck disable=SC2016 # the rank's shell fills it in
    ranks 2 sh -c 'RD_EMULATED_GPUS=1 RD_FAKE_UUID=$OMPI_COMM_WORLD_RANK exec "$@"' sh "$PROG" --config_file=toy.json --logdir="$dir" "$@" \
        --set device=cuda --set batch_size=8
}
expect "each rank sees one GPU alone" 0 "warning: each rank sees one GPU of its host alone, so NCCL cannot use NVLink" apart alone --max_steps=2
expect "the doctor says so" 0 "NCCL cannot use NVLink" apart doctor --mode=doctor
expect "MIG instances of one GPU" 0 "hosts' memory, after backward: ranks share a GPU" with RD_FAKE_MIG=1 2 mig --max_steps=2 --set batch_size=8
RD_EMULATED_GPUS=1
expect "two ranks on one instance" 3 "rank 1 .* MIG-0" with RD_FAKE_MIG=1 2 mig_one --max_steps=2 --set batch_size=8
expect "the doctor, too" 3 "two ranks on one GPU" with RD_FAKE_MIG=1 2 doctor --mode=doctor --set batch_size=8
RD_EMULATED_GPUS=0
expect "the doctor without a GPU" 3 "there is no GPU that can be used" t 1 doctor --mode=doctor
RD_EMULATED_GPUS=2

# Cores near the GPU, in a made /sys: GPU 0 has this process's first core, GPU 1 its last one.
near() { # address, node, cores
    mkdir -p "sys/bus/pci/devices/$1"
    echo "$2" > "sys/bus/pci/devices/$1/numa_node"
    echo "$3" > "sys/bus/pci/devices/$1/local_cpulist"
}
cores=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
near 0000:e0:00.0 0 "${cores%%[-,]*}"
near 0000:e1:00.0 1 "${cores##*[-,]}"
if [ "${cores%%[-,]*}" != "${cores##*[-,]}" ]; then
    RD_COMM_SYSFS=$work/sys
    export RD_COMM_SYSFS
    expect "ranks keep to the cores near their GPU" 0 "cores: 2 of 2 ranks are bound to those of their GPU's NUMA node (rank 0: node 0, 1 of" \
        t 2 near --max_steps=1 --set batch_size=8 --set threads=0
    expect "each has one core" 0 "2 ranks on 1 host .*, 1 thread per rank" cat near/run.log
    expect "off" 0 "done: step 1" t 1 near_off --max_steps=1 --set cpu_binding=off
    expect "says nothing" 1 "" grep "cores: " near_off/run.log
    expect "the launcher has bound it" 0 "cores: ranks are not bound .* because the launcher has bound them" \
        with OMPI_MCA_orte_bound_at_launch=1 1 near_launcher --max_steps=1
    near 0000:e0:00.0 1 8000-8001
    expect "no core near" 0 "warning: rank 0 has no core on NUMA node 1, where its GPU is (1 of 1 ranks)" t 1 near_far --max_steps=1
    unset RD_COMM_SYSFS
else
    echo "skip: one core here, so no rank can be bound to another one"
    skipped=$((skipped + 1))
fi

# lock_dir: jobs take GPUs that no other job has, all or none, and wait for them.
uuid=GPU-00000000-0000-0000-0000-00000000000
mkdir locks
(exec 9> locks/run_dist.${uuid}0.lock && flock 9 && echo "process 7 on there" >&9 && exec sleep 60) &
holder=$!
wait_until 20 test -s locks/run_dist.${uuid}0.lock
expect "a locked GPU is left to its job" 0 "" t 1 locked --max_steps=2 --set lock_dir=locks
expect "the lock has its process" 0 "^process [0-9]* on " cat locks/run_dist.${uuid}1.lock
t 2 waits --max_steps=2 --set batch_size=8 --set lock_dir=locks > waits.txt 2>&1 &
job=$!
expect "two ranks wait" 0 "" wait_until 20 grep -q "waiting for 2 free GPUs of 2: 'locks' has locks of other jobs, process 7 on there" waits.txt
kill $holder
wait $job
expect "and go on" 0 "" test $? -eq 0
expect "with a GPU each" 0 "done: step 2" cat waits.txt
expect "a folder that is not there" 3 "lock_dir: cannot write 'nowhere/run_dist.gpus.lock'" t 1 nowhere --max_steps=1 --set lock_dir=nowhere
expect "which a CPU does not need" 0 "" ranks 1 "$PROG" --config_file=toy.json --logdir=cpu_lock --set device=cpu --max_steps=1 \
    --set lock_dir=nowhere

# Two ranks: a call of the second one fails, in its device or in NCCL. Both end; the message names rank 1.
two='--set batch_size=8 --max_steps=6 --set stall_abort_s=20'
# shellcheck disable=SC2086 # several words
{
expect "a call of one rank fails" 3 "rank 1.*GPU [01]: .*cublasLtMatmul" one RD_FAKE_FAIL=cublasLtMatmul:60 two $two
expect "a kernel of one rank faults" 3 "rank 1.*cudaErrorIllegalAddress" one RD_FAKE_FAULT=150 two_fault $two
expect "a sum of one rank fails" 3 "rank 1.*ncclAllReduce" one RD_FAKE_FAIL=ncclAllReduce:3 two_sum $two
}
summary
