#!/bin/bash
# exchange.sh -- tests the exchange of gradients between simulated hosts (RD_COMM_HOSTS).
#
# A training ends with the same bytes, whenever and however gradients are sent. Narrow types halve the bytes sent. If a
# rank dies during the exchange, the message names it. tests/run runs it and sets BUILD, PROG and MPIRUN.
# timeout: 400
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
same=$PWD/${BUILD:-build/release}/tests/support/npz_same
work=$(mktemp -d "${TMPDIR:-/tmp}/exchange.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 210 30
t() { # ranks, hosts, folder, arguments: trains
    local np=$1 hosts=$2 dir=$3
    shift 3
    RD_COMM_HOSTS=$hosts ranks "$np" "$PROG" --config_file=toy.json --logdir="$dir" --max_steps="${STEPS:-12}" --summary_frequency=4 \
        --set batch_size=$((16 / np)) --set bucket_mb=0.02 --set sparse_embeddings=never "$@"
}
equal() { # what, folder: the run ended with the bytes of the first one
    expect "$1: the same bytes" 0 "" "$same" late/model-12.npz "$2/model-12.npz"
}
expect "after backward" 0 "on 2 hosts" t 4 2 late --set overlap=off
expect "between ops" 0 "during backward between its ops" t 4 2 calls --set overlap=calls
equal "between ops" calls
expect "by a thread" 0 "during backward by a thread$" t 4 2 thread --set overlap=thread
expect "which auto takes" 0 "during backward by a thread$" t 4 2 auto --set overlap=auto
rm -r auto
equal "by a thread" thread
expect "by a thread that looks all the time" 0 "during backward by a thread with its own core" t 4 2 core --set overlap=core
equal "by a thread that looks all the time" core
expect "another cut" 0 "" t 4 2 cut --set overlap=thread --set bucket_mb=0.005
equal "another cut" cut
expect "whole tables by rows" 0 "by rows after it" t 4 2 rows --set sparse_embeddings=always
equal "whole tables by rows" rows
messages() { (export RD_COMM_SHARED=0 && t 4 2 messages); }
expect "without shared memory" 0 "RD_COMM_SHARED=0" messages
equal "without shared memory" messages
expect "one host" 0 "on 1 host" t 4 1 one
equal "one host" one
expect "4 hosts" 0 "on 4 hosts" t 4 4 four
equal "4 hosts" four

# Bytes in the metrics: all parameters in float32, with arrays rounded up. Each of h hosts sends 2 (1 - 1/h) of these.
count() { # folder, hosts
    awk -v n="$(sed -n 's/^[-0-9: ]*model: .*, \([0-9,]*\) parameters.*/\1/p' "$1/run.log" | tr -d , | tail -n 1)" -v h="$2" \
        -v b="$(column comm_bytes "$1" | tail -n 1)" -v w="$(column comm_wire_bytes "$1" | tail -n 1)" \
        'BEGIN { print n, b, w; exit !(n > 1000 && b >= 4 * n && b < 4.05 * n && w == 2 * (h - 1) * b) }'
}
while read -r folder hosts; do expect "bytes of $folder" 0 "" count "$folder" "$hosts"; done << 'END'
late 2
thread 2
four 4
messages 4
one 1
END
# The sentences of a step touch all six letters. Each of two tables has ten rows of 16 numbers.
expect "bytes of rows" 0 "" awk -v a="$(column comm_bytes late | tail -n 1)" -v b="$(column comm_bytes rows | tail -n 1)" \
    'BEGIN { print a, b; exit !(a > 1000 && b <= a && b >= a - 2 * 4 * 16 * 4) }'
{ cat data/vocab.txt && seq -f 'word%g' 6000; } > data/large.txt
auto() { # hosts, arguments: the program chooses by its own rule, with one large table
    local hosts=$1
    shift
    STEPS=4 t 4 "$hosts" auto --set sparse_embeddings=auto --set src_vocab_file=data/large.txt "$@"
    local status=$?
    cat auto/metrics.jsonl
    rm -rf auto
    return $status
}
expect "a large table goes by rows by itself" 0 "and 1 embedding by rows after it" auto 2
expect "unless a step touches most of it" 0 '"comm_bytes":4[0-9]\{5\}\.' auto 2 --set batch_size=160
expect "on one host all the same" 0 '"comm_bytes":[0-9]\{5\}\.' auto 1 --set batch_size=160
late_rank() { (export RD_FAULT=slow:2:7:compute && t 4 2 slow); }
expect "a slow rank" 0 "" late_rank
expect "is told" 0 '"slowest_rank":2' sed -n 's/.*"step":8,.*\("slowest_rank":[0-9]*\).*/\1/p' slow/metrics.jsonl
some() { (export STEPS=5 && t 4 2 half); }
expect "stopped at 5" 0 "" some
expect "goes on" 0 "step 12" t 4 2 half
equal "goes on" half

# Accumulation; the last batch of an epoch, of which some ranks have no sample; parts whose sum does not depend on the
# number of ranks.
expect "iter_size, late" 0 "" t 3 3 iter0 --set iter_size=3 --set overlap=off
expect "iter_size, by a thread" 0 "" t 3 3 iter1 --set iter_size=3 --set overlap=thread
expect "iter_size: the same bytes" 0 "" "$same" iter0/model-12.npz iter1/model-12.npz
any=(--set deterministic=any --set micro_batches=8)
expect "any, one rank" 0 "" t 1 1 any1 "${any[@]}"
expect "any, 4 ranks on 2 hosts" 0 "" t 4 2 any4 "${any[@]}"
expect "any: the same bytes" 0 "" "$same" any1/model-12.npz any4/model-12.npz
expect "any with a narrow type" 2 "'allreduce_dtype' bfloat16 with 'deterministic' any" t 2 2 no "${any[@]}" --set allreduce_dtype=bfloat16
skips() { (export RD_FAULT=nan:3:7:compute && t 4 2 nan --set overlap=thread); }
expect "not finite: skipped on all ranks" 0 "step 7 skipped on all ranks" skips

# Narrow types.
for type in bfloat16 float16; do
    expect "$type, late" 0 "travel as $type" t 4 2 "$type" --set allreduce_dtype=$type --set overlap=off
    expect "$type, by a thread" 0 "" t 4 2 "$type.thread" --set allreduce_dtype=$type
    expect "$type: the same bytes" 0 "" "$same" "$type/model-12.npz" "$type.thread/model-12.npz"
    expect "$type: not those of float32" 1 "" "$same" late/model-12.npz "$type/model-12.npz"
    expect "$type: near the curve of float32" 0 "" close_curves loss 0.02 4 late "$type"
    expect "$type: half the bytes" 0 "" awk -v a="$(column comm_wire_bytes late | tail -n 1)" \
        -v b="$(column comm_wire_bytes "$type" | tail -n 1)" 'BEGIN { print a, b; exit !(a > 1000 && b > 0.499 * a && b < 0.501 * a) }'
done

# A rank that cannot read its samples, while the other ranks already sum their gradients.
for mode in off calls thread; do
    lost() { (export RD_FAULT=data:1:7:input && t 4 2 lost$mode --set overlap=$mode); }
    expect "rank 1 has no samples, overlap $mode" 5 "bad data at step 7" lost
    expect "the step before is saved, overlap $mode" 0 "resuming from lost$mode/model-6.npz" t 4 2 lost$mode --set overlap=$mode
    expect "the same bytes, overlap $mode" 0 "" "$same" late/model-12.npz lost$mode/model-12.npz
done

# A rank that dies during the exchange.
for mode in off thread; do
    killed() { (export RD_FAULT=kill:3:7:exchange && t 4 2 killed$mode --set overlap=$mode) || echo ended; }
    expect "rank 3 is killed in the exchange, overlap $mode" 0 "rank 3 .*is gone.*last exchanging gradients in step 7" killed
    expect "that is left in errors/ as well, overlap $mode" 0 '"exit_code":9,"step":[67],.*rank 3 .*is gone' sh -c "cat killed$mode/errors/rank_*.json"
done
stopped() { (export RD_FAULT=stop:1:7:exchange && t 4 2 stopped --set stall_warn_s=1 --set stall_abort_s=3) || echo ended; }
expect "rank 1 is stopped in the exchange" 0 "stall_abort_s allows" stopped
expect "and that" 0 '"exit_code":8,.*stall_abort_s allows' sh -c "cat stopped/errors/rank_*.json"
summary
