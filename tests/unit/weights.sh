#!/usr/bin/env bash
# weights.sh -- tests weights that Hugging Face's transformers saved: figures as transformers has them, keys from
# config.json, and what is refused. tests/golden/make_weights.py made the folders.
#
# tests/run runs the script and sets BUILD, PROG and MPIRUN.
. "$(dirname "$0")/../support/toy.sh"
golden=$PWD/tests/golden/weights
work=$(mktemp -d "${TMPDIR:-/tmp}/weights.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cp -r "$golden" "$work/g"
chmod -R u+w "$work/g"
cd "$work" || exit 2
cat > w.json << 'END'
{"model": "gpt", "source_file": "g/text.bin", "source_file_eval": "g/text.bin", "seq_len": 16, "batch_sentences": 8,
 "optimizer": "adamw", "learning_rate": 0.01, "num_epochs": 3}
END
run() {
    "$PROG" --config_file=w.json "$@"
}
near() { # folder of an evaluation, loss
    sed -n 's/.*"loss":\([^,]*\),.*/\1/p' "$1/eval/metrics.jsonl" |
        awk -v want="$2" '{ got = $1 } END { d = got - want; exit !(NR > 0 && d < 1e-6 * want && -d < 1e-6 * want) }'
}
same_data() { # the data behind the headers of two files
    for f in "$1" "$2"; do
        n=$(od -A n -t u8 -N 8 "$f" | tr -d ' ')
        tail -c +$((n + 9)) "$f" | cksum
    done | uniq | wc -l | grep -q -x 1
}
while read -r name loss; do
    expect "$name is read" 0 "weights from g/$name: [0-9]* arrays" run --mode=eval --logdir="e/$name" --set checkpoint="g/$name"
    expect "$name has the loss of transformers" 0 "" near "e/$name" "$loss"
done < g/losses.txt

echo '{"model": "gpt", "source_file_eval": "g/text.bin", "seq_len": 16}' > least.json
expect "evaluation needs no training keys" 0 "weights from g/llama" "$PROG" --config_file=least.json --mode=eval \
    --logdir=e/least --set checkpoint=g/llama

# Training from weights: all ranks begin with them; a log folder goes on without.
expect "training begins with them" 0 "weights from g/qwen3: 25 arrays, 5,704 parameters" \
    run --mode=train --logdir=t --set init_from=g/qwen3 --max_steps=2 --summary_frequency=1
expect "its first loss" 0 "" awk -F'"loss":' 'NR == 1 { split($2, x, ","); exit !(x[1] > 4.14929 && x[1] < 4.14931) }' t/metrics.jsonl
expect "two ranks have the same" 0 "weights from g/qwen3" ranks 2 "$PROG" --config_file=w.json --mode=train --logdir=t2 \
    --set init_from=g/qwen3 --max_steps=2 --summary_frequency=1
expect "two ranks: the same losses" 0 "^2 values" close_curves loss 1e-5 2 t t2
expect "the run goes on" 0 "resuming from t/model-2.npz" run --mode=train --logdir=t --set init_from=g/qwen3 --max_steps=3
expect "its log folder is evaluated" 0 "weights from t/model-3.npz" run --mode=eval --logdir=t --set init_from=g/qwen3
expect "keys are those of config.json" 0 "^n_kv_heads  *= 2  *from config.json of the weights" \
    run --mode=train --logdir=x --set init_from=g/qwen3 --print_config

# Export: the folder that was read comes back, and a trained one is read again.
mkdir o
while read -r name loss; do
    [ "$name" = gpt2_published ] && continue
    expect "$name is exported" 0 "o/$name is written: config.json, model.safetensors and 0 files of the tokenizer" \
        run --mode=export --format=safetensors --export_out="o/$name" --set checkpoint="g/$name"
    expect "$name: the files of its folder" 0 "^config.json generation_config.json model.safetensors $" \
        sh -c "ls o/$name | tr '\n' ' '"
    expect "$name: read again" 0 "weights from o/$name" run --mode=eval --logdir="o/e/$name" --set checkpoint="o/$name"
    expect "$name: the loss is the same" 0 "" near "o/e/$name" "$loss"
done < g/losses.txt
expect "gpt2: the bytes are those of transformers" 0 "" same_data g/gpt2/model.safetensors o/gpt2/model.safetensors
expect "a trained model is exported" 0 "^t/export/model-3 is written" run --mode=export --format=safetensors --logdir=t \
    --set init_from=g/qwen3
expect "its architecture" 0 "" grep -q '"Qwen3ForCausalLM"' t/export/model-3/config.json
expect "not twice" 2 "'t/export/model-3' exists already" run --mode=export --format=safetensors --logdir=t --set init_from=g/qwen3
mkdir far && cp -r t far/t
expect "the log folder is enough" 0 "^t/export/other is written" sh -c "cd far && '$PROG' --logdir=t --mode=export \
    --format=safetensors --export_out=t/export/other"
expect "it is not asked for the weights that it began with" 1 "" sh -c "cd far && '$PROG' --logdir=t --mode=export \
    --format=safetensors --export_out=y 2>&1 | grep 'is not there'"
expect "one file has our names" 0 "^one.safetensors is written" run --mode=export --format=safetensors --logdir=t \
    --export_out=one.safetensors --set init_from=g/qwen3
expect "our names" 0 "" grep -q -a '"decoder/layer0/attention/qkv_kernel"' one.safetensors
expect "a form that transformers lacks" 2 "no architecture of transformers has 'logit_softcap'" run --mode=export \
    --format=safetensors --export_out=cap --set checkpoint=g/llama --set logit_softcap=30
expect "a failure leaves nothing" 0 "^0$" sh -c "ls -d cap* 2> /dev/null | wc -l"
expect "no folder for it" 3 "none/x" run --mode=export --format=safetensors --export_out=none/x --set checkpoint=g/llama
printf '{"model": "gpt", "source_file": "words.txt", "source_file_eval": "words.txt", "subword_size": 262, "n_layers": 1, "n_embd": 8,
 "n_heads": 2, "ff_dim": 8, "max_len": 16, "batch_sentences": 2, "optimizer": "adamw", "learning_rate": 0.01, "num_epochs": 1}' > own.json
