#!/usr/bin/env bash
# originals.sh -- the six configs of OpenSeq2Seq on two ranks, unmodified: real text, their own sizes, three steps each. Prints
# parameters, the number that the shapes of the original give for these vocabularies, memory of rank 0 and seconds a
# step. The WMT names that the configs ask for are made from the text that configs/get_en_de fetched.
#
#     configs/get_en_de && tests/originals.sh [FOLDER of that text, data/en_de]
#
# Needs 12 GiB of memory for gnmt_like. PROG, STEPS (3), MPIRUN, CONFIGS (some of the names).
set -euo pipefail
cd "$(dirname "$0")/.."
text=$(cd "${1:-data/en_de}" && pwd)
PROG=${PROG:-build/release/run_dist}
BUILD=${BUILD:-build/release}
STEPS=${STEPS:-3}
MPIRUN=${MPIRUN:-mpirun --oversubscribe --bind-to none}
CONFIGS=${CONFIGS:-toy_data_config toy_data_config_2GPUs nmt_one open_nmt_692-like gnmt_like hvd8x_1xGNMT-like}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -d test/toy_data ] || "$BUILD/tests/support/make_toy" test/toy_data

wmt=$work/wmt
mkdir "$wmt"
"$BUILD/run_dist-bpe" learn 32000 "$text/train.en" "$text/train.de" > "$work/codes"
for side in en de; do
    "$BUILD/run_dist-bpe" apply "$work/codes" "$text/train.$side" > "$wmt/train.tok.clean.bpe.32000.$side"
    ln -s "$text/train.$side" "$wmt/train.tok.clean.$side"
    "$BUILD/run_dist-vocab" --max_size=50000 "$text/train.$side" > "$wmt/vocab.50k.$side"
    for set in newstest2013 newstest2014 newstest2015; do
        "$BUILD/run_dist-bpe" apply "$work/codes" "$text/dev.$side" > "$wmt/$set.tok.bpe.32000.$side"
        ln -s "$set.tok.bpe.32000.$side" "$wmt/$set.tok.clean.bpe.32000.$side"
        for name in tok tok.clean; do ln -s "$text/dev.$side" "$wmt/$set.$name.$side"; done
    done
done
cat "$wmt"/train.tok.clean.bpe.32000.?? > "$work/both"
"$BUILD/run_dist-vocab" "$work/both" > "$wmt/vocab.bpe.32000"

eight() { echo $((($1 + 4 + 7) / 8 * 8)); } # with the special words, rounded up
lines() { wc -l < "$1"; }
want() { # parameters by the closed formulas of the original's shapes
    local bpe words_s words_t
    bpe=$(eight "$(lines "$wmt/vocab.bpe.32000")")
    words_s=$(eight "$(lines "$wmt/vocab.50k.de")")
    words_t=$(eight "$(lines "$wmt/vocab.50k.en")")
    case $1 in
    toy*) echo 565761 ;;
    nmt_one) echo $((19678209 + 2048 * bpe)) ;;
    open_nmt*) echo $((9970176 + 512 * words_s + 1024 * words_t)) ;;
    gnmt_like) echo $((182523905 + 3072 * ($(lines "$wmt/vocab.bpe.32000") + 4))) ;;
    hvd8x*) echo $((182523905 + 3072 * bpe)) ;;
    esac
}

failed=0
printf "%-24s %13s %13s %12s %10s\n" config parameters expected "rank 0 MB" s/step
for c in $CONFIGS; do
    log=$work/$c
    # shellcheck disable=SC2086 # a list of words
    if ! timeout 3000 $MPIRUN -np 2 "$PROG" --config_file="configs/$c.json" --logdir="$log" --max_steps="$STEPS" \
        --summary_frequency=1 --set data_location="$wmt" --set threads=1 > "$work/out" 2>&1; then
        echo "$c failed:" && tail -n 5 "$work/out" && failed=1
        continue
    fi
    n=$(sed -n 's/^model: .*, \([0-9,]*\) parameters.*/\1/p' "$work/out" | tr -d ,)
    mb=$(sed -n 's/.*peak memory of rank 0 \([0-9,]*\) MB.*/\1/p' "$work/out" | tail -n 1)
    s=$(sed -n 's/.* \([0-9.]*\) s\/step.*/\1/p' "$work/out" | tail -n 1)
    printf '%-24s %13s %13s %12s %10s\n' "$c" "$n" "$(want "$c")" "${mb:--}" "$s"
    [ "$n" = "$(want "$c")" ] && grep -q "^done: step $STEPS" "$work/out" || failed=1
done
exit $failed
