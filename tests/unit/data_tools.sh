#!/bin/sh
# data_tools.sh -- the programs that prepare data: run_dist-bpe, run_dist-vocab, make_toy. tests/unit/bpe holds a text and what
# subword-nmt 0.3.8 made of it:
#     subword-nmt learn-bpe -s 120 < text.txt > codes.txt; subword-nmt apply-bpe -c codes.txt < text.txt > pieces.txt
top=${BUILD:-build/release} tools=${BUILD:-build/release}/tests/support
bpe=tests/unit/bpe
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
failed=0 passed=0
check() { # name, then a shell command
    if out=$(sh -c "$2" 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s\n%s\n' "$1" "$out"
    fi
}
export top tools bpe work
case $top in /*) full_top=$top ;; *) full_top=$PWD/$top ;; esac
text=$PWD/$bpe/text.txt codes=$PWD/$bpe/codes.txt
check "bpe: learns what subword-nmt learns" "\$top/run_dist-bpe learn 120 \$bpe/text.txt | cmp - \$bpe/codes.txt"
check "bpe: cuts words as subword-nmt does" "\$top/run_dist-bpe apply \$bpe/codes.txt \$bpe/text.txt | cmp - \$bpe/pieces.txt"
check "bpe: every pair that occurs twice is merged" \
    "\$top/run_dist-bpe learn 100000 \$bpe/text.txt > \$work/all && head -n 121 \$work/all | cmp - \$bpe/codes.txt &&
     [ \$(wc -l < \$work/all) -lt 2000 ]"
check "bpe: codes that are none" "\$top/run_dist-bpe apply \$bpe/text.txt \$bpe/text.txt 2>&1 | grep 'does not begin with .#version: 0.2'"
check "vocabulary: as sort and uniq count" \
    "\$top/run_dist-vocab \$bpe/text.txt > \$work/v &&
     tr ' ' '\\n' < \$bpe/text.txt | grep . | LC_ALL=C sort | uniq -c | LC_ALL=C sort -k1,1nr -k2,2 |
     awk '{ printf \"%s\\t%d\\n\", \$2, \$1 }' | cmp - \$work/v"
check "vocabulary: at most so many words" "\$top/run_dist-vocab --max_size=5 \$bpe/text.txt > \$work/w && head -n 5 \$work/v | cmp - \$work/w"
cp "$work/w" "$work/w5"
check "vocabulary: at least so often" \
    "\$top/run_dist-vocab --min_count=3 \$bpe/text.txt > \$work/w && awk '\$2 >= 3' \$work/v | cmp - \$work/w"
printf '\n   \n' > "$work/blank"
printf 'a\377 b\n' > "$work/latin"
fails() { # code, pattern of the message, output file, command...: nothing but the message is written
    want=$1 pattern=$2 to=$3
    shift 3
    "$@" > "$to" 2> "$work/said"
    code=$?
    [ "$code" -eq "$want" ] || { echo "code $code, expected $want: $*"; cat "$work/said"; return 1; }
    grep -q -e "$pattern" "$work/said" || { echo "said: $(cat "$work/said")"; return 1; }
    [ ! -f "$to" ] || [ ! -s "$to" ] || { echo "wrote: $(head -n 3 "$to")"; return 1; }
}
while IFS='|' read -r name want pattern to command; do
    [ "$to" = full ] && to=/dev/full || to=$work/out
    # shellcheck disable=SC2086 # words
    if out=$(cd "$work" && fails "$want" "$pattern" "$to" "$full_top"/$command 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s\n%s\n' "$name" "$out"
    fi
done << END
vocabulary: no words|2|^usage: run_dist-vocab |out|run_dist-vocab
vocabulary: no file|2|^usage: run_dist-vocab |out|run_dist-vocab --min_count=2
vocabulary: unknown option|2|unknown option '--max=3'|out|run_dist-vocab --max=3 $text
vocabulary: unknown short option|2|unknown option '-x'|out|run_dist-vocab -x
vocabulary: no number|2|--min_count=2x is no whole number from 1|out|run_dist-vocab --min_count=2x $text
vocabulary: no words wanted|2|--max_size=0 is no whole number from 1|out|run_dist-vocab --max_size=0 $text
vocabulary: too large a number|2|is no whole number from 1|out|run_dist-vocab --max_size=99999999999999999999 $text
vocabulary: no such file|5|cannot open '/nonexistent'|out|run_dist-vocab $text /nonexistent
vocabulary: a folder|5|is a folder|out|run_dist-vocab /tmp
vocabulary: blank text|5|no word is left|out|run_dist-vocab blank
vocabulary: too rare words|5|no word is left|out|run_dist-vocab --min_count=1000000 $text
vocabulary: not UTF-8|5|latin:1:2: invalid UTF-8|out|run_dist-vocab latin
vocabulary: full disk|3|cannot write|full|run_dist-vocab $text
bpe: no words|2|^usage: run_dist-bpe learn|out|run_dist-bpe
bpe: unknown command|2|^usage: run_dist-bpe learn|out|run_dist-bpe split $text
bpe: no file|2|^usage: run_dist-bpe learn|out|run_dist-bpe learn 5
bpe: no number|2|'5x' is no number of merges|out|run_dist-bpe learn 5x $text
bpe: no merges|2|'0' is no number of merges|out|run_dist-bpe learn 0 $text
bpe: no such file|5|cannot open '/nonexistent'|out|run_dist-bpe learn 5 /nonexistent
bpe: not UTF-8|5|latin:1:2: invalid UTF-8|out|run_dist-bpe learn 5 latin
bpe: full disk|3|cannot write|full|run_dist-bpe learn 5 $text
bpe: full disk while it applies|3|cannot write|full|run_dist-bpe apply $codes $text
END
check "vocabulary: help" "\$top/run_dist-vocab -h | grep -q '^usage: run_dist-vocab .*FILE' && \$top/run_dist-vocab --help | grep -q max_size"
check "bpe: help" "\$top/run_dist-bpe -h | grep -q '^usage: run_dist-bpe learn' && \$top/run_dist-bpe --help | grep -q subword-nmt"
check "vocabulary: options may stand behind files" "\$top/run_dist-vocab \$bpe/text.txt --max_size=5 | cmp - \$work/w5"
check "toy: sizes" "\$tools/make_toy \$work/toy 3 --train=200 --dev=20 --test=30 && [ \$(cat \$work/toy/*/source.txt | wc -l) -eq 260 ]"
check "toy: the target is the source reversed" \
    "awk '{ s = \$NF; for (i = NF - 1; i > 0; i--) s = s \" \" \$i; print s }' \$work/toy/train/source.txt |
     cmp - \$work/toy/train/target.txt"
check "toy: lengths 5 to 50" "awk 'NF < 5 || NF > 50 { exit 1 }' \$work/toy/train/source.txt"
check "toy: the vocabulary counts one less than there is" \
    "cat \$work/toy/train/source.txt \$work/toy/dev/source.txt \$work/toy/test/source.txt | tr ' ' '\\n' | sort | uniq -c |
     awk '{ print \$2 \"\\t\" \$1 - 1 }' | sort > \$work/count && sort \$work/toy/vocab/source.txt | cmp - \$work/count"
check "toy: a seed gives the same files" "\$tools/make_toy \$work/again 3 --train=200 --dev=20 --test=30 && diff -r \$work/toy \$work/again"
check "toy: another seed gives others" "\$tools/make_toy \$work/other 4 --train=200 --dev=20 --test=30 && ! diff -rq \$work/toy \$work/other"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
