#!/bin/bash
# launch.sh -- tests `run_dist --np=N` on one host: the run is that of mpirun, standard error has the run's own lines
# alone, signals save and stop, and the exit code is the run's own.
#
# Made launchers stand in for srun and for an mpirun that this machine does not have.
# timeout: 200
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
[[ $PROG = /* ]] || PROG=$PWD/$PROG
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
toy 64 16
unset OMPI_MCA_rmaps_base_oversubscribe

# quiet NAME STATUS LINE COMMAND...: the command ends with the status, and standard error is this one line, or empty.
quiet() {
    local name=$1 want=$2 line=$3 got
    shift 3
    timeout 100 "$@" > out.txt 2> err.txt < /dev/null
    got=$?
    if [ $got -eq "$want" ] && [ "$(grep -c . err.txt)" -eq $((${#line} > 0)) ] && grep -q -- "$line" - < <(cat err.txt; [ -n "$line" ] || echo); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s: status %d, wanted %d and the one line "%s"\n' "$name" $got "$want" "$line"
        tail -n 3 out.txt
        cat err.txt
    fi
}

quiet "two ranks" 0 "" "$PROG" --np=2 toy.json --logdir=own --max_steps=6 --summary_frequency=1
expect "they are two" 0 "^world: 2 ranks on 1 host" cat out.txt
expect "by hand" 0 "^done" ranks 2 "$PROG" --config_file=toy.json --logdir=hand --max_steps=6 --summary_frequency=1
expect "the same losses" 0 "6 values" close_curves loss 0 6 own hand
if [ "${CASES:-}" = all ]; then
    quiet "more ranks than cores" 0 "" "$PROG" --np=$(($(nproc) + 1)) toy.json --logdir=many --max_steps=2
    quiet "a wrong key" 2 "^run_dist: error: --set batch_siz=3: .*did you mean 'batch_size'" "$PROG" --np=2 toy.json --logdir=x --set batch_siz=3
    quiet "--verbose shows the line" 0 "^mpirun .*-np 2" "$PROG" --np=2 --verbose toy.json --logdir=verbose --max_steps=1
    quiet "one rank" 0 "" "$PROG" --np=1 toy.json --logdir=one --max_steps=2
fi
expect "outputs of input from a pipe" 0 "^3$" bash -c 'head -n 3 data/test.src | "$1" --np=2 toy.json --logdir=own --mode=infer --input=- 2> /dev/null | wc -l' bash "$PROG"
quiet "the line" 0 "" "$PROG" --np=3 --dry_run toy.json "--logdir=a b"
expect "with quotes" 0 "^mpirun .*-np 3 .* --bind-to none $PROG toy.json '--logdir=a b'$" cat out.txt
expect "starts nothing" 1 "" [ -e "a b" ]

# Failures: one line, and the code of the run.
quiet "no config" 2 "^run_dist: error: cannot open 'toi.json': .*; did you mean 'toy.json'?$" "$PROG" --np=2 toi.json --logdir=x
quiet "no data" 5 "^run_dist: error: source_file: cannot open 'none.src'" "$PROG" --np=2 toy.json --logdir=y --set source_file=none.src
quiet "a mode without ranks" 2 "^run_dist: error: --np is for --mode=train, " "$PROG" --np=2 --mode=runs --logdir=.
quiet "--dry_run alone" 2 "^run_dist: error: --dry_run prints the line" "$PROG" --dry_run toy.json
quiet "two doctors" 2 "^run_dist: error: --mode=doctor examines all slots" "$PROG" --np=2 --mode=doctor --hosts=a:2
quiet "with --restarts" 2 "^run_dist: error: --restarts starts the command behind --; put --np" "$PROG" --np=2 --restarts=3 toy.json
quiet "no mpirun" 3 "^run_dist: error: there is no mpirun in PATH on this host; install openmpi-bin" env PATH=/nowhere "$PROG" --np=2 toy.json --logdir=x
mkdir old
printf '#!/bin/sh\necho "mpirun (Open MPI) 1.10.2"\n' > old/mpirun
chmod +x old/mpirun
quiet "an old mpirun" 3 "^run_dist: error: mpirun is Open MPI 1.10.2" env PATH="$PWD/old:$PATH" "$PROG" --np=2 toy.json --logdir=x
expect "inside mpirun" 2 "mpirun or srun has started this process as a rank" ranks 2 "$PROG" --np=2 toy.json --logdir=x
expect "no folder was made" 1 "" [ -e x ]

# Signals. The launcher is the process whose command line has --np.
begin() { # NAME MORE...: starts a long run in the background
    local name=$1
    shift
    "$PROG" --np=2 toy.json --logdir="$work/$name" --max_steps=100000000 --checkpoint_frequency=100000 "$@" > "$name.txt" 2> "$name.err" < /dev/null &
    launcher=$!
    wait_until 60 grep -q "^step " "$name.txt"
}
ended() { # NAME STATUS TEXT: the launcher's status, the last line of the run, an empty standard error, nothing left
    wait $launcher
    expect "$1: status" 0 "" [ $? -eq "$2" ]
    expect "$1: what the run says" 0 "$3" tail -n 1 "$1.txt"
    expect "$1: standard error is empty" 0 "^0" wc -c "$1.err"
    expect "$1: nothing is left" 0 "^0 are" gone 10 "^$PROG.*--logdir=$work/$1"
}
for sig in INT $([ "${CASES:-}" != all ] || echo TERM HUP); do
    begin $sig
    kill -$sig $launcher
    ended $sig 75 "^stopped on request at step .*, checkpoint saved"
done
begin USR1
kill -USR1 $launcher
wait_until 60 grep -q "^checkpoint model-" USR1.txt
expect "USR1: the run goes on" 0 "" kill -0 $launcher
kill -USR2 $launcher
ended USR1 75 "^stopped on request at step "
quiet "the same command goes on" 0 "" "$PROG" --np=2 toy.json --logdir="$work/USR1" --max_steps=1
expect "from there" 0 "^resuming from " cat out.txt
begin lost
quiet "a busy folder" 2 "^run_dist: error: log folder .* is in use by process" "$PROG" --np=2 toy.json --logdir="$work/lost"
kill -KILL "$(pgrep -f "^$PROG toy.json --logdir=$work/lost" | tail -n 1)"
wait $launcher
expect "a killed rank: status" 0 "" [ $? -eq 9 ]
expect "a killed rank: one line" 0 "^1 " wc -l lost.err
expect "a killed rank: it is named" 0 "^run_dist: error: rank [01] on .* was ended by signal 9" cat lost.err
expect "a killed rank: nothing is left" 0 "^0 are" gone 10 "^$PROG.*--logdir=$work/lost"
begin dead
kill -KILL $launcher
wait $launcher 2> /dev/null
expect "a killed launcher: the run ends" 0 "^0 are" gone 30 "^$PROG.*--logdir=$work/dead"
expect "a killed launcher: it has saved" 0 "^model-" cat dead/checkpoint
"$PROG" --np=2 toy.json --mode=bench --set bench_steps=100000000 > bench.txt 2> bench.err < /dev/null &
launcher=$!
wait_until 60 pgrep -f "^$PROG toy.json --mode=bench"
wait_until 60 grep -q . bench.err
kill -INT $launcher
wait $launcher
expect "nothing to save: status" 0 "" [ $? -eq 130 ]
expect "nothing to save: the last line" 0 "^run_dist: stopped by signal 2 (Interrupt); nothing was saved" tail -n 1 bench.err

# Slurm: srun where it has the plugin, else mpirun. A made srun says what it was asked.
mkdir slurm
cat > slurm/srun << 'END'
#!/bin/sh
[ "$1" = --mpi=list ] && { echo "MPI plugin types are..."; echo "    $PLUGINS"; exit; }
echo "$@"
echo "srun: error: node2: task 1: Exited with exit code 75" >&2
exit 75
END
chmod +x slurm/srun
export SLURM_JOB_ID=1 SLURM_NTASKS=4
quiet "inside a Slurm job" 75 "" env PATH="$PWD/slurm:$PATH" PLUGINS="none pmix pmix_v4" "$PROG" --np=4 toy.json --logdir=x
expect "srun starts the ranks" 0 "^--mpi=pmix --ntasks=4 --kill-on-bad-exit=0 --input=none $PROG toy.json --logdir=x$" cat out.txt
quiet "more ranks than tasks" 2 "^run_dist: error: --np=5 asks for more ranks than the 4 tasks of this Slurm job" env PATH="$PWD/slurm:$PATH" \
    PLUGINS=pmix "$PROG" --np=5 toy.json --logdir=x
quiet "a Slurm without PMIx" 0 "" env PATH="$PWD/slurm:$PATH" PLUGINS=none "$PROG" --np=2 --dry_run toy.json
expect "mpirun starts the ranks" 0 "^mpirun .*-np 2 --map-by slot --bind-to none $PROG" cat out.txt
summary
