#!/usr/bin/env bash
# transformer.sh -- tests what training promises, with a Transformer: the curve does not depend on the number of ranks,
# a resumed run ends with the same bytes, and deterministic any has the same bytes for all numbers of ranks.
#
# tests/run runs the script and sets BUILD, PROG and MPIRUN.
# timeout: 300
# beside
. "$(dirname "$0")/../support/toy.sh"
same=$PWD/${BUILD:-build/release}/tests/support/npz_same
work=$(mktemp -d "${TMPDIR:-/tmp}/transformer.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy_transformer 410 61
t() { # np, folder, arguments: trains
    n=$1 dir=$2
    shift 2
    ranks "$n" "$PROG" --config_file=toy.json --logdir="$dir" --summary_frequency=1 "$@"
}

# The curve. Only the order of float sums may differ.
expect "np 1, batch 16" 0 "" t 1 one --max_steps=60
expect "np 2, batch 8" 0 "" t 2 two --max_steps=60 --set batch_size=8
expect "np 4, batch 4" 0 "" t 4 four --max_steps=50 --set batch_size=4
expect "np 1, 4 batches an update" 0 "" t 1 parts --max_steps=15 --set iter_size=4
expect "np 2, 4 batches an update" 0 "" t 2 parts2 --max_steps=15 --set iter_size=4 --set batch_size=8
for key in loss grad_norm; do
    expect "$key of np 2 and 1" 0 "" close_curves $key 1e-5 50 one two
    expect "$key of np 4 and 1" 0 "" close_curves $key 1e-5 50 one four
    expect "$key of 4 batches an update, np 2 and 1" 0 "" close_curves $key 1e-5 15 parts parts2
done
expect "the loss falls" 0 "" sh -c "
    sed -n 's/.*\"loss\":\([^,]*\).*/\1/p' one/metrics.jsonl | awk 'NR == 1 { a = \$1 } END { exit !(\$1 < 0.9 * a) }'"
expect "another seed has other masks and weights" 1 "" sh -c "
    '$PROG' --config_file=toy.json --logdir=seed --max_steps=3 --summary_frequency=1 --seed=6 > out.txt || exit 2
    sed -n 's/.*\"loss\":\([^,]*\).*/\1/p' seed/metrics.jsonl > s.col
    [ \$(wc -l < s.col) -eq 3 ] || exit 2
    sed -n 's/.*\"loss\":\([^,]*\).*/\1/p' one/metrics.jsonl | head -n 3 | cmp - s.col"

# Resume: the same bytes with the same np, the same curve with another np.
expect "the first part" 0 "" t 2 part --max_steps=37 --set batch_size=8
expect "the second part" 0 "resuming from part/model-37.npz" t 2 part --max_steps=60 --set batch_size=8
expect "resume ends with the same bytes" 0 "" cmp part/model-60.npz two/model-60.npz
expect "a first part of np 4" 0 "" t 4 mixed --max_steps=20 --set batch_size=4
expect "then np 1" 0 "" t 1 mixed --max_steps=40
expect "resume with another np" 0 "" close_curves loss 1e-5 40 one mixed
expect "other dropout may follow" 0 "done: step 61" t 1 one --max_steps=61 --set dropout_ff=0.3
expect "other heads are a warning" 0 "warning: changed since the checkpoint: n_heads: 2 -> 4" t 1 one --max_steps=62 --set n_heads=4
expect "another width is refused" 6 "ff_dim 32 -> 40" t 1 one --max_steps=63 --set ff_dim=40

# deterministic any: the same bytes for every number of ranks.
for n in 1 4; do
    expect "any, np $n" 0 "" t $n any$n --max_steps=20 --set batch_size=$((16 / n)) --set deterministic=any --set micro_batches=4
done
expect "any: the same bytes" 0 "" "$same" any1/model-20.npz any4/model-20.npz

expect "any, np 2, layers computed again" 0 "" t 2 again --max_steps=20 --set batch_size=8 --set deterministic=any \
    --set micro_batches=4 --set recompute=layer
expect "layers computed again: the same bytes" 0 "" "$same" any1/model-20.npz again/model-20.npz

# The rows of unused source words get no gradient, so ranks send only the others.
expect "tables apart, np 1" 0 "" t 1 apart1 --max_steps=20 --set tie_embeddings=none --set positions=learned
expect "tables apart, np 2" 0 "" t 2 apart2 --max_steps=20 --set tie_embeddings=none --set positions=learned --set batch_size=8
expect "tables apart: the loss" 0 "" close_curves loss 1e-5 20 apart1 apart2

# Evaluation: the same figures for every number of ranks.
figures() { # np: prints the sums, without times
    rm -rf two/eval
    ranks "$1" "$PROG" --config_file=toy.json --logdir=two --mode=eval --set eval_batch_size=7 --set eval_bleu=false > out.txt 2>&1 ||
        { cat out.txt; return 1; }
    sed 's/"eval_s".*//' two/eval/metrics.jsonl
}
figures 1 > f1.txt
figures 3 > f3.txt
expect "evaluation has a loss" 0 '"loss"' cat f1.txt
expect "evaluation of np 3" 0 "" cmp f1.txt f3.txt

# Decoding: the same bytes for every batch and number of ranks, with lines longer than any of training.
awk '{ print } NR % 20 == 0 { l = $0; for (i = 0; i < 6; i++) l = l " " $0; print l; print "" }' data/test.src > in.txt
infer() { # np, samples of a batch, arguments
    ranks "$1" "$PROG" --config_file=toy.json --logdir=two --mode=infer --input=in.txt --set infer_batch_size="$2" "${@:3}" 2> err.txt
}
for how in "--beam_width=1" "--beam_width=4 --set length_penalty=1.0 --nbest=2 --output_format=json"; do
    # shellcheck disable=SC2086 # $how is several words
    {
        infer 1 64 $how > want.txt
        infer 1 1 $how > got1.txt
        infer 3 7 $how --set threads=2 > got2.txt
    }
    expect "$how: a line for each line" 0 "^$(wc -l < in.txt)$" sh -c "wc -l < want.txt"
    for i in 1 2; do expect "$how: the same bytes ($i)" 0 "" cmp want.txt got$i.txt; done
done
for s in a b c d e f; do for t in a b c d e f; do printf '%s\t%s\t0.1\n' $s $t; done; done > all.lex
infer 1 64 > plain.txt
infer 2 9 --set shortlist_file=all.lex > all.txt
expect "a shortlist of all words changes nothing" 0 "" cmp plain.txt all.txt

# Recurrent units in the decoder: the same promises.
ssru="--set decoder_layer=ssru"
# shellcheck disable=SC2086 # $ssru is several words
{
    expect "ssru, np 1" 0 "" t 1 ssru1 --max_steps=40 $ssru
    expect "ssru, np 2" 0 "" t 2 ssru2 --max_steps=40 $ssru --set batch_size=8
    for n in 1 4; do
        expect "ssru, any, np $n" 0 "" t $n ssru_any$n --max_steps=10 $ssru --set batch_size=$((16 / n)) \
            --set deterministic=any --set micro_batches=4
    done
    expect "self-attention does not follow" 6 "decoder/layer0/" t 1 ssru1 --max_steps=41 --set decoder_layer=attention
    infer 1 64 --beam_width=4 --nbest=2 --output_format=json $ssru --logdir=ssru1 > want.txt
    infer 1 1 --beam_width=4 --nbest=2 --output_format=json $ssru --logdir=ssru1 > got1.txt
    infer 3 7 --beam_width=4 --nbest=2 --output_format=json $ssru --logdir=ssru1 --set threads=2 > got2.txt
}
expect "ssru: the loss" 0 "" close_curves loss 1e-5 40 ssru1 ssru2
expect "ssru, any: the same bytes" 0 "" "$same" ssru_any1/model-10.npz ssru_any4/model-10.npz
expect "ssru: a line for each line" 0 "^$(wc -l < in.txt)$" sh -c "wc -l < want.txt"
for i in 1 2; do expect "ssru: the same bytes ($i)" 0 "" cmp want.txt got$i.txt; done
# int8: the same bytes, also with a shortlist, whose logits are the same numbers.
int8="--set decode_dtype=int8 --beam_width=4 --nbest=2 --output_format=json"
# shellcheck disable=SC2086
{
    infer 1 64 $int8 > want.txt
    infer 1 1 $int8 > got1.txt
    infer 3 7 $int8 --set threads=2 > got2.txt
    infer 2 9 $int8 --set shortlist_file=all.lex > got3.txt
    infer 1 64 ${int8#*int8} > float.txt
}
expect "int8: a line for each line" 0 "^$(wc -l < in.txt)$" sh -c "wc -l < want.txt"
for i in 1 2; do expect "int8: the same bytes ($i)" 0 "" cmp want.txt got$i.txt; done
expect "int8: a shortlist of all words" 0 "" cmp want.txt got3.txt
expect "int8 differs from float32" 1 "" cmp -s want.txt float.txt
expect "int8 in evaluation" 0 '"loss"' sh -c "'$PROG' --config_file=toy.json --logdir=two --mode=eval --set decode_dtype=int8 > out.txt 2>&1 &&
    tail -n 1 two/eval/metrics.jsonl"
expect "int8 in training" 2 "'decode_dtype' int8 works in infer and eval mode only; remove it" t 1 none --set decode_dtype=int8
summary
