#!/usr/bin/env bash
# checkpoints.sh -- tests checkpoints by steps with an evaluation at each, early stopping and its limits, and the
# plateau rule that restores the best checkpoint; also after kills. tests/run runs the script and sets BUILD, PROG and
# MPIRUN.
# timeout: 300
# beside
. "$(dirname "$0")/../support/toy.sh"
same=$PWD/${BUILD:-build/release}/tests/support/npz_same
work=$(mktemp -d "${TMPDIR:-/tmp}/checkpoints.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 400 20
sed 's/"\(src_emb_size\|tgt_emb_size\|[a-z_]*cell_units\|attention_layer_size\)": 16/"\1": 4/g
    s/"batch_size": 16, "num_epochs": 4/"batch_tokens": 120, "num_epochs": 20/
    s/"learning_rate": 0.01/"learning_rate": 0.3, "metric": "chrf", "best_monitor": "loss", "checkpoint_steps": 10,\
    "plateau_factor": 0.5, "plateau_patience": 2, "plateau_min_delta": 0, "plateau_restore": true, "stop_patience": 4/
    ' toy.json > small.json
t() { # np, folder, arguments: trains and evaluates
    n=$1 dir=$2
    shift 2
    ranks "$n" "$PROG" --config_file=small.json --logdir="$dir" --mode=train_eval --set checkpoint_keep=0 "$@"
}
# rows FOLDER: prints the rows of the evaluations without their times
rows() { sed 's/"eval_s":[^,]*,//' "$1/eval/metrics.jsonl"; }
# of KEY FOLDER: prints KEY of each evaluation
of() { column "$1" "$2/eval" | tr '\n' ' '; }
steps() { (cd "$1" && echo model-*.npz) | tr ' ' '\n' | sed 's/model-\([0-9]*\).npz/\1/' | sort -n | tr '\n' ' '; }

expect "one rank" 0 "the training ends at step [0-9]*: 4 evaluations in a row were not better than loss [0-9.]* (stop_p" \
    t 1 one
end=$(steps one | awk '{ print $NF }')
best=$(cd one && echo best-*.npz | tr -dc 0-9)
expect "it ends four checkpoints after the best" 0 "^40\$" expr "$end" - "$best"
expect "each checkpoint has its row, the last one too" 0 "^$(steps one)\$" of step one
expect "rows hold loss, perplexity and score" 0 "^$(steps one | wc -w)\$" grep -c \
    '"loss":[0-9.]*,"loss_per_token":[0-9.]*,"perplexity":[0-9.]*,.*"chrF2":[0-9.]*,.*"not_improved":[0-9]' one/eval/metrics.jsonl
# The counts and rates follow from the losses alone.
expect "not_improved, best and rate by the rules" 0 "^[1-9][0-9]* rows, [1-9][0-9]* cuts\$" sh -c "
    sed 's/.*\"loss\":\([^,]*\),.*\"learning_rate\":\([^,]*\),\"best\":\([a-z]*\),\"not_improved\":\([0-9]*\).*/\1 \2 \3 \4/' \
        one/eval/metrics.jsonl | awk 'BEGIN { rate = 0.3 }
        { better = NR == 1 || \$1 < low; if (better) { low = \$1; n = wait = 0 } else { n++; wait++ }
          if (wait == 2) { rate /= 2; wait = 0; cuts++ }
          gap = \$2 - rate; if (gap < 0) gap = -gap
          if (\$4 != n || (\$3 == \"true\") != better || gap > 1e-6) { print \"row\", NR, \$0; bad = 1 } }
        END { print NR \" rows, \" cuts \" cuts\"; exit bad }'"
expect "started again it does nothing" 0 "nothing to do: the training ended at step $end, after 4 evaluations" t 1 one
cp -r one longer
expect "more patience goes on" 0 "resuming from longer/model-$end.npz" t 1 longer --set stop_patience=5
expect "and one checkpoint more at least" 0 "" test "$(steps longer | awk '{ print $NF }')" -ge $((end + 10))
expect "two ranks" 0 "the training ends at step [0-9]*: 4 evaluations" t 2 two

# The rate falls to almost 0 at the first cut, so all evaluations after it are those of the best checkpoint.
expect "a rate of almost 0" 0 "weights and optimizer state of best-[0-9]*.npz are restored" t 1 zero --set plateau_factor=1e-9
expect "then the loss of the best one" 0 "^2 times\$" sh -c "
    sed 's/.*\"loss\":\([^,]*\),.*\"learning_rate\":\([^,]*\),.*/\1 \2/' zero/eval/metrics.jsonl | awk '
        cut { if (\$1 - low > 1e-5 || low - \$1 > 1e-5) exit 1; n++ }
        NR == 1 || \$1 < low { low = \$1 }
        \$2 < 1e-6 { cut = 1 }
        END { print n \" times\" }'"
expect "without plateau_restore it is another one" 1 "" sh -c "
    '$PROG' --config_file=small.json --logdir=stays --mode=train_eval --set plateau_factor=1e-9 --set plateau_restore=false &&
    sed 's/.*\"loss\":\([^,]*\),.*\"learning_rate\":\([^,]*\),.*/\1 \2/' stays/eval/metrics.jsonl | awk '
        cut { exit !(\$1 - low < 1e-5) } NR == 1 || \$1 < low { low = \$1 } \$2 < 1e-6 { cut = 1 }'"

# The file of a step holds the weights that were evaluated, and its manifest says that the restore comes next. A run
# that begins with the best file's weights and optimizer state ends with the same bytes.
cut=$(sed -n 's/.*weights and optimizer state of best-[0-9]*.npz are restored.*/&/p' one/run.log | wc -l)
expect "the best one was restored" 0 "^[1-9]" echo "$cut"
first=$(rows one | awk -F'"learning_rate":' '{ split($2, a, ","); if (NR > 1 && a[1] < last) { print NR * 10; exit } last = a[1] }')
restored=$(sed -n 's/.*optimizer state of best-\([0-9]*\).npz are restored.*/\1/p' one/run.log | head -n 1)
expect "the evaluated weights are saved" 0 "evaluation at step $first: loss $(rows one | awk -F'"loss":' -v n=$((first / 10)) \
    'NR == n { printf "%.6f", $2 + 0 }')" "$PROG" --config_file=small.json --logdir=apart --mode=eval \
    --set checkpoint="one/model-$first.npz"
if command -v python3 > /dev/null; then
    cat > joined.py << 'END'
import json, sys, zipfile
def read(path):
    with zipfile.ZipFile(path) as z:
        return {n: z.read(n) for n in z.namelist()}
files, best = read(sys.argv[1]), read(sys.argv[2])
m, b = json.loads(files["manifest.json"]), json.loads(best["manifest.json"])
assert m["restore_due"]
del m["restore_due"]
m["arrays"], m["state_updates"] = b["arrays"], b["updates"]
best["manifest.json"] = json.dumps(m).encode()
with zipfile.ZipFile(sys.argv[3], "w", zipfile.ZIP_STORED) as z:
    for n, data in best.items():
        z.writestr(n, data)
END
    t 1 upto --max_steps="$restored" > /dev/null 2>&1 # has the best file of that step, which `one` has replaced
    mkdir joined
    expect "a checkpoint with both" 0 "" python3 joined.py "one/model-$first.npz" "upto/best-$restored.npz" \
        "joined/model-$first.npz"
    cp "upto/best-$restored.npz" joined
    expect "goes on" 0 "" t 1 joined
    expect "with the same bytes" 0 "" "$same" "one/model-$end.npz" "joined/model-$end.npz"
    # A checkpoint whose evaluation is due, as after a stop request, and a row of it from a start that was killed.
    cat > due.py << 'END'
import json, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as z:
    files = {n: z.read(n) for n in z.namelist()}
m = json.loads(files["manifest.json"])
m["eval_due"] = True
files["manifest.json"] = json.dumps(m).encode()
with zipfile.ZipFile(sys.argv[2], "w", zipfile.ZIP_STORED) as z:
    for n, data in files.items():
        z.writestr(n, data)
END
    mkdir -p due/eval
    head -n 2 one/eval/metrics.jsonl > due/eval/metrics.jsonl
    expect "a due evaluation" 0 "" python3 due.py one/model-20.npz due/model-20.npz
    expect "is made" 0 "evaluation at step 20" t 1 due --max_steps=21
    expect "and has one row" 0 "^10 20 21 \$" of step due
else
    skipped=$((skipped + 6))
fi

rows one > rows.one
# Kills: before the save of the cut, after it and before the restore, after the restore, within an evaluation.
faults="save:$first input:$((first + 1))"
[ "${CASES:-}" != all ] || faults+=" update:$((first + 3)) evaluate:$((first + 10))"
for fault in $faults; do
    phase=${fault%:*} step=${fault#*:}
    killed() {
        (export RD_FAULT="kill:0:$step:$phase" && t 1 "kill$phase") && return 1
        t 1 "kill$phase"
    }
    expect "killed in $fault" 0 "resuming from kill$phase/" killed
    expect "$fault: the same bytes" 0 "" "$same" --manifest "one/model-$end.npz" "kill$phase/model-$end.npz"
    expect "$fault: the same rows" 0 "" sh -c "cmp /dev/stdin rows.one" <<< "$(rows "kill$phase")"
    expect "$fault: the same checkpoints" 0 "^$(steps one)\$" steps "kill$phase"
done

# Limits that hold.
expect "min_steps holds the end back" 0 "the training ends at step [0-9]*: [0-9]* evaluations" t 1 held \
    --set min_steps=$((end + 11))
expect "until it is reached" 0 "" test "$(steps held | awk '{ print $NF }')" -ge $((end + 20))
expect "max_epochs beside --max_steps" 0 "done: step 46 in" t 1 epochs --max_steps=300 --set max_epochs=2
expect "the last evaluation has a row" 0 "^10 20 30 40 46 \$" of step epochs
expect "--max_steps beside max_epochs" 0 "done: step 20 in" t 1 limits --max_steps=20 --set max_epochs=2
expect "max_epochs alone" 0 "done: step 46 in" t 1 alone --set max_epochs=2 --set num_epochs=null
expect "max_samples" 0 "done: step [56] in" t 1 samples --set max_samples=90 --summary_frequency=1
expect "the step that reaches it is the last one" 0 "" sh -c "
    sed -n 's/.*\"epoch_samples\":\([0-9]*\).*/\1/p' samples/metrics.jsonl | tail -n 2 | tr '\n' ' ' | awk '{ exit !(\$1 < 90 && \$2 >= 90) }'"
expect "its last evaluation has a row" 0 "^[56] \$" of step samples
expect "all is done" 0 "nothing to do: step [56] of [56] is done" t 1 samples --set max_samples=90
expect "--max_steps alone" 0 "done: step 12 in" t 1 alone12 --max_steps=12
expect "checkpoint_steps in train mode" 0 "checkpoint model-10.npz saved" ranks 1 "$PROG" --config_file=small.json \
    --logdir=train --max_steps=15
expect "the newest five are kept" 0 "done: step 60" ranks 1 "$PROG" --config_file=small.json --logdir=five --max_steps=60
expect "of six" 0 "^20 30 40 50 60 \$" steps five
expect "a wrong monitor" 2 "best_monitor" t 1 no --set best_monitor=bleu
expect "plateau_restore alone" 2 "'plateau_restore' is set and 'plateau_factor'" t 1 no --set plateau_factor=null \
    --set plateau_patience=null --set plateau_min_delta=null
summary
