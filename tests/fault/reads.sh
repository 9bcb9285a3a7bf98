#!/bin/bash
# reads.sh -- tests faults of disks and file servers while data is read (support/io_faults.so makes the calls fail).
#
# A fault that passes is counted, and the run ends with the bytes of an undisturbed one. A fault that stays ends the run
# with code 3 on all ranks, after the last whole step was saved; --restarts goes on from there.
# timeout: 900
# beside
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
same=$PWD/${BUILD:-build/release}/tests/support/npz_same
faults=$PWD/${BUILD:-build/release}/tests/support/io_faults.so
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
work=$(mktemp -d "${TMPDIR:-/tmp}/reads.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2

EIO=5 ENOMEM=12 EACCES=13 EMFILE=24 ESTALE=116

jpeg() { # number 0 .. 127: writes one pixel, whose grey depends on the number
    printf '\377\330\377\333\0\103\0'
    for _ in {1..64}; do printf '\7'; done
    printf '\377\300\0\13\10\0\1\0\1\1\1\21\0'
    printf '\377\304\0\24\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\7\377\304\0\24\20\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
    # shellcheck disable=SC2059 # the format holds the byte
    printf "\\377\\332\\0\\10\\1\\1\\0\\0\\77\\0\\$(printf %o "$1")\\177\\377\\331"
}
for i in 1 2 3 4 5 6 7 8; do
    mkdir -p d/train/ant d/train/bee d/val/ant d/val/bee
    jpeg $((i * 5)) > d/train/ant/$i.jpg
    jpeg $((127 - i * 6)) > d/train/bee/$i.jpg
    cp d/train/ant/$i.jpg d/val/ant/$i.jpg
    cp d/train/bee/$i.jpg d/val/bee/$i.jpg
done
cat > image.json << 'END'
{
    "model": "resnet_cifar", "depth": 8, "dataset": "image_folder", "data_dir": "d", "image_size": 8, "eval_resize": 8,
    "batch_size": 4, "optimizer": "momentum", "learning_rate": 0.05, "lr_scaling": "none", "seed": 3, "threads": 1,
    "image_frequency": 0, "histogram_frequency": 0, "batch_norm_samples": 2
}
END
toy 60 7

t() { # np, folder, arguments: 24 steps of 4 images, 4 steps an epoch; nothing is saved before the end
    local np=$1 dir=$2
    shift 2
    ranks "$np" "$PROG" --config_file=image.json --logdir="$dir" --max_steps=24 --set batch_size=$((4 / np)) "$@" < /dev/null
}
# with "IO_CALL=read IO_ERRNO=5 ..." COMMAND...: the ranks of t and text run with these faults
with() {
    local settings=$1 prog=$PROG status
    shift
    printf '#!/bin/sh\nexport LD_PRELOAD="%s" %s\nexec "%s" "$@"\n' "$faults" "$settings" "$prog" > faulty
    chmod +x faulty
    PROG=$PWD/faulty
    "$@"
    status=$?
    PROG=$prog
    return $status
}
field() { # folder, name: sum of a number over the records
    sed -n "s/.*\"$2\":\([0-9]*\).*/\1/p" "$1/metrics.jsonl" | awk '{ n += $1 } END { print n + 0 }'
}
warned() { # folder: the sum over all warnings of a record; the retries of one read may belong to two records
    sed -n 's/^[-0-9: ]*warning: \([0-9]*\) reads* w.* tried again since the record before.*/\1/p' "$1/run.log" |
        awk '{ n += $1 } END { print n + 0 }'
}
saved() { # folder: the step of the newest checkpoint
    # shellcheck disable=SC2012 # plain names
    ls "$1"/model-*.npz | sed 's/.*model-//; s/[.]npz//' | sort -n | tail -n 1
}

for np in 1 2; do
    expect "np $np, undisturbed" 0 "done: step 24" t $np whole$np
    expect "np $np, undisturbed: no retry" 0 "^0$" field whole$np read_retries
    expect "np $np, undisturbed: no warning" 1 "" grep -i "again" whole$np/run.log
done

# Faults that pass.
n=0
while read -r np call err count path; do
    n=$((n + 1))
    name="np $np, error $err in $call, $count times"
    expect "$name" 0 "done: step 24" with "IO_CALL=$call IO_ERRNO=$err IO_COUNT=$count IO_PATH=$path" t "$np" pass$n
    expect "$name: the same bytes" 0 "" "$same" whole"$np"/model-24.npz pass$n/model-24.npz
    expect "$name: a warning names the file" 0 "warning: cannot read '.*$path.*: .*; trying again 9 times, for 51.1 s" cat pass$n/run.log
    expect "$name: and says that it passed" 0 "'.*$path.*' could be read after [0-9]* more tr" cat pass$n/run.log
    expect "$name: retries are counted" 0 "^$((count * np))$" field pass$n read_retries
    expect "$name: and reported" 0 "^[-0-9: ]*$((count * np)) reads* w.* tried again in this run" cat pass$n/run.log
    expect "$name: with the records" 0 "^$((count * np))$" warned pass$n
done << END
1 open $ESTALE 1 train/bee/1.jpg
1 read $EIO 2 train/bee/1.jpg
1 read $ENOMEM 1 train/bee/1.jpg
1 opendir $EIO 1 d/train/ant
1 readdir $ESTALE 2 d/train/bee
END
# Which ranks read an image, and when, follows from the order.
name="np 2, a fault on each rank"
expect "$name" 0 "done: step 24" with "IO_CALL=read IO_ERRNO=$EIO IO_COUNT=1 IO_PATH=train/ant/" t 2 passtwo
expect "$name: the same bytes" 0 "" "$same" whole2/model-24.npz passtwo/model-24.npz
expect "$name: both are counted" 0 "^2$" field passtwo read_retries
expect "$name: and reported" 0 "^[-0-9: ]*2 reads were tried again in this run, on all ranks" cat passtwo/run.log
expect "interrupted reads" 0 "done: step 24" with "IO_CALL=read IO_ERRNO=4 IO_COUNT=50 IO_PATH=train/" t 1 interrupted
expect "interrupted reads: the same bytes" 0 "" "$same" whole1/model-24.npz interrupted/model-24.npz
expect "interrupted reads: no retry is counted" 0 "^0$" field interrupted read_retries
expect "short reads" 0 "done: step 24" with "IO_MOST=3 IO_PATH=$work/" t 1 short
expect "short reads: the same bytes" 0 "" "$same" whole1/model-24.npz short/model-24.npz

# Faults that stay: the second or third time that a rank reads the image.
stays() { # np, call, error, text, arguments
    local np=$1 call=$2 err=$3 said=$4 step name
    shift 4
    name="np $np, error $err stays in $call $*"
    rm -rf stays
    expect "$name" 3 "run_dist: error: .*cannot .* '.*train/bee/1.jpg': $said" with \
        "IO_CALL=$call IO_ERRNO=$err IO_SKIP=2 IO_COUNT=-1 IO_PATH=train/bee/1.jpg" t "$np" stays --set read_retries=1 "$@"
    step=$(saved stays)
    expect "$name: the last whole step is saved" 0 "\"exit_code\":3,\"step\":$step," sh -c "cat stays/errors/rank_*.json"
    expect "$name: and is not the first" 0 "" test "${step:-0}" -gt 3
    expect "$name: a warning says so" 0 "warning: the run ends with a failure; step $step, the last whole one, is saved" cat stays/run.log
    expect "$name: goes on" 0 "resuming from stays/model-$step.npz" t "$np" stays "$@"
}
for np in 1 2; do
    stays $np read $EIO "Input/output error"
    expect "np $np, a fault that stayed: the same bytes" 0 "" "$same" whole$np/model-24.npz stays/model-24.npz
done
stays 1 open $EMFILE "Too many open files; raise the limit of open files (ulimit -n)"
[ "${CASES:-}" != all ] || stays 2 open $EACCES "Permission denied; check the permissions"
stays 2 read $ENOMEM "Cannot allocate memory" --set data_threads=2
[ "${CASES:-}" != all ] || stays 1 open $ESTALE "Stale file handle"

# Steps of several batches, and batches in parts.
for more in "--set iter_size=2" "--set deterministic=any --set micro_batches=4 --set batch_norm_samples=1"; do
    rm -rf parts
    # shellcheck disable=SC2086 # several arguments
    expect "$more, undisturbed" 0 "done: step 24" t 2 parts $more
    # shellcheck disable=SC2086
    stays 2 read $EIO "Input/output error" $more
    expect "$more: the same bytes" 0 "" "$same" parts/model-24.npz stays/model-24.npz
done

# Bad data is code 5, and its last step is saved, too.
bad() { RD_FAULT=data:1:7:input t 2 bad; }
expect "bad data" 5 "bad data at step 7" bad
expect "bad data: the last whole step is saved" 0 "^6$" saved bad

# An evaluation that cannot read its images.
e() { t "$1" "$2" --mode=train_eval --set eval_frequency=6 --set read_retries=1; }
expect "train_eval, undisturbed" 0 "done: step 24" e 2 evals
expect "train_eval, error in an evaluation" 3 "cannot .* '.*val/bee/2.jpg': Input/output error" \
    with "IO_CALL=read IO_ERRNO=$EIO IO_COUNT=-1 IO_PATH=val/bee/2.jpg" e 2 evalf
expect "train_eval: the step is saved" 0 "^6$" saved evalf
expect "train_eval: goes on with the evaluation" 0 "evaluation at step 6" e 2 evalf
expect "train_eval: the same bytes" 0 "" "$same" evals/model-24.npz evalf/model-24.npz
expect "train_eval: four evaluations" 0 "^4$" sh -c "wc -l < evals/eval/metrics.jsonl"
expect "train_eval: also after the error" 0 "^4$" sh -c "wc -l < evalf/eval/metrics.jsonl"

expect "eval counts retries" 0 "^warning: 2 reads were tried again; check the disk" \
    with "IO_CALL=read IO_ERRNO=$EIO IO_COUNT=2 IO_PATH=val/bee/2.jpg" t 1 evals --mode=eval

# Restarts. The fault is gone at the second start.
touch flag
cat > once.sh << END
#!/bin/sh
LD_PRELOAD='$faults' IO_CALL=read IO_ERRNO=$EIO IO_SKIP=2 IO_COUNT=-1 IO_PATH=train/bee/1.jpg IO_FLAG='$work/flag' \\
    '$PROG' --config_file=image.json --logdir=again --max_steps=24 --set read_retries=1
code=\$?
rm -f flag
exit \$code
END
chmod +x once.sh
expect "--restarts" 0 "done: step 24" timeout 100 "$PROG" --restarts=1 --logdir=again -- ./once.sh
expect "--restarts: it started again" 0 "resuming from again/model-" cat again/run.log
expect "--restarts: the same bytes" 0 "" "$same" whole1/model-24.npz again/model-24.npz

# Files that are read at the start: text, vocabulary, config, the checkpoint to go on from, init_from.
text() { # folder, arguments
    local dir=$1
    shift
    timeout 100 "$PROG" --config_file=toy.json --logdir="$dir" --max_steps=6 --set read_retries=1 "$@" < /dev/null
}
expect "text" 0 "done: step 6" text plain
text parent --max_steps=3 > /dev/null 2>&1
gzip -k data/train.src && tar cf data/train.tar data/train.src
while read -r path said arguments; do
    for call in open read; do
        for err in $EIO $EMFILE $EACCES $ENOMEM $ESTALE; do
            [ "${CASES:-}" = all ] || [ $(((err + ${#path} + ${#call}) % 5)) -eq 0 ] || continue
            rm -rf start && cp -r parent start
            # shellcheck disable=SC2086 # several arguments
            expect "$path, error $err in $call $arguments" 3 "$said.*cannot .*'.*$path'" \
                with "IO_CALL=$call IO_ERRNO=$err IO_COUNT=-1 IO_PATH=$path" text start $arguments
        done
    done
    # shellcheck disable=SC2086
    expect "$path, one error $arguments" 0 "done: step 6" \
        with "IO_CALL=read IO_ERRNO=$EIO IO_COUNT=1 IO_PATH=$path" text start $arguments
done << END
data/vocab.txt vocab_file
data/train.src source_file
data/train.src.gz source_file --set source_file=data/train.src.gz
data/train.tar source_file --set source_file=data/train.tar!data/train.src
toy.json error
start/model-3.npz error
parent/model-3.npz error --logdir=new --set init_from=parent/model-3.npz
END
expect "a missing file is bad data" 5 "cannot open 'none'" text missing --set source_file=none
head -c 100 data/train.src.gz > data/cut.gz
expect "a file that is cut short is bad data" 5 "cannot read 'data/cut.gz'" text cut --set source_file=data/cut.gz
# shellcheck disable=SC2016 # the inner shell expands them
expect "few open files" 0 "" bash -c '
    for n in 6 8 10 12 16; do
        code=0
        (ulimit -n $n && exec "$1" --config_file=toy.json --logdir=few --max_steps=6) > few.txt 2>&1 || code=$?
        [ $code -eq 0 ] || [ $code -eq 3 ] || { echo "ulimit -n $n: $code"; tail -n 3 few.txt; exit 1; }
    done' bash "$PROG"
summary
