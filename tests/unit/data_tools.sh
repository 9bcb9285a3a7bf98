#!/bin/sh
# data_tools.sh -- the programs that prepare data: make_bpe, make_vocab, make_toy. tests/unit/bpe holds a text and what
# subword-nmt 0.3.8 made of it:
#     subword-nmt learn-bpe -s 120 < text.txt > codes.txt; subword-nmt apply-bpe -c codes.txt < text.txt > pieces.txt
tools=${BUILD:-build/release}/tests/support
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
export tools bpe work
check "bpe: learns what subword-nmt learns" "\$tools/make_bpe learn 120 \$bpe/text.txt | cmp - \$bpe/codes.txt"
check "bpe: cuts words as subword-nmt does" "\$tools/make_bpe apply \$bpe/codes.txt \$bpe/text.txt | cmp - \$bpe/pieces.txt"
check "bpe: every pair that occurs twice is merged" \
    "\$tools/make_bpe learn 100000 \$bpe/text.txt > \$work/all && head -n 121 \$work/all | cmp - \$bpe/codes.txt &&
     [ \$(wc -l < \$work/all) -lt 2000 ]"
check "bpe: codes that are none" "\$tools/make_bpe apply \$bpe/text.txt \$bpe/text.txt 2>&1 | grep 'does not begin with .#version: 0.2'"
check "vocabulary: as sort and uniq count" \
    "\$tools/make_vocab \$bpe/text.txt > \$work/v &&
     tr ' ' '\\n' < \$bpe/text.txt | grep . | LC_ALL=C sort | uniq -c | LC_ALL=C sort -k1,1nr -k2,2 |
     awk '{ printf \"%s\\t%d\\n\", \$2, \$1 }' | cmp - \$work/v"
check "vocabulary: at most so many words" "\$tools/make_vocab --max_size=5 \$bpe/text.txt > \$work/w && head -n 5 \$work/v | cmp - \$work/w"
check "vocabulary: at least so often" \
    "\$tools/make_vocab --min_count=3 \$bpe/text.txt > \$work/w && awk '\$2 >= 3' \$work/v | cmp - \$work/w"
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
