#!/usr/bin/env bash
# lora.sh -- tests adapters (LoRA) of a language model: the curve does not depend on the number of ranks nor on parts of
# an update, only adapters are exchanged, a resumed run ends with the same bytes, and checkpoints of other keys are refused.
#
# tests/run runs the script and sets BUILD, PROG and MPIRUN. tests/support/check_lora.py compares with PEFT.
# timeout: 300
# beside
. "$(dirname "$0")/../support/toy.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/lora.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
awk 'BEGIN { split("the a one her his", d); split("cat dog bird fish", n); split("sees likes hears", v)
             for (i = 0; i < 300; i++) { r = (r * 7919 + 12345 + i) % 65521
                 print d[r % 5 + 1], n[int(r / 5) % 4 + 1], v[int(r / 20) % 3 + 1], d[int(r / 60) % 5 + 1], n[int(r / 300) % 4 + 1] "." } }' > base.txt
sed 's/\(.*\) \(sees\|likes\|hears\) \(.*\)\./\3 \2 \1!/' base.txt > other.txt
cat > base.json << 'END'
{"model": "gpt", "n_layers": 2, "n_embd": 16, "n_heads": 2, "n_kv_heads": 1, "ff_dim": 32, "max_len": 32, "norm_type": "rms",
 "pos": "rope", "activation": "silu", "gated_ff": true, "bias": "none", "source_file": "base.txt", "subword": "byte_bpe",
 "subword_size": 280, "document": "line", "document_mask": true, "seq_len": 32, "optimizer": "adamw", "learning_rate": 0.01,
 "batch_tokens": 300, "num_epochs": 20, "seed": 3}
END
cat > lora.json << 'END'
{"model": "gpt", "init_from": "base/export/model-60", "source_file": "other.txt", "source_file_eval": "other.txt",
 "document": "line", "document_mask": true, "seq_len": 32, "optimizer": "adamw", "learning_rate": 0.01, "weight_decay": 0.1,
 "max_grad_norm": 1.0, "lora_rank": 4, "lora_alpha": 8, "lora_targets": ["q_proj", "v_proj", "up_proj"], "lora_dropout": 0.1,
 "batch_tokens": 300, "num_epochs": 20, "seed": 3, "decoder_type": "greedy", "max_new_tokens": 8}
END
run() {
    timeout 100 "$PROG" --config_file=lora.json "$@"
}
t() { # np, folder, arguments: trains
    n=$1 dir=$2
    shift 2
    ranks "$n" "$PROG" --config_file=lora.json --logdir="$dir" --summary_frequency=1 "$@"
}
expect "the base" 0 "" timeout 100 "$PROG" --config_file=base.json --logdir=base --max_steps=60
expect "... as a folder" 0 "" timeout 100 "$PROG" --logdir=base --mode=export --format=safetensors
expect "one rank" 0 "10,000 parameters (0.0 MB); 832 of them are trained (8.32 %), the others are frozen" t 1 one --max_steps=20
hosts() { (export RD_COMM_HOSTS=2 && t "$@"); }
expect "two hosts" 0 "" hosts 2 two --max_steps=20
expect "two hosts that divide the state" 0 "" hosts 2 sharded --max_steps=20 --set shard=optimizer
expect "do so" 0 "shard optimizer: each of 2 ranks keeps and updates its part" cat sharded/run.log
expect "end with the same bytes" 0 "" cmp two/model-20.npz sharded/model-20.npz
expect "four ranks, two parts" 0 "" t 4 four --max_steps=20 --set iter_size=2
expect "one rank, four parts" 0 "" t 1 parts --max_steps=20 --set iter_size=4
for run in two four parts; do
    expect "$run: the same losses" 0 "^20 values" close_curves loss 1e-5 20 one $run
done
expect "the loss falls" 0 "" sh -c "
    sed -n 's/.*\"loss\":\([^,]*\).*/\1/p' one/metrics.jsonl | awk 'NR == 1 { a = \$1 } END { exit !(\$1 < 0.8 * a) }'"
# 832 numbers of 4 bytes.
expect "adapters alone are exchanged" 0 '"comm_bytes":3328[.,]' cat two/metrics.jsonl
expect "half" 0 "" t 1 half --max_steps=9 --set iter_size=4
expect "resume" 0 "resuming from half/model-9.npz" t 1 half --max_steps=20 --set iter_size=4
expect "resume ends with the same bytes" 0 "" cmp half/model-20.npz parts/model-20.npz

