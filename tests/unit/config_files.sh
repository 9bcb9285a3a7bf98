#!/usr/bin/env bash
# config_files.sh -- configs of several files: comments, bases, circles, and config.json of a log folder.
. tests/support/toy.sh
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
case $PROG in /*) ;; *) PROG=$PWD/$PROG ;; esac
cd "$work" || exit 2
toy 60 10
print() { # FILE FLAG...
    local file=$1
    shift
    "$PROG" --print_config --config_file="$file" "$@"
}

# ---- comments, and the base ----
mkdir sub
cat > sub/mine.json << 'END'
{
    // A comment, and a "quote.
    "base": "../toy.json", /* relative to this
    file */
    "learning_rate": 0.02, // of one rank
    "bucket_src": [8, 20,],
    "max_grad_norm": null,
}
END
printf '{"base": "sub/mine.json", "batch_size": 8}' > third.json
expect "a value of the last file" 0 '^batch_size  *= 8  *from third.json:1:27' print third.json
expect "a value of the file between" 0 '^learning_rate  *= 0.02  *from sub/mine.json:5:5' print third.json
expect "a list with a comma behind" 0 '^bucket_src  *= \[8, 20\]  *from sub/mine.json:6:5' print third.json
expect "a value of the base" 0 '^seed  *= 5  *from sub/../toy.json:[0-9]*:' print third.json
expect "null removes a value of the base" 0 '^max_grad_norm  *=  *from sub/mine.json:7:5' print third.json
expect "--set comes last" 0 '^learning_rate  *= 0.5  *from --set' print third.json --set learning_rate=0.5
expect "two ranks read the files of the first" 0 'done: step 2 ' ranks 2 "$PROG" --config_file=third.json --logdir=logs/t --max_steps=2
expect "config.json names each key's file" 0 '"source": "sub/mine.json:5:5"' grep -A2 '"learning_rate": {' logs/t/config.json
printf '{"base": "%s/toy.json"}' "$work" > absolute.json
expect "an absolute base" 0 '^seed  *= 5' print absolute.json
expect "a base from a pipe is relative to the present folder" 0 '^seed  *= 6' bash -c "\"$PROG\" --print_config --config_file=<(echo '{\"base\": \"toy.json\", \"seed\": 6}')"

# ---- the experiments beside the program ----
mkdir far
top=$(cd "$(dirname "$PROG")/../.." && pwd)
far() { (cd far && "$PROG" "$@"); }
for name in g2p_cmudict g2p_cmudict.json configs/g2p_cmudict.json; do
    expect "$name from elsewhere" 0 "^source_file .*= \"$top/configs/data/g2p_cmudict.tar.xz!train.en\"" far --print_config "$name"
done
expect "the run says which one it is" 0 "^config g2p_cmudict.json: $top/configs/g2p_cmudict.json" far g2p_cmudict --logdir=log --max_steps=0
expect "a path of --set" 0 "^source_file .*= \"$top/configs/data/g2p_cmudict.LICENSE\"" far --print_config g2p_cmudict --set source_file=configs/data/g2p_cmudict.LICENSE
mkdir -p far/configs/data
cp toy.json far/g2p_cmudict.json
expect "what is here comes first" 0 '^batch_size .*from g2p_cmudict.json:' far --print_config g2p_cmudict
mv far/g2p_cmudict.json far/configs
expect "also in configs/" 0 '^batch_size .*from configs/g2p_cmudict.json:' far --print_config g2p_cmudict
: > far/configs/data/g2p_cmudict.LICENSE
expect "also data" 0 '^source_file .*= "configs/data/g2p_cmudict.LICENSE"' far --print_config nmt_one --set source_file=configs/data/g2p_cmudict.LICENSE
expect "no such name" 2 "'g2p' belongs to no flag" far --print_config g2p

mkdir -p sweep/lr=0.1
cp toy.json sweep/lr=0.1/config.json
expect "a folder of a sweep" 0 '^batch_size .*from sweep/lr=0.1/config.json:' "$PROG" --print_config sweep/lr=0.1/config.json
expect "a key and a path" 2 "here it is --set source_file=a/b.json" "$PROG" --print_config source_file=a/b.json

