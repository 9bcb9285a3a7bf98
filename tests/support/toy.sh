# shellcheck shell=bash
# toy.sh -- a small reversal task for test scripts, which source this file: data, ways to run it, checks.
#
#   toy 400 60            writes data/{train,dev,test}.{src,tgt} (400 training sentences, 60 each in dev and
#                         test), data/vocab.txt and toy.json into the current folder
#   toy_transformer 400 60   the same data; toy.json is a Transformer
#   ranks 2 PROG ARGS     runs PROG under mpirun with two ranks (1: without mpirun)
#   all_leave_together    from here on mpirun waits no second for ranks after one has ended with an error. For runs
#                         whose ranks all end by themselves; not for killed ranks, whose loss the others report
#   expect "name" STATUS "text" COMMAND...    counts a passed test if the command ends with STATUS and, when
#                         text is not "", prints text (a regular expression)
#   wait_until S COMMAND...    waits until the command succeeds. After S seconds it counts a failed test and
#                         returns 1. S only ends a test that hangs, so it should be generous
#   gone S PATTERN        prints "N are left": the number of processes with that command line, after waiting
#                         at most S seconds for them to end
#   timed COMMAND...      runs the command and sets $naps to its time, in naps of 0.1 s. Naps stretch on a
#                         busy machine, and none passes while the machine is stopped
#   in_time SECONDS       succeeds if the last timed command took at most SECONDS, or at most twice $usual,
#                         the naps of an undisturbed run
#   seconds REGEX         prints REGEX, which printed seconds must match
#   summary               prints the closing line of a script
#
# Seconds count with CASES=all alone (make test-all). Otherwise in_time succeeds, seconds prints [0-9]*, and gone
# waits for a minute.
PROG=${PROG:-$PWD/build/release/run_dist}
MPIRUN=${MPIRUN:-mpirun --allow-run-as-root --oversubscribe --bind-to none}
export OMP_NUM_THREADS=1
failed=0 passed=0 skipped=0
waited=${TMPDIR:-/tmp}/run_dist_waited.$$ # a line for each wait that ended in vain, also in a subshell
rm -f "$waited"

sentences() { # count, seed, file
    awk -v n="$1" -v x="$2" -v src="$3.src" -v tgt="$3.tgt" 'BEGIN {
        for (i = 0; i < n; i++) {
            x = (x * 16807) % 2147483647; len = 2 + x % 9; s = ""; t = ""
            for (k = 0; k < len; k++) {
                x = (x * 16807) % 2147483647; w = sprintf("%c", 97 + int(x / 1000) % 6)
                s = s (k ? " " : "") w; t = w (k ? " " : "") t
            }
            print s > src; print t > tgt
        }
    }'
}

toy() {
    mkdir -p data
    sentences "$1" 1234 data/train
    sentences "$2" 777 data/dev
    sentences "$2" 4242 data/test
    printf '%s\n' a b c d e f > data/vocab.txt
    cat > toy.json << 'END'
{
    "src_vocab_file": "data/vocab.txt", "tgt_vocab_file": "data/vocab.txt",
    "source_file": "data/train.src", "target_file": "data/train.tgt",
    "source_file_eval": "data/dev.src", "target_file_eval": "data/dev.tgt",
    "source_file_test": "data/test.src",
    "batch_size": 16, "num_epochs": 4, "num_gpus": 1, "bucket_src": [8, 14], "bucket_tgt": [8, 14], "delimiter": " ",
    "encoder_type": "bidirectional", "encoder_cell_type": "lstm", "encoder_cell_units": 16, "encoder_layers": 1,
    "encoder_dp_input_keep_prob": 0.8, "encoder_dp_output_keep_prob": 0.9, "encoder_use_skip_connections": false,
    "decoder_cell_type": "lstm", "decoder_cell_units": 16, "decoder_layers": 1,
    "decoder_dp_input_keep_prob": 0.8, "decoder_dp_output_keep_prob": 0.9, "decoder_use_skip_connections": false,
    "src_emb_size": 16, "tgt_emb_size": 16, "attention_type": "luong", "luong_scale": true, "attention_layer_size": 16,
    "optimizer": "Adam", "learning_rate": 0.01, "max_grad_norm": 3.0, "lr_scaling": "none", "seed": 5,
    "print_samples": false, "histogram_frequency": 0, "threads": 1
}
END
}

