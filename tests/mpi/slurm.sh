#!/bin/bash
# slurm.sh -- tests runs under Slurm, on two hosts that tests/support/fakeslurm makes on this machine.
#
# srun trains to the losses of mpirun. The batch script of docker/ trains. A preempted job saves, is queued again, and
# continues. After the loss of a node the same command continues when the node is back.
# timeout: 500
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
top=$(cd "$(dirname "$0")/../.." && pwd)
slurm=$top/tests/support/fakeslurm
skip() { printf "skip: %s\n0 passed, 0 failed, 1 skipped\n" "$1" && exit 0; }
[ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
case ${BUILD:-} in *asan*) skip "the sanitizers' settings do not travel to the hosts" ;; esac
for t in slurmctld slurmd srun munged sshd; do
    PATH=$PATH:/usr/sbin command -v $t > /dev/null || skip "no $t: apt-get install slurmctld slurmd slurm-client munge openssh-server"
done
work=$(mktemp -d)
export FAKESLURM_DIR=$work/slurm FAKESLURM_CPUS=2 FAKESLURM_LOST_S=8 FAKECLUSTER_SUBNET=10.95.$((RANDOM % 200))
# shellcheck disable=SC2317 # called by the trap
end() {
    "$slurm" down > /dev/null 2>&1
    rm -rf "$work"
}
trap end EXIT
"$slurm" up 2 > "$work/log" 2>&1 || { why=$(tail -n 1 "$work/log"); end; trap - EXIT; skip "no Slurm on this machine: $why"; }
cd "$work" || exit 2
unset OMPI_MCA_plm_rsh_agent OMPI_MCA_rmaps_base_oversubscribe # tests/run sets these, for one machine
# The nodes share the cores of this machine, so waiting ranks must yield.
export OMPI_MCA_mpi_yield_when_idle=1
on() { timeout 90 "$slurm" exec "$@"; }
toy 64 16
args=(--config_file=toy.json --summary_frequency=1 --set deterministic=any --set micro_batches=4 --set batch_size=4)
srun=(srun --mpi=pmix -N 2 --ntasks-per-node=2)
idle() { [ "$(on sinfo -h -N -o %t | grep -cx idle)" -eq 2 ]; }

expect "srun, 2 nodes x 2 tasks" 0 "world: 4 ranks on 2 hosts" on "${srun[@]}" "$PROG" "${args[@]}" --max_steps=6 "--logdir=$work/srun"
expect "mpirun, 4 ranks on one host" 0 "" ranks 4 "$PROG" "${args[@]}" --max_steps=6 "--logdir=$work/mpirun"
expect "the same losses" 0 "6 values" close_curves loss 1e-6 6 srun mpirun
expect "mpirun in an allocation" 0 "world: 4 ranks on 2 hosts" on salloc -Q -N 2 --ntasks-per-node=2 mpirun --allow-run-as-root "$PROG" \
    "${args[@]}" --max_steps=6 "--logdir=$work/salloc"
expect "a config that is wrong: its code" 2 "" on "${srun[@]}" "$PROG" "${args[@]}" --set batch_size=0 "--logdir=$work/bad"

# The program's own launcher uses srun in an allocation.
inside=(salloc -Q -N 2 --ntasks-per-node=2 "$PROG" --np=4)
expect "--np in an allocation" 0 "world: 4 ranks on 2 hosts" on "${inside[@]}" "${args[@]}" --max_steps=6 "--logdir=$work/own"
expect "the same losses" 0 "6 values" close_curves loss 1e-6 6 srun own
expect "by srun" 0 "^srun --mpi=pmix --ntasks=4 .*$PROG --config_file=toy.json" on "${inside[@]}" --dry_run "${args[@]}"
on "${inside[@]}" "${args[@]}" --set batch_size=0 "--logdir=$work/bad" 2> bad.txt
expect "a config that is wrong: its code" 0 "" [ $? -eq 2 ]
expect "and one line" 0 "^1 " wc -l bad.txt
timeout 100 "$slurm" exec "${inside[@]}" "${args[@]}" --max_steps=100000000 "--logdir=$work/stop" > stop.txt 2> stop.err &
job=$!
wait_until 60 grep -q -- "^step 5 " stop.txt
expect "a stop signal" 0 "" kill -TERM "$(pgrep -f "^$PROG --np=4 .*--logdir=$work/stop")"
wait $job
expect "saved: 75" 0 "" [ $? -eq 75 ]
expect "srun's own lines are kept back" 0 "^0 " wc -c stop.err

