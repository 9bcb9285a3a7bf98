#!/usr/bin/env bash
# changed.sh -- tests that a checkpoint knows what gives its numbers their meaning.
#
# Each mode names the keys that have changed since the checkpoint, and refuses other classes. Progress that no run can
# have leads to an older checkpoint. tests/run runs the script and sets BUILD, PROG and MPIRUN.
# timeout: 300
# beside
. "$(dirname "$0")/../support/toy.sh"
jpegs=$PWD/${BUILD:-build/release}/tests/bench/make_jpegs
work=$(mktemp -d "${TMPDIR:-/tmp}/changed.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 100 20
run() { # np, folder, mode, arguments
    n=$1 dir=$2 mode=$3
    shift 3
    ranks "$n" "$PROG" --config_file=toy.json --logdir="$dir" --mode="$mode" "$@"
}
since() { # what `run` prints about changes, sorted
    run "$@" > since.txt 2>&1 || { cat since.txt; return 1; }
    grep -q "changed since" since.txt || echo nothing
    sed -n 's/.*changed since the checkpoint: //p' since.txt | sort | tr '\n' ';'
}
again() { rm -rf again && cp -r log again; } # a copy of the log folder, which a test may change

expect "training" 0 "" run 1 log train_eval --max_steps=10 --set eval_frequency=5 --set eval_bleu=false

# The same config: no word.
for mode in train train_eval eval infer; do
    again
    expect "$mode with the same config" 0 "^none$" sh -c "
        '$PROG' --config_file=toy.json --logdir=again --mode=$mode --set eval_bleu=false --set eval_frequency=5 > out.txt 2>&1 &&
        ! grep 'changed since\|warning' out.txt && echo none"
done

# Hyperparameters of a resumed training, one line each.
again
expect "optimizer, clipping, dropout" 0 \
    "^adam_beta1: 0.9 -> 0.8;encoder_dp_input_keep_prob: 0.8 -> 1.0;learning_rate: 0.01 -> 0.1;max_grad_norm: 3.0 -> not set;$" \
    since 2 again train --max_steps=11 --set batch_size=16 --set adam_beta1=0.8 --set encoder_dp_input_keep_prob=1.0 \
    --lr=0.1 --set max_grad_norm=null
again
expect "a number written otherwise is no change" 0 '^nothing$' since 1 again train --max_steps=11 --set max_grad_norm=3
again
expect "a list, and a new epoch" 0 '^bucket_src: .8,14. -> .14.;bucket_tgt: .8,14. -> .14.;$' \
    since 1 again train --max_steps=11 --set 'bucket_src=[14]' --set 'bucket_tgt=[14]'
expect "which is reported" 0 "going on with a new epoch" cat since.txt
expect "each sample of the new epoch once" 0 '"epoch_samples":100,' sh -c "
    '$PROG' --config_file=toy.json --logdir=again --max_steps=17 --summary_frequency=1 --set 'bucket_src=[14]' \
        --set 'bucket_tgt=[14]' > /dev/null 2>&1; cat again/metrics.jsonl"
# Step 10 was in the second epoch, number 1.
expect "which is the third one" 0 '"step":12,"epoch":2,' cat again/metrics.jsonl
again
expect "fewer samples" 0 "going on with a new epoch" run 1 again train --max_steps=11 --set 'bucket_src=[8]' --set 'bucket_tgt=[8]'

# Keys of the structure that change no shape, and of the evaluation.
for mode in train eval infer; do
    again
    expect "structure in $mode" 0 "warning: changed since the checkpoint: encoder_use_skip_connections: false -> true" \
        run 1 again $mode --max_steps=11 --set encoder_use_skip_connections=true
    again
    expect "temperature in $mode" 0 "warning: changed since the checkpoint: softmax_temperature: 1.0 -> 2.0" \
        run 2 again $mode --max_steps=11 --set softmax_temperature=2.0
done 2> /dev/null
expect "the learning rate does not matter to eval" 0 '^nothing$' since 1 log eval --set learning_rate=0.5 --set eval_bleu=false
expect "evaluation data" 0 "^evaluation data: parallel_text 20 lines, .* -> parallel_text 20 lines, .*source_file_eval: .*data/dev.src. -> .data/test.src" \
    since 1 log eval --set source_file_eval=data/test.src --set target_file_eval=data/test.tgt --set eval_bleu=false

# A checkpoint of an earlier program: no best_measure, best_before or classes, and fewer keys in the config.
if command -v python3 > /dev/null; then
    again
    cat > earlier.py << 'END'
import json, sys, zipfile
path = sys.argv[1]
with zipfile.ZipFile(path) as z:
    files = {n: z.read(n) for n in z.namelist()}
m = json.loads(files["manifest.json"])
for key in "best_measure", "best_before", "classes":
    m.pop(key, None)
for key in "max_grad_norm", "nonfinite_limit", "adam_beta1":
    del m["config"][key]
files["manifest.json"] = json.dumps(m).encode()
with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
    for n, data in files.items():
        z.writestr(n, data)
END
    python3 earlier.py again/model-10.npz || exit 2
    expect "an earlier manifest: the keys of today's defaults are no change" 0 "^max_grad_norm: not set -> 3.0;$" \
        since 1 again train_eval --max_steps=12 --set eval_bleu=false --set eval_frequency=5
    expect "its step" 0 "resuming from again/model-10.npz, step 10" cat since.txt
    expect "the best goes on" 1 "" grep "begins anew" since.txt
else
    skipped=$((skipped + 3))
fi

# A renamed checkpoint: the step of its manifest counts, and a warning says so.
name="has the name of step 40 and holds step 10, which counts; was it renamed?"
for mode in train eval infer; do
    again
    mv again/model-10.npz again/model-40.npz
    expect "renamed, $mode" 0 "warning: again/model-40.npz $name" run 1 again $mode --max_steps=11 --set eval_bleu=false
done
expect "trained on from step 10" 0 "" test -e again/model-40.npz
again
mv again/model-10.npz again/model-40.npz
expect "renamed, as the begin of another training" 0 "warning: again/model-40.npz $name" \
    run 2 other train --max_steps=1 --set init_from=again
best=$(cd again && echo best-*.npz)
mv again/"$best" again/best-8.npz
expect "a renamed best file" 0 "warning: again/best-8.npz has the name of step 8 and holds step " \
    run 1 again eval --set checkpoint=best --set eval_bleu=false
cp log/model-10.npz again/resnet-50.npz
expect "a name of the user's own" 1 "" grep "was it renamed" <(run 1 again eval --set checkpoint=again/resnet-50.npz --set eval_bleu=false 2>&1)
expect "a name that fits" 1 "" grep "was it renamed" <(run 1 log eval --set eval_bleu=false 2>&1)

# Classes.
cat > food.json << 'END'
{
    "model": "resnet_cifar", "depth": 8, "dataset": "image_folder", "data_dir": "food", "image_size": 8, "eval_resize": 8,
    "batch_size": 8, "optimizer": "momentum", "learning_rate": 0.01, "lr_scaling": "none", "threads": 1,
    "image_frequency": 0, "histogram_frequency": 0
}
END
"$jpegs" food 12 > /dev/null || exit 2
mkdir -p food/val
cp -r food/train/* food/val
food() { # mode, arguments
    mode=$1
    shift
    "$PROG" --config_file=food.json --logdir=dishes --mode="$mode" "$@"
}
expect "training of images" 0 "" food train --max_steps=2
expect "infer with the same classes" 0 "" food infer
last=$(basename "$(find food/train -mindepth 1 -maxdepth 1 | sort | tail -n 1)")
mv "food/train/$last" food/train/-first && mv "food/val/$last" food/val/-first
for mode in train train_eval eval infer; do
    expect "another order of classes in $mode" 6 "class 0 is '0' there and '-first' in the data; classes there: 0, 1, 2, 3; in the data: -first, 0, 1" \
        food $mode --max_steps=3
done
mv food/train/-first "food/train/$last" && mv food/val/-first "food/val/$last"
cp -r "food/train/$last" food/train/z && cp -r "food/val/$last" food/val/z
for mode in train eval infer; do
    expect "one class more in $mode" 6 "it has 4 classes and the data 5; classes there: 0, 1, 2, 3; in the data: 0, 1, 2, 3, z" \
        food $mode --max_steps=3
done
rm -r food/train/z food/val/z
expect "normalization" 0 'warning: changed since the checkpoint: normalization: "unit" -> "symmetric"' food infer --set normalization=symmetric
expect "epsilon" 0 "warning: changed since the checkpoint: batch_norm_epsilon: " food eval --set batch_norm_epsilon=0.01
expect "augmentation matters to training alone" 1 "" sh -c "
    '$PROG' --config_file=food.json --logdir=dishes --mode=eval --set augmentation=flip 2>&1 | grep 'changed since'"
summary
