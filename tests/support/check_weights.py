#!/usr/bin/env python3
"""Compares run_dist with Hugging Face's transformers, by folders of weights.

    check_weights.py PROG FOLDER [CASE...]

Each case is a random small model that transformers saves in FOLDER, in float32, float16 or bfloat16, in one file or in
several. It compares

  - perplexity: run_dist's --mode=eval of that folder, and the mean loss of transformers in float32
  - ten steps of AdamW from these weights, and torch.optim.AdamW: all losses
  - export of the weights as they were read: the same bytes as those of the saved model, widened to float32
  - --mode=export of the trained weights, opened by transformers: its loss and run_dist's
  - the logits of that model and of the one that PyTorch trained in float32. Ten steps amplify rounding, so both are
    compared with a third training, in float64 (as are its angles of positions). The figures are root mean squares over all
    logits, divided by the largest one

The case "text" has a tokenizer of SmolLM's form. Texts that transformers and run_dist continue greedily are equal, and so
are the ids of the exported tokenizer, once copied and once trained by run_dist. Numbers may differ by 1e-5 of the largest
one. Of the trained logits, run_dist's distance from float64 may be 3 times PyTorch's in one case, and 1.25 times in the
geometric mean of all cases. It prints the largest differences of each case. Needs numpy, torch, transformers, tokenizers
and safetensors.
"""

import json
import math
import os
import shutil
import subprocess
import sys

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

TOLERANCE = 1e-5
V, T, WINDOWS, STEPS = 67, 24, 12, 10
RATIOS = []
PROG, FOLDER = os.path.abspath(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def llama(kind, **more):
    c = dict(vocab_size=V, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=False,
             bos_token_id=None, eos_token_id=None, attn_implementation="eager", initializer_range=0.2)
    c.update(more)
    return kind(**c)


def gpt2(**more):
    return GPT2Config(vocab_size=V, n_embd=48, n_head=4, n_layer=3, n_positions=32, resid_pdrop=0.0, embd_pdrop=0.0,
                      attn_pdrop=0.0, bos_token_id=None, eos_token_id=None, attn_implementation="eager",
                      initializer_range=0.2, **more)


LLAMA3 = dict(rope_type="llama3", rope_theta=100.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
# name: config of transformers, type of the saved weights, size of a file
CASES = {
    "gpt2": (gpt2(), torch.float32, None),
    "gpt2_erf": (gpt2(activation_function="gelu", n_inner=96), torch.float16, "20KB"),
    "llama": (llama(LlamaConfig), torch.float32, "30KB"),
    "llama3": (llama(LlamaConfig, tie_word_embeddings=True, rope_parameters=LLAMA3), torch.bfloat16, None),
    "llama_bias": (llama(LlamaConfig, attention_bias=True, mlp_bias=True, head_dim=12), torch.float32, None),
    "smollm2": (llama(LlamaConfig, num_attention_heads=9, num_key_value_heads=3, hidden_size=36,
                      tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=100000.0)),
                torch.bfloat16, None),
    "linear": (llama(LlamaConfig, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0)),
               torch.float32, None),
    "qwen2": (llama(Qwen2Config, use_sliding_window=False), torch.float32, None),
    "qwen3": (llama(Qwen3Config, head_dim=10, use_sliding_window=False), torch.bfloat16, "40KB"),
}