# The batch script.
sbatch=(env "RUN_DIST=$PROG" sbatch --parsable --output "$work/out-%j.txt" "$top/docker/slurm.sbatch")
expect "sbatch" 0 "" on env "RUN_DIST=$PROG" sbatch --wait --output "$work/batch.txt" "$top/docker/slurm.sbatch" "${args[@]}" --max_steps=6 \
    "--logdir=$work/batch"
expect "it has trained on two nodes" 0 "world: 4 ranks on 2 hosts" cat batch.txt
expect "and says how it ended" 0 "start 1: run_dist ended with 0" cat batch.txt

# A sweep: as a job array, and inside an allocation of two nodes.
expect "the script of a sweep" 0 "array.sh is written: 2 tasks" "$PROG" "${args[@]}" --max_steps=4 "--logdir=$work/array" \
    --sweep seed=1,2 "--sweep_slurm=$work/array.sh"
expect "its array" 0 "" on sbatch --wait --output "$work/array-%a.txt" "$work/array.sh"
expect "has trained both" 0 "^2$" eval 'cat "$work"/array/*/run.log | grep -c " done: step 4"'
expect "a sweep in an allocation" 0 "^\[4/4\] " on salloc -Q -N 2 --ntasks-per-node=1 "$PROG" "${args[@]}" --max_steps=4 \
    "--logdir=$work/inside" --sweep seed=1,2,3,4
expect "two runs at a time" 0 "2 at a time on 2 nodes of Slurm" cat inside/sweep.log

# A preempted job: its tasks receive TERM, as in a partition with a grace time. The job saves, ends with 75, and is
# queued again.
id=$(on "${sbatch[@]}" "${args[@]}" --max_steps=100000000 "--logdir=$work/long" | tail -n 1)
file=$work/out-$id.txt
wait_until 60 grep -q -- "^step 5 " "$file"
expect "the preempting signal" 0 "" on scancel --signal=TERM "$id"
wait_until 60 grep -q -- "run_dist ended with" "$file"
expect "saved and stopped" 0 "stopped on request at step" cat "$file"
expect "with 75" 0 "start 1: run_dist ended with 75" cat "$file"
wait_until 60 grep -q -- "resuming from" "$file"
expect "queued again, it goes on where it was" 0 "resuming from $work/long/model-$(sed -n 's/^stopped on request at step \([0-9]*\),.*/\1/p' "$file").npz" \
    cat "$file"
expect "the job is cancelled" 0 "" on scancel "$id"
wait_until 60 idle
expect "no rank is left" 1 "" pgrep -f "^$PROG .*--logdir=$work/long"
no_job() { [ "$(on squeue -h | wc -l)" -eq 0 ]; }
queue() { # prints the number of jobs, once it is 0 or after a minute
    wait_until 60 no_job
    echo "$(on squeue -h | wc -l) jobs"
}
expect "and the job does not come back" 0 "^0 jobs" queue

# The loss of a node.
timeout 100 "$slurm" exec "${srun[@]}" "$PROG" "${args[@]}" --max_steps=100000000 --checkpoint_frequency=1 --set stall_abort_s=4 \
    "--logdir=$work/lost" > lost.txt 2>&1 &
job=$!
wait_until 60 grep -q -- "checkpoint model-" lost.txt
FAKECLUSTER_DIR=$work/slurm/cluster "$top/tests/support/fakecluster" kill node2
timed wait $job
status=$?
expect "a node lost: srun ends with a failure" 0 "" [ "$status" -ne 0 ]
expect "in time" 0 "" in_time 40
expect "the loss is named" 0 "node2" cat lost.txt
expect "no rank is left there" 1 "" pgrep -f "^$PROG .*--logdir=$work/lost"
named=$(sed -n 's/^model-\([0-9]*\)\.npz.*/\1/p' lost/checkpoint)
FAKECLUSTER_DIR=$work/slurm/cluster "$top/tests/support/fakecluster" heal node2 > /dev/null 2>&1
expect "the node comes back" 0 "up: 2 nodes" "$slurm" up 2
expect "the lost job has left the queue" 0 "^0 jobs" queue
expect "the same command goes on" 0 "done: step $((named + 4))" on "${srun[@]}" "$PROG" "${args[@]}" --max_steps=$((named + 4)) "--logdir=$work/lost"
summary
