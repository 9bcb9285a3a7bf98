#!/bin/bash
# gpu_check.sh -- tests/gpu/check without a GPU: stand-ins for the programs, for nvidia-smi, compute-sanitizer and PyTorch. Each part is green with
# healthy ones. Then one of them at a time is sick, and the check is red with the reason. The output folder has three files, whatever happens.
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
top=$(cd "$(dirname "$0")/../.." && pwd)
check=$top/tests/gpu/check
work=$(mktemp -d "${TMPDIR:-/tmp}/gpu_check.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
mkdir -p build/tests/{gpu,ops,golden,unit,support} bin tmp
export BUILD=$work/build OUT=$work/out TMPDIR=$work/tmp PATH=$work/bin:$PATH RD_PYTHON=$work/bin/python COMPUTE_SANITIZER=$work/bin/compute-sanitizer \
    MNIST_DIR=$work/mnist LD_LIBRARY_PATH=
unset RD_CHECK_SICK LOGS
mkdir mnist
touch mnist/train-images-idx3-ubyte

# The program. RD_CHECK_SICK names what is wrong, with it and with the other stand-ins.
cat > build/run_dist << 'END'
#!/bin/bash
sick=" ${RD_CHECK_SICK:-} " n=1 mode=train type=float32 batch=16 config='' log=log
[[ $sick != *" hang "* ]] || [[ $* != *gnmt* ]] || sleep 60
for a in "$@"; do
    case $a in
    --version) printf 'run_dist 0 (stand-in)\nbackends: cpu, cuda\n'; exit ;;
    --mode=*) mode=${a#*=} ;;
    --logdir=*) log=${a#*=} ;;
    --max_steps=*) n=${a#*=} ;;
    --config_file=*) config=$(basename "${a#*=}" .json) ;;
    --inference_out=*) echo a b > "${a#*=}" ;;
    dtype=*) type=${a#*=} ;;
    esac
done
mkdir -p "$log/eval"
if [ "$mode" = bench ]; then
    case $config:$type in
    gnmt*) s=0.045 who='0 passes by cuDNN, 320 by own kernels (cuDNN has no persistent algorithm for bfloat16)' ;;
    toy*) s=0.003 who='50 passes by cuDNN, 0 by own kernels' ;;
    *) s=0.043 who='' ;;
    esac
    ill() { [[ $sick == *" $1 "* ]]; }
    ! ill slow || s=0.09
    ! ill silent || who=''
    ! ill own || who='0 passes by cuDNN, 50 by own kernels (no persistent algorithm for these sizes)'
    ! ill graphs || echo 'CUDA graphs: steps of one shape are launched one by one from here on: cudaGraphInstantiate' >&2
    ! ill fallback || echo 'recurrent layer of 16 units, 8 sequences of 4 steps: not by cuDNN, which does not support it (status 3000)' >&2
    ! ill broken || { echo 'error: GPU 0: cudaErrorIllegalAddress' >&2; exit 3; }
    [ -z "$who" ] || echo "LSTM layers in training: $who" >&2
    echo "{\"step_s\": $s, \"tokens_per_s\": 100000, \"images_per_s\": 6000, \"share_of_peak\": 0.3, \"peak_gflop_per_s\": 600000, \"device_memory_bytes\": 1e9}"
    exit
