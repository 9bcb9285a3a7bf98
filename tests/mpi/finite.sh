#!/usr/bin/env bash
# finite.sh -- tests that inf, NaN and a loss that grows are never silent: warnings, exit codes, and which checkpoints stay.
#
# The usual trouble is a rate of 1e6 with a large weight_decay: steps 1 and 2 are finite, and no step after them is.
# tests/run runs the script and sets PROG and MPIRUN.
# beside, long
# timeout: 300
. "$(dirname "$0")/../support/toy.sh"
poison=$(cd "$(dirname "$0")/../support" && pwd)/poison.py
work=$(mktemp -d "${TMPDIR:-/tmp}/finite.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 100 20
all_leave_together
t() { # np, folder, arguments
    local n=$1 dir=$2
    shift 2
    ranks "$n" "$PROG" --config_file=toy.json --logdir="$dir" --set batch_size=$((8 / n)) "$@"
}
f() { (export RD_FAULT=$1 && shift && t "$@"); } # the same with faults
bad=(--set optimizer=sgd --set max_grad_norm=null --lr=1e6 --set weight_decay=1e5)
files() { (cd "$1" && echo *.npz); }
holds() { if grep -q -- "$1" "$2"; then echo yes; else echo no; fi; }

# ---- steps that are skipped ----

nps=2 # CASES=all: also one rank, for everything
[ "${CASES:-}" != all ] || nps="1 2"
for np in 1 2; do
    expect "$np: the last steps were skipped" 7 "error: the result is not usable: the gradient was not finite in the last 8 steps, up to step 10" \
        t "$np" last"$np" --summary_frequency=1 --max_steps=10 "${bad[@]}"
    expect "$np: a warning at the moment" 0 "warning: step 3 skipped on all ranks: .* (1 in a row, 1 in all)" cat last"$np"/run.log
    expect "$np: and one at the end" 0 "warning: 8 of the 10 steps of this run were skipped" cat last"$np"/run.log
    expect "$np: the next start finds the same" 7 "the result is not usable" t "$np" last"$np" --max_steps=10 "${bad[@]}"
done
expect "NaN is printed without a sign" 1 "" grep -e "-nan" last1/run.log last2/run.log
expect "and it is printed" 0 "" grep "^[-0-9: ]*step 10 .* loss nan  ppl nan " last1/run.log
expect "one bad step in the middle" 0 "warning: 1 of the 6 steps of this run was skipped" f nan:1:3:compute 2 middle --max_steps=6
expect "two bad steps in the middle" 0 "warning: 2 of the 6 steps" f nan:1:3:compute,nan:0:4:compute 2 middle2 --max_steps=6
expect "a bad step at the end may be a bad batch" 0 "warning: 1 of the 6 steps" f nan:0:6:compute 2 end1 --max_steps=6
expect "two are not usable" 7 "not finite in the last 2 steps" f nan:0:5:compute,nan:1:6:compute 2 end2 --max_steps=6
expect "no step at all" 7 "not finite in the last 1 step, up to step 1" f nan:0:1:compute 2 none --max_steps=1
expect "nothing to warn of" 1 "" grep -i "warning\|not finite" <(t 2 fine --max_steps=6 2>&1)
expect "nonfinite_limit ends with the count too" 7 "warning: 5 of the 7 steps" t 2 limit --max_steps=20 --set nonfinite_limit=5 "${bad[@]}"

# A skipped step is none for Adam's bias correction. With one batch and no dropout, the steps after it print the losses of a
# run without it.
echo "a b c" > one.src
echo "c b a" > one.tgt
one=(--set source_file=one.src --set target_file=one.tgt --set batch_size=1 --set num_epochs=null --set max_grad_norm=null
    --set encoder_dp_input_keep_prob=1 --set encoder_dp_output_keep_prob=1
    --set decoder_dp_input_keep_prob=1 --set decoder_dp_output_keep_prob=1)
losses() { sed -n 's/.*"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl" | tail -n 5 | tr '\n' ' '; }
for optimizer in adam adamw; do
    t 1 plain$optimizer --max_steps=7 "${one[@]}" --set optimizer=$optimizer > /dev/null 2>&1
    expect "$optimizer: a skipped step" 0 "1 of the 8 steps" f nan:0:3:compute 1 skip$optimizer --max_steps=8 "${one[@]}" \
        --set optimizer=$optimizer
    expect "$optimizer: does not count" 0 "^$(losses plain$optimizer)\$" losses skip$optimizer
done

# ---- which checkpoints stay ----

t 2 rotate --max_steps=9 --checkpoint_frequency=0 --set checkpoint_keep=2 "${bad[@]}" > /dev/null 2>&1
expect "good checkpoints stay" 0 "^model-1.npz model-2.npz model-9.npz$" files rotate
expect "a save waits, reported once" 0 "^1$" grep -c "the checkpoint of step 3 waits\|the checkpoint of step .* waits" rotate/run.log
expect "a finite step ends the wait" 0 "^model-1.npz model-2.npz model-5.npz model-6.npz$" sh -c "RD_FAULT=nan:0:3:compute,nan:0:4:compute '$PROG' --config_file=toy.json --logdir=wait --max_steps=6 --checkpoint_frequency=0 \
        --set checkpoint_keep=4 > /dev/null 2>&1; cd wait && echo *.npz"
for what in inf infslot; do
    expect "$what: weights that are not finite are not saved" 7 "after step 4 'output_kernel.*' holds inf or NaN; it is not saved" \
        f $what:0:4:save 1 $what --max_steps=6 --checkpoint_frequency=0
    expect "$what: the files before them" 0 "^model-1.npz model-2.npz model-3.npz$" files $what
    expect "$what: also at the end" 7 "after step 3 'output_kernel.*' holds inf or NaN" f $what:0:3:save 1 $what.end --max_steps=3
    expect "$what: no file" 0 '^\*.npz$' files $what.end
done

# ---- evaluations ----

# Steps 1 and 2 have a small rate. Steps 3 and 4 are those of a rate of 1e6: a gradient is finite, or far from it, in each
# build of the program. With growth that is slower, the last digits decide which step is the last finite one.
late=(--set optimizer=sgd --set max_grad_norm=null --set learning_rate=null --set weight_decay=1e5
    --set piecewise_learning_rate_schedule="1e-6;2;1e6" --set lr_boundary_unit=steps)
expect "train_eval: not finite in the end" 7 "the result is not usable" \
    t 2 te --mode=train_eval --max_steps=10 --set eval_frequency=1 --set eval_bleu=false "${late[@]}"
expect "a warning at the moment" 0 "warning: the evaluation at step 10 is not finite: loss nan; the loss of 5 of 5 batches is not; it is not compared" cat te/run.log
expect "the perplexity was the first" 0 "warning: the evaluation at step 3 is not finite: perplexity inf; the loss of 0 of 5 batches" cat te/run.log
expect "and at the end" 0 "warning: 8 evaluations of this run were not finite" cat te/run.log
expect "the best file is one that was finite" 0 "^best-[12].npz model-10.npz$" files te
expect "the only evaluation is not finite" 7 "the result is not usable: " \
    t 1 only --mode=train_eval --max_steps=4 --set eval_frequency=4 --set eval_bleu=false "${bad[@]}"
expect "no best file" 0 "^model-4.npz$" files only
expect "a good last step, a bad evaluation" 7 "the result is not usable: the last evaluation, up to step 2, is not finite" \
    t 2 gone --mode=train_eval --max_steps=2 --set eval_frequency=2 --set eval_bleu=false "${bad[@]}"
expect "found again by the next start" 7 "the last evaluation, up to step 2, is not finite" \
    t 2 gone --mode=train_eval --max_steps=2 --set eval_frequency=2 --set eval_bleu=false "${bad[@]}"
for np in $nps; do
    expect "$np: eval" 7 "error: the evaluation of step 10 is not finite: loss nan; the loss of 5 of 5 batches is not" t "$np" last1 --mode=eval --set eval_batch_size=4
done
expect "eval of a good model" 0 "" t 2 fine --mode=eval

# ---- inference ----

for np in $nps; do
    expect "$np: infer names the first line" 7 "error: the model's numbers were not finite for 20 of 20 lines, first for line 1; their output is blank" \
        t "$np" last1 --mode=infer --inference_out=out.txt
    expect "$np: its output is whole and blank" 0 "^20 0$" sh -c "echo \$(wc -l < out.txt) \$(grep -c . out.txt)"
done
if command -v python3 > /dev/null; then
    t 1 some --max_steps=4 > /dev/null 2>&1
    cp data/test.src test.txt && grep -v f data/train.src | head -n 3 > head.txt && cat head.txt data/test.src > mixed.txt
    infer() { t "$1" some --mode=infer --input="$2" --inference_out="$3" "${@:4}"; }
    infer 1 mixed.txt before.txt > /dev/null 2>&1
    python3 "$poison" some/model-4.npz src_embedding 9 nan || exit 2 # the word f
    n=$(grep -c f mixed.txt) first=$(grep -n -m 1 f mixed.txt | cut -d: -f1)
    for k in $nps; do
        for beam in 1 3; do
            infer 1 mixed.txt want.txt --beam_width=$beam > /dev/null 2>&1
            expect "$k, beam $beam: some lines" 7 "not finite for $n of 23 lines, first for line $first;" \
                infer "$k" mixed.txt got.txt --beam_width=$beam
            expect "$k, beam $beam: at the moment" 7 "warning: the model's numbers for line $first are not finite" \
                infer "$k" mixed.txt got.txt --beam_width=$beam
        done
        infer "$k" mixed.txt got.txt > /dev/null 2>&1
        expect "$k: the others are right" 0 "^same$" sh -c "
            paste mixed.txt before.txt | awk -F '\t' '{ print (\$1 ~ /f/) ? \"\" : \$2 }' | cmp - got.txt && echo same"
        expect "$k: a pipe too" 7 "not finite for $n of 23 lines, first for line $first;" sh -c "
            (head -n 2 mixed.txt; sleep 1; tail -n +3 mixed.txt) | timeout 100 $MPIRUN -np $k '$PROG' --config_file=toy.json --logdir=some \
                --mode=infer --input=- --inference_out=got.txt"
    done
    expect "weights that are not finite: eval warns" 7 "warning: some/model-4.npz: 'src_embedding' holds inf or NaN" t 2 some --mode=eval
    expect "no training goes on from them" 7 "'src_embedding' holds inf or NaN, so no training can go on from it; move the file away" \
        t 2 some --max_steps=6
    expect "none begins with them" 7 "'src_embedding' holds inf or NaN, so no training can begin with it" \
        t 2 new --max_steps=6 --set init_from=some
else
    skipped=$((skipped + 9))
fi

# ---- a loss that grows and stays finite ----

grows=(--lr=100 --set max_grad_norm=3.0)
for np in $nps; do
    expect "$np: diverges" 7 "the training diverges: for 100 steps, up to step 10[0-9], the loss per target was above 2[0-9.]*, divergence_limit 10 times" \
        t "$np" grows"$np" --max_steps=300 --checkpoint_frequency=0 "${grows[@]}"
    expect "$np: warns before" 0 "warning: the training diverges: at step [67] the loss per target is" cat grows"$np"/run.log
    expect "$np: checkpoints from before stay" 0 "model-1.npz " files grows"$np"
done
expect "a short run" 7 "the result is not usable: the training diverges, and at step 20, the end" t 2 short --max_steps=20 "${grows[@]}"
expect "found again by the next start" 7 "the result is not usable: the training diverges" t 2 short --max_steps=20 "${grows[@]}"
expect "a resumed run counts on" 7 "for 100 steps, up to step 10[0-9], " t 2 short --max_steps=300 "${grows[@]}"
expect "divergence_limit 0" 0 "done: step 120" t 2 off --max_steps=120 "${grows[@]}" --set divergence_limit=0
expect "another limit" 0 "done: step 120" t 2 far --max_steps=120 "${grows[@]}" --set divergence_limit=1e6
expect "a warm-up, and a rate that is too high" 1 "" grep -i "diverge\|not finite" <(t 2 warm --max_steps=150 --lr=1 --set warmup_steps=50 2>&1)
expect "sums over time of long sentences" 1 "" grep -i "diverge\|not finite" <(t 2 sums --max_steps=150 --set average_across_timesteps=false 2>&1)
expect "a model that is good already" 1 "" grep -i "diverge\|not finite" <(t 1 again --max_steps=150 --lr=0.1 --set init_from=fine 2>&1)

# ---- the learning rate ----

rate=(--set use_decay=true --set begin_decay_at=2 --set decay_steps=1 --set decay_rate=1e6 --set use_staircase_decay=true
    --set min_learning_rate=0 --set optimizer=adam)
expect "a rate beyond float32" 7 "the learning rate of step 10 is 1e+40, which is no float32 number" t 2 rate --max_steps=20 --lr=0.01 "${rate[@]}" \
    --set divergence_limit=0
summary
