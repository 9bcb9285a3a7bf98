#!/usr/bin/env bash
# batches.sh -- tests that decoding and evaluation do not depend on the batch size, on the number of ranks or of threads.
#
# The models are random and wide: a sum of more than 1,024 products, or a product of few rows, is where a library may
# cut sums by the number of rows. Texts are compared byte by byte with their scores, losses to 1e-12.
# tests/run runs the script and sets PROG and MPIRUN.
# timeout: 300
# beside
. "$(dirname "$0")/../support/toy.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/batches.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 40 64
cp toy.json rnn.json
toy_transformer 40 64
cat > gpt.json << 'END'
{"model": "gpt", "n_layers": 1, "n_embd": 64, "n_heads": 2, "ff_dim": 2048, "max_len": 32,
 "source_file": "data/train.src", "source_file_eval": "data/dev.src", "subword": "char", "document": "line",
 "optimizer": "adamw", "learning_rate": 0.005, "batch_tokens": 200, "seed": 3, "eval_frequency": 1000000,
 "max_new_tokens": 9, "threads": 1}
END
awk 'BEGIN { for (i = 97; i < 103; i++) for (k = 97; k < 101; k++) printf "%c\t%c\t0.1\n", i, k }' > some.lex

train() { # name, config, keys...: makes a model of one step
    model=$1 config=$2
    shift 2
    keys=("$@")
    expect "$model: a model" 0 "done: step 1" "$PROG" --config_file="$config" --logdir="$model" --max_steps=1 "${keys[@]}"
}
sizes() { # default, CASES=all: batch:ranks:threads
    cases=$1
    [ "${CASES:-}" != all ] || cases=$2
}
infer() { # batch:ranks:threads, file, arguments
    IFS=: read -r batch np threads <<< "$1"
    to=$2
    shift 2
    ranks "$np" "$PROG" --config_file="$config" --logdir="$model" --mode=infer --set infer_batch_size="$batch" \
        --set threads="$threads" --set output_format=json "${keys[@]}" "$@" > "$to" 2> err.txt || { cat err.txt; return 1; }
}
same_texts() { # what, arguments: for all cases
    what=$1
    shift
    expect "$model, $what: texts" 0 "" infer 1:1:1 want.txt "$@"
    expect "$model, $what: there are 64" 0 "^64$" grep -c '"text":"' want.txt
    for size in $cases; do
        expect "$model, $what, $size" 0 "" infer "$size" got.txt "$@"
        expect "$model, $what, $size: the same bytes" 0 "" cmp want.txt got.txt
    done
}
figures() { # batch:ranks:threads, arguments: prints loss and perplexity
    IFS=: read -r batch np threads <<< "$1"
    shift
    rm -rf "$model/eval"
    ranks "$np" "$PROG" --config_file="$config" --logdir="$model" --mode=eval --set eval_batch_size="$batch" \
        --set threads="$threads" "${keys[@]}" "$@" > out.txt 2>&1 || { cat out.txt; return 1; }
    sed -n 's/.*"loss":\([^,]*\),.*"perplexity":\([^,]*\),.*/\1 \2/p' "$model/eval/metrics.jsonl"
}
same_figures() { # arguments: for all cases
    alone=$(figures 1:1:1 "$@")
    for size in $cases; do
        expect "$model: loss and perplexity, $size" 0 "^equal$" awk -v a="$alone" -v b="$(figures "$size" "$@")" 'BEGIN {
            n = split(a, x) + split(b, y)
            if (n == 4 && (x[1] / y[1] - 1) ^ 2 < 1e-24 && (x[2] / y[2] - 1) ^ 2 < 1e-24) print "equal"; else print a, "and", b }'
    done
}
beam=(--beam_width=4 --nbest=4 --set length_penalty_type=gnmt --set max_length_factor=1)
drawn=(--set decoder_type=sampling --seed=7 --set max_length_factor=1)
continued=(--input=data/test.src --set decoder_type=sampling --seed=7)
everything='7:1:1 64:1:1 64:1:2 1:2:1 7:2:1 64:2:1 1:3:1 7:3:1 64:3:1'

train narrow toy.json --set d_model=64 --set ff_dim=2048
sizes '7:2:1 64:1:2' "$everything"
same_texts beam "${beam[@]}"
same_figures --set decoder_type=greedy

train gpt gpt.json
sizes '64:3:1' "$everything"
same_texts drawn "${continued[@]}"
same_figures

if [ "${CASES:-}" = all ]; then
    for shape in '1088 64' '96 3072' '64 4096' '48 5120' '512 2048'; do
        read -r d ff <<< "$shape"
        train "t$d-$ff" toy.json --set d_model="$d" --set ff_dim="$ff"
        same_texts greedy --set decoder_type=greedy --set max_length_factor=1
        same_texts beam "${beam[@]}"
        same_texts drawn "${drawn[@]}"
        same_figures --set decoder_type=greedy
    done
    same_texts shortlist "${beam[@]}" --set shortlist_file=some.lex
    same_texts int8 "${beam[@]}" --set decode_dtype=int8
    same_texts "int8, shortlist" "${beam[@]}" --set shortlist_file=some.lex --set decode_dtype=int8
    train mixed toy.json --set d_model=512 --set ff_dim=2048 --set dtype=mixed
    same_texts beam "${beam[@]}"
    same_figures --set decoder_type=greedy
    train ssru toy.json --set d_model=1088 --set ff_dim=2048 --set decoder_layer=ssru
    same_texts beam "${beam[@]}"
    same_figures --set decoder_type=greedy
    for cell in lstm gru; do
        train $cell rnn.json --set encoder_cell_type=$cell --set decoder_cell_type=$cell --set encoder_cell_units=1100 \
            --set decoder_cell_units=1100 --set attention_layer_size=1100
        same_texts beam "${beam[@]}"
        same_texts drawn "${drawn[@]}"
        same_figures --set decoder_type=greedy
    done
    train llama gpt.json --set n_embd=1088 --set ff_dim=2816 --set norm_type=rms --set activation=silu --set gated_ff=true \
        --set positions=rotary --set bias=none
    same_texts drawn "${continued[@]}"
    same_texts int8 "${continued[@]}" --set decode_dtype=int8
    same_figures
fi
summary