fi
where=cpu
[[ " $* " != *" device=cuda "* ]] || where=cuda
[ "$where" = cpu ] || [[ $sick != *" nogpu "* ]] || { echo "error: there is no GPU that can be used" >&2; exit 3; }
off=0
[ "$where" = cpu ] || [[ $sick != *" curve "* ]] || off=0.1
awk -v n="$n" -v o="$off" 'BEGIN { for (i = 1; i <= n; i++) printf "{\"step\":%d,\"loss\":%.6f}\n", i, 3 / i + o }' > "$log/metrics.jsonl"
echo '{"step":1,"Eval_loss":0.5}' > "$log/eval/metrics.jsonl"
echo "12:00:00 device: $([ $where = cuda ] && echo 'GPU 0' || echo CPU)" > "$log/run.log"
echo weights > "$log/model-$n.npz"
printf 'first step done\nlaunches of the steps\ndone: step %d\n' "$n"
END
# A test program of cmocka.
cat > bin/passes << 'END'
#!/bin/bash
printf '[==========] Running 4 test(s).\n'
for i in 1 2 3 4; do printf '[ RUN      ] t%d\n[       OK ] t%d\n' $i $i; [[ "$0 ${RD_CHECK_SICK:-} " != */gpu/ops*" crawl "* ]] || sleep 9; done
case " ${RD_CHECK_SICK:-} " in
*" skips "*) printf '[  PASSED  ] 3 test(s).\n[  SKIPPED ] 1 test(s), listed below:\n'; exit ;;
*" reasons "*) printf 'skip: ranks need a GPU each\n[  PASSED  ] 3 test(s).\n[  SKIPPED ] 1 test(s), listed below:\n'; exit ;;
*" rnn "*) [ "${RD_TEST_CUDNN_RNN:-}" != on ] || { printf '[  PASSED  ] 3 test(s).\n[  FAILED  ] 1 test(s), listed below:\n'; exit 1; } ;;
*" all_skip "*) printf '[  PASSED  ] 0 test(s).\n'; exit ;;
esac
printf '[  PASSED  ] 4 test(s).\n'
END
cat > bin/nvidia-smi << 'END'
#!/bin/bash
case "$*" in
-L) echo "GPU 0: ${RD_CHECK_GPU:-NVIDIA H200} (UUID: GPU-1)" ;;
*query-gpu=name*) echo "${RD_CHECK_GPU:-NVIDIA H200}" ;;
esac
END
cat > bin/compute-sanitizer << 'END'
#!/bin/bash
[ "$1" != --help ] || exit 0
shift $(($# - 1))
echo '========= COMPUTE-SANITIZER'
"$1" || exit
[[ " ${RD_CHECK_SICK:-} " != *" memory "* ]] || { echo '========= Invalid __global__ write of size 4 bytes'; exit 9; }
echo '========= ERROR SUMMARY: 0 errors'
END
# Python with PyTorch, which knows where NVIDIA's libraries are.
cat > bin/python << 'END'
#!/bin/bash
case "$*" in
*sysconfig*) echo "$LIBRARIES $LIBRARIES" ;;
*peers*) echo '{"tokens_per_s": 90000, "images_per_s": 5000}' ;;
*torch*) [[ " ${RD_CHECK_SICK:-} " != *" no_torch "* ]] ;;
esac
END
export LIBRARIES=$work/site
mkdir -p site/nvidia/all/lib
touch site/nvidia/all/lib/{libcublasLt.so.13,libcudnn.so.9,libnccl.so.2}
chmod +x build/run_dist bin/*
for p in gpu/ops gpu/lstm ops/add golden/seq2seq unit/optim_step; do cp bin/passes "build/tests/$p"; done

# checked NAME STATUS PART "STAGE..." "SICK...": the check with these stages only. says NAME TEXT: a line of its report.
checked() {
    export RD_CHECK_SICK=$5
    rm -rf out
    expect "$1" "$2" "" "$check" --part "$3" --only "$4" --seconds "${limit:-60}"
    unset RD_CHECK_SICK
}
says() { expect "$1" 0 "$2" cat out/report.txt; }
names() { (cd out && echo ./*); }
three='^./logs.tar.gz ./report.json ./report.txt$'
valid() { python3 -c 'import json, sys; r = json.load(open("out/report.json")); print(r["part"], r["passed"], r["failed"], [s["name"] for s in r["stages"]])'; }

# --- both parts, all healthy
for part in 1 2; do
    expect "part $part, healthy" 0 " 0 failed, 0 skipped" "$check" --part $part
    expect "part $part: three files" 0 "$three" names
    expect "part $part: no stage left out" 1 "" grep -E '^(not run|FAIL|SKIP)' out/report.txt
    ! command -v python3 > /dev/null || expect "part $part: report.json" 0 "^$part [1-9][0-9]* 0 .*'environment'" valid
    expect "part $part: logs" 0 "environment.log" tar -tzf out/logs.tar.gz
    [ $part = 2 ] || expect "who computed the LSTM layers" 0 'gnmt_8x1024 mixed: LSTM layers: 0 passes by cuDNN, 320 by own kernels (cuDNN has no' cat out/report.txt
    expect "part $part fits" 0 "" awk -v most=$((part == 1 ? 170 : 250)) '/^all together/ { exit !($5 + 5 <= most) }' <("$check" --part $part --list)
done
expect "nothing is left behind" 0 "^0$" sh -c 'ls tmp | wc -l'

# --- each reason to be red, several at a time
checked "red, part 1" 1 1 "environment ops ops_cudnn bench_first" "nogpu skips slow own graphs"
says "no GPU" 'FAILED: a first step on the GPU: status 3'
says "a skip without a reason" '^FAIL ops_cudnn .*1 skipped without a reason'
says "half of the predicted speed" 'FAILED: gnmt_8x1024 mixed: 90.0 ms, less than half of the predicted speed ([0-9]* ms)'
says "not by cuDNN where it was expected" 'FAILED: toy float32: not by cuDNN, which was expected: 0 passes by cuDNN, 50 by own'
says "graphs given up" 'FAILED: gnmt_8x1024 mixed: CUDA graphs: .*launched one by one'
checked "red with cuDNN's layers" 1 1 "ops ops_cudnn bench_first" "rnn fallback"
says "ops without them are green" '^ok   ops '
says "ops with them are not" '^FAIL ops_cudnn'
says "a layer that cuDNN refused" 'FAILED: toy float32: recurrent layer .*not by cuDNN'
checked "red where nothing is said" 1 1 "ops bench_first" "all_skip silent"
says "a stage that runs nothing" 'FAILED: no test of tests/gpu ran'
says "no line about LSTM layers" 'FAILED: toy float32: not by cuDNN, which was expected: no line'
checked "red, part 2" 1 2 "memcheck curve_mnist bench_gnmt" "memory curve broken"
says "a finding of the sanitizer" 'FAILED: memcheck, tests/gpu/ops, after 4 tests: findings Invalid'
says "another curve" 'FAILED: mnist: 100 steps; gaps'
says "a measurement that ended" 'FAILED: gnmt_8x1024 mixed: error: GPU 0: cudaErrorIllegalAddress'
mv bin/compute-sanitizer sanitizer
if "$top/tests/gpu/sanitizer" find > /dev/null; then
    echo "skip: this machine has compute-sanitizer, so its absence is not tested"
    skipped=$((skipped + 1))
else
    checked "red without a sanitizer" 1 2 "memcheck bench_gnmt" ""
    says "no sanitizer" 'FAILED: memcheck did not run: no compute-sanitizer'
fi
mv sanitizer bin/compute-sanitizer
checked "green without PyTorch" 0 2 bench_gnmt no_torch
says "no PyTorch, which is a skip" 'skipped: no PyTorch in .*: no comparison with it'
limit=4 checked "red, time over" 1 2 memcheck crawl
says "the sanitizer's time was over too early" 'FAILED: memcheck, tests/gpu/ops: only 1 of 4 tests ran'
limit=1 checked "red, stages too long" 1 2 "bench_gnmt bench_resnet" hang
says "more than its time" '^FAIL bench_gnmt .*(ended after its 1 s)'
says "no time for the next" '^FAIL bench_resnet .*(no time was left)'
says "what was not run" "^not run: bench_resnet$"
expect "three files all the same" 0 "$three" names
export LIBRARIES=/none
if "$top/tests/gpu/libraries" list | grep -q 'libcudnn.* not found'; then
    checked "red without libraries" 1 1 environment ""
    says "no cuDNN" 'FAILED: no libcudnn: install it'
else
    echo "skip: this machine has cuDNN, so its absence is not tested"
    skipped=$((skipped + 1))
fi
export LIBRARIES=$work/site

# --- skips with a reason leave the check green
export RD_CHECK_GPU='NVIDIA L4'
checked "green with skips" 0 1 "ops bench_first" reasons
says "a skip with a reason" '     skipped: ranks need a GPU each'
says "a GPU without a prediction" "skipped: speed of gnmt_8x1024 mixed: floors.md predicts that of an H100, not of 'NVIDIA L4'"
unset RD_CHECK_GPU

# --- a signal: the report says what was reached
RD_CHECK_SICK=hang "$check" --part 1 --only "environment bench_first" > said.txt 2>&1 &
job=$!
wait_until 60 grep -q "environment" said.txt
kill $job
wait $job
expect "ended by a signal" 0 "^FAIL bench_first .*(not reached: a signal)" cat out/report.txt
expect "three files after a signal" 0 "$three" names

# --- the predictions
expect "floors.md has the predictions that are computed" 0 "" "$top/tests/gpu/predict" --check
awk -F'|' -v OFS='|' '$2 == " gnmt_8x1024 " && $3 == " mixed " { $5 = " 99 " } $2 != " en_de " || $3 != " mixed "' "$top/tests/gpu/floors.md" > floors.md
expect "an old figure" 1 "gnmt_8x1024 mixed: floors.md has [0-9]*, 99 ms" env FLOORS="$work/floors.md" "$top/tests/gpu/predict" --check
expect "a row that is not there" 1 "floors.md has no row en_de mixed" env FLOORS="$work/floors.md" "$top/tests/gpu/predict" --check
awk -F'|' -v OFS='|' '$2 == " toy " && $3 == " 50, 50 " { $7 = " 1,100 " } 1' "$top/tests/gpu/floors.md" > floors.md
expect "launches have changed" 1 "toy_own_rnn float32: floors.md has" env FLOORS="$work/floors.md" "$top/tests/gpu/predict" --check
FLOORS=$work/floors.md "$top/tests/gpu/predict" --write
expect "they are written" 0 "" env FLOORS="$work/floors.md" "$top/tests/gpu/predict" --check
expect "and nothing else" 0 "^4$" sh -c "diff floors.md '$top/tests/gpu/floors.md' | grep -c '^< | toy'"

# --- calls that are wrong
expect "an unknown part" 2 "is 1, 2 or all" "$check" --part 3
expect "an unknown stage" 2 "no stage 'bench_gnm'; --list" "$check" --only bench_gnm
expect "an option without its value" 2 "tests/gpu/check" "$check" --part
expect "no whole number" 2 "whole number" "$check" --seconds 1m
expect "no program" 2 "no /none/run_dist" env BUILD=/none "$check" --part 1
touch file
expect "no folder to write to" 2 "cannot write to" env OUT="$work/file/out" "$check" --part 1

summary
