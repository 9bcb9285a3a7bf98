#!/bin/bash
# launch_counts.sh -- the launches of a training step, and how often the host waits for the device, are at most those of floors.md. Counted by
# tests/gpu/launches on the fake runtime (CUDA=fake); other builds skip it.
# timeout: 200
. "$(dirname "$0")/../support/toy.sh"
build=$PWD/${BUILD:-build/fake} tree=$PWD
[ -e "$build/tests/support/fake/fake_runtime.cc.o" ] || { printf 'skip: %s is no build with CUDA=fake\n0 passed, 0 failed, 1 skipped\n' "$build"; exit 0; }
work=$(mktemp -d "${TMPDIR:-/tmp}/gpu_launches.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
at_most() { # LAUNCHES WAITS TYPE CASE: the columns `all` and `waits`
    DTYPE=$3 "$tree/tests/gpu/launches" "$4" |
        awk -v all="$1" -v waits="$2" '{ print } NR == 2 { ok = $7 > 0 && $7 <= all && $10 > 0 && $10 <= waits } END { exit !ok }'
}
cd "$tree" || exit 2
expect "gnmt_8x1024, mixed" 0 "" at_most 1569 2 mixed gnmt_8x1024
expect "gnmt_8x1024, float32" 0 "" at_most 1564 2 float32 gnmt_8x1024
page() { # CASE COLUMN: a number of the table of launches
    awk -F'|' -v c="$1" -v k="$2" 'NF == 11 { gsub(/ /, "", $2) } NF == 11 && $2 == c { gsub(/[ ,]/, "", $k); print $k }' "$tree/tests/gpu/floors.md"
}
for case in toy g2p mnist_cnn en_de; do expect "$case: those of floors.md" 0 "" at_most "$(page $case 7)" 2 float32 $case; done
expect "toy, mixed: those of floors.md" 0 "" at_most "$(page toy 8)" 2 mixed toy
# Other cells: the sum of casts.md. A projected layer casts h and dh in each step.
cell() { # CASE OF casts.md, KEYS...
    MORE="${*:2}" at_most "$(awk -F'|' -v c="$1" 'NF == 6 { gsub(/^ | $/, "", $2) } NF == 6 && $2 == c { gsub(/[ ,]/, "", $4); print $4 }' "$tree/tests/gpu/casts.md")" 2 mixed toy
}
if [ "${CASES:-}" = all ]; then
    expect "resnet50: those of floors.md" 0 "" at_most "$(page resnet50 7)" 2 float32 resnet50
    expect "resnet50, mixed: those of floors.md" 0 "" at_most "$(page resnet50 8)" 2 mixed resnet50
    for case in g2p nmt_one en_de; do expect "$case, mixed: those of floors.md" 0 "" at_most "$(page $case 8)" 2 mixed $case; done
    expect "nmt_one: those of floors.md" 0 "" at_most "$(page nmt_one 7)" 2 float32 nmt_one
    for cell in gru slstm; do expect "$cell, mixed: those of casts.md" 0 "" cell $cell --set encoder_cell_type=$cell --set decoder_cell_type=$cell; done
    expect "glstm, mixed" 0 "" cell "glstm, two groups" --set encoder_cell_type=glstm --set decoder_cell_type=glstm --set num_groups=2
fi
expect "gru, bahdanau, mixed" 0 "" cell "gru, two decoder layers, bahdanau" --set encoder_cell_type=gru --set decoder_cell_type=gru --set decoder_layers=2 --set attention_type=bahdanau
expect "projection, mixed" 0 "" cell "lstm with projection" --set proj_size=8 --set attention_layer_size=8
logits() { # MEMORY: launches of a step whose logits take 7.8 MB
    MORE="--set bench_vocab=20000" RD_EMULATED_MEMORY=$1 DTYPE=mixed "$tree/tests/gpu/launches" toy | awk 'NR == 2 { print $7 }'
}
# A second block has two more products of gradients, one of logits, and a softmax.
expect "logits in one block, and in two with less memory" 0 "" test "$(logits 500000000)" = "$(($(logits 4000000000) + 4))"
for case in transformer_base gpt_124m; do expect "$case, mixed: those of floors.md" 0 "" at_most "$(page $case 8)" 2 mixed $case; done
expect "a limit below the count is an error" 1 "" at_most 100 2 mixed gnmt_8x1024
# Rank 0 of two counts. The third wait is that for the sums of NCCL.
cat > "$work/two" << END
#!/bin/sh
RD_EMULATED_GPUS=2 exec $MPIRUN -np 2 sh -c '[ "\$OMPI_COMM_WORLD_RANK" = 0 ] || unset RD_EMULATED_COUNT; exec "\$@"' sh "$PROG" "\$@"
END
chmod +x "$work/two"
PROG=$work/two expect "two ranks, NCCL" 0 "" at_most 1569 3 mixed gnmt_8x1024
summary
