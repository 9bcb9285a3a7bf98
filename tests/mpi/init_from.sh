#!/usr/bin/env bash
# init_from.sh -- tests a training that begins with the weights of another run.
#
# It takes the weights by name, begins at step 0 with a new optimizer, and names its parent. tests/run runs the script
# and sets PROG and MPIRUN.
# timeout: 300
# beside
. "$(dirname "$0")/../support/toy.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/init_from.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 100 20
train() { # np, folder, arguments
    n=$1 dir=$2
    shift 2
    rm -rf "$dir"
    ranks "$n" "$PROG" --config_file=toy.json --logdir="$dir" --set eval_bleu=false "$@"
}
loss() { # folder, arguments: loss on the evaluation data
    "$PROG" --config_file=toy.json --logdir="$1" --mode=eval --set eval_bleu=false "${@:2}" 2>&1 |
        sed -n 's/.*evaluation at step [0-9]*: loss \([0-9.]*\).*/\1/p'
}
expect "the parent" 0 "" train 1 parent --mode=train_eval --max_steps=40 --set eval_frequency=20
was=$(loss parent)

# With a rate of 0 the weights stay, so the loss is that of the parent.
for from in parent/model-40.npz parent parent:40 parent:best; do
    for np in 1 2; do
        expect "from $from, np $np" 0 "weights from parent/[a-z]*-40.npz, step 40: [0-9]* of [0-9]*; a new run begins at step 0" \
            train $np child --max_steps=1 --lr=0 --set optimizer=momentum --set init_from=$from
        expect "the weights of $from, np $np" 0 "^$was$" loss child
    done
done
expect "step 0" 0 "checkpoint model-1.npz saved" cat child/run.log
expect "run.log names the parent" 0 "weights from parent/best-40.npz" cat child/run.log
expect "config.json names it too" 0 '"parent:best"' grep -A 1 '"init_from"' child/config.json
expect "its own checkpoint comes first" 0 "resuming from child/model-1.npz, step 1" ranks 1 "$PROG" --config_file=toy.json \
    --logdir=child --max_steps=2 --set optimizer=momentum --set init_from=parent
again() { # steps, init_from
    "$PROG" --config_file=toy.json --logdir=child --max_steps="$1" --set optimizer=momentum --set init_from="$2" 2>&1
}
expect "another init_from in that folder" 0 "warning: init_from has no effect: the log folder has a checkpoint" again 3 parent:40
expect "the same init_from in that folder" 0 "resuming from child/model-3.npz" again 4 parent:40
expect "is no change" 1 "" sh -c "tail -n 30 child/run.log | sed -n '/model-3.npz, step 3/,\$p' | grep 'no effect'"
expect "no weights from elsewhere then" 1 "" sh -c "tail -n 30 child/run.log | sed -n '/resuming/,\$p' | grep 'weights from'"

# What does not fit.
expect "other sizes" 6 "does not fit the model: '.*' has another shape there" \
    train 2 wide --max_steps=1 --set init_from=parent --set src_emb_size=24
expect "smaller ones" 6 "does not fit the model: '.*' has another shape there" \
    train 1 narrow --max_steps=1 --set init_from=parent --set src_emb_size=8
expect "which are allowed" 0 "warning: init_from: '.*' has another shape there" \
    train 2 wide --max_steps=2 --set init_from=parent --set src_emb_size=24 --set init_allow_missing=true
expect "another structure" 6 "is missing there" train 1 deep --max_steps=1 --set init_from=parent --set decoder_layers=2
expect "a smaller model lists the rest" 0 "warning: init_from: '.*' is not in the model" sh -c "
    '$PROG' --config_file=toy.json --logdir=big --max_steps=1 --set decoder_layers=2 > out.txt 2>&1 &&
    '$PROG' --config_file=toy.json --logdir=small --max_steps=1 --set init_from=big"
printf '%s\n' f e d c b a > data/other.txt
expect "another vocabulary" 6 "'target vocabulary' is another one there" \
    train 1 words --max_steps=1 --set init_from=parent --set tgt_vocab_file=data/other.txt
expect "nothing there" 6 "'nowhere' names no checkpoint" train 1 none --max_steps=1 --set init_from=nowhere
expect "no such step" 6 "'parent:39' names no checkpoint" train 2 none --max_steps=1 --set init_from=parent:39
expect "a damaged file" 6 "bad.npz" sh -c "head -c 5000 parent/model-40.npz > bad.npz
    '$PROG' --config_file=toy.json --logdir=none --max_steps=1 --set init_from=bad.npz"

# The key for eval and infer.
for mode in train train_eval; do
    expect "checkpoint in $mode" 2 "'checkpoint' is for eval and infer; .*init_from=parent/model-40.npz" \
        train 1 none --mode=$mode --max_steps=1 --set checkpoint=parent/model-40.npz
done
expect "best in train" 2 "init_from=LOGDIR:best" train 2 none --max_steps=1 --set checkpoint=best
expect "newest in train" 0 "" train 1 none --max_steps=1 --set checkpoint=newest
summary
