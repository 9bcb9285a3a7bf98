#!/usr/bin/env bash
# lm.sh -- tests what training promises, with a language model: the curve does not depend on the number of ranks nor on
# the parts of an update, a resumed run ends with the same bytes, evaluation is exact, and texts are continued alike.
#
# tests/run runs the script and sets BUILD, PROG and MPIRUN.
# timeout: 300
# beside
. "$(dirname "$0")/../support/toy.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/lm.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
# Sentences that a small model learns at once.
awk 'BEGIN { split("the a one her his", d); split("cat dog bird fish", n); split("sees likes hears", v)
             for (i = 0; i < 700; i++) { r = (r * 7919 + 12345 + i) % 65521
                 print d[r % 5 + 1], n[int(r / 5) % 4 + 1], v[int(r / 20) % 3 + 1], d[int(r / 60) % 5 + 1], n[int(r / 300) % 4 + 1] "." } }' > all.txt
head -n 600 all.txt > train.txt
tail -n 100 all.txt > dev.txt
cat > lm.json << 'END'
{"model": "gpt", "n_layers": 2, "n_embd": 16, "n_heads": 2, "ff_dim": 32, "max_len": 32,
 "source_file": "train.txt", "source_file_eval": "dev.txt", "subword": "byte_bpe", "subword_size": 280,
 "document": "line", "document_mask": true, "dropout_residual": 0.1, "dropout_attention": 0.1,
 "bias": "none",
 "optimizer": "adamw", "learning_rate": 0.005, "weight_decay": 0.1, "max_grad_norm": 1.0,
 "batch_tokens": 300, "num_epochs": 4, "seed": 3, "eval_frequency": 1000000, "sample_tokens": 12, "decoder_type": "greedy"}
END
t() { # np, folder, arguments: trains
    n=$1 dir=$2
    shift 2
    ranks "$n" "$PROG" --config_file=lm.json --logdir="$dir" --summary_frequency=1 "$@"
}
expect "prepare makes the tokenizer" 0 "prepared; train with --logdir=one" "$PROG" --config_file=lm.json --logdir=one \
    --mode=prepare
expect "one rank uses it" 0 "tokenizer: byte_bpe of one/text" t 1 one --max_steps=50
expect "no warm-up, no warning of it" 1 "" grep -q "has no effect: 'lr_scaling' none" one/run.log
expect "a warm-up without effect" 0 "warning: 'warmup_steps' has no effect: 'lr_scaling' none .* add .warmup_start.: 0.0099" \
    t 1 idle --max_steps=1 --set warmup_steps=100 --set lr_scaling=none
expect "the line of a step" 0 "  mfu [0-9.]* %" cat one/run.log
expect "the records" 0 '"model_flops":[0-9.]*,"mfu":[0-9]' cat one/metrics.jsonl
expect "two ranks" 0 "" t 2 two --max_steps=50
expect "four ranks, two parts" 0 "" t 4 four --max_steps=50 --set iter_size=2
expect "one rank, four parts" 0 "" t 1 parts --max_steps=50 --set iter_size=4
for run in two four parts; do
    expect "$run: the same losses" 0 "^50 values" close_curves loss 1e-5 50 one $run
done
expect "the loss falls" 0 "" sh -c "
    sed -n 's/.*\"loss\":\([^,]*\).*/\1/p' one/metrics.jsonl | awk 'NR == 1 { a = \$1 } END { exit !(\$1 < 0.6 * a) }'"

# Resume: the same bytes, with several parts of an update, within an epoch and over its end.
expect "the first part" 0 "" t 1 half --max_steps=23 --set iter_size=4
expect "the second part" 0 "resuming from half/model-23.npz" t 1 half --max_steps=50 --set iter_size=4
expect "resume ends with the same bytes" 0 "" cmp half/model-50.npz parts/model-50.npz
# SIGKILL within an update, in the third of its four parts.
expect "killed within an update" 137 "" sh -c 'RD_FAULT=kill:0:30:compute:3 "$@"; exit $?' sh "$PROG" --config_file=lm.json \
    --logdir=killed --max_steps=50 --summary_frequency=1 --set iter_size=4 --set checkpoint_steps=7
