#!/usr/bin/env bash
# spikes.sh -- tests the keys spike_loss_z and spike_norm_z: a step with a spike makes no update, is counted and
# recorded, for every number of ranks and after a resume. tests/run runs the script and sets BUILD, PROG and MPIRUN.
# timeout: 120
# beside
. "$(dirname "$0")/../support/toy.sh"
same=$PWD/${BUILD:-build/release}/tests/support/npz_same
work=$(mktemp -d "${TMPDIR:-/tmp}/spikes.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 400 20
sed 's/"\(src_emb_size\|tgt_emb_size\|[a-z_]*cell_units\|attention_layer_size\)": 16/"\1": 4/g' toy.json > small.json
t() { # np, folder, arguments: trains
    n=$1 dir=$2
    shift 2
    ranks "$n" "$PROG" --config_file=small.json --logdir="$dir" --summary_frequency=1 --max_steps=240 \
        --set num_epochs=null --set batch_size=$((12 / n)) "$@"
}
last() { column "$1" "$2" | tail -n 1; }
# counted KEY FOLDER Z: the steps whose values have a z-score above Z among the last 128, by the records alone; prints
# their number, and how often the records say so
counted() {
    paste <(column "$1" "$2") <(column spiked "$2") | awk -v z="$3" '
        { x[NR] = $1; now = $2 - before; before = $2
          if (NR > 128) {
              sum = sq = 0
              for (i = NR - 127; i <= NR; i++) sum += x[i]
              for (i = NR - 127; i <= NR; i++) sq += (x[i] - sum / 128) ^ 2
              if (($1 - sum / 128) / sqrt(sq / 128) > z) { want++; agree += now }
              else if (now) print "step", NR, "is no spike"
          } else if (now) print "step", NR, "is early" }
        END { print want + 0 " spikes, " agree + 0 " skipped" }'
}
expect "by the loss" 0 "step [0-9]* makes no update: its loss per target [0-9.]* is a spike (spike_loss_z, 1 in all)" \
    t 1 loss --set spike_loss_z=1 --set learning_rate=0.1
n=$(last spiked loss)
expect "at the end they are counted" 0 "$n of the 240 steps of this run made no update: spikes" cat loss/run.log
expect "those that the records say" 0 "^$n spikes, $n skipped\$" counted loss_per_token loss 1
expect "by the norm" 0 "its gradient norm [0-9.]* is a spike (spike_norm_z, 1 in all)" t 1 norm --set spike_norm_z=2
m=$(last spiked norm)
expect "those that the records say" 0 "^$m spikes, $m skipped\$" counted grad_norm norm 2
expect "two ranks" 0 "" t 2 norm2 --set spike_norm_z=2
expect "the same steps" 0 "^240 values" close_curves spiked 0 240 norm norm2
expect "the same losses" 0 "^240 values" close_curves loss 1e-3 240 norm norm2
expect "stopped" 0 "" t 1 parts --set spike_norm_z=2 --set spike_loss_z=2 --max_steps=171
expect "resumed" 0 "" t 1 parts --set spike_norm_z=2 --set spike_loss_z=2
expect "not stopped" 0 "" t 1 whole --set spike_norm_z=2 --set spike_loss_z=2
expect "the same bytes" 0 "" "$same" --manifest whole/model-240.npz parts/model-240.npz
expect "the rule is off by default" 0 "done: step 240" t 1 off
expect "and the records do not have it" 1 "" grep -c spiked off/metrics.jsonl
expect "it made a difference" 1 "^240 values" close_curves loss 1e-6 240 off norm
for z in -1 11.5 x; do expect "spike_norm_z $z" 2 "spike_norm_z" t 1 no --set spike_norm_z=$z; done
summary
