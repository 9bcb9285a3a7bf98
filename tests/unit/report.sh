#!/usr/bin/env bash
# report.sh -- the page of --mode=report: its curves are the figures of the runs, it is valid, no text of a run can act in
# it, damaged folders cost at most their part, and it works in a browser where Chromium is installed.
# timeout: 300
. tests/support/toy.sh
tree=$PWD
work=$(mktemp -d) || exit 2
trap 'chmod -R u+rwx "$work" 2> /dev/null; rm -rf "$work"' EXIT
case $PROG in /*) ;; *) PROG=$PWD/$PROG ;; esac
cd "$work" || exit 2
export LC_ALL=C.UTF-8
python=${RD_PYTHON:-python3}
report() { timeout 100 "$PROG" --mode=report "$@"; }
checked() { "$python" "$tree/tests/support/check_report.py" "$@"; }
has() { # FILE TEXT
    grep -qF -- "$2" "$1" && echo found
}
has_not() { ! grep -qF -- "$2" "$1" && echo "not there"; }

# ---- runs of the program ----
toy 60 10
for run in a b; do
    set --
    [ $run = a ] || set -- --set learning_rate=0.03
    "$PROG" --config_file=toy.json --summary_frequency=2 --logdir=logs/$run --mode=train_eval --set eval_frequency=8 "$@" \
        > /dev/null 2>&1 || echo "no run $run"
done
expect "a report of two runs" 0 '^report.html: 2 runs, .* kB; open it in a browser' report --logdir=logs
expect "is what the log folders hold" 0 '^2 runs, .*: ok' checked report.html logs
expect "samples" 0 found has report.html '<dt>prediction</dt>'
expect "keys that differ" 0 found has report.html '<th scope="row">learning_rate</th><td>0.01</td><td>0.03</td>'
expect "an earlier report is replaced" 0 '^report.html: 1 run,' report --logdir=logs/a
expect "one run has its figures" 0 found has report.html '<dt>best BLEU</dt>'
expect "several folders" 0 '^ab.html: 2 runs' report logs/a logs/b --report_out=ab.html
expect "twice the same folder" 0 '^ab.html: 2 runs' report logs logs/b --report_out=ab.html
expect "--where" 0 '^ab.html: 1 run,' report --logdir=logs --where 'learning_rate>0.02' --report_out=ab.html
expect "--sort" 0 '^b a $' eval "report --logdir=logs --sort=-learning_rate --report_out=- | grep -o '\"name\":\"[ab]\"' | cut -d '\"' -f 4 | tr '\n' ' '"
expect "standard output" 0 '^<!DOCTYPE html>' eval "report --logdir=logs --report_out=- | head -n 1"
expect "nothing is left beside the file" 0 '^0$' eval "ls -a | grep -c '[.]tmp'; true"

# The samples with the largest steps, the last one first.
expect "the last samples" 0 '^18 16 14 12$' eval \
    "report logs/a --report_out=- | grep -o '<p class=\"hint\">step [0-9]*' | grep -o '[0-9]*' | sed 1d | tr '\n' ' ' | sed 's/ $//'"
expect "figures of an evaluation are there once" 0 '^loss metrics/BLEU metrics/accuracy metrics/loss_per_token metrics/perplexity $' eval \
    "for f in logs/a/eval/events*; do \"\$PROG\" --events=\"\$f\"; done | grep ',scalar,' | cut -d, -f3 | LC_ALL=C sort -u | tr '\n' ' '"

# ---- wrong words ----
echo mine > mine.html
expect "a foreign file stays" 2 "'mine.html' exists and is no report of run_dist" report --logdir=logs --report_out=mine.html
expect "it has not changed" 0 '^mine$' cat mine.html
ln -s mine.html link.html
expect "a link" 2 "is no regular file" report --logdir=logs --report_out=link.html
expect "a folder" 2 "is no regular file" report --logdir=logs --report_out=logs
expect "no such folder for the file" 3 "cannot write" report --logdir=logs --report_out=none/x.html
expect "no such folder" 2 "cannot open 'none'" report --logdir=none
expect "no run" 2 "no run is in or below 'data'" report data
expect "none fits" 2 "none of 2 runs fits --where" report --logdir=logs --where 'seed=77'
expect "folders twice" 2 "leave one out" report --logdir=logs logs/a
expect "--report_out elsewhere" 2 "report_out is for --mode=report" "$PROG" --mode=runs --logdir=logs --report_out=x.html
expect "a full disk" 3 "cannot write to standard output" eval "report --logdir=logs --report_out=- > /dev/full"

# ---- hostile folders ----
evil='</script><script>window.hurt=1</script><img src=x onerror=window.hurt=1>"'"'"'&'
mkdir -p bad/cut bad/types/eval bad/text/errors bad/long bad/pipe bad/two bad/deep bad/empty "bad/<script>window.hurt=1<"
head -c 777 logs/a/metrics.jsonl > bad/cut/metrics.jsonl
head -c 300 logs/a/config.json > bad/cut/config.json
for f in logs/a/events*; do head -c 5000 "$f" > bad/cut/events.out.tfevents.1.x.1.0; done
cp logs/a/metrics.jsonl "bad/<script>window.hurt=1<"
printf '{"step":[],"loss":{}}\n{"step":1e400}\n[]\n\n{"step":-5,"loss":2}\n{"step":3,"loss":1e999,"x":1e300,"</script>":1,"y\\u2028":2}\n{"step":3,"loss":5}\n\000\n' \
    > bad/types/metrics.jsonl
printf '{"step":9,"BLEU":1}\n{"step":2,"BLEU":null}\n{"step":4,"BLEU":2}\n{"step":4,"BLEU":3}\n' > bad/types/eval/metrics.jsonl
printf '{"model":{"value":{"a":[1,2]}},"seed":5,"x":null}' > bad/types/config.json
"$python" - "$evil" << 'END'
import json, sys
evil = sys.argv[1] + "\u2028\u202e\x1b[2J"
json.dump({"learning_rate": {"value": evil, "source": "--set"}, evil: {"value": 1, "source": "--set"}}, open("bad/text/config.json", "w"))
json.dump({"message": evil, "exit_code": 7}, open("bad/text/errors/rank_0.json", "w"))
open("bad/text/run.log", "w").write("run_dist 9.9.9: train, config " + evil + "\nmodel: " + evil + "\nrun_dist: error: " + evil + "\n")
open("bad/text/metrics.jsonl", "w").write(json.dumps({"step": 1, "loss": 2, evil: 3, "constructor": 4, "__proto__": 5, "toString": 6}) + "\n")

# Event files with texts and pictures that are not what they say. Checksums and messages are right.
import struct
table = []
for i in range(256):
    c = i
    for _ in range(8): c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
    table.append(c)
def mask(b):
    c = 0xFFFFFFFF
    for v in b: c = table[(c ^ v) & 255] ^ c >> 8
    c ^= 0xFFFFFFFF
    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF
def varint(v):
    out = b""
    while v >= 128: out, v = out + bytes([v & 127 | 128]), v >> 7
    return out + bytes([v])
def field(n, b): return varint(n << 3 | 2) + varint(len(b)) + b
def event(step, tag, plugin, *strings):
    value = field(1, tag.encode()) + field(8, b"".join(field(8, s) for s in strings)) + field(9, field(1, field(1, plugin.encode())))
    body = b"\x09" + struct.pack("<d", 1.5) + b"\x10" + varint(step) + field(5, field(1, value))
    head = struct.pack("<Q", len(body))
    return head + struct.pack("<I", mask(head)) + body + struct.pack("<I", mask(body))
e = evil.encode()
open("bad/text/events.out.tfevents.1.x.1.0", "wb").write(
    event(5, "sample", "text", b"    source:     " + e + b"\n    target:     \xff\xfe\n    prediction: x\n") +
    event(6, "sample", "text", e) + event(7, "sample", "images", b"1", b"1", b"no image") + event(1 << 62, "sample", "text", b""))
import os
os.makedirs("bad/text/eval")
rows = b"".join(b"| row 1 | " + e.replace(b"|", b"") + b" | " + e.replace(b"|", b"") + b" | y | 2e99 |\n" for _ in range(200))
open("bad/text/eval/events.out.tfevents.1.x.1.0", "wb").write(
    event(5, "mistakes/names", "text", b"| place | sample | label | prediction | probability |\n|---|---|---|---|---|\n" + rows) +
    event(5, "mistakes", "images", b"1", b"1", b"\x89PNG\r\n\x1a\n" + b"\0" * 100) +
    event(5, "mistakes/confusion_counts", "text", b"| x | " + e + b" | b |\n|---|---|---|\n| " + e + b" | 99999999999999999999 | -1 |\n| | | |\nend") +
    event(5, "mistakes/confusions", "text", b"no table"))
END
head -c 3000000 /dev/zero | tr '\0' 'x' > bad/long/metrics.jsonl
printf '\n{"step":8,"loss":1.5}\n' >> bad/long/metrics.jsonl
mkfifo bad/pipe/metrics.jsonl bad/pipe/config.json bad/pipe/events.out.tfevents.1.x.1.0
: > bad/pipe/run.log
: > bad/empty/run.log
head -c 100000 /dev/urandom > bad/two/events.out.tfevents.9.x.1.0
cp -r logs/a/* bad/two && sed -i 's/"learning_rate"/"learning_rate_of_old"/; s/"loss_mean"/"mean_loss"/' bad/two/config.json bad/two/metrics.jsonl
ln -s . bad/loop
ln -s ../bad bad/loop2
ln -s / bad/root
ln -s /dev/zero bad/deep/metrics.jsonl
ln -s /dev/zero bad/cut/events.out.tfevents.2.x.1.0
expect "a report of a hostile folder" 0 '^bad.html: [89] runs' report --logdir=bad --report_out=bad.html
expect "nothing in it can act" 0 ': ok$' checked bad.html
expect "no element of a text" 0 "not there" has_not bad.html '<img src=x'
expect "the text itself is shown" 0 found has bad.html '&lt;img src=x onerror=window.hurt=1&gt;'
expect "no character turns the direction of text" 0 "not there" has_not bad.html "$(printf '\342\200\256')"
expect "no control character" 0 '^0$' eval "LC_ALL=C tr -d '\n' < bad.html | LC_ALL=C tr -cd '\000-\037\177' | wc -c"
expect "an evaluation of an older step has its place" 0 '^\[4.0, 9.0\]$' "$python" -c "
import base64, json, re, struct
data = json.loads(re.search(r'id=\"data\">(.*?)</script>', open('bad.html').read(), re.S).group(1))
print([list(struct.unpack('<3f', base64.b64decode(r['eval']['step'])))[1:] for r in data['runs'] if r['name'] == 'types'][0])"
expect "what could not be read is listed" 0 found has bad.html 'cut: config.json cannot be read'
if setpriv --reuid=65534 --regid=65534 --clear-groups true 2> /dev/null; then
    chmod 755 "$work"
    mkdir -p closed out && cp -r logs/a closed/open && cp -r logs/a closed/shut
    chmod 000 closed/shut/*.jsonl closed/shut/config.json closed/shut/events* closed/shut/eval && chmod 777 out
    expect "unreadable files" 0 '^out/x.html: 2 runs' \
        setpriv --reuid=65534 --regid=65534 --clear-groups "$PROG" --mode=report --logdir=closed --report_out=out/x.html
else
    skipped=$((skipped + 1))
fi

# ---- long runs, many runs ----
mkdir -p long/x
awk 'BEGIN { for (i = 1; i <= 200000; i++) printf "{\"step\":%d,\"loss\":%g,\"learning_rate\":0.01,\"time\":%d}\n", i, i == 77777 ? 123.5 : 9 / (1 + i), 1700000000 + i }' \
    > long/x/metrics.jsonl
expect "200,000 lines" 0 '1 run, ' report long/x --report_out=long.html
expect "a spike of one line is there" 0 ': ok$' checked long.html .
for i in $(seq 1 210); do mkdir -p "many/r$i" && printf '{"step":%d,"loss":%d}\n' 1 "$i" > "many/r$i/metrics.jsonl"; done
expect "210 runs" 0 '200 runs' report --logdir=many --report_out=many.html
expect "the page says how many" 0 found has many.html 'the first 200 of 210 runs'

# ---- in a browser ----
browser() { "$python" "$tree/tests/support/report_browser.py" "$@"; }
report --logdir=logs > /dev/null
browser report.html --limit 20000 > browser.out 2>&1
case $? in
77) skipped=$((skipped + 1)) ;;
*)
    expect "the report in Chromium" 0 'report.html: ok' cat browser.out
    expect "the hostile report in Chromium" 0 'bad.html: ok' browser bad.html --limit 20000 --no-curves
    ;;
esac
if [ "${CASES:-}" = all ]; then
    "$python" "$tree/tests/support/make_runs.py" big 50 10000
    expect "50 runs of 10,000 points" 0 '^big.html: 50 runs, [234],[0-9]* kB' report --logdir=big --report_out=big.html
    expect "are what the folders hold" 0 '^50 runs, .*: ok' checked big.html big
    browser big.html > browser.out 2>&1
    [ $? -eq 77 ] || expect "they are ready within a second" 0 'big.html: ok' cat browser.out
    awk 'BEGIN { for (i = 1; i <= 1000000; i++) printf "{\"step\":%d,\"loss\":%g,\"learning_rate\":0.01,\"time\":%d}\n", i, 9 / (1 + i), 1700000000 + i }' > long/x/metrics.jsonl
    expect "a million lines" 0 '1 run, ' report long/x --report_out=long.html
    expect "have their extremes" 0 ': ok$' checked long.html .
fi
summary