printf 'a cat sees a cat and a dog sees a dog\n%.0s' 1 2 3 4 5 6 7 8 9 > words.txt
expect "a model with its own tokenizer" 0 "" "$PROG" --config_file=own.json --logdir=own --mode=train --max_steps=1
expect "its tokenizer is exported" 0 "and 2 files of the tokenizer" "$PROG" --config_file=own.json --logdir=own \
    --mode=export --format=safetensors --export_out=own_out
expect "the end token" 0 '"eos_token": "<|endoftext|>"' cat own_out/tokenizer_config.json
expect "the folder is read with its tokenizer" 0 "weights from own_out" "$PROG" --config_file=w.json --logdir=own2 \
    --mode=eval --set checkpoint=own_out --set source_file_eval=words.txt --set source_file=null
expect "training keeps that tokenizer" 0 "" sh -c "'$PROG' --config_file=w.json --logdir=own3 --mode=train \
    --set init_from=own_out --set source_file=words.txt --max_steps=1 && cmp own/text/subword.model own3/text/subword.model"

# Keys of the user.
expect "a contradiction is named" 2 "'n_embd' is 24, but config.json of 'g/gpt2' means 16; leave it out" \
    run --mode=train --logdir=x --set init_from=g/gpt2 --set n_embd=24
expect "the same value is none" 0 "" run --mode=train --logdir=same --set init_from=g/gpt2 --set n_embd=16 --max_steps=1
expect "a preset gives way" 0 "weights from g/llama" run --mode=train --logdir=preset --set init_from=g/llama \
    --set model=gpt2 --set batch_tokens=null --max_steps=1
expect "a longer text is a notice" 0 "rope_theta is 500, and the weights were trained with 100" \
    run --mode=train --logdir=theta --set init_from=g/llama3 --set rope_theta=500 --max_steps=1
expect "learned positions stay" 2 "'max_len' is 64, but config.json" run --mode=train --logdir=x --set init_from=g/gpt2 --set max_len=64
expect "another model says so" 2 "which model lenet does not read" run --mode=train --logdir=x --set init_from=g/gpt2 --set model=lenet

expect "a path that is not there" 2 "'g/none' is not there, so no key comes" run --mode=eval --logdir=x --set checkpoint=g/none
mkdir old && cp g/llama/config.json old && touch old/pytorch_model.bin
expect "weights in the old form" 6 "'old' has pytorch_model.bin" run --mode=train --logdir=x --set init_from=old