# ---- wrong bases ----
printf '{"base": "b.json"}' > a.json
printf '{\n  "base": "./c.json"}' > b.json
printf '{"base": "sub/../a.json"}' > c.json
expect "a circle" 2 "^run_dist: error: ./c.json:1:10: 'base' leads in a circle: a.json -> b.json -> ./c.json -> a.json; remove one of them" print a.json
printf '{"base": "self.json"}' > self.json
expect "a file on itself" 2 "'base' leads in a circle: self.json -> self.json" print self.json
printf '{"base": "none.json"}' > n.json
expect "no such base" 2 "n.json:1:10: 'base': cannot open 'none.json': no such file" print n.json
printf '{"seed": 1,\n "base": 7}' > n.json
expect "no path" 2 "n.json:2:10: 'base' must be a string, the path of another config" print n.json
printf '{"base": "bad.json"}' > n.json
printf '{\n "batch_size": 0 }' > bad.json
expect "a mistake in the base" 2 "bad.json:2:16: 'batch_size' must be an integer" print n.json
printf '{"batch_size": 3 "x": 2}' > bad.json
expect "no JSON in the base" 2 "bad.json:1:18: not valid JSON" print n.json
for i in $(seq 40); do printf '{"base": "l%d.json"}' $((i + 1)) > l$i.json; done
echo '{}' > l41.json
expect "too many files" 2 "more than 32 configs are based on each other" print l1.json

# ---- config.json of a log folder ----
train() { "$PROG" --max_steps=6 --summary_frequency=1 "$@" > train.out 2>&1 || cat train.out; }
train --config_file=sub/mine.json --logdir=logs/first --set encoder_layers=2
train --config_file=logs/first/config.json --logdir=logs/again
expect "it trains the same" 0 '^6 values, largest gap 0$' close_curves loss 0 6 logs/first logs/again
expect "the source is the record" 0 '"source": "logs/first/config.json:[0-9]*:3"' grep -A2 '"encoder_layers": {' logs/again/config.json
expect "a default stays a default" 0 '"source": "default"' grep -A2 '"iter_size": {' logs/again/config.json
expect "no key differs" 0 '' eval \
    "! '$PROG' --mode=diff logs/first logs/again --format=csv | grep '^config'"
printf '{"base": "logs/first/config.json", "learning_rate": 0.3}' > fork.json
expect "what the program forced is not set" 0 '^num_gpus  *= 1  *default' print logs/first/config.json
expect "a record as a base" 0 '^encoder_layers  *= 2  *from logs/first/config.json' print fork.json
sed '/"infer_batch_size": {/{n;s/: .*,/: 77,/}' logs/first/config.json |
    sed 's/"iter_size": {/"key_of_old": {"value": 5, "source": "default"}, "iter_size": {/' > old.json
expect "a default that has changed counts" 0 '^infer_batch_size  *= 77  *from old.json:[0-9]*:3; default 64' print old.json
expect "a key that only the old version had is left" 0 '^iter_size  *= 1 ' print old.json
sed 's/"iter_size": {/"key_of_old": {"value": 5, "source": "x.json:3:4"}, "iter_size": {/' logs/first/config.json > older.json
expect "unless it was set" 2 "unknown key 'key_of_old'" print older.json

# ---- a config to begin with, and keys that are missing ----
expect "--new_config writes a file" 0 'new.json is written' "$PROG" --new_config=seq2seq --config_file=new.json
expect "--new_config keeps what is there" 2 "'new.json' is there already" "$PROG" --new_config=seq2seq --config_file=new.json
sed -e 's|data/vocab.src|data/vocab.txt|; s|data/vocab.tgt|data/vocab.txt|' new.json > mine.json
expect "it trains" 0 'done: step 1 ' "$PROG" --config_file=mine.json --logdir=logs/new --max_steps=1
expect "--new_config to standard output" 0 '' eval "'$PROG' --new_config=seq2seq | cmp - new.json"
expect "an unknown model" 2 "there is no model 'resnet19'; .*did you mean 'resnet1" "$PROG" --new_config=resnet19
echo '{"batch_size": 8, "src_emb_size": 7}' > few.json
expect "all missing keys at once" 2 "'encoder_cell_type' is missing, .*missing too: 'source_file', 'target_file', .*'decoder_cell_units', .*'optimizer'" \
    "$PROG" --config_file=few.json --logdir=logs/few
expect "no key that is there" 1 '' eval "'$PROG' --config_file=few.json --logdir=logs/few 2>&1 | grep 'src_emb_size\|lars_eta'"
expect "only the keys of the mode" 1 '' eval "'$PROG' --config_file=few.json --mode=infer --logdir=logs/few 2>&1 | grep learning_rate"
expect "--print_config prints what there is" 0 '^src_emb_size  *= 7' print few.json

