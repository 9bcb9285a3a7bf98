#!/usr/bin/env bash
# runs.sh -- the modes runs, diff and show: states, columns, conditions, order, formats, the width of a terminal, and
# folders that are damaged or made to harm.
. tests/support/toy.sh
work=$(mktemp -d) || exit 2
trap 'chmod -R u+rwx "$work" 2> /dev/null; rm -rf "$work"' EXIT
case $PROG in /*) ;; *) PROG=$PWD/$PROG ;; esac
cd "$work" || exit 2
export LC_ALL=C.UTF-8
runs() { timeout 60 "$PROG" --mode=runs --logdir=logs "$@"; }
row() { # RUN: its line of the CSV
    runs --format=csv | grep "^$1,"
}
absent() { # TEXT COMMAND...: the command succeeds and does not print the text
    local text=$1 out
    shift
    out=$("$@" 2>&1) && ! printf '%s' "$out" | grep -q -- "$text"
}

# ---- runs of the program itself ----
toy 60 10
train() { "$PROG" --config_file=toy.json --summary_frequency=2 "$@"; }
train --logdir=logs/a --mode=train_eval --set eval_frequency=8 > /dev/null 2>&1 || echo "no run a"
train --logdir=logs/b --mode=train --set learning_rate=0.03 > /dev/null 2>&1 || echo "no run b"
"$PROG" --config_file=toy.json --summary_frequency=2 --logdir=logs/deep/c --mode=train --max_steps=1000000 > c.out 2>&1 &
pid=$!
wait_until 60 grep -q '"step":100,' logs/deep/c/metrics.jsonl
expect "a living run" 0 '^deep/c,running,' runs --format=csv
timeout 60 "$PROG" --mode=runs --logdir=logs --watch > watch.out 2>&1 &
watcher=$!
wait_until 60 grep -q running watch.out
kill -TERM $pid
wait $pid
wait_until 60 grep -q 'no run is running' watch.out
wait $watcher
expect "--watch shows the end, and ends" 0 'deep/c  *stopped' tail -n 3 watch.out
expect "done, steps, best BLEU with its step" 0 '^a,done,,20,[0-9.]*,BLEU,[0-9.]*,[0-9]*,' row a
expect "a run without evaluation has its loss" 0 '^b,done,,20,[0-9.]*,train loss,' row b
expect "stopped" 0 '^deep/c,stopped,,' row deep/c
expect "what ended them" 0 '^a,num_epochs b,num_epochs deep/c,request $' eval \
    "runs --format=json | sed -n 's/.*\"run\": \"\(.*\)\",/\1/p; s/.*\"ended_by\": \"\(.*\)\".*/,\1/p' | paste -sd' ' | sed 's/ ,/,/g; s/$/ /'"
expect "only keys that differ are columns" 0 'started,eval_frequency,learning_rate,ended_by,why$' \
    runs --format=csv
want=$(sed -n 's/.*"BLEU":\([0-9.]*\).*/\1/p' logs/a/eval/metrics.jsonl | sort -g | tail -n 1)
expect "the best is the largest of eval/metrics.jsonl" 0 "$want" row a
"$PROG" --config_file=toy.json --summary_frequency=2 --logdir=logs/d --mode=train --max_steps=1000000 > /dev/null 2>&1 &
pid=$!
wait_until 60 grep -q '"step":100,' logs/d/metrics.jsonl
kill -9 $pid
wait $pid 2> /dev/null
expect "killed" 0 '^d,failed,,.*run.log has no end' row d
train --logdir=logs/e --mode=train --set optimizer=sgd --set learning_rate=1e6 --set max_grad_norm=null \
    --max_steps=400 > /dev/null 2>&1
expect "a failure has its code and its reason" 0 '^e,failed,7,.*\(diverges\|not finite\)' row e
expect "--where on keys" 0 '^b ' runs --where 'learning_rate>0.01 and learning_rate <= 0.03'
expect "--where leaves the others out" 0 '' absent '^a ' runs --where 'learning_rate>0.01'
expect "--where on columns" 0 '^e ' runs --where 'state=failed and exit_code=7'
expect "--where: a key that the run does not have" 0 '^a ' runs --where 'eval_batch_size=null and state=done'
expect "--where that fits none" 0 'none of 5 runs fits --where' runs --where 'seed=77'
expect "--sort, largest first" 0 '^e 100' eval \
    "runs --sort=-learning_rate --format=csv | sed -n 's/^\([a-e]\),.*,\(100\)0000,.*/\1 \2/p;2q'"
