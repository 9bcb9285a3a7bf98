#!/usr/bin/env bash
# lm_eval.sh -- tests perplexity by stride, and multiple choice in the form of HellaSwag's authors, against what
# transformers finds (make_lm_eval.py), and that neither depends on the size of batches nor on ranks.
#
# tests/run runs the script and sets BUILD, PROG and MPIRUN.
. "$(dirname "$0")/../support/toy.sh"
golden=$PWD/tests/golden/lm_eval
work=$(mktemp -d "${TMPDIR:-/tmp}/lm_eval.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
cp "$golden/questions.jsonl" .
gzip -k questions.jsonl
printf '{"model": "gpt", "source_file_eval": "%s/text.txt", "seq_len": 40}' "$golden" > e.json
e() { # ranks, arguments: evaluates
    rm -rf x
    n=$1
    shift
    ranks "$n" "$PROG" --config_file=e.json --logdir=x --mode=eval --set checkpoint="$golden/model" "$@"
}
values() { # keys: prints their values
    for key in "$@"; do
        printf '%s ' "$(sed -n "s/.*\"$key\":\([^,}]*\)[,}].*/\1/p" x/eval/metrics.jsonl)"
    done
}
equal() { # tolerance, numbers, numbers: compares them, relative to each
    awk -v d="$1" -v a="$2" -v b="$3" 'BEGIN {
        n = split(a, x)
        if (n == 0 || n != split(b, y)) exit 1
        for (i = 1; i <= n; i++) if ((x[i] - y[i]) ^ 2 > (d * y[i]) ^ 2) exit 1
    }' || { echo "$2, $3"; return 1; }
}
while read -r kind a b c d; do
    case $kind in
    stride)
        [ "${CASES:-}" = all ] || [ "$a" = 40 ] || [ "$a" = 7 ] || continue
        expect "stride $a" 0 "ppl" e 1 --set eval_stride="$a"
        expect "stride $a: targets and loss of transformers" 0 "" equal 1e-6 "$(values targets loss perplexity)" \
            "$b $c $(awk -v x="$c" 'BEGIN { printf "%.9f", exp(x) }')"
        [ "$a" != 7 ] || seven=$(values targets loss perplexity bits_per_byte)
        ;;
    choices)
        expect "40 questions" 0 "answers are longer, with the context" e 1 --set source_file_eval=questions.jsonl
        expect "accuracies and loss of transformers" 0 "" equal 1e-6 "$(values choice_accuracy choice_accuracy_norm samples loss)" \
            "$a $b $c $d"
        one=$(values choice_accuracy choice_accuracy_norm samples loss perplexity)
        ;;
    esac
done < "$golden/values.txt"
expect "compressed, on two ranks" 0 "40 questions with 160 answers" e 2 --set source_file_eval=questions.jsonl.gz --set eval_batch_size=3
expect "the same figures" 0 "" equal 1e-12 "$(values choice_accuracy choice_accuracy_norm samples loss perplexity)" "$one"

# Windows that overlap: any size of a batch, any number of ranks.
sizes='5:2'
[ "${CASES:-}" != all ] || sizes='1:1 64:1 3:1 1:2 5:2 64:2 1:3 3:3 64:3 2:4'
for size in $sizes; do
    expect "stride 7, batches of ${size%:*} on ${size#*:} ranks" 0 "" e "${size#*:}" --set eval_stride=7 --set eval_batch_size="${size%:*}"
    expect "stride 7, batches of ${size%:*} on ${size#*:} ranks: equal to 1e-12" 0 "" equal 1e-12 \
        "$(values targets loss perplexity bits_per_byte)" "$seven"
done

# What is refused.
bad() { # name, line, text
    printf '\n%s\n' "$2" > bad.jsonl
    expect "$1" 5 "bad.jsonl:2: $3" e 1 --set source_file_eval=bad.jsonl
}
bad "a question without solution" '{"ctx": "A man", "endings": ["sees a dog", "sees"]}' '"label" is missing, as in a test set'
summary
