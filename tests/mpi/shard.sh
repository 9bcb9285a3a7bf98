#!/bin/bash
# shard.sh -- tests the key shard: hosts that keep and update parts of the optimizer's state.
#
# It runs tests/mpi/shard.c on simulated hosts (RD_COMM_HOSTS), and trainings: their checkpoints are the same file with
# and without the key, each of h hosts keeps 1/h of the state, and a run goes on after a kill, with other ranks, and
# without the key. With CASES=all: more ranks and optimizers. tests/run runs it and sets BUILD, PROG and MPIRUN.
# timeout: 900
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
prog=$PWD/${BUILD:-build/release}/tests/mpi/shard
same=$PWD/${BUILD:-build/release}/tests/support/npz_same
[[ $PROG = /* ]] || PROG=$PWD/$PROG
work=$(mktemp -d "${TMPDIR:-/tmp}/shard.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
on() { # ranks, hosts, command
    local np=$1 hosts=$2
    shift 2
    RD_COMM_HOSTS=$hosts ranks "$np" "$@"
}
alone() { # ranks use messages, and each counts as a host
    RD_COMM_SHARED=0 "$@"
}
if [ "${CASES:-}" = all ]; then
    for np in 1 2 3 4 5 6 8; do
        for hosts in 1 2 3 4 6 8; do [ $hosts -gt $np ] || expect "$np ranks, $hosts hosts" 0 "PASSED" on $np $hosts "$prog"; done
        expect "$np ranks without shared memory" 0 "PASSED" alone on $np 2 "$prog"
    done
else
    expect "4 ranks, 2 hosts" 0 "PASSED" on 4 2 "$prog"
    expect "5 ranks, 3 hosts" 0 "PASSED" on 5 3 "$prog"
    expect "3 ranks without shared memory" 0 "PASSED" alone on 3 1 "$prog"
fi

toy 210 30
t() { # ranks, hosts, folder, arguments: trains
    local np=$1 hosts=$2 dir=$3
    shift 3
    on "$np" "$hosts" "$PROG" --config_file=toy.json --logdir="$dir" --max_steps=12 --summary_frequency=4 \
        --set batch_size=$((24 / np)) --set bucket_mb=0.02 --set check_replicas_every=4 "$@"
}
s() { t "$@" --set shard=optimizer; }
pair() { # name, ranks, hosts, arguments: trains with and without the key
    local name=$1
    shift
    local np=$1 hosts=$2
    shift 2
    expect "$name: without" 0 "done: step 12" t "$np" "$hosts" "$name.w" "$@"
    expect "$name: with it" 0 "done: step 12" s "$np" "$hosts" "$name.s" "$@"
    expect "$name: the same file" 0 "" cmp "$name.w/model-12.npz" "$name.s/model-12.npz"
}
# The average of the weights, evaluations with it, and gradients for histograms.
base=(--mode=train_eval --set eval_frequency=6 --set ema=0.01 --set histogram_frequency=8)
pair base 4 2 "${base[@]}"
expect "base: the same best file" 0 "" sh -c 'cmp base.w/best-*.npz base.s/best-*.npz'
expect "the banner" 0 "shard optimizer: each of 2 hosts keeps and updates its part" cat base.s/run.log
# Both ways send the same, but for the norms of blocks: 8 bytes each, from each host to the others.
sent() { # folders with and without the key
    awk -v a="$(column comm_wire_bytes "$1" | sed -n "$3p")" -v b="$(column comm_wire_bytes "$2" | sed -n "$3p")" -v more="$4" -v most="$5" \
        'BEGIN { print a, b; exit !(a > 1000 && b > more * a && b < most * a) }'
}
expect "bytes of a step" 0 "" sent base.w base.s 4 1 1.01 # step 12
expect "bytes of a step with histograms, which need whole gradients" 0 "" sent base.w base.s 3 1.1 1.6 # step 8
# step.json has the state that a host keeps at most, and what a rank sent in a step.
of() { tr -d ' \n' < "$2/step.json" | sed "s/.*\"$1\":\([^,]*\),.*/\1/"; }
expect "each of 2 hosts keeps half of the state" 0 "" awk -v a="$(of optimizer_bytes base.w)" -v b="$(of optimizer_bytes base.s)" \
    'BEGIN { print a, b; exit !(a > 100000 && b >= 0.5 * a && b < 0.6 * a) }'
"$PROG" --mode=plan --logdir=base.s > plan.txt
expect "plan mode knows it" 0 "shard optimizer: each host updates its part" cat plan.txt
expect "memory without the key" 0 "memory of a host of 2 ranks, .* gradients 2 x .* optimizer .* together [0-9.]* MB$" cat plan.txt
expect "and with it" 0 "^with shard optimizer: [0-9.]* MB on 2 hosts, [0-9.]* MB on 4 hosts" cat plan.txt

killed() { RD_FAULT=kill:3:7:update s 4 2 kill "${base[@]}" --set checkpoint_steps=4 --set stall_warn_s=1 --set stall_abort_s=3 || echo ended; }
expect "a rank dies in the update" 0 "rank 3 .*is gone.*last updating weights in step 7" killed
expect "the run goes on without the key" 0 "resuming from kill/model-4.npz" t 4 2 kill "${base[@]}"
expect "to the same bytes" 0 "" "$same" base.w/model-12.npz kill/model-12.npz
expect "3 more steps on 3 hosts, without" 0 "done: step 15" t 3 3 base.w "${base[@]}" --max_steps=15
expect "with it" 0 "done: step 15" s 3 3 base.s "${base[@]}" --max_steps=15
expect "the same file" 0 "" cmp base.w/model-15.npz base.s/model-15.npz
expect "they took place" 0 "" sh -c '! cmp -s base.s/model-12.npz base.s/model-15.npz'
check() { s 4 2 none --check --set ema=0.01; }
expect "--check shows the part" 0 "optimizer .*3 values per weight; the largest part of 2 hosts, shard optimizer" check
flip() { RD_FAULT=flip:$1:7:update s 4 2 "flip$1" "${base[@]}"; }
expect "a bit flips in a host's copy" 7 "host .* (2 ranks, one copy) holds other weights than its last update left, first in '" flip 3

if [ "${CASES:-}" = all ]; then
    pair rows 4 2 --set optimizer=momentum --set learning_rate=0.1 --set sparse_embeddings=always
    pair lars 3 3 --set optimizer=momentum --set lars_nu=0.001 --set max_grad_norm=null
    pair adamw 4 2 --set optimizer=adamw --set weight_decay=0.1 --set iter_size=3
    pair narrow 4 4 --set allreduce_dtype=bfloat16
    pair late 4 2 --set overlap=off --set optimizer=adadelta
    pair uneven 3 2 --set optimizer=rmsprop
    pair any 4 2 --set deterministic=any --set micro_batches=8
    pair spikes 4 2 --set spike_loss_z=2
    for np in 1 2 3; do pair hosts$np $np $np; done
    expect "messages" 0 "each of 4 ranks keeps and updates its part" alone s 4 2 messages
    expect "without the key" 0 "" alone t 4 2 messages.w
    expect "the same file" 0 "" cmp messages.w/model-12.npz messages/model-12.npz
    skips() { RD_FAULT=nan:3:7:compute "$@"; }
    expect "a gradient that is not finite" 0 "step 7 skipped on all ranks" skips s 4 2 nan.s
    expect "without the key" 0 "step 7 skipped on all ranks" skips t 4 2 nan.w
    expect "the same file" 0 "" cmp nan.w/model-12.npz nan.s/model-12.npz
    full() { RD_FAULT=disk:0:5:update s 4 2 full --set checkpoint_steps=4; }
    expect "a full disk" 3 "not saved, earlier checkpoints are intact: cannot write 'full/model-12.npz'" full
    expect "bytes with and without" 0 "" sent hosts2.w hosts2.s 4 1 1.01
fi
summary