expect "--sort by name" 0 '^a b d deep/c e $' eval "runs --format=csv | sed 1d | cut -d, -f1 | tr '\n' ' '"
expect "JSON" 0 '^a done 20$' eval \
    "runs --format=json | python3 -c 'import json,sys; r = json.load(sys.stdin)[\"runs\"][0]; print(r[\"run\"], r[\"state\"], r[\"steps\"])'"
expect "diff: config, result" 0 'learning_rate  *0.01  *0.03' "$PROG" --mode=diff logs/a logs/b
expect "diff: names below --logdir, CSV" 0 '^config,learning_rate,0.01,0.03$' "$PROG" --mode=diff --logdir=logs a b --format=csv
expect "diff: equal data is not listed" 0 '' absent '^data' "$PROG" --mode=diff logs/a logs/b
sed 's/data.train.src/data\/dev.src/; s/data.train.tgt/data\/dev.tgt/' toy.json > dev.json
"$PROG" --config_file=dev.json --logdir=logs/f --max_steps=4 > /dev/null 2>&1
expect "diff: other data" 0 '^data,data,' "$PROG" --mode=diff logs/a logs/f --format=csv
expect "diff: size of the data" 0 '^data,size,"60 samples' "$PROG" --mode=diff logs/a logs/f --format=csv
expect "show: banner of the last start" 0 '^model  *seq2seq, 9,537 parameters' "$PROG" --mode=show a
expect "show: one screen" 0 '^2[0-3]$' eval "script -q -c 'stty cols 80 rows 24; $PROG --mode=show a' /dev/null | wc -l"
expect "show: JSON has the curve" 0 '^20 True$' eval \
    "$PROG --mode=show a --json | python3 -c 'import json,sys; o = json.load(sys.stdin); print(int(o[\"curves\"][\"train_loss\"][-1][0]), o[\"config\"][\"learning_rate\"] == 0.01)'"
for columns in 30 60 80 200; do
    expect "a terminal of $columns columns" 0 "^fits" eval \
        "script -q -c 'stty cols $columns; $PROG --mode=runs --logdir=logs' /dev/null | tr -d '\r' | awk 'length(\$0) > $columns { bad = 1; print } END { if (!bad && NR > 5) print \"fits\" }'"
done
expect "keys without room are named" 0 'more keys differ: ' script -q -c "stty cols 60; $PROG --mode=runs --logdir=logs" /dev/null

# ---- which evaluation is best ----
evaluated() { # NAME, config.json, lines of eval/metrics.jsonl
    mkdir -p "best/$1/eval"
    echo "$2" > "best/$1/config.json"
    printf '{"step":9,"loss":2,"time":100}\n' > "best/$1/metrics.jsonl"
    printf '%b' "$3" > "best/$1/eval/metrics.jsonl"
}
evaluated bleu '{"metric": {"value": "bleu", "source": "default"}}' \
    '{"step":1,"loss":3,"perplexity":9,"accuracy":0.9,"BLEU":4.5}\n{"step":2,"perplexity":8,"BLEU":7.25}\n{"step":3,"perplexity":8,"BLEU":6}\n'
evaluated errors '{"metric": {"value": "per_wer", "source": "x.json:3:5"}}' \
    '{"step":1,"loss":3,"perplexity":9,"phoneme_error_rate":0.5}\n{"step":2,"perplexity":9,"phoneme_error_rate":0.25}\n{"step":3,"perplexity":9,"phoneme_error_rate":0.4}\n'
evaluated images '{"metric": {"value": "bleu", "source": "default"}}' \
    '{"step":1,"loss":3,"accuracy":0.75}\n{"step":2,"loss":1,"accuracy":0.875}\n{"step":3,"loss":0.5,"accuracy":0.5}\n'
