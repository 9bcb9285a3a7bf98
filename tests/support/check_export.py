#!/usr/bin/env python3
"""Checks what --mode=export writes against other programs.

    check_export.py PROG FOLDER [CASE...]

For each case it trains a small model for some steps in FOLDER, exports it, deletes nothing, and compares

  - the arrays of npz, safetensors (read by their own libraries) and the checkpoint: equal bytes
  - onnx.checker, with full inference of shapes
  - onnxruntime's numbers with those of PyTorch modules that got the exported weights: tests/golden/*_torch.py, and
    torchvision's resnets by an explicit map of names
  - both with run_dist's own losses (--mode=eval)

Numbers may differ by 1e-5 of the largest one, at least 1e-5. It prints the largest difference of each case. Needs
numpy, torch, onnx and onnxruntime; torchvision and safetensors are used where they are installed.
"""

import json
import os
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
import images_torch
import seq2seq_torch
import transformer_torch

TOLERANCE = 1e-5
PROG, FOLDER = os.path.abspath(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)


def run(*args):
    done = subprocess.run([PROG, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit("%s ended with %d:\n%s" % (" ".join((PROG,) + args), done.returncode, done.stdout))


def own_loss(log, *sets):
    """The loss of --mode=eval with these keys, in double."""
    run("--logdir=" + log, "--mode=eval", *[w for s in sets for w in ("--set", s)])
    with open(log + "/eval/metrics.jsonl") as f:
        return json.loads(f.readlines()[-1])["loss"]


def session(path):
    onnx.checker.check_model(path, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def read_safetensors(path):
    """Returns weights and texts."""
    with open(path, "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        head = json.loads(f.read(n))
        data = f.read()
    about = head.pop("__metadata__")
    weights = {k: np.frombuffer(data[v["data_offsets"][0]:v["data_offsets"][1]], "<f4").reshape(v["shape"])
               for k, v in head.items()}
    try:
        from safetensors.numpy import load_file
        theirs = load_file(path)
        assert sorted(theirs) == sorted(weights) and all(np.array_equal(theirs[k], weights[k]) for k in weights)
    except ImportError:
        pass
    return weights, about


def exported(log):
    """Exports in all forms. Returns weights, texts and the stem of the files."""
    for form in ("npz", "safetensors", "onnx"):
        run("--logdir=" + log, "--mode=export", "--format=" + form)
    step = max(int(f[6:-4]) for f in os.listdir(log) if f.startswith("model-"))
    stem = "%s/export/model-%d" % (log, step)
    weights, about = read_safetensors(stem + ".safetensors")
    with np.load(stem + ".npz") as z, np.load("%s/model-%d.npz" % (log, step)) as checkpoint:
        arrays = [k for k in z.files if k != "manifest.json"]
        assert sorted(arrays) == sorted(weights), "npz and safetensors have other names"
        for k in arrays:
            assert np.array_equal(z[k], weights[k]) and np.array_equal(checkpoint[k], weights[k]), k
        assert json.loads(bytes(z["manifest.json"]).decode() if "manifest.json" in z.files else "{}") in ({}, about)
    return weights, about, stem


class Worst:
    """The largest difference of a case, as a share of what is allowed."""

    def __init__(self):
        self.at, self.lines = 0.0, {}

    def compare(self, what, a, b):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert a.shape == b.shape, (what, a.shape, b.shape)
        d = np.abs(a - b).max() / max(1.0, np.abs(b).max())
        self.lines[what] = max(self.lines.get(what, 0.0), d)
        if not d <= TOLERANCE:
            raise AssertionError("%s: %.3g" % (what, d))


# ---- images ----

IMAGES = {
    # name: (model, height, width, channels, more keys)
    "mnist_cnn": ("mnist_cnn", 28, 28, 1, {}),
    "lenet": ("lenet", 28, 28, 3, {}),
    "alexnet": ("alexnet", 67, 67, 3, {}),
    "alexnet_cifar": ("alexnet_cifar", 32, 32, 3, {}),
    "vgg11": ("vgg11", 32, 32, 3, {}),
    "resnet20": ("resnet20", 32, 32, 3, {}),
    "resnet18": ("resnet18", 64, 48, 3, {}),
    "resnet50": ("resnet50", 64, 64, 3, {"pool_padding": "same"}),
    "resnet50_v1.5": ("resnet50_v1.5", 64, 64, 3, {}),
}


def torchvision_names(weights):
    """The weights of a resnet under torchvision's names and in its layouts."""
    out = {}
    parts = {"gamma": "weight", "beta": "bias", "mean": "running_mean", "variance": "running_var"}
    for k, v in weights.items():
        *at, layer, part = k.split("/")[1:]
        v = torch.tensor(v)
        if layer == "dense":
            out["fc.weight" if part == "kernel" else "fc.bias"] = v.T if part == "kernel" else v
            continue
        place = "layer%d.%d." % (int(at[0][5:]) - 1, int(at[1][5:]) - 1) if at else ""
        if layer.startswith("projection"):
            name = "downsample.%d" % (layer == "projection_norm")
        else:
            name = layer.replace("norm", "bn")
        out[place + name + "." + parts.get(part, "weight")] = v.permute(3, 2, 0, 1) if part == "kernel" else v
    return out


def torchvision_logits(model, weights, x, classes):
    import torchvision.models as tv
    module = getattr(tv, model.split("_")[0])(num_classes=classes).eval()
    missing, unknown = module.load_state_dict(torchvision_names(weights), strict=False)
    assert not unknown and all(k.endswith("num_batches_tracked") for k in missing), (missing, unknown)
    for b in module.modules() if not model.endswith("v1.5") else ():
        if isinstance(b, tv.resnet.Bottleneck) and b.conv2.stride == (2, 2):
            b.conv1.stride, b.conv2.stride = (2, 2), (1, 1)
    with torch.no_grad():
        return module(x).numpy()


def check_images(name):
    model, h, w, c, keys = IMAGES[name]
    classes, folder = 5, os.path.join(FOLDER, name)
    os.makedirs(folder)
    rng = np.random.default_rng(len(name))
    draw = lambda n: rng.integers(0, 256, (n, h, w, c), np.uint8)
    y = rng.integers(0, classes, 16)
    one = draw(1)
    np.savez(folder + "/mnist.npz", x_train=draw(16), y_train=y, x_test=draw(8), y_test=y[:8])
    for k in range(classes):
        np.savez("%s/one%d.npz" % (folder, k), x_test=one, y_test=np.array([k]))
    config = dict(model=model, dataset="npz_images", data_dir=folder, n_classes=classes, batch_size=8, learning_rate=0.01,
                  optimizer="sgd", normalization="imagenet" if c == 3 else "mnist", num_epochs=3, histogram_frequency=0, **keys)
    with open(folder + "/config.json", "w") as f:
        json.dump(config, f)
    log, worst = folder + "/log", Worst()
    run("--config_file=" + folder + "/config.json", "--logdir=" + log)
    weights, about, stem = exported(log)
    mean, std = (np.array(json.loads(about[k]), np.float32) for k in ("pixel_mean", "pixel_std"))
    images = np.concatenate([one, draw(7)]).astype(np.float32)
    x = (images - mean) / std
    theirs = session(stem + ".onnx").run(["logits", "probabilities"], {"image": x.transpose(0, 3, 1, 2).copy()})
    module = images_torch.Model(dict(model=model, classes=classes, config=keys), torch.float32)
    module.param = lambda k, shape: torch.tensor(weights[k])
    module.states = {k: torch.tensor(v) for k, v in weights.items() if k.endswith(("/mean", "/variance"))}
    with torch.no_grad():
        logits = module.logits(torch.tensor(x), False).numpy()
    worst.compare("onnxruntime, PyTorch", theirs[0], logits)
    worst.compare("probabilities", theirs[1], torch.softmax(torch.tensor(logits), 1).numpy())
    if model.startswith("resnet") and model != "resnet20" and not keys:
        try:
            worst.compare("onnxruntime, torchvision", theirs[0],
                          torchvision_logits(model, weights, torch.tensor(x.transpose(0, 3, 1, 2).copy()), classes))
        except ImportError:
            worst.lines["no torchvision"] = 0.0
    lp = torch.log_softmax(torch.tensor(theirs[0][:1], dtype=torch.float64), 1).numpy()[0]
    worst.compare("run_dist", [-own_loss(log, "eval_data=one%d.npz" % k) for k in range(classes)], lp)
    return worst.lines


# ---- sequences ----

COMMON = dict(batch_size=4, num_epochs=3, learning_rate=0.01, optimizer="Adam", bucket_src=[14], bucket_tgt=[14], num_gpus=1,
              print_samples=False, histogram_frequency=0, threads=1, init_scale=0.3)


def recurrent(encoder, attention, cells, layers, skip, **more):
    units, emb = 16, 16
    return dict(COMMON, model="seq2seq", encoder_type=encoder, encoder_cell_type=cells[0], encoder_cell_units=units,
                encoder_layers=layers, encoder_dp_input_keep_prob=1.0, encoder_dp_output_keep_prob=1.0,
                encoder_use_skip_connections=skip, decoder_cell_type=cells[1], decoder_cell_units=units, decoder_layers=layers,
                decoder_dp_input_keep_prob=1.0, decoder_dp_output_keep_prob=1.0, decoder_use_skip_connections=skip,
                src_emb_size=emb, tgt_emb_size=emb, attention_type=attention, attention_layer_size=more.pop("depth", units), **more)


def transformer(**more):
    return dict({k: v for k, v in COMMON.items() if k != "init_scale"}, model="transformer", encoder_layers=2, decoder_layers=2,
                d_model=16, n_heads=4, ff_dim=24, dropout_attention=0.0, dropout_residual=0.0, dropout_ff=0.0,
                label_smoothing=0.0, average_across_timesteps=False, lr_policy="decay", **more)


SEQUENCES = {
    "lstm_bi_luong": recurrent("bidirectional", "luong", ("lstm", "lstm"), 1, False, luong_scale=True),
    "lstm_uni_bahdanau": recurrent("unidirectional", "bahdanau", ("lstm", "lstm"), 2, True, depth=12, softmax_temperature=1.5),
    "gru_bi_bahdanau_norm": recurrent("bidirectional", "bahdanau", ("gru", "gru"), 2, True, depth=8, bahdanau_normalize=True),
    "lstm_gnmt": recurrent("gnmt", "gnmt", ("lstm", "lstm"), 3, False, depth=12, proj_size=8),
    "glstm_gnmt_v2": recurrent("gnmt", "gnmt_v2", ("glstm", "glstm"), 3, False, depth=12, num_groups=2),
    "slstm_uni_luong": recurrent("unidirectional", "luong", ("slstm", "slstm"), 2, False),
    "transformer_pre": transformer(norm="pre"),
    "transformer_post": transformer(norm="post", positions="interleaved", activation="gelu_erf", attention_bias=True),
    "transformer_learned": transformer(positions="learned", max_positions=5, tie_embeddings="none", activation="gelu_tanh"),
    "transformer_ssru": transformer(decoder_layer="ssru", positions="t2t", tie_embeddings="target", activation="silu"),
    "transformer_gated": transformer(gated_ff=True, activation="silu"),
    "transformer_padded": transformer(pad_vocabs_to_eight=True, activation="relu2", output_bias=False),
}


def pairs(rng, n):
    return [[list(rng.integers(0, 6, rng.integers(1, 11))) for _ in range(2)] for _ in range(n)]


def write_pairs(path, list_of_pairs):
    for side, end in ((0, ".src"), (1, ".tgt")):
        with open(path + end, "w") as f:
            f.writelines(" ".join("abcdef"[k] for k in p[side]) + "\n" for p in list_of_pairs)


def padded(lists):
    out = np.zeros((len(lists), max(map(len, lists))), np.int64)
    for i, x in enumerate(lists):
        out[i, :len(x)] = x
    return out, np.array([len(x) for x in lists])


def decode_onnx(stem, x, x_len, y):
    """Logits of all steps with teacher forcing."""
    enc, dec = session(stem + ".encoder.onnx"), session(stem + ".decoder.onnx")
    memory = dict(zip((o.name for o in enc.get_outputs()), enc.run(None, {"source": x, "source_length": x_len})))
    names, state, out = [i.name for i in dec.get_inputs()], {}, []
    for i in dec.get_inputs():
        if i.name.startswith("state_") or i.name == "context":
            state[i.name] = np.zeros([len(x) if d == "batch" else 0 if isinstance(d, str) else d for d in i.shape], np.float32)
    for t in range(y.shape[1] - 1):
        feed = dict(memory, token=y[:, t], position=np.array([t]), source_length=x_len, **state)
        got = dict(zip((o.name for o in dec.get_outputs()), dec.run(None, {k: feed[k] for k in names})))
        out.append(got["logits"])
        state = {k: got["next_" + k] for k in state}
        if "attention" in got:
            assert np.abs(got["attention"].sum(1) - 1).max() < 1e-5
            assert all(not got["attention"][i, n:].any() for i, n in enumerate(x_len))
    return np.stack(out, 1)


def check_sequences(name):
    folder = os.path.join(FOLDER, name)
    os.makedirs(folder)
    rng = np.random.default_rng(len(name))
    tests = pairs(rng, 5)
    write_pairs(folder + "/train", pairs(rng, 24))
    write_pairs(folder + "/all", tests)
    for i, p in enumerate(tests):
        write_pairs("%s/pair%d" % (folder, i), [p])
    with open(folder + "/vocab.txt", "w") as f:
        f.write("".join(k + "\n" for k in "abcdef"))
    config = dict(SEQUENCES[name], src_vocab_file=folder + "/vocab.txt", tgt_vocab_file=folder + "/vocab.txt",
                  source_file=folder + "/train.src", target_file=folder + "/train.tgt")
    with open(folder + "/config.json", "w") as f:
        json.dump(config, f)
    log, worst = folder + "/log", Worst()
    run("--config_file=" + folder + "/config.json", "--logdir=" + log)
    weights, about, stem = exported(log)
    c = {k: v for k, v in json.loads(about["config"]).items() if v is not None and not (k == "proj_size" and v == 0)}
    x, x_len = padded([[1] + [k + 4 for k in p[0]] + [2] for p in tests])
    y, y_len = padded([[1] + [k + 4 for k in p[1]] + [2] for p in tests])
    theirs = decode_onnx(stem, x, x_len, y)
    p = {k: torch.tensor(v) for k, v in weights.items()}
    with torch.no_grad():
        args = torch.tensor(x), torch.tensor(x_len), torch.tensor(y)
        if c["model"] == "transformer":
            logits = transformer_torch.logits(c, p, args[0], args[1], args[2][:, :-1])
        else:
            logits = seq2seq_torch.teacher_forced_logits(c, p, *args)
    here = np.arange(y.shape[1] - 1)[None] < (y_len - 1)[:, None]
    words = 10
    worst.compare("onnxruntime, PyTorch", theirs[:, :, :words][here], logits.numpy()[:, :, :words][here])
    lp = torch.log_softmax(torch.tensor(theirs, dtype=torch.float64), 2).numpy()
    nll = [-sum(lp[i, t, y[i, t + 1]] for t in range(y_len[i] - 1)) for i in range(len(y))]
    own = [own_loss(log, "source_file_eval=%s/pair%d.src" % (folder, i), "target_file_eval=%s/pair%d.tgt" % (folder, i),
                    "eval_bleu=false") for i in range(len(y))]
    worst.compare("run_dist", own, nll)
    return worst.lines


def main():
    cases = sys.argv[3:] or list(IMAGES) + list(SEQUENCES)
    for name in cases:
        lines = check_images(name) if name in IMAGES else check_sequences(name)
        print("%-22s %s" % (name, "  ".join("%s %.1e" % (k, v) for k, v in lines.items())), flush=True)
    print("%d cases agree to %g" % (len(cases), TOLERANCE))


main()
