#!/bin/bash
# trace.sh -- tests --trace FILE and plan mode.
#
# The trace has rows of all ranks, nested spans in the order of a step, valid JSON when the run is stopped or fails, and
# one clock for two hosts whose clocks differ. Plan mode reads a log folder, or measures some steps.
# timeout: 300
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
check=${BUILD:-$PWD/build/release}/tests/support/check_trace
case $check in /*) ;; *) check=$PWD/$check ;; esac
nodes=$(realpath "$(dirname "$0")/../support/fakecluster")
work=$(mktemp -d "${TMPDIR:-/tmp}/trace.XXXXXX") || exit 2
trap '"$nodes" down > /dev/null 2>&1; rm -rf "$work"' EXIT
export FAKECLUSTER_DIR=$work/nodes FAKECLUSTER_SUBNET=10.96.$((RANDOM % 200))
cd "$work" || exit 2
toy 400 60
t() { # np, folder, arguments: trains
    n=$1 dir=$2
    shift 2
    ranks "$n" "$PROG" --config_file=toy.json --logdir="$dir" --set batch_size=8 "$@"
}

expect "no step is traced" 0 "no step of 3 to 52 was run" t 1 none --max_steps=2 --trace=none.json
expect "it is whole nevertheless" 1 "rank 0 is named 0 times" "$check" none.json 1 0
expect "one rank" 0 "trace of 10 steps and 1 rank" t 1 one --max_steps=12 --trace=one.json
expect "its trace" 0 " 0 wrong" "$check" one.json 1 10
expect "two ranks, ops" 0 "trace of 60 steps and 2 ranks" t 2 two --max_steps=65 --trace=two.json --set trace_steps=2:61 \
    --set trace_ops=true --checkpoint_frequency=0
expect "their trace" 0 " 0 wrong" "$check" two.json 2 60 ops
expect "names of ops" 0 "" grep -q '"name":"embed"' two.json
expect "saves" 0 "" grep -q '"name":"save"' two.json
expect "evaluations" 0 "trace of" t 2 eval --mode=train_eval --max_steps=12 --set eval_frequency=5 --trace=eval.json
expect "their trace, with evaluations" 0 " 0 wrong" "$check" eval.json 2 10
expect "evaluations are there" 0 "" grep -q '"name":"evaluate"' eval.json

# The trace is valid, however the run ends.
stopped() {
    # shellcheck disable=SC2086 # $MPIRUN is several words
    timeout 60 $MPIRUN -np 2 "$PROG" --config_file=toy.json --logdir=stop --max_steps=100000 --trace=stop.json \
        --set trace_steps=1:100000 > stop.out 2>&1 &
    local job=$!
    wait_until 50 grep -q "^step 100 " stop.out
    kill -USR2 "$(tr -c '0-9' ' ' < stop/.lock | awk '{ print $1 }')"
    wait $job
}
expect "stopped by a signal" 75 "" stopped
steps=$(grep -c '"name":"step [0-9]*","ph":"X","pid":0' stop.json)
expect "its trace has the steps until then" 0 " 0 wrong" "$check" stop.json 2 "$steps"
expect "which are a hundred at least" 0 "" [ "$steps" -ge 100 ]
expect "a rank without data" 5 "bad data" env RD_FAULT=data:1:70:compute timeout 60 sh -c "$MPIRUN -np 2 '$PROG' \
    --config_file=toy.json --logdir=fault --max_steps=100 --trace=fault.json --set trace_steps=1:100"
expect "its trace has what was gathered before" 0 " 0 wrong" "$check" fault.json 2 50
expect "no such folder" 3 "name a file in a folder that exists" t 2 nowhere --max_steps=9 --trace=no/such/x.json
expect "no such steps" 2 "'trace_steps' is '9-12'" t 2 steps --max_steps=9 --trace=x.json --set trace_steps=9-12

# Records of steps, and the plan.
expect "records of the exchange" 0 "" grep -q '"comm_s":[0-9.e-]*,"comm_exposed_s":[0-9.e-]*,"comm_bytes":[0-9.]*,.*"slowest_rank":[01]' \
    two/metrics.jsonl
expect "none for one rank" 1 "" grep -q comm_s one/metrics.jsonl
traced() { # compares the bytes of the exchanges of rank 0's sixty steps with the metrics' bytes of one step
    sed -n 's/.*"name":"bucket [0-9]*","ph":"X","pid":0,.*"bytes":\([0-9]*\).*/\1/p' two.json |
        awk -v want="$(column comm_bytes two | tail -n 1)" '{ sum += $1 } END { print sum, want; exit !(want > 1000 && sum == 60 * want) }'
}
expect "bytes of the trace and of the metrics" 0 "" traced
recorded() { # 16 samples per step, except in the last step of an epoch
    tr -d ' \n' < two/step.json | sed 's/.*"bytes":\([^,]*\),.*"samples":\([^,]*\),.*/\1 \2/' |
        awk -v want="$(column comm_bytes two | tail -n 1)" '{ print; exit !(want > 1000 && $1 == want && $2 > 8 && $2 <= 16) }'
}
expect "bytes and samples of a step" 0 "" recorded
expect "the summary at the end" 0 "" grep -q "a step of .* communication .* %" two/run.log
expect "no efficiency of other hosts" 1 "" grep -q "efficiency by the model" two/run.log
# Neighbouring buckets are sent together on one host. The link that is fitted to them predicts the time of the exchange.
expect "small buckets" 0 "done: step 60" t 2 cut --max_steps=60 --set bucket_mb=0.01 --verbose
expect "on request, with what was not measured" 0 "" \
    grep -q "efficiency by the model .*no network was measured: 10 Gbit/s and 30 us" cut/run.log