expect "goes on" 0 "resuming from killed/model-28.npz" t 1 killed --max_steps=50 --set iter_size=4
expect "ends with the same bytes, too" 0 "" cmp killed/model-50.npz parts/model-50.npz

# Evaluation: exact, and the same for all ranks.
e() { # np, arguments: evaluates; prints the figures
    n=$1
    shift
    ranks "$n" "$PROG" --config_file=lm.json --logdir=one --mode=eval "$@" > out.txt || return
    sed -n 's/.*"loss":\([^,]*\),.*"bits_per_byte":\([^,]*\),.*"targets":\([0-9]*\).*/\1 \2 \3/p' one/eval/metrics.jsonl | tail -n 1
}
figures=$(e 1)
expect "evaluation has figures" 0 "^[0-9.]* [0-9.]* [0-9]*$" echo "$figures"
tokens=$(sed -n 's/^.*dev.txt.: \([0-9,]*\) tokens of.*/\1/p' out.txt | tr -d ,)
expect "every token but the first is a target" 0 " $((tokens - 1))$" echo "$figures"
expect "two ranks have the same figures" 0 "^$figures$" e 2
# With batches of any size, on any number of ranks.
exact() { # batch:ranks: prints loss and perplexity
    rm -rf one/eval
    ranks "${1#*:}" "$PROG" --config_file=lm.json --logdir=one --mode=eval --set eval_batch_size="${1%:*}" > out.txt || return
    sed -n 's/.*"loss":\([^,]*\),.*"perplexity":\([^,]*\),.*/\1 \2/p' one/eval/metrics.jsonl
}
sizes='64:2 3:3'
[ "${CASES:-}" != all ] || sizes='64:1 3:1 1:2 3:2 64:2 1:3 3:3 64:3'
alone=$(exact 1:1)
for size in $sizes; do
    expect "loss and perplexity, batches of ${size%:*} on ${size#*:} ranks" 0 "^equal$" awk -v a="$alone" -v b="$(exact "$size")" '
        BEGIN { if (split(a, x) == 2 && split(b, y) == 2 && (x[1] / y[1] - 1) ^ 2 < 1e-24 && (x[2] / y[2] - 1) ^ 2 < 1e-24) print "equal" }'
done
[ "${CASES:-}" != all ] || expect "by stride: the same targets" 0 " $((tokens - 1))$" e 1 --set eval_stride=7
expect "the bits" 0 "" awk -v f="$figures" -v b="$(wc -c < dev.txt)" -v n=100 'BEGIN { split(f, x)
    d = x[1] * x[3] / log(2) / x[2] - (b - n); exit !(d < 12 && d > -12) }'
expect "evaluation in training writes a text" 0 "^  | .* \.\.\. " t 1 one --mode=train_eval --max_steps=51
expect "train_eval evaluates" 0 '"bits_per_byte":' cat one/eval/metrics.jsonl

# Completion.
printf 'the cat\nher\n' > prompts.txt
i() { # np, arguments: continues
    n=$1
    shift
    ranks "$n" "$PROG" --config_file=lm.json --logdir=two --mode=infer --input=prompts.txt --inference_out=out.txt "$@" > log.txt 2>&1 &&
        cat out.txt
}
expect "greedy completion begins with the prompts" 0 "^the cat" i 1
first=$(cat out.txt)
expect "two ranks write the same" 0 "" test "$(i 2)" = "$first"
if [ "${CASES:-}" = all ]; then
    expect "a pipe gets the same" 0 "" test "$("$PROG" --config_file=lm.json --logdir=two --mode=infer --input=- < prompts.txt 2> log.txt |
        grep -E '^(the cat|her)')" = "$first"
fi
s="--set decoder_type=sampling --set sampling_temperature=1.5 --set max_new_tokens=9 --seed=4"
# shellcheck disable=SC2086 # $s is several words
{
    sampled=$(i 1 $s)
    expect "sampling does not depend on the batch nor on ranks" 0 "" test "$(i 2 $s --set infer_batch_size=1)" = "$sampled"
    [ "${CASES:-}" != all ] || expect "another seed writes another text" 1 "" test "$(i 1 $s --seed=5)" = "$sampled"
}
[ "${CASES:-}" != all ] || expect "JSON lines" 0 '^{"line":0,"text":"' i 1 --set output_format=json