# What a checkpoint holds: all weights, moments of adapters alone, and the names of what is trained.
unzip -p one/model-20.npz manifest.json > held.json
expect "moments of adapters" 0 "^24$" sh -c "grep -o '[a-z0-9_/]*_lora_[ab]/[mv]\"' held.json | sort -u | wc -l"
expect "of no other weight" 0 "^24$" sh -c "grep -o '[a-z0-9_/]*/[mv]\"' held.json | sort -u | wc -l"
expect "the weights are whole" 0 '"embedding"' cat held.json
expect "the manifest names what is trained" 0 "^12$" \
    sh -c "sed -n '/\"trained\"/,/]/p' held.json | grep -c '\"decoder/layer[01]/.*_lora_[ab]\"'"

# Use: the log folder alone, and both exports. The merged one writes the same.
loss() { sed -n 's/.*"loss":\([^,]*\),.*/\1/p' "$1/eval/metrics.jsonl"; }
text() { printf 'her dog\nthe\n' | timeout 100 "$PROG" --mode=infer --input=- "$@" 2> /dev/null; }
merged() { run --set checkpoint=one/export/model-20 --set lora_rank=0 "$@"; }
expect "evaluation" 0 "" timeout 100 "$PROG" --logdir=one --mode=eval
expect "merged" 0 "9,168 parameters of model gpt, step 20, adapters are merged" run --logdir=one --mode=export --format=safetensors
expect "evaluation of it" 0 "" merged --logdir=m --mode=eval
expect "has the same loss" 0 "" sh -c "echo $(loss one) $(loss m) | awk '{ d = \$1 - \$2; exit !(NF == 2 && d < 1e-6 && -d < 1e-6) }'"
text --logdir=one > a.txt
text --config_file=lora.json --set checkpoint=one/export/model-20 --set lora_rank=0 > b.txt
expect "the text is not empty" 0 "^her dog .*[a-z]" cat a.txt
expect "the same text" 0 "" cmp a.txt b.txt
expect "as an adapter" 0 "^one/export/model-20.peft is written: .*, 832 parameters of step 20" run --logdir=one --mode=export --format=peft
expect "its files" 0 "^adapter_config.json adapter_model.safetensors $" sh -c "ls one/export/model-20.peft | tr '\n' ' '"
expect "its config" 0 '"base_model_name_or_path":"/.*/base/export/model-60","r":4,"lora_alpha":8,"lora_dropout":0.1,"target_modules":\["q_proj","v_proj","up_proj"\]' \
    sh -c "tr -d ' \n' < one/export/model-20.peft/adapter_config.json"
expect "its arrays" 0 "base_model.model.model.layers.1.mlp.up_proj.lora_B.weight" \
    grep -a -o 'base_model[a-z0-9_.]*layers.1.mlp[a-z_.]*lora_B.weight' one/export/model-20.peft/adapter_model.safetensors
expect "not twice" 2 "'one/export/model-20.peft' exists already" run --logdir=one --mode=export --format=peft
expect "a model without adapters" 2 "this model has no adapters ('lora_rank' is 0)" timeout 100 "$PROG" --logdir=base --mode=export \
    --format=peft --export_out=x
expect "leaves nothing" 0 "^0$" sh -c "ls -d x* 2> /dev/null | wc -l"

