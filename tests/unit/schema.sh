#!/bin/bash
# schema.sh -- tests the schema of the config with another program, jsonschema of Python: the configs of the tree are
# valid, and what the program refuses is not. Without jsonschema the test is skipped, or fails with RD_REQUIRE_PYTHON=1.
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
[[ $PROG = /* ]] || PROG=$PWD/$PROG
python=${RD_PYTHON:-python3}
top=$(cd "$(dirname "$0")/../.." && pwd)
if ! "$python" -c 'import jsonschema' 2> /dev/null; then
    if [ "${RD_REQUIRE_PYTHON:-0}" = 1 ]; then
        echo "$python has no jsonschema"
        exit 1
    fi
    echo "skip: $python has no jsonschema"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
"$PROG" --print_schema > schema.json || exit 2
cat > check.py << 'END'
import json, subprocess, sys, glob, os
import jsonschema
prog, top = sys.argv[1:]
schema = json.load(open("schema.json"))
jsonschema.Draft202012Validator.check_schema(schema)
valid = jsonschema.Draft202012Validator(schema).is_valid
passed = failed = 0
def check(name, ok):
    global passed, failed
    passed, failed = passed + ok, failed + (not ok)
    if not ok:
        print("FAILED:", name)
configs = [f for f in sorted(glob.glob(top + "/configs/*.json")) if os.path.basename(f) != "schema.json"]
check("there are configs", len(configs) > 10)
loaded = {os.path.basename(f): json.load(open(f)) for f in configs}
for name, c in loaded.items():
    check(name + " is valid", valid(c))
text, image = dict(loaded["toy_data_config.json"]), dict(loaded["mnist_advanced.json"])
transformer = dict(loaded["en_de_transformer.json"])
# What the program says about a config: accepted, or refused as a combination.
def program(c):
    json.dump(c, open("c.json", "w"))
    r = subprocess.run([prog, "--config_file=c.json", "--print_config"], capture_output=True, text=True)
    return r.returncode == 0
def without(c, *keys):
    return {k: v for k, v in c.items() if k not in keys}
both = [
    ("an unknown model", {**text, "model": "resnet"}),
    ("an unknown dataset", {**image, "dataset": "mnist"}),
    ("a model in upper case", {**text, "model": "SEQ2SEQ"}),
    ("a key of another model", {**image, "encoder_cell_units": 8}),
    ("a key of images with text", {**text, "image_size": 32}),
    ("a key of another optimizer", {**text, "optimizer": "adam", "lars_eta": 0.1}),
    ("a key of this optimizer", {**text, "optimizer": "lars", "lars_eta": 0.1}),
    ("the optimizer in upper case", {**text, "optimizer": "LARS", "lars_eta": 0.1}),
    ("a key of a Transformer in seq2seq", {**text, "ff_dim": 64}),
    ("a key of a Transformer", {**transformer, "ff_dim": 64}),
    ("a key of seq2seq in a Transformer", {**transformer, "attention_layer_size": 64}),
    ("a key of a policy that is not chosen", {**text, "lr_policy": "cosine", "inv_sqrt_form": "t2t"}),
    ("a key of the default policy", {**without(text, "lr_policy"), "use_decay": True}),
    ("a key of another policy than the default", {**without(text, "lr_policy", "piecewise_learning_rate_schedule"), "inv_sqrt_form": "t2t"}),
    ("a key of the dataset of the model", {**text, "bucket_src": [8]}),
    ("a key that OpenSeq2Seq's configs carry along", {**text, "optimizer": "adam", "opt_momentum": 0.9}),
    ("the same key in another config", {**without(text, "num_gpus"), "optimizer": "adam", "opt_momentum": 0.9}),
    ("keys of decay under another policy", {**without(text, "num_gpus"), "lr_policy": "inv_sqrt", "decay_rate": 0.5}),
    ("the same in a config of OpenSeq2Seq", {**text, "lr_policy": "inv_sqrt", "decay_rate": 0.5}),
    ("an unknown key", {**text, "learning_rat": 1}),
    ("a wrong type", {**text, "batch_size": "8"}),
    ("out of range", {**text, "batch_size": 0}),
    ("a schema of an editor", {**text, "$schema": "schema.json"}),
]
agree = 0
for name, c in both:
    p = program(c)
    agree += not p
    check(f"{name}: the program {'takes' if p else 'refuses'} it", valid(c) == p)
check("the program refuses most of them", agree >= 9)
# Keys that a model needs in every mode; --print_config does not ask for them.
check("seq2seq without cells", not valid(without(text, "encoder_cell_type")))
check("seq2seq by default, without cells", not valid(without(text, "model", "encoder_cell_type")))
check("images need no cells", valid(image))
# The model may be in the base.
check("a config with a base", valid({"base": "x.json", "ff_dim": 64}))
check("types count there, too", not valid({"base": "x.json", "batch_size": "8"}))
check("the base is a path", not valid({"base": 3}))
print(f"{passed} passed, {failed} failed, 0 skipped")
sys.exit(failed > 0)
END
"$python" check.py "$PROG" "$top"