# Batches, ranks: 66 prompts of different lengths, drawn texts, stop strings that end some of them early.
awk 'NR <= 66 { n = 1 + NR % 4; for (i = 1; i <= n; i++) printf "%s%s", $i, i < n ? " " : "\n" }' train.txt > prompts.txt
many() { # np, batch, file, arguments
    n=$1 size=$2 file=$3
    shift 3
    # shellcheck disable=SC2086 # $s is several words
    i "$n" $s --set infer_batch_size="$size" --set output_format=json "$@" > "$file.log" && mv out.txt "$file"
}
stop='stop_strings=["fish", "d s"]'
expect "66 texts" 0 "" many 1 64 unstopped.txt
expect "with stop strings" 0 "" many 1 64 stopped.txt --set "$stop"
cat > stopped.py << 'END'
import json
cut = 0
for a, b in zip(open("unstopped.txt"), open("stopped.txt"), strict=True):
    whole, text = json.loads(a)["text"], json.loads(b)["text"]
    ends = [k for k in map(whole.find, ("fish", "d s")) if k >= 0]
    cut += bool(ends)
    if text != whole[:min(ends, default=len(whole))]:
        print("wrong: %r, whole %r" % (text, whole))
print("%s cut" % ("some" if 5 < cut < 60 else cut))
END
expect "texts end before a stop string, and are otherwise the same" 0 "^some cut$" "$RD_PYTHON" stopped.py
expect "that is all" 0 "^1$" sh -c '"$1" stopped.py | wc -l' sh "$RD_PYTHON"
sizes='1:3 3:2'
[ "${CASES:-}" != all ] || sizes='1:1 3:1 1:2 3:2 64:2 1:3 3:3 64:3'
for size in $sizes; do
    expect "batches of ${size%:*} on ${size#*:} ranks" 0 "" many "${size#*:}" "${size%:*}" other.txt --set "$stop"
    expect "batches of ${size%:*} on ${size#*:} ranks: the same bytes" 0 "" cmp stopped.txt other.txt
done
expect "a stop string is not empty" 2 "stop_strings" ranks 1 "$PROG" --config_file=lm.json --logdir=two --mode=infer \
    --input=prompts.txt --set 'stop_strings=["a", ""]'

# The text of one prompt arrives token by token. Each write is a datagram by itself. A second run gets the prompt as a JSON
# line, and a stop string of the end of one token and the begin of the next: the part before is not shown early.
cat > stream.py << 'END'
import json, socket, subprocess, sys
def run(line, want, *more):
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    run = subprocess.Popen(sys.argv[1:] + list(more), stdin=subprocess.PIPE, stdout=there, stderr=subprocess.DEVNULL)
    there.close()
    run.stdin.write(line)
    run.stdin.close()
    parts = []
    here.settimeout(60)
    while sum(map(len, parts)) < len(want):
        parts.append(here.recv(65536))
    status = run.wait()
    here.setblocking(False)
    try:
        parts.append(here.recv(65536))
    except BlockingIOError:
        pass
    print("%s parts, first %r, %s, status %d" % ("many" if len(parts) > 4 else len(parts), parts[0],
                                                 "the same" if b"".join(parts) == want else parts, status))
    return parts
want = open("out.txt", "rb").read()
parts = run(b"the cat\n", want)
whole = b"".join(parts)
for k in range(len(parts) - 3, 0, -1):
    at = sum(map(len, parts[:k + 1]))
    stop = whole[at - 1:at + 1]
    if k > 2 and whole.find(stop, len(parts[0])) == at - 1:
        break
else:
    sys.exit("no stop string in %r" % parts)
run(json.dumps({"prompt": "the cat"}).encode() + b"\n", whole[:at - 1] + b"\n", "--set",
    "stop_strings=" + json.dumps([stop.decode()]))
