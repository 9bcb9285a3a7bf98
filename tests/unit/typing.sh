#!/bin/bash
# typing.sh -- tests what people mistype. Each command below is refused with one line, which has the right advice.
#
# Flags of Sockeye, fairseq, torchrun, horovodrun, mpirun, Keras, Lightning and Hugging Face; wrong paths; wrong
# case; forms of a sweep. A line is: what is typed | a part of the advice.
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
[[ $PROG = /* ]] || PROG=$PWD/$PROG
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 8 4
mkdir -p configs folder
cp toy.json configs/toy_small.json
n=0
while IFS='|' read -r typed advice; do
    typed=${typed%"${typed##*[! ]}"} advice=${advice# }
    [ -n "$typed" ] || continue
    n=$((n + 1))
    eval "timeout 20 \"\$PROG\" $typed" > out 2> err < /dev/null
    status=$?
    if [ $status -eq 2 ] && [ "$(wc -l < err)" -eq 1 ] && [ ! -s out ] && grep -qF -- "$advice" err; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: run_dist %s\nstatus %d, wanted 2 and one line with "%s"\n' "$typed" $status "$advice"
        cat out err
    fi
done << 'END'
toy.json --learning_rate=0.1                          | here it is --set learning_rate=0.1
toy.json --batch_size 32                              | here it is --set batch_size=32
toy.json --epochs=3                                   | here it is --set num_epochs=3
toy.json --num_epochs=3                               | here it is --set num_epochs=3
-np 4 toy.json                                        | --np=4
-n 4 toy.json                                         | --np=N starts N ranks
toy.json --lr-scheduler=plateau-reduce                | --set lr_policy=inv_sqrt
toy.json --initial-learning-rate 0.0002               | --set learning_rate=0.0002
toy.json --validation-source dev.src                  | --set source_file_eval=dev.src
toy.json --max-num-checkpoint-not-improved 8          | --set stop_patience=8
toy.json --num-layers 6                               | --set encoder_layers=N and --set decoder_layers=N
toy.json --max-tokens 4096                            | --set batch_tokens=N
toy.json --arch transformer                           | --set model=transformer_base
toy.json --update-freq 4                              | --set batch_tokens=N counts a whole update
toy.json --save-dir logs/x                            | --logdir=DIR
toy.json --clip-norm 1.0                              | --set max_grad_norm=1.0
toy.json --fp16                                       | --set dtype=mixed
toy.json --restore-file checkpoint_last.pt            | the same --logdir goes on
--nproc_per_node=2 toy.json                           | --np=N starts N ranks on this host
--nnodes=2 toy.json                                   | --hosts=a:2,b:2
toy.json --rdzv_backend=c10d                          | --hosts=a:2,b:2 on the first host
--master_addr 10.0.0.1 toy.json                       | --hosts=a:2,b:2 on the first host
-H a:2,b:2 toy.json                                   | --hosts=a:2,b:2
-p 12345 toy.json                                     | --ssh_port=N
toy.json --network-interface eth0                     | btl_tcp_if_include eth0
toy.json --num-proc 4                                  | --np=N starts N ranks on this host
toy.json --fusion-threshold-mb 64                     | nothing stands for it; leave it out
toy.json --slots-per-host 4                           | --hosts=a:2,b:2 names the hosts
toy.json --timeline-filename t.json                   | --trace=FILE
toy.json --share-all-embeddings                       | --set tie_embeddings=all
toy.json --warmup-updates 4000                        | --set warmup_steps=4000
toy.json --word-min-count 2:2                         | --set word_min_count=
toy.json --validation_steps=10                        | --set max_eval_samples=N
toy.json --use_multiprocessing                        | --set data_threads=N
toy.json --callbacks=EarlyStopping                    | early stopping (stop_patience)
TOY.json --logdir=log                                 | did you mean 'toy.json'?
toy.json --validation_split=0.1                       | evaluation reads its own data
toy.json --steps_per_epoch=100                        | --max_steps=N
toy.json --gpus 2                                     | --set device=cpu or cuda
toy.json --per_device_train_batch_size 8              | --set batch_size=8
toy.json --num_train_epochs 3                         | --set num_epochs=3
toy.json --output_dir out                             | --logdir=DIR
toy.json --do_train                                   | --mode=train
toy.json --model_name_or_path bert                    | --list=models
toy.json --report_to wandb                            | TensorBoard's files
toy.json --config-file=x.json                         | did you mean '--config_file'?
toy.json --log_dir=logs/x                             | --logdir=DIR
toy.json --Max_Steps=100                              | did you mean '--max_steps'?
toy.json --mode=Train                                 | did you mean --mode=train?
toy.json --logdir=log --set Learning_Rat=0.1          | did you mean 'learning_rate'
toy.json --logdir=log --set optimizer=Adamm           | adamw
toy.json --logdir=log --set model=Transfomer          | did you mean 'transformer'
toy.json lr=0.1                                       | here it is --lr=0.1
toy.json +trainer.learning_rate=0.1                   | here it is --set learning_rate=0.1
toy.json learning_rate=1e-3,3e-3                      | start one run for each
toy.json --multirun                                   | --sweep KEY=V1,V2 makes one run for each value
toy.json --sweep learning_rate=1e-3,3e-3              | name the folder for the runs of the sweep
toi.json --logdir=log                                 | did you mean 'toy.json'?
confgs/toy_small.json --logdir=log                    | did you mean 'configs/toy_small.json'?
--config_file=configs/toy_smal.json --logdir=log      | did you mean 'configs/toy_small.json'?
folder --logdir=log                                   | a config as a word ends in .json
train toy.json                                        | the mode is --mode=train
mpirun -np 2 toy.json                                 | --np
torchrun toy.json                                     | --np=N
toy.json toi.json                                     | are two configs
toy.json --list                                       | write --list=KIND
--list=modells                                        | did you mean --list=models?
--completion=tcsh                                     | bash, zsh and fish
--help=learning_rat                                   | did you mean --help=learning_rate?
END
expect "there are forty of them" 0 "" [ $n -ge 40 ]
expect "no folder is made" 1 "" [ -e log ]
expect "a misspelt checkpoint" 6 "cannot open 'bset': .*; newest, best and average are checkpoints" \
    "$PROG" toy.json --mode=eval --logdir=eval --set checkpoint=bset
summary
