#!/bin/sh
# images.sh -- tests what training of image models promises on any number of ranks, with synthetic images.
#
# The curve is the same if the statistics of norms are those of fixed groups. The rate is that of the schedule. Resumed
# and killed runs end with the same bytes. Evaluations and classes are the same.
# timeout: 600
# beside
. "$(dirname "$0")/../support/toy.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/images.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
cat > norm.json << 'END'
{
    "model": "resnet20", "dataset": "synthetic_images", "image_size": 16, "image_channels": 3, "n_classes": 4,
    "synthetic_samples": 96, "synthetic_eval_samples": 50, "augmentation": "pad_crop_flip", "batch_norm_samples": 4,
    "batch_size": 16, "num_epochs": 3, "optimizer": "nesterov", "learning_rate": 0.002, "lr_scaling": "none",
    "weight_decay": 1e-4, "seed": 4, "threads": 1, "histogram_frequency": 0, "image_frequency": 0
}
END
cat > digits.json << 'END'
{
    "model": "mnist_cnn", "dataset": "synthetic_images", "image_size": 28, "image_channels": 1, "n_classes": 10,
    "synthetic_samples": 67, "synthetic_eval_samples": 20, "batch_size": 4, "num_epochs": 3, "drop_last_batch": true,
    "optimizer": "adadelta", "adadelta_epsilon": 1e-7, "learning_rate": 1.0, "warmup_epochs": 2, "seed": 4, "threads": 1,
    "histogram_frequency": 0
}
END
t() { # np, folder, batch per rank, arguments: trains norm.json
    n=$1 dir=$2 size=$3
    shift 3
    ranks "$n" "$PROG" --config_file=norm.json --logdir="$dir" --summary_frequency=1 --set batch_size="$size" "$@"
}

# The curve. In the first steps only the order of sums differs. Later a ReLU whose input is near zero may be on or off.
expect "np 1, batch 16" 0 "epoch 3 done at step 18" t 1 one 16
expect "np 2, batch 8" 0 "epoch 3 done at step 18" t 2 two 8
expect "np 4, batch 4" 0 "epoch 3 done at step 18" t 4 four 4
expect "losses of np 2 and 1" 0 "" close_curves loss 1e-3 5 one two
expect "losses of np 4 and 1" 0 "" close_curves loss 1e-3 5 one four
expect "samples of np 2 and 1" 0 "" close_curves epoch_samples_hash 0 18 one two
expect "samples of np 4 and 1" 0 "" close_curves epoch_samples_hash 0 18 one four
expect "statistics of a rank's whole batch are another curve" 0 "" t 2 whole 8 --set batch_norm_samples=0 --max_steps=5
expect "and are seen to be" 1 "" close_curves loss 1e-3 5 one whole
expect "two threads that work ahead" 0 "" t 2 ahead 8 --set data_threads=2
expect "are the same curve" 0 "" close_curves loss 0 18 two ahead
expect "running statistics are in the checkpoint" 0 "norm2/variance.npy" strings -n 8 one/model-18.npz
expect "a record of images" 0 '"images_per_s":' tail -n 1 one/metrics.jsonl

# Evaluation at the end of epochs, the plateau rule, and a resume in between give the same bytes.
te() { # folder, arguments: two ranks; each evaluation after the first is a plateau
    dir=$1
    shift
    t 2 "$dir" 8 --mode=train_eval --set eval_epochs=1 --set plateau_factor=0.5 --set plateau_patience=1 \
        --set plateau_min_delta=10 "$@"
}
expect "train_eval" 0 "the rate falls to 0.0005" te undisturbed
expect "an evaluation an epoch" 0 "" sh -c "[ \$(wc -l < undisturbed/eval/metrics.jsonl) -eq 3 ]"
expect "the best by accuracy" 0 "best so far: best-.*(accuracy" cat undisturbed/run.log
expect "the first part" 0 "" te parts --max_steps=12
expect "the second part" 0 "resuming from parts/model-12.npz" te parts
expect "resume ends with the same bytes" 0 "" cmp parts/model-18.npz undisturbed/model-18.npz
expect "resume keeps the rates" 0 "" close_curves learning_rate 0 18 undisturbed parts
expect "the rate fell" 0 "" sh -c "[ \"\$(sed -n 's/.*\"learning_rate\":\([^,]*\).*/\1/p' parts/metrics.jsonl | sort -u | wc -l)\" -eq 2 ]"

# A kill inside a run that saves after every step. The run is so long that a late kill comes before its end.
kill_job() {
    RD_FAULT=hang:1:14:compute te killed --checkpoint_frequency=0 > killed.txt 2>&1 &
    job=$!
    wait_until 60 grep -q "^step 8 " killed.txt
    victim=$(tr -c '0-9' ' ' < killed/.lock | awk '{ print $1 }')
    kill -9 "$victim"
    wait $job
    [ ! -f killed/model-18.npz ]
}
expect "a rank is killed" 0 "" kill_job
expect "the same command goes on" 0 "resuming from" te killed --checkpoint_frequency=0
expect "to the same bytes as undisturbed" 0 "" cmp killed/model-18.npz undisturbed/model-18.npz
expect "with one evaluation an epoch" 0 "" sh -c "[ \$(wc -l < killed/eval/metrics.jsonl) -eq 3 ]"

