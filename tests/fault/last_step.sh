#!/bin/bash
# last_step.sh -- tests stops and kills around an evaluation at the end of an epoch and of the training (RD_FAULT,
# runner/run/fault.c).
#
# The same command goes on to the bytes of the run that nothing disturbed: weights, manifest, the last and the best file.
#
#   CASES=all tests/run tests/fault/last_step.sh     every phase of these steps; else a selection
#
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
same=$PWD/${BUILD:-build/release}/tests/support/npz_same
case $PROG in /*) ;; *) PROG=$PWD/$PROG ;; esac
work=$(mktemp -d "${TMPDIR:-/tmp}/last_step.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 60 10 # 5 steps are an epoch
t() {      # folder
    timeout 100 "$PROG" --config_file=toy.json --mode=train_eval --set best_monitor=loss --set eval_frequency=10 \
        --max_steps=20 --checkpoint_frequency=0 --logdir="$1" > said.txt 2>&1
}
expect "undisturbed" 0 "" t whole

# kind, step, phase, the time that it begins in this step
some="int 10 evaluate 1
int 19 input 1
int 20 update 1
int 20 evaluate 2
kill 10 save 1
kill 20 save 1"
[ "${CASES:-}" != all ] || some=$(for kind in int kill; do for step in 9 10 11 19 20; do
    for phase in input compute wait exchange update save evaluate; do for nth in 1 2 3; do
        echo "$kind $step $phase $nth"
    done; done; done; done)
n=0
while read -r kind step phase nth; do
    rm -rf run
    if RD_FAULT=$kind:0:$step:$phase:$nth t run; then continue; fi # the phase does not begin so often
    n=$((n + 1))
    expect "$kind in step $step, $phase $nth: goes on" 0 "" t run
    expect "to the same last file" 0 "" cmp whole/model-20.npz run/model-20.npz
    expect "and best file" 0 "" cmp whole/best-20.npz run/best-20.npz
done <<< "$some"
expect "each case of the selection stopped the run" 0 "" [ $n -ge 6 ]

# ---- chains: several starts of one run, each with a fault, end with all files of the undisturbed run ----

# Left out of rows: what is of one start alone. These are seconds, speeds with the products that they count, and memory.
lasting() { # file
    local key='time|[a-z_]*_s|input_wait|mfu|model_flops|comm_[a-z_]*|rank_s_[a-z]*|slowest_rank|step_memory_bytes'
    sed -E 's/"('"$key"')":[^,}]*//g' "$1"
}
names() { (cd "$1" && ls best-*.npz top-*.npz 2> /dev/null); }
# same_run FOLDER FOLDER: checkpoints, the names of the best ones, `checkpoint`, rows. A stop or a kill may leave more
# model files, where it saved.
same_run() {
    local file status=0
    for file in $(cd "$1" && echo ./*-*.npz checkpoint); do cmp "$1/$file" "$2/$file" || status=1; done
    diff <(names "$1") <(names "$2") || status=1
    for file in metrics.jsonl samples.jsonl eval/metrics.jsonl; do
        diff <(lasting "$1/$file") <(lasting "$2/$file") || status=1
    done
    return $status
}
# c FOLDER ARGUMENTS...: 13 steps, 5 an epoch and a record; evaluations and checkpoints after 4, 8 and 12, and an
# evaluation at the end
c() {
    local run=("$PROG")
    # shellcheck disable=SC2206 # $MPIRUN is several words
    [ "$np" -eq 1 ] || run=($MPIRUN -np "$np" "$PROG")
    # shellcheck disable=SC2086 # $set is several words
    timeout 100 "${run[@]}" --config_file="$config" --mode=train_eval --max_steps=13 --summary_frequency=5 \
        --set record_sample_ids=true --set checkpoint_keep=0 --set checkpoint_steps=4 $set --logdir "$@" > said.txt 2>&1
}
# chain NAME "KIND:STEP:PHASE:N ...": starts of the run, each with one fault, which ends it; then one without
chain() {
    local name=$1 fault rank=0
    rm -rf run
    for fault in $2; do
        fault=${fault%%:*}:$rank:${fault#*:}
        RD_FAULT=$fault c run
        expect "$name: $fault ends the start" 1 "" [ $? -eq 0 ]
        [ "$np" -eq 1 ] || rank=$((1 - rank))
    done
    expect "$name: goes on" 0 "" c run
    expect "$name: to the same files" 0 "" same_run whole run
}
whole() { # name
    rm -rf whole
    expect "$1: undisturbed" 0 "" c whole
}
of_transformer < toy.json > tf.json
np=1 config=tf.json set="--set eval_bleu=false --set checkpoint_keep_best=2"
whole "two best"
expect "two best: 13 and 12" 0 "^best-13.npz top-12.npz\$" sh -c "cd whole && echo best-* top-*"
# Stops before an evaluation, in it, and before the one that only the end causes; a kill before the last save.
chain "two best" "int:3:update:1 int:4:evaluate:1 int:12:update:1 int:13:update:1 kill:13:save:1"
# As after a kill between a new best file and the new name of the one before.
rm run/model-13.npz && mv run/top-12.npz run/best-12.npz && echo model-12.npz > run/checkpoint
expect "an old best file" 0 "" c run
expect "gets its new name" 0 "" same_run whole run
# As after a kill between a model file and `checkpoint`.
echo model-12.npz > run/checkpoint
expect "an old name of the newest file" 0 "" c run
expect "is replaced" 0 "^model-13.npz\$" cat run/checkpoint
# The best file of step 8 says that the training has ended.
set="--set eval_bleu=false --set stop_patience=1 --set stop_min_delta=10"
whole "early stopping"
chain "early stopping" "kill:8:save:1"
# The rate falls at step 8, whose file holds the weights that were evaluated. The next step begins with those of step 4.
set="--set eval_bleu=false --set plateau_factor=0.5 --set plateau_patience=1 --set plateau_min_delta=10
    --set plateau_restore=true --set learning_rate=3"
whole "a rate that falls"
expect "the best is that of step 4" 0 "^best-4.npz\$" sh -c "cd whole && echo best-*"
rm -rf run
RD_FAULT=int:0:8:evaluate:1 c run
expect "a stop in the evaluation" 1 "" [ $? -eq 0 ]
expect "a stop after it" 75 "" c run --stop_at_step=8
expect "there" 0 "^model-8.npz\$" cat run/checkpoint
expect "the weights of step 8" 0 "" "$same" whole/model-8.npz run/model-8.npz
expect "goes on" 0 "" c run
expect "to the same end" 0 "" cmp whole/model-13.npz run/model-13.npz
[ "${CASES:-}" = all ] || { summary; exit; }

# ---- with CASES=all: kinds of runs ----

awk 'BEGIN {
    for (i = 0; i < 60; i++) { r = (r * 7919 + 12345 + i) % 65521; print "the", r % 7, "sees", int(r / 7) % 9 }
}' > text
cat > lm.json << 'END'
{
    "model": "gpt", "n_layers": 1, "n_embd": 16, "n_heads": 2, "ff_dim": 32, "max_len": 32, "source_file": "text",
    "source_file_eval": "text", "subword": "char", "seq_len": 16, "dropout_residual": 0.1, "optimizer": "adamw",
    "learning_rate": 0.005, "max_grad_norm": 1.0, "batch_size": 12, "seed": 3, "threads": 1
}
END
cat > images.json << 'END'
{
    "model": "resnet_cifar", "depth": 8, "dataset": "synthetic_images", "image_size": 8, "n_classes": 4,
    "batch_size": 8, "synthetic_samples": 40, "synthetic_eval_samples": 12, "augmentation": "pad_crop_flip",
    "batch_norm_samples": 4, "optimizer": "nesterov", "learning_rate": 0.02, "seed": 4, "threads": 1,
    "histogram_frequency": 0
}
END
one="kill:2:update:1 int:3:update:1 kill:4:evaluate:1 int:4:evaluate:1 kill:4:save:1 kill:6:update:1 kill:8:save:1
    int:11:update:1 kill:12:evaluate:1 int:13:evaluate:1 kill:13:evaluate:1 kill:13:save:1"
two="int:4:save:1 int:7:update:1 int:8:evaluate:1 int:9:update:1 int:11:update:1 kill:12:evaluate:1 int:12:evaluate:1
    kill:12:save:1 kill:13:save:1"
parts="int:4:compute:2 kill:7:compute:2 int:7:compute:2 data:10:compute:2 data:12:evaluate:1 kill:12:save:1"
half="batch_size=8 eval_bleu=false"
fall="plateau_factor=0.5 plateau_patience=1 plateau_min_delta=10 plateau_restore=true checkpoint_keep_best=2 ema=0.2"
while IFS='|' read -r name np config keys; do
    set=
    for key in $keys; do set+=" --set $key"; done
    whole "$name"
    chain "$name" "$one"
    chain "$name" "$two"
    case $keys in *iter_size*) chain "$name" "$parts" ;; esac
done << END
BLEU|1|toy.json|
by tokens, in parts|1|tf.json|eval_bleu=false batch_size=null batch_tokens=80 iter_size=2
several batches|1|toy.json|eval_bleu=false iter_size=3 num_epochs=20
a rate that falls|1|tf.json|eval_bleu=false $fall
windows of a text|1|lm.json|
documents|1|lm.json|document=line document_mask=true
images|1|images.json|
images, in parts|1|images.json|iter_size=2 drop_last_batch=true num_epochs=20
16 bits|1|tf.json|eval_bleu=false dtype=mixed
two ranks|2|tf.json|$half
any number of ranks|2|tf.json|$half deterministic=any micro_batches=4
own orders|2|tf.json|$half sampling=independent
parts of the state|2|tf.json|$half shard=optimizer $fall
END
summary
