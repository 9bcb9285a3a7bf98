#!/bin/sh
# slurm_gpus.sh -- docker/slurm.sbatch starts its ranks so that every rank sees all GPUs of its node, if the job has GPUs. A stub takes the
# place of srun and prints its arguments.
top=$PWD
work=$(mktemp -d "${TMPDIR:-/tmp}/slurm_gpus.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
printf '#!/bin/sh\necho "srun $*"\n' > srun
printf '#!/bin/sh\nexit 1\n' > scontrol
chmod +x srun scontrol
passed=0 failed=0
check() { # WHAT PATTERN WANTED OUTPUT: does the output contain the pattern (0) or not (1)?
    printf '%s\n' "$4" | grep -q -- "$2"
    if [ $? -eq "$3" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); printf 'FAILED: %s: %s\n' "$1" "$4"; fi
}
run() { env PATH="$work:$PATH" SLURM_JOB_ID=1 RUN_DIST=run_dist "$@" bash "$top/docker/slurm.sbatch" --logdir=x 2>&1; }
check "a job with GPUs" 'srun .*--gpus-per-node=4 --gpu-bind=none run_dist --logdir=x' 0 "$(run SLURM_GPUS_PER_NODE=4)"
check "with a type" 'gpus-per-node=h100:4 --gpu-bind=none' 0 "$(run SLURM_GPUS_PER_NODE=h100:4)"
check "a job without" gpu 1 "$(run A=1)"
check "which starts, too" 'srun .* run_dist --logdir=x' 0 "$(run A=1)"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