evaluated nothing '{}' '{"step":1,"loss":3,"perplexity":9,"accuracy":0.9}\n{"step":2,"loss":2,"perplexity":7,"accuracy":0.1}\n{"step":3,"loss":2.5,"perplexity":8}\n'
best() { "$PROG" --mode=runs --logdir=best --format=csv "$@"; }
expect "the largest BLEU" 0 '^bleu,.*,BLEU,7.25,2,' best
expect "the smallest error rate" 0 '^errors,.*,phoneme_error_rate,0.25,2,' best
expect "the accuracy of images" 0 '^images,.*,accuracy,0.875,2,' best
expect "the loss of a text without a score" 0 '^nothing,.*,loss,2,2,' best
expect "--sort=best: the best of a kind first" 0 '^a bleu$' eval \
    "cp -r best/bleu best/a && sed -i 's/7.25/8/' best/a/eval/metrics.jsonl && cp -r best/bleu best/b2 && sed -i 's/7.25/7.5/' best/b2/eval/metrics.jsonl &&
     best --sort=best | sed 1d | cut -d, -f1 | grep -x 'a\|bleu' | tr '\n' ' ' | sed 's/ $//'; rm -r best/a best/b2"

# ---- wrong words ----
expect "no such folder" 2 "cannot open 'none'" "$PROG" --mode=runs --logdir=none
expect "no run" 2 "no run is in or below 'data'" "$PROG" --mode=runs --logdir=data
expect "a file" 2 "is no folder" "$PROG" --mode=runs --logdir=toy.json
expect "--sort: unknown" 2 "did you mean 'learning_rate'" runs --sort=learning_rat
expect "--where: unknown key" 2 "did you mean 'batch_size'" runs --where 'batchsize=3'
expect "--where: no condition" 2 "'learning_rate' is no condition" runs --where learning_rate
expect "--format" 2 "must be one of text, csv, json, not 'xml'" runs --format=xml
expect "--watch and --format" 2 "watch prints text" runs --watch --format=csv
expect "diff of one" 2 "compares two log folders, but 1 is given" "$PROG" --mode=diff logs/a
expect "show of none" 2 "shows one log folder" "$PROG" --mode=show
expect "show of no log folder" 2 "'data' is no log folder" "$PROG" --mode=show data
expect "show of what is not there" 2 "there is no log folder 'zzz'" "$PROG" --mode=show zzz
expect "a word in another mode" 2 "'logs/a' belongs to no flag" "$PROG" --mode=eval logs/a
expect "--sort in another mode" 2 "sort is for --mode=runs" "$PROG" --sort=run --config_file=toy.json