def run(*args):
    done = subprocess.run([PROG, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit("%s ended with %d:\n%s" % (" ".join((PROG,) + args), done.returncode, done.stdout))
    return done.stdout


def sets(**keys):
    return [w for k, v in keys.items() for w in ("--set", "%s=%s" % (k, json.dumps(v)))]


def records(path, key):
    with open(path) as f:
        return [json.loads(line)[key] for line in f if key in json.loads(line)]


def nll(model, ids):
    """The mean loss of all windows, in which each token but the first is a target once."""
    x = torch.tensor(np.lib.stride_tricks.sliding_window_view(ids, T + 1)[::T].astype(np.int64))
    logits = model(x[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, V), x[:, 1:].reshape(-1))


def train(model, ids):
    """The losses before each update and after the last. Decay as ours: of arrays with 2 dimensions."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0}]
    adam, losses = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), eps=1e-3), []
    for t in range(STEPS + 1):
        adam.zero_grad()
        loss = nll(model, ids)
        losses.append(loss.item())
        loss.backward()
        if t < STEPS:
            adam.step()
    return losses


def exact_angles(model):
    """Lets a model in float64 compute the angles of positions in float64; transformers has them in float32."""
    if not hasattr(model, "model"):
        return model
    c, p = model.config, model.config.rope_parameters
    d = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    f = [p["rope_theta"] ** (-2.0 * i / d) for i in range(d // 2)]
    if p["rope_type"] == "linear":
        f = [x / p["factor"] for x in f]
    if p["rope_type"] == "llama3":  # wavelengths between the two limits pass from one to the other
        length, low, high = p["original_max_position_embeddings"], p["low_freq_factor"], p["high_freq_factor"]
        keep = [min(1.0, max(0.0, (length * x / (2 * math.pi) - low) / (high - low))) for x in f]
        f = [x * s + x / p["factor"] * (1 - s) for x, s in zip(f, keep)]
    f = torch.tensor(f, dtype=torch.float64)
    rotary = model.model.rotary_emb
    assert (rotary.inv_freq - f).abs().max() < 1e-6 * f.max()

    def forward(x, position_ids):
        a = position_ids.double()[..., None] * f
        return torch.cat((a, a), -1).cos(), torch.cat((a, a), -1).sin()

    rotary.forward = forward
    return model


def saved(folder):
    """All arrays of a folder, as float32."""
    out = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            out.update((n, x.float()) for n, x in load_file(os.path.join(folder, name)).items())
    return out


def largest(a, b):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.abs(a - b).max() / max(1.0, np.abs(b).max()))


def check(name):
    config, dtype, size = CASES[name]
    work = os.path.join(FOLDER, name)
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    torch.manual_seed(sum(map(ord, name)))
    model = getattr(transformers, {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM",
                                   "qwen3": "Qwen3ForCausalLM"}[config.model_type])(config)
    with torch.no_grad():
        for n, p in model.named_parameters():  # no array keeps its usual ones or zeros
            if p.dim() == 1:
                p.add_(torch.randn_like(p) * 0.2)
    model = model.to(dtype)
    weights = work + "/weights"
    model.save_pretrained(weights, **({"max_shard_size": size} if size else {}))
    n_files = sum(f.endswith(".safetensors") for f in os.listdir(weights))
    assert (n_files > 1) == bool(size), (name, n_files)
    # Read again, since a change of type also rounds the angles of positions.
    model = type(model).from_pretrained(weights, dtype=torch.float32, attn_implementation="eager").train()
    ids = np.random.default_rng(3).integers(0, V, WINDOWS * T + 1).astype(np.uint16)
    ids.tofile(work + "/text.bin")
    with open(work + "/c.json", "w") as f:
        json.dump(dict(model="gpt", init_from=weights, source_file=work + "/text.bin", seq_len=T,
                       source_file_eval=work + "/text.bin", optimizer="adamw", learning_rate=1e-2, adam_beta1=0.9,
                       adam_beta2=0.95, adam_epsilon=1e-3, weight_decay=0.1, batch_sentences=WINDOWS,
                       num_epochs=STEPS + 1, lr_scaling="none", warmup_steps=0), f)
    run("--config_file=" + work + "/c.json", "--mode=eval", "--logdir=" + work + "/eval", *sets(checkpoint=weights))
    got = records(work + "/eval/eval/metrics.jsonl", "loss")[-1]
    with torch.no_grad():
        figures = {"perplexity": largest(math.exp(got), math.exp(nll(model, ids).item()))}
    run("--config_file=" + work + "/c.json", "--mode=export", "--format=safetensors", "--export_out=" + work + "/same",
        *sets(checkpoint=weights))
    a, b = saved(weights), saved(work + "/same")
    figures["same bytes"] = 0.0 if a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a) else math.inf
    log = work + "/log"
    run("--config_file=" + work + "/c.json", "--mode=train", "--logdir=" + log, "--summary_frequency=1",
        "--max_steps=%d" % (STEPS + 1))
    losses = records(log + "/metrics.jsonl", "loss")
    his = train(model, ids)
    assert len(losses) == len(his), (losses, his)
    figures["%d losses" % len(his)] = largest(losses, his)
    run("--config_file=" + work + "/c.json", "--mode=train", "--logdir=" + work + "/ten", "--max_steps=%d" % STEPS)
    run("--config_file=" + work + "/c.json", "--mode=export", "--format=safetensors", "--logdir=" + work + "/ten",
        "--export_out=" + work + "/out")
    again = transformers.AutoModelForCausalLM.from_pretrained(work + "/out", attn_implementation="eager").eval()
    assert type(again) is type(model), type(again)
    exact = exact_angles(type(model).from_pretrained(weights, dtype=torch.float64, attn_implementation="eager"))
    train(exact, ids)
    x = torch.tensor(np.lib.stride_tricks.sliding_window_view(ids[:-1], T)[::T].astype(np.int64))
    with torch.no_grad():
        figures["exported"] = largest(nll(again, ids).item(), losses[-1])
        want = exact.eval()(x).logits
        far = [((m.eval()(x).logits - want).square().mean().sqrt() / want.abs().max()).item() for m in (again, model)]
    RATIOS.append(far[0] / far[1])
    good = all(v <= TOLERANCE for v in figures.values()) and RATIOS[-1] <= 3
    figures["trained logits from float64: run_dist"], figures["PyTorch"] = far
    print("%-10s %s  %-8s %d file%s: %s" % ("ok" if good else "DIFFERENT", name, str(dtype)[6:], n_files,
                                            "s" if n_files > 1 else "",
                                            ", ".join("%s %.1e" % kv for kv in figures.items())), flush=True)
    return good


def check_text():
    """A model with a tokenizer: texts and ids."""
    work = os.path.join(FOLDER, "text")
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    lines = ["the %s %s %s %d times" % (a, v, b, n) for a in ("cat", "dog", "bird") for v in ("sees", "hears")
             for b in ("a fish", "her", "its own tail") for n in (3, 17, 1024)] * 3
    with open(work + "/text.txt", "w") as f:
        f.write("\n".join(lines) + "\n")
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=300, special_tokens=["<|endoftext|>"], show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|endoftext|>", bos_token="<|endoftext|>")
    config = llama(LlamaConfig, vocab_size=len(fast) + 12, tie_word_embeddings=True, eos_token_id=0, bos_token_id=0)
    torch.manual_seed(7)
    weights = work + "/weights"
    transformers.LlamaForCausalLM(config).save_pretrained(weights)
    fast.save_pretrained(weights)
    with open(work + "/c.json", "w") as f:
        json.dump(dict(model="gpt", init_from=weights, source_file=work + "/text.txt", seq_len=T, optimizer="adamw",
                       source_file_eval=work + "/text.txt", source_file_test=work + "/prompts.txt", learning_rate=3e-3,
                       batch_sentences=8, num_epochs=20, decoder_type="greedy", max_new_tokens=12), f)
    prompts = ["the cat", "the dog sees", "17"]
    with open(work + "/prompts.txt", "w") as f:
        f.write("\n".join(prompts) + "\n")

    def same(folder, how, name, own):
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
        tok = transformers.AutoTokenizer.from_pretrained(folder)
        out = work + "/" + name + ".out"
        run("--config_file=" + work + "/c.json", "--mode=infer", "--inference_out=" + out, *how)
        with open(out, encoding="utf-8", errors="replace", newline="\n") as f:
            ours = f.read()
        theirs = ""
        for p in prompts:
            with torch.no_grad():
                x = model.generate(torch.tensor([tok(p)["input_ids"]]), max_new_tokens=12, do_sample=False,
                                   suppress_tokens=list(range(len(tok), model.config.vocab_size)) or None)
            theirs += tok.decode(x[0], skip_special_tokens=True) + "\n"
        ids = all(tok(s)["input_ids"] == own(s)["input_ids"] for s in lines + ["Ünder 2048\t!"])
        print("%-10s %s  %s: texts %s, ids %s" % ("ok" if ours == theirs and ids else "DIFFERENT", "text", name,
                                                  "equal" if ours == theirs else "%r, %r" % (ours, theirs),
                                                  "equal" if ids else "other"), flush=True)
        return ours == theirs and ids

    good = same(weights, sets(checkpoint=weights), "as saved", fast)
    run("--config_file=" + work + "/c.json", "--mode=train", "--logdir=" + work + "/log", "--max_steps=60")
    run("--config_file=" + work + "/c.json", "--mode=export", "--format=safetensors", "--logdir=" + work + "/log",
        "--export_out=" + work + "/out")
    good &= same(work + "/out", ["--logdir=" + work + "/log"], "trained", fast)
    own = dict(json.load(open(work + "/c.json")), n_layers=2, n_embd=32, n_heads=4, ff_dim=64, max_len=32, subword_size=300)
    del own["init_from"]
    with open(work + "/c.json", "w") as f:
        json.dump(own, f)
    run("--config_file=" + work + "/c.json", "--mode=train", "--logdir=" + work + "/own", "--max_steps=60")
    run("--config_file=" + work + "/c.json", "--mode=export", "--format=safetensors", "--logdir=" + work + "/own")
    at = work + "/own/export/model-60"
    return good & same(at, ["--logdir=" + work + "/own"], "own tokenizer", transformers.AutoTokenizer.from_pretrained(at))


if __name__ == "__main__":
    names = sys.argv[3:] or list(CASES) + ["text"]
    good = all([check_text() if n == "text" else check(n) for n in names])
    if RATIOS:
        mean = math.exp(sum(map(math.log, RATIOS)) / len(RATIOS))
        good &= mean <= 1.25
        print("trained logits: run_dist is %.2f times as far from float64 as PyTorch in float32, the geometric mean" % mean)
    sys.exit(not good)
