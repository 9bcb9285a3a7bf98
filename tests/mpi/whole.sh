#!/usr/bin/env bash
# whole.sh -- tests that a log folder is whole: what it needs for infer, eval and export is in it.
#
# The data, the vocabularies and the config are deleted, and the folder gets another name. Copies that were changed or
# removed are refused by name. starts.jsonl tells how, where and with what each start began, and how it ended.
# timeout: 300
# beside
. "$(dirname "$0")/../support/toy.sh"
root=$PWD
work=$(mktemp -d "${TMPDIR:-/tmp}/whole.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2

infer() { ranks "$1" "$PROG" --logdir="$2" --mode=infer "${@:3}"; }
same() { infer "${@:2}" 2> /dev/null | cmp "$1" - && echo same; } # WANT NP FOLDER ...
loss() { sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' "$1/eval/metrics.jsonl" | tail -n 1; }
count() { grep -c "$1" "$2"; }

# ---- text: given vocabularies; given subwords; subwords and vocabularies of its own ----
texts() { # NAME, keys of the training
    local name=$1 keys=() k
    shift
    for k in "$@"; do keys+=(--set "$k"); done
    train=("$PROG" --config_file=toy.json --logdir="$name" "${keys[@]}")
    expect "$name: trains" 0 "done: step 4" "${train[@]}" --max_steps=4
    cp data/test.src in; cp data/dev.src dev.src; cp data/dev.tgt dev.tgt
    "${train[@]}" --mode=infer > want 2> /dev/null
    expect "$name: evaluates" 0 "evaluation at step 4" "${train[@]}" --mode=eval
    was=$(loss "$name")
    rm -rf data toy.json codes
    at="other place/$name"
    mkdir -p "other place"
    mv "$name" "$at"
    for np in 1 2; do expect "$name: the same translations, np $np" 0 same same want $np "$at" --input=in; done
    expect "$name: the data is gone" 5 "source_file_eval: .*data/dev.src" "$PROG" --logdir="$at" --mode=eval
    expect "$name: evaluates given text" 0 "evaluation at step 4" "$PROG" --logdir="$at" --mode=eval \
        --set source_file_eval=dev.src --set target_file_eval=dev.tgt
    expect "$name: with the same loss" 0 "^$was\$" loss "$at"
    for form in npz safetensors onnx; do
        expect "$name: exports $form" 0 "is written" "$PROG" --logdir="$at" --mode=export --format=$form
    done
    expect "$name: all files" 0 "^model-4.decoder.onnx model-4.encoder.onnx model-4.npz model-4.safetensors \$" \
        eval "ls '$at/export' | tr '\n' ' '"
}
toy 60 20
texts given
expect "one vocabulary of both sides is kept once" 0 "^text.json vocab.txt \$" eval "ls '$at/text' | tr '\n' ' '"
toy 60 20
for f in data/*.src data/*.tgt; do sed -i 's/\([a-f]\) \([a-f]\)/\1\2/g' "$f"; done
"${PROG%/*}/run_dist-bpe" learn 6 data/train.src data/train.tgt > codes
for s in src tgt; do "${PROG%/*}/run_dist-bpe" apply codes data/train.$s > pieces && "${PROG%/*}/run_dist-vocab" pieces > data/vocab.$s; done
texts subwords src_vocab_file=data/vocab.src tgt_vocab_file=data/vocab.tgt subword=bpe subword_model=codes
expect "the subword model, too" 0 "^subword.model text.json vocab.source.txt vocab.target.txt \$" \
    eval "ls '$at/text' | tr '\n' ' '"
toy 60 20
texts made src_vocab_file=null tgt_vocab_file=null subword_size=300

expect "a file is never replaced" 2 "model-4.npz' exists already" "$PROG" --logdir="$at" --mode=export --format=npz
expect "nor one of two" 2 "model-4.encoder.onnx' exists already" "$PROG" --logdir="$at" --mode=export --format=onnx
expect "--export_out" 0 "out.decoder.onnx is written" "$PROG" --logdir="$at" --mode=export --format=onnx --export_out=out.onnx
expect "another form" 2 "npz, safetensors, onnx or peft; did you mean 'npz'" "$PROG" --logdir="$at" --mode=export --format=np
expect "no such checkpoint" 6 "no best-<step>.npz" "$PROG" --logdir="$at" --mode=export --format=npz --set checkpoint=best

# ---- changed and missing copies ----
bad() { # NAME, FILE, COMMAND...: a copy of the folder NAME, in which COMMAND changes FILE
    rm -rf bad
    cp -r "other place/$1" bad
    (cd bad && "${@:3}" "$2")
}
add() { echo g >> "$1"; }
cut() { : > "$1"; }
refused() { # FILE, TEXT
    for mode in infer export; do
        args=(--input=in)
        [ $mode = infer ] || args=(--format=npz)
        expect "$mode, $1: $2" 5 "'*bad/$1'* *$2" "$PROG" --logdir=bad --mode=$mode "${args[@]}"
    done
}
bad given text/vocab.txt add; refused text/vocab.txt "is not the file that was kept: its hash differs"
bad given text/vocab.txt rm; refused text/vocab.txt ": no such file"
bad given text/text.json cut; refused text/text.json "is damaged"
bad given text/text.json rm; refused text "has no copy of it: src_vocab_file: cannot open 'data/vocab.txt'"
bad subwords text/subword.model add; refused text/subword.model "is not the file that was kept"
bad subwords text/subword.model rm; refused text/subword.model ": no such file"
bad given config.json rm
expect "no config.json" 2 "'bad/config.json' is not there, and --config_file is not given" infer 1 bad --input=in
expect "no log folder" 2 "'none/config.json' is not there" "$PROG" --logdir=none --mode=eval

# A vocabulary of --set counts before the kept one, and is refused: it is another one.
printf '%s\n' f e d c b a > other.txt
expect "another vocabulary by --set" 6 "source vocabulary is not the one" infer 1 "other place/given" --input=in \
    --set src_vocab_file=other.txt --set tgt_vocab_file=other.txt

# ---- a training goes on, and keeps its copies ----
toy 60 20
expect "goes on by the folder alone" 0 "resuming from other place/given/model-4.npz" "$PROG" --logdir="other place/given" \
    --max_steps=6 --lr=0.5
echo x >> "other place/given/text/vocab.txt"
expect "goes on with the files of the config" 0 "done: step 7" "$PROG" --logdir="other place/given" --max_steps=7
rm -rf data.old; mv data data.old
expect "the copy is whole again" 0 "" infer 1 "other place/given" --input=in
mv data.old data

# ---- images ----
picture() { tail -c +2 "$root/tests/fuzz/corpus/jpeg/rgb-$1" > "$2"; } # its first byte belongs to the fuzz target
for k in ant bee; do
    mkdir -p pictures/train/$k pictures/val/$k
    for i in 0 1 2 3; do picture $i pictures/train/$k/$i.jpg; done
    picture 4 pictures/val/$k/4.jpg
done
cat > x.json << 'END'
{"model": "resnet20", "dataset": "image_folder", "data_dir": "pictures", "image_size": 16, "batch_size": 4,
 "optimizer": "sgd", "learning_rate": 0.1, "normalization": "imagenet", "threads": 1}
END
expect "images: trains" 0 "done: step 2" "$PROG" --config_file=x.json --logdir=img --max_steps=2
expect "images: names of classes" 0 '"ant",' cat img/data.json
mkdir flat
for i in 5 6 7; do picture $i flat/$i.jpg; done
"$PROG" --config_file=x.json --logdir=img --mode=infer --set test_data="$PWD/flat" > want 2> /dev/null
expect "images: classes" 0 "5.jpg.\(ant\|bee\)" cat want
cp -r pictures/val val
rm -rf pictures x.json
mv img "other place/img"
at="other place/img"
for np in 1 2; do expect "images: the same classes, np $np" 0 same same want $np "$at" --set test_data="$PWD/flat"; done
expect "images: evaluates given images" 0 "evaluation at step 2" "$PROG" --logdir="$at" --mode=eval --set eval_data="$PWD/val"
for form in npz safetensors onnx; do
    expect "images: exports $form" 0 "is written" "$PROG" --logdir="$at" --mode=export --format=$form
done
expect "images: what the weights are" 0 '"classes":"\[\\"ant\\",\\"bee\\"\]"' head -c 4000 "$at/export/model-2.safetensors"
expect "images: the normalization" 0 '"pixel_mean":"\[123' head -c 4000 "$at/export/model-2.safetensors"
bad img data.json sed -i 's/"ant"/"asp"/'
expect "images: a changed name" 5 "'bad/data.json' is not the file that was kept: its hash differs" infer 1 bad \
    --set test_data="$PWD/flat"
bad img data.json cut
expect "images: an empty file" 5 "'bad/data.json' is not the file that was kept" "$PROG" --logdir=bad --mode=export --format=npz
bad img data.json rm
expect "images: none" 5 "pictures" "$PROG" --logdir=bad --mode=export --format=npz

# ---- starts.jsonl ----
toy 60 20
expect "three starts" 0 "done: step 2" "$PROG" --config_file=toy.json --logdir=s --max_steps=2
expect "the second one, on two ranks" 0 "done: step 3" ranks 2 "$PROG" --config_file=toy.json --logdir=s --max_steps=3 \
    --set learning_rate=0.02
"$PROG" --config_file=toy.json --logdir=s --max_steps=1000000 > /dev/null 2>&1 &
pid=$!
wait_until 60 grep -q '"step":100,' s/metrics.jsonl
kill -USR2 $pid
wait $pid
expect "two lines a start" 0 "^6$" count "" s/starts.jsonl
expect "the command" 0 '"command":\[".*run_dist","--config_file=toy.json","--logdir=s","--max_steps=2"\]' head -n 1 s/starts.jsonl
expect "the time" 0 '"date":"20[0-9-]*T[0-9:]*Z"' head -n 1 s/starts.jsonl
expect "the host" 0 '"hosts":\["[^"]*"\],"ranks":1' head -n 1 s/starts.jsonl
expect "the version and the commit" 0 '"version":"[0-9.]*","commit":"[^"]\+","libraries":"run_dist [^"]*Open MPI' head -n 1 s/starts.jsonl
expect "nothing has changed at first" 0 '"changed":null' head -n 1 s/starts.jsonl
expect "the end" 0 '"event":"end".*"step":2,"exit_code":0}' sed -n 2p s/starts.jsonl
expect "the second start" 0 '"ranks":2.*"step":2,"changed":{"learning_rate":\[0.01,0.02\]}.*"checkpoint":"s/model-2.npz"' \
    sed -n 3p s/starts.jsonl
expect "back to the old rate" 0 '"changed":{"learning_rate":\[0.02,0.01\]}' sed -n 5p s/starts.jsonl
expect "stopped" 0 '"exit_code":75,"message":"stopped [a-z]* request' sed -n 6p s/starts.jsonl
"$PROG" --config_file=toy.json --logdir=s --max_steps=2000000 > /dev/null 2>&1 &
pid=$!
wait_until 60 sh -c '[ $(wc -l < s/starts.jsonl) -eq 7 ]'
kill -9 $pid
wait $pid 2> /dev/null
printf '{"half' >> s/starts.jsonl
expect "after a kill" 0 "nothing to do" "$PROG" --config_file=toy.json --logdir=s --max_steps=1
expect "a start without work is none" 0 "^7$" count '^{"event"' s/starts.jsonl
expect "a child" 0 "weights from s/model-" "$PROG" --config_file=toy.json --logdir=c --max_steps=1 --set init_from=s
expect "names its parent" 0 '"parent":{"path":".*/s/model-[0-9]*.npz","step":[0-9]*,"hash":"[0-9a-f]\{16\}","model":"seq2seq"}' \
    head -n 1 c/starts.jsonl
expect "goes on" 0 "done: step 2" "$PROG" --config_file=toy.json --logdir=c --max_steps=2 --set init_from=s
expect "and still names it" 0 '"parent":{"path":".*/s/model-' sed -n 3p c/starts.jsonl
expect "a failure" 7 "not finite\|diverges" "$PROG" --config_file=toy.json --logdir=f --max_steps=400 --lr=1e6 \
    --set optimizer=sgd --set max_grad_norm=null
expect "is its end" 0 '"exit_code":7,"message":' tail -n 1 f/starts.jsonl

# ---- run.log ----
expect "each line has its time" 0 "^0$" eval \
    "grep -cvE '^20[0-9]{2}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} ' c/run.log || true"
summary