of_transformer() { # turns toy.json on standard input into the config of a Transformer
    sed -e '/encoder_type/,/attention_type/d' -e '/learning_rate/d' -e 's/"print_samples"/"optimizer": "Adam", &/' |
        sed -e 's/"batch_size"/"model": "transformer", "encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "n_heads": 2,\
    "ff_dim": 32, "dropout_embedding": 0.1, "learning_rate": 0.005, "warmup_steps": 50, "seed": 5, &/'
}

toy_transformer() {
    toy "$1" "$2"
    of_transformer < toy.json > toy.new && mv toy.new toy.json
}

ranks() { # np, program and arguments
    np=$1
    shift
    if [ "$np" -eq 1 ]; then
        timeout $((100 * ${RD_TIMEOUT_SCALE:-1})) "$@"
    else
        # shellcheck disable=SC2086 # $MPIRUN is several words
        timeout $((100 * ${RD_TIMEOUT_SCALE:-1})) $MPIRUN -np "$np" "$@"
    fi
}

all_leave_together() { # the sanitizers may report something after MPI_Finalize
    case ${BUILD:-} in *asan* | *tsan*) return ;; esac
    export OMPI_MCA_odls_base_sigkill_timeout=0
}

wait_until() { # seconds, command...
    local tries=$(($1 * 20 * ${RD_TIMEOUT_SCALE:-1})) seconds=$1
    shift
    until "$@" > /dev/null 2>&1; do
        if [ $tries -le 0 ]; then
            echo "FAILED: waited $seconds s in vain for: $*" >> "$waited"
            return 1
        fi
        sleep 0.05
        tries=$((tries - 1))
    done
}

gone() {
    local left=1 seconds=$1 tries
    [ "${CASES:-}" = all ] || seconds=$((60 * ${RD_TIMEOUT_SCALE:-1}))
    tries=$((seconds * 4 + 1))
    while left=$(pgrep -fc "$2"); [ "$left" -gt 0 ] && [ $tries -gt 0 ]; do
        sleep 0.25
        tries=$((tries - 1))
    done
    echo "$left are left"
}

timed() {
    awake=$(mktemp) || return 2
    (while [ -e "$awake" ] && kill -0 $$; do sleep 0.1; echo; done > "$awake.naps" 2> /dev/null) &
    napper=$!
    "$@"
    timed_status=$?
    rm "$awake"
    wait $napper
    naps=$(wc -l < "$awake.naps")
    rm "$awake.naps"
    return $timed_status
}

usual=0
in_time() {
    [ "${CASES:-}" = all ] || return 0
    most=$(($1 * 10 * ${RD_TIMEOUT_SCALE:-1}))
    [ $most -ge $((2 * usual)) ] || most=$((2 * usual))
    [ "$naps" -le $most ] || { echo "took $naps naps of 0.1 s, $most are allowed"; return 1; }
}

seconds() { # regular expression
    if [ "${CASES:-}" = all ]; then echo "$1"; else echo '[0-9]*'; fi
}

expect() { # name, wanted status, wanted text or "", command...
    local name=$1 want=$2 text=$3 out got
    shift 3
    out=$("$@" 2>&1)
    got=$?
    if [ $got -eq "$want" ] && { [ -z "$text" ] || printf '%s' "$out" | grep -q -- "$text"; }; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s: status %d, wanted %d with "%s"\n%s\n' "$name" $got "$want" "$text" "$out"
    fi
}

# column KEY FOLDER: prints KEY of each line of metrics.jsonl
column() { sed -n 's/.*"'"$1"'":\([^,}]*\).*/\1/p' "$2/metrics.jsonl"; }

# close_curves KEY BOUND N A B: compares the first N values of two folders; succeeds if the relative gap is
# at most BOUND; prints the largest gap
close_curves() {
    column "$1" "$4" > a.col
    column "$1" "$5" > b.col
    paste a.col b.col | head -n "$3" | awk -v bound="$2" -v n="$3" '
        $1 !~ /^-?[0-9]/ || $2 !~ /^-?[0-9]/ { none++ } # null, nothing
        { d = $1 - $2; if (d < 0) d = -d; m = $1 < 0 ? -$1 : $1; if (m > 0) d /= m; if (d > worst) worst = d }
        END { printf "%d values, largest gap %g\n", NR, worst; exit !(NR == n && !none && worst <= bound) }'
}

summary() {
    if [ -e "$waited" ]; then
        cat "$waited"
        failed=$((failed + $(wc -l < "$waited")))
        rm "$waited"
    fi
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed -eq 0 ]
}