fitted() {
    tr -d ' \n' < cut/step.json | sed 's/.*"comm_s":\([^,]*\),"bytes":\([^,]*\),.*"inside":{"alpha_s":\([^,]*\),"bytes_per_s":\([^}]*\)}.*/\1 \2 \3 \4/' |
        awk -v all="${CASES:-}" '{ t = $3 + $2 / $4; print "exchange", $1, "by the fit", t
            exit !($1 > 0 && t > 0 && (all != "all" || (t > 0.2 * $1 && t < 5 * $1))) }' # noise: by the mean without outliers
}
expect "the fit gives the step's exchange" 0 "by the fit" fitted
expect "the plan of that run" 0 " 1024 *2048 " ranks 1 "$PROG" --mode=plan --logdir=two --link_gbit=1 --latency_us=50
expect "as JSON" 0 '"hosts":1024,"ranks":4096,' ranks 1 "$PROG" --mode=plan --logdir=two --json --ranks_per_host=4
expect "measured now" 0 " 1024 *2048 " ranks 2 "$PROG" --mode=plan --config_file=toy.json --set bench_steps=5 --set bench_warmup=1
expect "nothing measured there" 2 "no measured step" ranks 1 "$PROG" --mode=plan --logdir=data

# Two hosts whose clocks differ by 500 s.
# shellcheck disable=SC2154 # passed, failed: of toy.sh
away() { printf "skip: %s\n%d passed, %d failed, 1 skipped\n" "$1" "$passed" "$failed" && exit "$((failed > 0))"; }
[ "$(id -u)" -eq 0 ] || away "network namespaces need root"
command -v sshd > /dev/null || [ -x /usr/sbin/sshd ] || away "no sshd"
unshare -T --monotonic 500 true 2> /dev/null || away "no time namespaces"
unset OMPI_MCA_plm_rsh_agent # tests on one machine need no ssh; these hosts have it
"$nodes" up 2 > nodes.log 2>&1 || away "no two hosts on this machine: $(tail -n 1 nodes.log)"
cat > there.sh << END
#!/bin/sh
[ "\$(hostname)" = node2 ] && exec unshare -T --monotonic 500 "$PROG" "\$@"
exec "$PROG" "\$@"
END
chmod +x there.sh
on_hosts() {
    timeout 100 "$nodes" exec node1 mpirun --allow-run-as-root --hostfile "$FAKECLUSTER_DIR/hostfile" -mca plm_rsh_args "-p 12345" \
        -x ASAN_OPTIONS -x LSAN_OPTIONS -x OMP_NUM_THREADS --wdir "$work" -np 4 "$work/there.sh" --config_file=toy.json --logdir=hosts \
        --max_steps=24 --trace=hosts.json --set trace_steps=3:22 --set batch_size=4 --summary_frequency=8
}
expect "two hosts" 0 "trace of 20 steps and 4 ranks" on_hosts
expect "one clock" 0 " 0 wrong" "$check" hosts.json 4 20 1000
expect "both hosts are named" 0 "" grep -q '"rank 3 (node2)"' hosts.json
expect "bytes between hosts" 0 "" grep -q '"comm_wire_bytes":[1-9]' hosts/metrics.jsonl
expect "a link was fitted" 0 "between hosts: .*fitted to this run" ranks 1 "$PROG" --mode=plan --logdir=hosts
expect "plan names the run" 0 "on 2 hosts, 4 ranks, by the run of hosts, 20[0-9-]*T[0-9:]*Z$" ranks 1 "$PROG" --mode=plan --logdir=hosts
expect "the record has the link" 0 "" grep -q '"between": {' hosts/step.json
summary
