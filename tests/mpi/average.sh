#!/usr/bin/env bash
# average.sh -- tests means of checkpoints (--mode=average), and the average of the weights over the updates (ema).
#
# tests/run runs the script and sets BUILD, PROG and MPIRUN.
# timeout: 300
# beside
. "$(dirname "$0")/../support/toy.sh"
same=$PWD/${BUILD:-build/release}/tests/support/npz_same
work=$(mktemp -d "${TMPDIR:-/tmp}/average.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 400 20
sed 's/"\(src_emb_size\|tgt_emb_size\|[a-z_]*cell_units\|attention_layer_size\)": 16/"\1": 4/g
    s/"batch_size": 16, "num_epochs": 4/"batch_tokens": 120, "checkpoint_steps": 10, "best_monitor": "loss"/
    s/"learning_rate": 0.01/"learning_rate": 0.1, "eval_bleu": false/' toy.json > small.json
t() { # np, folder, arguments: trains and evaluates
    n=$1 dir=$2
    shift 2
    ranks "$n" "$PROG" --config_file=small.json --logdir="$dir" --mode=train_eval --summary_frequency=1 "$@"
}
mean() { "$PROG" --mode=average --logdir="$1" "${@:2}"; } # folder, arguments
loss() { sed -n 's/.*evaluation at step [0-9]*: loss \([0-9.]*\).*/\1/p'; }
e() { "$PROG" --config_file=small.json --mode=eval "$@"; } # arguments: evaluates

expect "a training" 0 "done: step 60" t 1 one --max_steps=60 --set checkpoint_keep=0
expect "the last three" 0 "the mean of these 3 checkpoints is one/average-60.npz" mean one --last=3
cp one/average-60.npz last3.npz
expect "the files are named" 0 "model-40.npz (loss [0-9.]*)" mean one --last=3
expect "again: the same bytes" 0 "" cmp one/average-60.npz last3.npz
expect "the best two" 0 "the mean of these 2 checkpoints is one/average-[0-9]*.npz" mean one --best=2
# The steps of the two smallest losses.
best2=$(sed 's/{"step":\([0-9]*\),"loss":\([^,]*\),.*/\2 \1/' one/eval/metrics.jsonl | sort -g | head -n 2 |
    awk '{ print $2 }' | sort -n | tr '\n' ' ')
named() { mean one --best=2 | sed -n 's/.*\(model\|best\)-\([0-9]*\).npz (.*/\2/p' | tr '\n' ' '; }
expect "they are those of the smallest losses" 0 "^$best2\$" named
expect "on two ranks" 0 "the mean of these 3 checkpoints" ranks 2 "$PROG" --mode=average --logdir=one --last=3
expect "one checkpoint" 0 "the mean of these 1 checkpoint is" mean one --last=1
expect "has its loss" 0 "loss $(sed -n 's/{"step":60,"loss":\([^,]*\),.*/\1/p' one/eval/metrics.jsonl | xargs printf %.6f)" \
    e --logdir=one --set checkpoint=average
if python3 -c "import numpy" 2> /dev/null; then
    cat > golden.py << 'END'
import json, sys, numpy
mean, parents = numpy.load(sys.argv[1]), [numpy.load(p) for p in sys.argv[2:]]
weights = [n for n in parents[0].files if n != "manifest.json" and n.rpartition("/")[0] not in parents[0].files]
assert sorted(weights) == sorted(n for n in mean.files if n != "manifest.json")
for n in weights:
    total = numpy.zeros(parents[0][n].shape, numpy.float64)
    for p in parents:
        total += p[n].astype(numpy.float64)
    assert (total / len(parents)).astype(numpy.float32).tobytes() == mean[n].tobytes(), n
m = json.loads(bytes(mean["manifest.json"]))
assert [p["file"] for p in m["average"]["parents"]] == [p.rpartition("/")[2] for p in sys.argv[2:]]
assert m["step"] == 60 and m["average"]["of"] == "last" and "plateau" not in m and "optimizer" not in m
print(len(weights), "weights")
END
    expect "numpy computes the same mean" 0 "^[1-9][0-9]* weights" python3 golden.py last3.npz one/model-40.npz \
        one/model-50.npz one/model-60.npz
else
    skipped=$((skipped + 1))
fi

# What takes it.
cp last3.npz one/average-60.npz
expect "eval" 0 "weights from one/average-60.npz, step 60" e --logdir=one --set checkpoint=average
expect "infer" 0 "weights from one/average-60.npz" sh -c "
    '$PROG' --config_file=small.json --logdir=one --mode=infer --set checkpoint=average --inference_out=out.txt &&
    [ \$(wc -l < out.txt) = 20 ]"
expect "by its path" 0 "weights from last3.npz" e --logdir=apart --set checkpoint=last3.npz
expect "init_from a folder's average" 0 "weights from one/average-60.npz, step 60: [0-9]* of" t 1 tuned --max_steps=2 \
    --set init_from=one:average
expect "init_from the file" 0 "weights from last3.npz" t 2 tuned2 --max_steps=2 --set init_from=last3.npz
expect "a training goes on from its newest checkpoint" 0 "resuming from one/model-60.npz" t 1 one --max_steps=61 \
    --set checkpoint_keep=0
mkdir odd && cp last3.npz odd/model-60.npz
expect "no optimizer to go on with" 6 "has no state of the optimizer 'adam'" t 1 odd --max_steps=61
expect "in training" 2 "init_from=LOGDIR:average" t 1 no --max_steps=1 --set checkpoint=average

# What fails.
expect "neither" 2 "needs either --last=N or --best=N" mean one
expect "both" 2 "needs either --last=N or --best=N" mean one --last=2 --best=2
expect "in another mode" 2 "--last is for --mode=average" t 1 no --last=2
expect "no folder" 2 "--logdir is missing" "$PROG" --mode=average --last=2
for n in 0 -1 x; do expect "--last=$n" 2 "last" mean one --last=$n; done
expect "too few" 6 "'one' has 7 checkpoints, and --last=8 needs 8; train with a larger checkpoint_keep" mean one --last=8
expect "too few were evaluated" 6 "'one' has 7 checkpoints that were evaluated .* --best=8 needs 8" mean one --best=8
expect "nothing there" 6 "'nowhere' has 0 checkpoints" mean nowhere --last=1
expect "no average" 6 "there is no average-<step>.npz in 'tuned'; run --mode=average first" \
    e --logdir=tuned --set checkpoint=average
expect "the train mode evaluates nothing" 0 "" ranks 1 "$PROG" --config_file=small.json --logdir=plain --max_steps=10
expect "so there is no best" 6 "'plain' has 0 checkpoints that were evaluated" mean plain --best=1
cp -r one hurt
head -c 9000 one/model-50.npz > hurt/model-50.npz
expect "a damaged one" 6 "cannot average; move that file away or take fewer checkpoints: 'hurt/model-50.npz'" mean hurt --last=3
expect "which is not among the last" 0 "the mean of these 1 checkpoint is" mean hurt --last=1
cp one/model-40.npz hurt/model-50.npz
expect "a renamed one" 6 "'hurt/model-50.npz' holds step 40; was it renamed" mean hurt --last=3
expect "another model" 0 "" t 1 wide --max_steps=10 --set src_emb_size=5
cp wide/model-10.npz one
rm hurt/model-50.npz && cp wide/model-10.npz hurt
expect "other shapes" 6 "is <f4 ([0-9, ]*) there and ([0-9, ]*) in model-10.npz; only checkpoints of one model" mean hurt --last=6
expect "another layer" 0 "" t 1 deep --max_steps=10 --set encoder_layers=2 --set encoder_use_skip_connections=true
cp deep/model-10.npz hurt
expect "other arrays" 6 "has no '.*', which model-10.npz has; only checkpoints of one model" mean hurt --last=6
expect "a folder that cannot be written" 3 "" sh -c "
    cp -r one shut && rm shut/average-60.npz && mkdir shut/average-61.npz && '$PROG' --mode=average --logdir=shut --last=2"

# ema: evaluations use the average; checkpoints hold it; runs with other ranks and resumed runs have the same.
expect "ema" 0 "done: step 46" t 1 ema --max_steps=46 --set ema=0.02
expect "on two ranks" 0 "done: step 46" t 2 ema2 --max_steps=46 --set ema=0.02
expect "without" 0 "done: step 46" t 1 plain46 --max_steps=46
expect "training does not see it" 0 "^46 values, largest gap 0\$" close_curves loss 0 46 ema plain46
expect "other ranks: the same evaluations" 0 "^5 values" close_curves loss 1e-4 5 ema/eval ema2/eval
expect "the weights are evaluated otherwise" 1 "^5 values" close_curves loss 1e-3 5 ema/eval plain46/eval
expect "stopped" 0 "" t 1 parts --max_steps=25 --set ema=0.02
expect "and resumed" 0 "" t 1 parts --max_steps=46 --set ema=0.02
expect "the same bytes" 0 "" "$same" ema/model-46.npz parts/model-46.npz
row=$(sed -n 's/{"step":46,"loss":\([^,]*\),.*/\1/p' ema/eval/metrics.jsonl)
expect "eval uses it" 0 "evaluation at step 46: loss $(printf %.6f "$row")" e --logdir=apart --set ema=0.02 \
    --set checkpoint=ema/model-46.npz
plain=$(sed -n 's/{"step":46,"loss":\([^,]*\),.*/\1/p' plain46/eval/metrics.jsonl)
expect "without the key it uses the weights" 0 "evaluation at step 46: loss $(printf %.6f "$plain")" e --logdir=apart \
    --set checkpoint=ema/model-46.npz
expect "a checkpoint without it" 0 "has no averages of the weights (ema), so the weights are used" e --logdir=apart \
    --set ema=0.02 --set checkpoint=plain46/model-46.npz
expect "infer uses it, too" 0 "the averages of the weights are used (ema)" "$PROG" --config_file=small.json --logdir=ema \
    --mode=infer --set ema=0.02 --inference_out=out.txt
expect "later on" 0 "resuming from plain46" t 1 plain46 --max_steps=47 --set ema=0.02
expect "weights of another run begin it" 0 "weights from ema/model-46.npz" t 1 begun --max_steps=1 --set ema=1e-4 \
    --set init_from=ema/model-46.npz --set learning_rate=0 --set checkpoint_steps=1
expect "with these weights" 0 "evaluation at step 1: loss $(printf %.6f "$plain")" cat begun/run.log
for value in -0.1 1.5 x; do expect "ema $value" 2 "ema" t 1 no --set ema=$value; done
summary