# A stop at a step that an evaluation should follow: the next start begins with the evaluation.
each() { te "$@" --set eval_frequency=1 --set eval_epochs=0 --set max_eval_samples=4 --set plateau_patience=5; }
stop_job() { # a stopped rank keeps the job from its end until the request to stop
    RD_FAULT=stop:1:14:compute each stopped > stopped.txt 2>&1 &
    job=$!
    wait_until 60 grep -q "^step 4 " stopped.txt
    kill -USR2 "$(tr -c '0-9' ' ' < stopped/.lock | awk '{ print $1 }')"
    woken() { pgrep -f "^$PROG .*--logdir=stopped" | xargs -r kill -CONT; ! kill -0 $job; }
    wait_until 60 woken
    wait $job
}
expect "an evaluation after each step" 0 "the rate falls" each whole_each
expect "a stop in between" 75 "" stop_job
expect "goes on" 0 "resuming from" each stopped
expect "with no evaluation lost or done twice" 0 "" sh -c "[ \$(wc -l < stopped/eval/metrics.jsonl) -eq 18 ]"
expect "to the same bytes as undisturbed" 0 "" cmp stopped/model-18.npz whole_each/model-18.npz

# The same results and classes for every number of ranks.
figures() { # np: prints the results of the evaluation, without times
    rm -rf one/eval
    ranks "$1" "$PROG" --config_file=norm.json --logdir=one --mode=eval --set eval_batch_size=7 > out.txt 2>&1 || return 1
    sed 's/"eval_s".*//' one/eval/metrics.jsonl
}
classes() { ranks "$1" "$PROG" --config_file=norm.json --logdir=one --mode=infer --output_format=text --set infer_batch_size=6 2> err.txt; }
figures 1 > f1.txt
classes 1 > c1.txt
for n in 2 3; do
    figures $n > f$n.txt
    expect "evaluation of np $n" 0 "" cmp f1.txt f$n.txt
    classes $n > c$n.txt
    expect "classes of np $n" 0 "" cmp c1.txt c$n.txt
done
expect "evaluation has both accuracies" 0 '"accuracy":.*"accuracy_top5":1.0' cat f1.txt
expect "a class for each image" 0 "" sh -c "[ \$(grep -c '^[0-3]\$' c1.txt) -eq 50 ] && [ \$(wc -l < c1.txt) -eq 50 ]"

# The rate of every step is that of Horovod's callback: e + (b + 1) / S of W epochs from 1 to N, then N.
trace() { # np, steps per epoch
    ranks "$1" "$PROG" --config_file=digits.json --logdir="rate$1" --summary_frequency=1 > out.txt 2>&1 || { cat out.txt; return 1; }
    column learning_rate "rate$1" | awk -v N="$1" -v S="$2" -v W=2 '
        { e = int((NR - 1) / S); x = e + ((NR - 1) % S) / S + 1 / S; want = e < W ? x * (N - 1) / W + 1 : N
          d = $1 - want; if (d < 0) d = -d; if (d > worst) worst = d }
        END { printf "%d steps, largest gap %g\n", NR, worst; exit !(NR == 3 * S && worst <= 1e-6) }'
}
expect "rates of np 1" 0 "48 steps" trace 1 16
expect "rates of np 2" 0 "24 steps" trace 2 8
expect "rates of np 4" 0 "12 steps" trace 4 4
expect "rates of np 8" 0 "6 steps" trace 8 2

# Images for TensorBoard, in files that the program can read.
expect "train_eval of digits" 0 "best so far" ranks 2 "$PROG" --config_file=digits.json --logdir=seen --mode=train_eval --max_steps=8 \
    --set eval_epochs=1
expect "sample images" 0 ",samples,image," "$PROG" --events="$(echo seen/events*)"
expect "their names" 0 ",samples/names,text," "$PROG" --events="$(echo seen/events*)"
for tag in mistakes mistakes/confusion_matrix; do
    expect "$tag" 0 ",$tag,image," "$PROG" --events="$(echo seen/eval/events*)"
done

# TensorBoard sorts groups by name: the loss stands first. Norms of variables are those of small networks.
tags() { "$PROG" --events="$(echo "$1"/events*)" | grep ',scalar,' | cut -d, -f3 | LC_ALL=C sort -u | tr '\n' ' '; }
expect "tags of an evaluation" 0 '^loss metrics/accuracy metrics/accuracy_top5 $' tags seen/eval
expect "tags of a training" 0 '^loss metrics/accuracy metrics/accuracy_top5 optimizer/gradient_norm .*variables/gradient_norm/' tags seen
expect "a large network has no norms of variables" 0 ' speed/steps_per_s $' tags one
expect "they can be had" 0 ' variables/gradient_norm/' eval "t 1 norms 16 --max_steps=2 --set gradient_norms=on > /dev/null 2>&1; tags norms"

# Each rank has its own order.
expect "independent sampling" 0 "done: step 16" ranks 2 "$PROG" --config_file=digits.json --logdir=own --set sampling=independent \
    --set num_epochs=2
expect "an epoch without a whole batch" 2 "an epoch without a batch" ranks 1 "$PROG" --config_file=digits.json --logdir=none \
    --set batch_size=68
expect "a plateau without evaluation is said" 0 "plateau_factor is without effect" ranks 1 "$PROG" --config_file=digits.json \
    --logdir=said --max_steps=1 --set plateau_factor=0.1
expect "schedules that exclude each other" 2 "'warmup_steps'.*'warmup_epochs'" ranks 1 "$PROG" --config_file=digits.json \
    --logdir=none --set warmup_steps=5
summary