# ---- --check ----
check() { "$PROG" --check --config_file=toy.json --set encoder_cell_units=64 --set decoder_cell_units=512 --set attention_layer_size=512 "$@"; }
touched() { find logs -newer stamp | wc -l; }
check --check_steps=3 --mode=train_eval --logdir=logs/sub/none > check.out 2>&1 || cat check.out
expect "it makes no folder" 0 '' test ! -e logs/sub
megabytes=$(sed -n 's/^model: .*(\([0-9.]*\) MB)$/\1/p' check.out)
expect "weights as in the banner" 0 "^  weights  *$megabytes MB" cat check.out
expect "adam has two values per weight" 0 "^  optimizer  *$(echo "$megabytes" | awk '{ print int(2 * $1) }')\." cat check.out
expect "steps by the epochs" 0 '^steps: 20, 4 epochs of 5 batches$' cat check.out
expect "time by steps" 0 '^time: [0-9.e-]* s a step over 3 steps; 20 steps would take ' cat check.out
expect "activations are measured" 0 '^  activations  *[0-9.]* MB, and [0-9.]* MB in the memory of gradients$' cat check.out
"$PROG" --config_file=toy.json --set encoder_cell_units=64 --set decoder_cell_units=512 --set attention_layer_size=512 --logdir=logs/size --max_steps=1 > /dev/null 2>&1
expect "the checkpoint has that size" 0 '^close$' eval \
    "sed -n 's/^disk: a checkpoint of about \([0-9.]*\) MB.*/\1/p' check.out | awk -v real=\$(stat -c %s logs/size/model-1.npz) '{ r = real / (1e6 * \$1); print (r > 0.9 && r < 1.1) ? \"close\" : r }'"
touch stamp
expect "it names what the log folder holds" 0 "'logs/size' holds step 1; the training would go on" check --logdir=logs/size --check_steps=2
expect "it touches nothing there" 0 '^0$' touched
expect "a run that holds the folder is not disturbed" 0 'nothing was written' check --logdir=logs/first
expect "with two ranks" 0 '^steps: 12, 4 epochs of 3 batches' ranks 2 "$PROG" --check --config_file=toy.json --check_steps=1
tokens=(--set batch_size=null --set batch_tokens=40 --set num_epochs=null --set max_epochs=3)
timeout 100 "$PROG" --config_file=toy.json --logdir=logs/tokens "${tokens[@]}" > tokens.out 2>&1 < /dev/null
last=$(sed -n 's/^done: step \([0-9]*\).*/\1/p' tokens.out)
expect "updates by tokens: the last step of the training" 0 "^steps: ${last:-none}, 3 epochs of" \
    "$PROG" --check --config_file=toy.json "${tokens[@]}"
expect "data that is missing" 5 "cannot open 'none.src'" check --set source_file=none.src
expect "a config that is wrong" 2 "must be one of" check --set optimizer=adan
# Vocabularies of a raw text are made, and kept nowhere.
raw=(--set src_vocab_file=null --set tgt_vocab_file=null --set subword=none)
mkdir tmp
check_raw() { TMPDIR=$PWD/tmp "$PROG" --check --config_file=toy.json "${raw[@]}" "$@"; }
expect "a raw text" 0 'nothing was written' check_raw --mode=train_eval --logdir=logs/raw
expect "it makes no folder, either" 0 '' test ! -e logs/raw
"$PROG" --config_file=toy.json "${raw[@]}" --logdir=logs/raw --max_steps=1 > /dev/null 2>&1
touch stamp
expect "kept vocabularies count" 2 "the checkpoints in 'logs/raw' were trained with the other" check_raw --logdir=logs/raw --set word_min_count=2
expect "nothing is touched then" 0 '^0$' touched
rm logs/raw/*.npz logs/raw/checkpoint
sleep 0.01
touch stamp
expect "they would be made anew" 0 'made with other rules .*made anew' check_raw --logdir=logs/raw --set word_min_count=2
expect "with two ranks, a raw text" 0 'nothing was written' env TMPDIR="$PWD/tmp" \
    timeout 100 $MPIRUN -np 2 "$PROG" --check --config_file=toy.json "${raw[@]}" --logdir=logs/raw --set word_min_count=2
expect "a raw text that is missing" 5 "cannot open 'none.src'" check_raw --logdir=logs/raw --set source_file=none.src
expect "the kept files are the same" 0 '^0$' touched
expect "nothing is left" 0 '^0$' eval 'ls tmp | wc -l'
expect "steps without a check" 2 "check_steps is for --check" "$PROG" --config_file=toy.json --check_steps=3 --logdir=logs/z
expect "another mode" 2 "check is for --mode=train and train_eval" "$PROG" --config_file=toy.json --check --mode=eval
summary