# An adapter of PEFT: its keys and its values.
sed 's|"lora_rank".*"lora_dropout": 0.1|"lora_from": "peft"|' lora.json > from.json
cp -r one/export/model-20.peft peft
from() { timeout 100 "$PROG" --config_file=from.json "$@"; }
expect "an adapter is read" 0 "adapter from peft: 12 arrays" from --mode=eval --logdir=f --set checkpoint=base/export/model-60
expect "its loss" 0 "" sh -c "echo $(loss one) $(loss f) | awk '{ d = \$1 - \$2; exit !(NF == 2 && d < 1e-12 && -d < 1e-12) }'"
expect "training begins with it" 0 "^lora_alpha .*8 .*from adapter_config.json of lora_from" from --mode=train --logdir=x --print_config
expect "a key that contradicts" 2 "'lora_rank' is 8, but adapter_config.json of 'peft' means 4" from --mode=train --logdir=x --set lora_rank=8
expect "a training from it" 0 "adapter from peft: 12 arrays" from --mode=train --logdir=trained --max_steps=1
mv peft moved
expect "its log folder is enough" 0 "weights from trained/model-1.npz" timeout 100 "$PROG" --logdir=trained --mode=eval
expect "no such adapter" 6 "'peft/adapter_config.json': no such file" from --mode=train --logdir=x
odd() { # name, sed program, text
    rm -rf peft
    cp -r moved peft
    sed -i "$2" peft/adapter_config.json
    expect "$1" 6 "$3" from --mode=train --logdir=x
}
odd "another kind" 's/"LORA"/"IA3"/' "peft/adapter_config.json': 'peft_type' is \"IA3\", not LORA"
odd "a rank of 0" 's/"r": 4/"r": 0/' "'r' is 0, not a whole number"
odd "another rank" 's/"r": 4/"r": 3/' "0.self_attn.q_proj.lora_A.weight' has another shape there"
odd "biases" 's/"bias": "none"/"bias": "all"/' "'bias' is \"all\", not none"
odd "DoRA" 's/"r":/"use_dora": true, "r":/' "'use_dora' is not known"
odd "a pattern for names" '/target_modules/,/]/c "target_modules": ".*_proj",' "'target_modules' is \".*_proj\", not a list"
odd "a matrix that is missing" 's/"q_proj"/"k_proj"/' "k_proj.lora_A.weight' is missing there"
odd "a matrix that is left" '/"q_proj"/d' "1.self_attn.q_proj.lora_B.weight' is not in the model"
odd "a cut file" '$d' "peft/adapter_config.json':[0-9]*:[0-9]*: "
cp moved/adapter_config.json peft && truncate -s -4 peft/adapter_model.safetensors
expect "cut values" 6 "peft/adapter_model.safetensors': at byte [0-9]*: the place of" from --mode=train --logdir=x

# Keys that differ from those of a checkpoint.
go_on() { run --mode=train --logdir=one --max_steps=21 "$@"; }
expect "another rank" 6 "'decoder/layer0/attention/q_lora_a' is (16, 4) there and (16, 8) in the model; changed keys: lora_rank 4 -> 8" \
    go_on --set lora_rank=8
expect "no rank" 6 "the model has no 'decoder/layer0/attention/q_lora_a'; changed keys: lora_rank 4 -> 0" go_on --set lora_rank=0
expect "other targets" 6 "changed keys: lora_targets \[\"q_proj\",\"v_proj\",\"up_proj\"\] -> \"k_proj\"" go_on --set lora_targets=k_proj
expect "another alpha" 0 "warning: changed since the checkpoint: lora_alpha: 8 -> 4" go_on --set lora_alpha=4 --set lora_dropout=0
expect "a target that is none" 2 "'c_attn' in 'lora_targets' is no matrix of this model; known are q_proj, .*all-linear" \
    run --mode=train --logdir=x --set lora_targets=c_attn
expect "a key without effect" 0 "lora.json:[0-9:]* '.*'lora_alpha'.* have no effect: lora_rank is 0" \
    run --mode=train --logdir=full --max_steps=1 --set lora_rank=0
sed 's/"batch_tokens"/"lora_rank": 4, "lora_targets": "q_proj", &/' base.json > own.json
own() { timeout 100 "$PROG" --config_file=own.json --max_steps=1 --set subword_model=base/text/subword.model "$@"; }
expect "from a checkpoint" 0 "the other 4 are adapters, which begin with new values" own --logdir=own --set init_from=base
expect "from one with adapters" 0 "had another scale there: lora_alpha: 0 -> 2" own --logdir=own2 --set init_from=own --set lora_alpha=2
expect "of another rank" 6 "'decoder/layer0/attention/q_lora_b' has another shape there" own --logdir=own3 --set init_from=own --set lora_rank=2
expect "without the keys" 6 "has adapters (LoRA) that the model lacks, first 'decoder/layer0/attention/q_lora_a'; set the lora_ keys" \
    own --logdir=own4 --set init_from=own --set lora_rank=0
expect "an adapter beside a checkpoint" 2 "'lora_from' needs 'init_from' to be the folder" own --logdir=own5 --set init_from=base --set lora_from=moved
summary
