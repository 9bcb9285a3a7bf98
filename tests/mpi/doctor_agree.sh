#!/bin/bash
# doctor_agree.sh -- tests ranks that differ in program, config, data or vocabulary, and the checks before MPI.
#
# Such ranks end the run with code 4, and the message has the rank and both values. The doctor reports the same. With
# CASES=all the run ends within 5 s, including mpirun's own time (on a busy machine: within twice the time of ranks that
# agree and train). The script also tests what every start checks before MPI.
# timeout: 300
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
[[ $PROG = /* ]] || PROG=$PWD/$PROG
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
mkdir a b
(cd a && toy 60 10)
cp -r a/. b
cp "$PROG" other && printf x >> other

two() { # ARGS OF RANK 0 -- ARGS OF RANK 1: two programs in one job, in the folders a and b
    local first=()
    while [ "$1" != -- ]; do first+=("$1"); shift; done
    shift
    # shellcheck disable=SC2086 # $MPIRUN is several words
    timeout 100 $MPIRUN -np 1 -wdir "$work/a" "${first[@]}" : -np 1 -wdir "$work/b" "$@"
}
told() {
    cat said
    return $status
}
differ() { # NAME TEXT ARGS OF TWO: the job ends with 4, soon
    timed "${@:3}" > said 2>&1
    status=$?
    expect "$1" 4 "$2" told
    expect "$1: in time" 0 "" in_time $((5 * ${RD_TIMEOUT_SCALE:-1}))
}
train="--config_file=toy.json --max_steps=2 --logdir=$work/logs"
# shellcheck disable=SC2086 # $train is several words
{
    timed two "$PROG" $train -- "$PROG" $train > said 2>&1
    status=$? usual=$naps
    expect "alike" 0 "" told
    differ "another program" "program file and library versions differs: rank 1 (.*) has '.* bytes, crc32c .*', rank 0" two "$PROG" $train -- "$work/other" $train
    differ "another value of a key" "config key 'batch_size' differs: rank 1 (.*) has 8, rank 0 has 16" two "$PROG" $train -- "$PROG" $train --set batch_size=8
    differ "other flags" "flags differs: rank 1 .*max_steps=3" two "$PROG" $train -- "$PROG" $train --max_steps=3
    printf 'a b c\n' >> b/data/train.src
    printf 'c b a\n' >> b/data/train.tgt
    export RD_COMM_HOSTS=2 # each host reads a text once
    differ "other data" "data differs: rank 1 (.*) has '.*61 lines.*', rank 0 (.*) has '.*60 lines" two "$PROG" $train -- "$PROG" $train
    expect "the doctor says so, too" 4 "^FAILURE *data *data differs: rank 1" two "$PROG" $train --mode=doctor -- "$PROG" $train --mode=doctor
    unset RD_COMM_HOSTS
    cp a/data/train.* b/data
    printf 'g\n' >> b/data/vocab.txt
    differ "another vocabulary" "differs: rank 1 (" two "$PROG" $train -- "$PROG" $train
    cp a/data/vocab.txt b/data
    expect "the doctor with all in order" 0 "^ok *data *60 samples, the same on every rank" two "$PROG" $train --mode=doctor -- "$PROG" $train --mode=doctor
    expect "the doctor and a wrong config" 3 "^FAILURE *config .*'batch_size'" ranks 2 "$PROG" --mode=doctor --config_file=a/toy.json --set batch_size=0
    expect "the doctor and no data" 3 "^FAILURE *data .*cannot open 'none'" two "$PROG" $train --mode=doctor --set source_file=none -- "$PROG" $train --mode=doctor --set source_file=none
}
expect "the doctor alone" 0 "^verdict: " "$PROG" --mode=doctor
expect "for programs" 0 '^{"ranks":\[{"rank":0,.*"checks":\[.*"verdict":"\(ok\|warning\)"}$' "$PROG" --mode=doctor --json

# Before MPI: the launcher's variables say several hosts; an interface does not exist, and lo is not excluded.
hosts="env OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_RANK=0"
for mode in train doctor; do
    expect "no such interface, $mode" 3 "the interface none9 of btl_tcp_if_include is missing on" $hosts OMPI_MCA_btl_tcp_if_include=none9 \
        "$PROG" --mode=$mode --config_file=a/toy.json
    expect "lo is used, $mode" 3 "lo is missing in btl_tcp_if_exclude (docker0, from environment)" $hosts OMPI_MCA_btl_tcp_if_exclude=docker0 \
        "$PROG" --mode=$mode --config_file=a/toy.json
done
expect "a host that is none" 3 "a: the name cannot be resolved" "$PROG" --config_file=a/toy.json --hosts=a:2
expect "a wrong list of hosts" 2 "the slots of .a:two. must be a number, 1 .. 4096, not .two.; write a:4 for" "$PROG" --mode=doctor --hosts=a:two
expect "a name that is none" 3 "the name cannot be resolved" timeout 60 "$PROG" --mode=doctor --hosts=no-such-host.invalid:2
summary