# ---- damage and malice ----
escape=$(printf '\033')
mkdir -p bad/cut bad/text bad/deep/a/b/c/d bad/empty bad/eval_alone/eval bad/types/eval bad/types/errors bad/long bad/pipe
head -c 777 logs/a/metrics.jsonl > bad/cut/metrics.jsonl
head -c 300 logs/a/config.json > bad/cut/config.json
head -c 1200 logs/a/run.log > bad/cut/run.log
printf '{"step":3,"loss":1}\n' > "bad/deep/a/b/c/d/metrics.jsonl"
: > bad/empty/run.log
printf '{"step":[],"loss":{}}\n{"step":1e400}\n[]\n\n{"step":-5,"loss":2}\nfoo\n\000\n' > bad/types/metrics.jsonl
printf '{"step":1,"BLEU":"x"}\n{"step":2,"BLEU":null}\n' > bad/types/eval/metrics.jsonl
printf '{"model":{"value":{"a":[1,2]}},"seed":5,"x":null,"batch_size":{"source":3}}' > bad/types/config.json
printf '[1,2' > bad/types/errors/rank_3.json
printf '{"message":"<script>alert(1)</script>%s[2J\\u001b[31m\\u202e","exit_code":99999}' "" > bad/text/rank
mkdir -p bad/text/errors && mv bad/text/rank bad/text/errors/rank_0.json
printf '{"learning_rate":{"value":"<b>\\u001b]0;x\\u0007\\n=1","source":"--set"}}' > bad/text/config.json
printf 'run_dist 9.9.9: train, config %s[2Jx\nmodel: %s]0;y\a\nrun_dist: error: z\n' "$escape" "$escape" > bad/text/run.log
mkdir "bad/$(printf 'n\033[31m\nx\377')" && cp logs/a/metrics.jsonl "bad/$(printf 'n\033[31m\nx\377')"
head -c 3000000 /dev/zero | tr '\0' 'x' > bad/long/metrics.jsonl
printf '\n{"step":8,"loss":1.5}\n' >> bad/long/metrics.jsonl
mkfifo bad/pipe/metrics.jsonl bad/pipe/config.json
: > bad/pipe/run.log
ln -s . bad/loop
ln -s ../bad bad/loop2
ln -s / bad/root
ln -s nothing bad/dangling
ln -s cut bad/again
ln -s "$work/logs/a" bad/elsewhere
ln -s /dev/zero bad/deep/metrics.jsonl
cp -r logs/a bad/two_versions && sed -i 's/"learning_rate"/"learning_rate_of_old"/' bad/two_versions/config.json
hostile() { timeout 60 "$PROG" --mode=runs --logdir=bad "$@"; }
expect "a hostile folder ends" 0 '^run,state' hostile --format=csv
expect "a cut file gives its whole lines" 0 '^cut,failed,,1,' hostile --format=csv
expect "a long line is left out" 0 '^long,unknown,,8,' hostile --format=csv
expect "a link to a run has one line" 0 '^1$' eval "hostile --format=csv | grep -c -e '^cut,' -e '^again,'"
expect "a link to a run elsewhere" 0 '^elsewhere,done' hostile --format=csv
expect "a report that cannot be read" 0 '^types,failed,.*errors/rank_3.json cannot be read' hostile --format=csv
expect "no foreign control character" 0 '^0$' eval "{ hostile; hostile --format=csv; hostile --format=json; } | LC_ALL=C tr -d '\n\t' | LC_ALL=C tr -cd '\000-\037\177' | wc -c"
expect "show without control characters" 0 '^0$' eval "for x in bad/*/; do $PROG --mode=show \"\$x\" --format=text; $PROG --mode=diff \"\$x\" logs/a; done 2> /dev/null | LC_ALL=C tr -d '\n' | LC_ALL=C tr -cd '\000-\037\177' | wc -c"
expect "all of it is UTF-8" 0 '' eval "hostile | iconv -f UTF-8 -t UTF-8 > /dev/null"
expect "JSON stays JSON" 0 '' eval "hostile --format=json | python3 -m json.tool > /dev/null"
if setpriv --reuid=65534 --regid=65534 --clear-groups true 2> /dev/null; then
    chmod 755 "$work"
    mkdir -p closed/in && cp -r logs/a closed/open && chmod 000 closed/in
    mkdir -p shut && chmod 000 shut
    expect "an unreadable folder is named, the others are shown" 0 "warning: cannot list 'closed/in': Permission denied" \
        setpriv --reuid=65534 --regid=65534 --clear-groups "$PROG" --mode=runs --logdir=closed
    expect "the folder itself is unreadable" 3 "cannot list 'shut': Permission denied" \
        setpriv --reuid=65534 --regid=65534 --clear-groups "$PROG" --mode=runs --logdir=shut
else
    skipped=$((skipped + 2))
fi
mkdir -p again/x
printf '%s\n' 'run_dist: error: the first start failed' 'run_dist 9.9.9: train, config a.json' \
    'done: step 3 in 1s, ended by max_steps, peak memory of rank 0 50 MB' > again/x/run.log
expect "a start that ends well takes the reason of an earlier one away" 0 '^x,done,.*,max_steps,$' \
    "$PROG" --mode=runs --logdir=again --format=csv
mkdir -p million/x
awk 'BEGIN { for (i = 1; i <= 1000000; i++) printf "{\"step\":%d,\"loss\":%g,\"loss_mean\":%g,\"learning_rate\":0.01,\"time\":%d}\n", i, 9 / (1 + i), 9 / (1 + i), 1700000000 + i }' \
    > million/x/metrics.jsonl
expect "a million lines" 0 '^x,unknown,,1000000,999999,train loss,' timeout 60 "$PROG" --mode=runs --logdir=million --format=csv
expect "a million lines as a curve" 0 'step 1  *1000000  *step 1  *1000000' timeout 60 "$PROG" --mode=show million/x
summary