# What is not known is named.
odd() { # name, sed program for config.json of llama3 or gpt2
    rm -rf bad
    cp -r "g/${3:-llama3}" bad
    sed -i "$2" bad/config.json
    expect "$1" 6 "$4" run --mode=train --logdir=x --set init_from=bad
}
odd "an architecture" 's/LlamaForCausalLM/MambaForCausalLM/' llama3 "bad/config.json': the architecture 'MambaForCausalLM' is not known"
odd "an activation" 's/"silu"/"mish"/' llama3 "the activation 'mish' is not known"
odd "a rope type" 's/"llama3"/"yarn"/' llama3 "the rope type 'yarn' is not known"
odd "a text for a number" 's/"hidden_size": 16/"hidden_size": "16"/' llama3 "'hidden_size' is \"16\", not a whole number"
odd "a huge number" 's/"hidden_size": 16/"hidden_size": 99999999999/' llama3 "'hidden_size' is 99999999999, not"
odd "a negative number" 's/"num_hidden_layers": 2/"num_hidden_layers": -2/' llama3 "'num_hidden_layers' is -2, not"
odd "a missing number" 's/"vocab_size": 31/"other": 31/' llama3 "'vocab_size' is missing, not"
odd "a factor of 0" 's/"factor": 4.0/"factor": 0/' llama3 "'factor' is 0, not a number above 0"
odd "half biases" 's/"attention_bias": false/"attention_bias": true/' llama3 "'attention_bias' without 'mlp_bias'"
odd "scaled attention" 's/inverse_layer_idx": false/inverse_layer_idx": true/' gpt2 "'scale_attn_by_inverse_layer_idx' true is not known"
odd "windows" 's/"hidden_act"/"layer_types": ["sliding_attention"], "hidden_act"/' llama3 "the layer type 'sliding_attention' is not known"
odd "quantized weights" 's/"hidden_act"/"quantization_config": {"bits": 4}, "hidden_act"/' llama3 "quantized weights"
odd "a cut file" '$d' llama3 "bad/config.json':[0-9]*:[0-9]*: "
odd "a key twice" 's/"vocab_size": 31/"vocab_size": 31, "vocab_size": 31/' llama3 "duplicate"
odd "another shape" 's/"intermediate_size": 24/"intermediate_size": 25/' llama3 "'model.layers.0.mlp.gate_proj.weight' has another shape there"
odd "a head that is missing" 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' llama3 "'lm_head.weight' is missing there"
odd "a layer that is missing" 's/"num_hidden_layers": 2/"num_hidden_layers": 3/' llama3 "'model.layers.2.input_layernorm.weight' is missing there"
odd "a layer that is left" 's/"num_hidden_layers": 2/"num_hidden_layers": 1/' llama3 "'model.layers.1.input_layernorm.weight' is not in the model"
odd "too many rows" 's/"vocab_size": 31/"vocab_size": 32/' llama3 "'model.embed_tokens.weight' has another shape there"
rm -rf bad && cp -r g/llama3 bad && rm bad/config.json
expect "no config.json" 6 "bad/config.json" run --mode=train --logdir=x --set init_from=bad
cp g/llama3/config.json bad && truncate -s -1 bad/model.safetensors
expect "a cut file of weights" 6 "bad/model.safetensors': at byte [0-9]*: the place of" run --mode=train --logdir=x --set init_from=bad
index() { # name, sed program for the index, text
    rm -rf bad
    cp -r g/llama bad
    sed -i "$2" bad/model.safetensors.index.json
    expect "$1" 6 "$3" run --mode=train --logdir=x --set init_from=bad
}
index "a file outside" 's|model-00001|x/model-00001|' "is no name of a file"
index "a file that is missing" 's|model-00001-of|model-00009-of|' "bad/model-00009-of-00003.safetensors"
index "an array in another file" '0,/model-00001-of/s//model-00003-of/' "which lacks it"
index "a list for the map" 's/"weight_map": {/"other": {/' "'weight_map' is no object"
index "an array without a line" '/layers.0.input_layernorm.weight/d' "names [0-9]* arrays, and its files have"
summary