END
printf 'the cat\n' > prompts.txt
# shellcheck disable=SC2086
{
    expect "a text in a file" 0 "^the cat" i 1 $s --set sampling_temperature=0.7 --set max_new_tokens=20
    "$RD_PYTHON" stream.py "$PROG" --config_file=lm.json --logdir=two --mode=infer --input=- $s --set sampling_temperature=0.7 \
        --set max_new_tokens=20 > streamed.txt 2>&1
}
expect "it appears token by token, also of a JSON line before a stop string" 0 "^2$" \
    sh -c "cat streamed.txt; grep -c \"^many parts, first b'the cat', the same, status 0$\" streamed.txt"

# Multiple choice: tokens 0 and 1 are equally likely, token 2 is rare. The long answer with likely tokens has the larger sum
# of losses, and the smaller mean.
cat > choices.py << 'END'
import random, struct
random.seed(5)
tokens = [2 if random.random() < 0.01 else random.randrange(2) for _ in range(4000)]
open("train.bin", "wb").write(struct.pack("<4000H", *tokens))
def example(number, right, *answers):
    ids = [3, 0, 1, 0]
    for a in answers:
        ids += [len(a)] + list(a)
    return [65535, 2 * (5 + len(ids)), number, right, len(answers)] + ids
def write(name, *examples):
    ids = sum(examples, [])
    open(name, "wb").write(struct.pack("<256i", 20240522, 1, len(examples), *[0] * 253) + struct.pack("<%dH" % len(ids), *ids))
long = (0, 1, 1, 0, 0, 1, 0, 1, 1, 0)
write("hard.bin", example(0, 0, long, (2,)), example(1, 1, (2, 2), (1,), (2,)), example(2, 0, (2,), (0, 1)))
write("cut.bin", example(0, 0, long, (2,))[:-1])
END
"$RD_PYTHON" choices.py
c() { # np, arguments
    n=$1
    shift
    ranks "$n" "$PROG" --config_file=lm.json --logdir=bin --set source_file=train.bin --set vocab_size=4 --set end_id=3 \
        --set document_mask=false "$@"
}
expect "training on tokens" 0 "done: step" c 1 --max_steps=60 --set batch_tokens=400 --set learning_rate=0.01
choice="multiple choice: accuracy 0.3333, by the mean loss of a token 0.6667  (3 questions)"
expect "multiple choice" 0 "$choice" c 1 --mode=eval --set source_file_eval=hard.bin
expect "its records" 0 '"choice_accuracy":0.33333333[0-9]*,"choice_accuracy_norm":0.66666666[0-9]*,"questions":3' \
    tail -n 1 bin/eval/metrics.jsonl
grep -o '"loss":.*"perplexity":[^,]*' bin/eval/metrics.jsonl > one.txt
expect "on two ranks" 0 "accuracy 0.3333, by the mean loss of a token 0.6667  (3 questions)" c 2 --mode=eval \
    --set source_file_eval=hard.bin --set eval_batch_size=3
expect "has the same figures" 0 "" sh -c "tail -n 1 bin/eval/metrics.jsonl | grep -o '\"loss\":.*\"perplexity\":[^,]*' | cmp - one.txt"
if [ "${CASES:-}" = all ]; then
    expect "a question that is cut does not count" 0 "accuracy 0.5000, by the mean loss of a token 1.0000  (2 questions)" c 1 \
        --mode=eval --set source_file_eval=hard.bin --set max_eval_samples=6
    expect "not with tokens" 2 "'train.bin' is no file of multiple choice" c 1 --mode=eval \
        --set 'source_file_eval=["hard.bin", "train.bin"]'
    expect "not for training" 5 "'hard.bin' is a file of multiple choice of llm.c" c 1 --set source_file=hard.bin --max_steps=61
fi
expect "a file that is cut" 5 "'cut.bin': example 0 at byte [0-9]* has a length of" c 1 --mode=eval --set source_file_eval=cut.bin

expect "other sizes of the tokenizer are refused" 2 "subword_size 280 -> 300" t 1 one --max_steps=60 --set subword_size=300
expect "document_mask needs an end" 2 "'document_mask' needs a token that ends a document" t 1 none --set subword=char \
    --set document=file
expect "heads that do not fit" 2 "'n_embd' is 16, which is no multiple of 'n_heads' (3)" t 1 none --set n_heads=3
expect "a window beyond the positions" 2 "'seq_len' 64 is above 'max_len' 32" t 1 none --set seq_len=64
summary
