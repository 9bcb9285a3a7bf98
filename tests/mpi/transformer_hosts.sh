#!/bin/bash
# transformer_hosts.sh -- trains a Transformer from plain text on the CPUs of two hosts, and loses one of them.
#
# The command is that of docker/README.md: sshd on port 12345, two ranks a host, variables by -x. tests/support/fakecluster
# makes the hosts on this machine. The second host dies in the middle. Two ranks of the first continue from the newest
# checkpoint, with the losses of a run of four ranks that nothing disturbed.
# timeout: 300
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
# shellcheck source=tests/support/made_hosts.sh
. "$(dirname "$0")/../support/made_hosts.sh"
case ${BUILD:-} in *asan*) skip "the sanitizers' settings do not travel to the hosts" ;; esac
made_hosts 2
cd "$work" || exit 2
toy 300 24
for f in data/*.src data/*.tgt; do sed -i 's/a/Haus/g; s/b/house,/g; s/d/(low)/g; s/$/./' "$f"; done
cat > toy.json << 'END'
{
    "source_file": "data/train.src", "target_file": "data/train.tgt",
    "source_file_eval": "data/dev.src", "target_file_eval": "data/dev.tgt",
    "subword": "byte_bpe", "subword_size": 300, "shared_vocab": true,
    "model": "transformer", "encoder_layers": 1, "decoder_layers": 1, "d_model": 32, "n_heads": 2, "ff_dim": 64,
    "batch_tokens": 400, "num_epochs": 1000, "learning_rate": 0.005, "warmup_steps": 10, "lr_scaling": "none",
    "metric": "sacrebleu", "checkpoint_steps": 20, "eval_frequency": 1000000, "stall_abort_s": 25,
    "print_samples": false, "histogram_frequency": 0, "threads": 1
}
END
PATH=$(dirname "$PROG"):$PATH
train() { # hosts, ranks, folder, arguments
    local hosts=$1 n=$2 dir=$3
    shift 3
    timeout 100 "$nodes" exec node1 mpirun --allow-run-as-root -np "$n" -H "$hosts" --bind-to none -mca plm_rsh_args "-p 12345" \
        -mca oob_tcp_keepalive_time 2 -mca oob_tcp_keepalive_intvl 1 -mca oob_tcp_keepalive_probes 2 \
        -x OMP_NUM_THREADS -x PATH run_dist --config_file=toy.json --mode=train_eval --logdir="$dir" --summary_frequency=1 "$@"
}
# The loss of each step. A step that was lost with the host is there twice: the second counts.
losses() { # folder
    sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,}]*\).*/\1 \2/p' "$1/metrics.jsonl" | awk '{ loss[$1] = $2 } END { for (s in loss) print s, loss[s] }' | sort -n
}
same_losses() { # bound, first step, last step
    losses logs/lost > lost.txt
    losses logs/calm > calm.txt
    join <(sort lost.txt) <(sort calm.txt) | awk -v bound="$1" -v first="$2" -v last="$3" '
        $1 < first || $1 > last { next }
        { n++; d = ($2 - $3) / $3; if (d < 0) d = -d; if (d > worst) worst = d }
        END { printf "%d steps, largest gap %g\n", n, worst; exit !(n == last - first + 1 && worst <= bound) }'
}

train localhost:2,node2:2 4 logs/lost --max_steps=1000000 > lost.out 2>&1 &
job=$!
wait_until 60 grep -q "^checkpoint .*model-20.npz" lost.out
expect "four ranks are seen" 0 "^4$" pgrep -fc "^run_dist .*--logdir=logs/lost"
"$nodes" kill node2
wait $job
status=$?
expect "the other host dies: the run fails" 0 "" [ "$status" -ne 0 ]
expect "it had trained on both" 0 "world: 4 ranks on 2 hosts" cat lost.out
expect "the lost host is named" 0 "node2" cat lost.out
expect "no rank is left" 0 "^0 are" gone 15 "^run_dist .*--logdir=logs/lost"
last=$(sed -n 's/^model-\([0-9]*\)\.npz.*/\1/p' logs/lost/checkpoint)
end=$((last + 30))
expect "the first host goes on alone" 0 "done: step $end" train localhost:2 2 logs/lost --max_steps=$end
expect "from the newest checkpoint" 0 "resuming from logs/lost/model-$last.npz" cat logs/lost/run.log
expect "with two ranks" 0 "world: 2 ranks on 1 host" cat logs/lost/run.log
expect "four ranks that nothing disturbs" 0 "done: step $end" ranks 4 "$PROG" --config_file=toy.json --mode=train_eval --logdir=logs/calm \
    --summary_frequency=1 --max_steps=$end
expect "the losses of the two hosts" 0 "" same_losses 1e-5 1 20
expect "the curve continues" 0 "30 steps" same_losses 1e-4 $((last + 1)) $end
# shellcheck disable=SC2016 # awk's fields
expect "the loss falls" 0 "" awk 'NR == 1 { first = $2 } END { exit !($2 < 0.8 * first) }' lost.txt
expect "the text was prepared once" 0 "^1$" grep -c "kept in logs/lost/text" logs/lost/run.log
expect "a line goes in, a line comes out" 0 "^24$" sh -c "'$PROG' --config_file=toy.json --logdir=logs/lost --mode=infer --input=data/test.src 2> err.txt | wc -l"
summary
