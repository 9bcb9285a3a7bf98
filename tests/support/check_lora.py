#!/usr/bin/env python3
"""Compares run_dist's adapters (LoRA) with PEFT, by folders of weights and adapters.

    check_lora.py PROG FOLDER [CASE...]

Each case is a random small model that transformers saves in FOLDER, and keys of adapters. It compares

  - the adapter before training, by --mode=export --format=peft: A has PEFT's distribution, and B is 0
  - ten steps of AdamW from there, and those of PEFT with torch.optim.AdamW: all losses, and the logits afterwards
  - PEFT's logits with the exported adapter, and those of the merged export in transformers
  - PEFT's loss of the adapter that it trained and saved, and run_dist's with `lora_from`
  - run_dist's perplexity of the adapter, with the merged export, and of the merged export read again
  - the arrays of the checkpoint: the optimizer has state for adapters alone, and frozen weights are those of the folder

Numbers may differ by 1e-5 of the largest one, the logits of both trainings by 1e-4. It prints the largest differences of
each case. Needs numpy, torch, transformers, tokenizers, safetensors and peft.
"""

import json
import math
import os
import shutil
import sys

import numpy as np
import peft
import torch
import transformers
from check_weights import CASES as MODELS
from check_weights import FOLDER, STEPS, T, TOLERANCE, V, WINDOWS, largest, nll, records, run, saved, sets, train

# name: a case of check_weights.py, keys of run_dist
CASES = {
    "gpt2": ("gpt2", dict(lora_rank=4, lora_alpha=8)),
    "gpt2_all": ("gpt2_erf", dict(lora_rank=3, lora_alpha=3, lora_targets=["all-linear"])),
    "llama": ("llama", dict(lora_rank=8, lora_alpha=16)),
    "llama_gate": ("llama3", dict(lora_rank=2, lora_targets=["gate_proj", "down_proj", "k_proj"])),
    "smollm2_all": ("smollm2", dict(lora_rank=4, lora_alpha=8, lora_rslora=True, lora_targets="all-linear")),
    "qwen2": ("qwen2", dict(lora_rank=4, lora_alpha=4, lora_targets=["o_proj", "v_proj", "q_proj", "k_proj"])),
    "qwen3": ("qwen3", dict(lora_rank=16, lora_alpha=8, lora_targets=["up_proj", "q_proj"])),
}


def same_start(adapter):
    """How far the arrays of an adapter are from PEFT's initial ones: A uniform, B zero."""
    far, u = 0.0, []
    for name, x in saved(adapter).items():
        if ".lora_B." in name:
            far = max(far, float(x.abs().max()))
        else:
            bound = 1 / math.sqrt(x.shape[1])
            u.append((x / bound).flatten())
    u = torch.cat(u)
    far = max(far, float(u.abs().max()) - 1)
    # The mean and the variance of numbers that are uniform in (-1, 1), at five standard errors.
    if abs(float(u.mean())) > 5 / math.sqrt(3 * len(u)) or abs(float((u * u).mean()) - 1 / 3) > 5 * 0.3 / math.sqrt(len(u)):
        far = math.inf
    return far


def check(name):
    case, lora = CASES[name]
    config, dtype, size = MODELS[case]
    work = os.path.join(FOLDER, "lora_" + name)
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    torch.manual_seed(sum(map(ord, name)))
    weights = work + "/weights"
    transformers.AutoModelForCausalLM.from_config(config).to(dtype).save_pretrained(
        weights, **({"max_shard_size": size} if size else {}))
    ids = np.random.default_rng(3).integers(0, V, WINDOWS * T + 1).astype(np.uint16)
    ids.tofile(work + "/text.bin")
    with open(work + "/c.json", "w") as f:
        json.dump(dict(model="gpt", init_from=weights, source_file=work + "/text.bin", seq_len=T,
                       source_file_eval=work + "/text.bin", optimizer="adamw", learning_rate=1e-2, adam_beta1=0.9,
                       adam_beta2=0.95, adam_epsilon=1e-3, weight_decay=0.1, batch_sentences=WINDOWS,
                       num_epochs=STEPS + 1, lr_scaling="none", warmup_steps=0, **lora), f)
    config_file = "--config_file=" + work + "/c.json"

    def export(log, form, out):
        run(config_file, "--mode=export", "--format=" + form, "--logdir=" + log, "--export_out=" + work + "/" + out)

    def opened(cls=transformers.AutoModelForCausalLM, at=weights):
        return cls.from_pretrained(at, dtype=torch.float32, attn_implementation="eager")

    run(config_file, "--mode=train", "--logdir=" + work + "/start", "--max_steps=1", *sets(learning_rate=1e-30))
    export(work + "/start", "peft", "begin")
    with open(work + "/begin/adapter_config.json") as f:
        assert json.load(f)["base_model_name_or_path"] == os.path.realpath(weights)
    figures = {"start": same_start(work + "/begin")}
    model = peft.PeftModel.from_pretrained(opened(), work + "/begin", is_trainable=True).train()
    log = work + "/log"
    run(config_file, "--mode=train", "--logdir=" + log, "--summary_frequency=1", "--max_steps=%d" % (STEPS + 1))
    losses, his = records(log + "/metrics.jsonl", "loss"), train(model, ids)
    figures["%d losses" % len(his)] = largest(losses, his) if len(losses) == len(his) else math.inf
    ten = work + "/ten"
    run(config_file, "--mode=train", "--logdir=" + ten, "--max_steps=%d" % STEPS)
    export(ten, "peft", "adapter")
    export(ten, "safetensors", "merged")
    again = peft.PeftModel.from_pretrained(opened(), work + "/adapter").eval()
    merged = opened(at=work + "/merged").eval()
    x = torch.tensor(ids[:T].astype(np.int64))[None]
    with torch.no_grad():
        logits = [m(x).logits.numpy() for m in (again, merged, model.eval(), opened().eval())]
        loss = nll(again, ids).item()
    figures["trained logits"] = largest(logits[0], logits[2])
    figures["merged logits"] = largest(logits[1], logits[0])
    figures["exported"] = largest(loss, losses[-1])
    model.save_pretrained(work + "/his")
    own = [w for k in lora for w in ("--set", k + "=null")]
    run(config_file, "--mode=eval", "--logdir=" + work + "/from", *own, *sets(checkpoint=weights, lora_from=work + "/his"))
    with torch.no_grad():
        figures["of PEFT"] = largest(records(work + "/from/eval/metrics.jsonl", "loss")[-1], nll(model, ids).item())
    run(config_file, "--mode=eval", "--logdir=" + ten)
    run(config_file, "--mode=eval", "--logdir=" + work + "/eval",
        *sets(checkpoint=work + "/merged", lora_rank=0, init_from=None))
    figures["perplexity"] = max(largest(records(at + "/eval/metrics.jsonl", "loss")[-1], loss) for at in (ten, work + "/eval"))
    z = np.load(ten + "/model-%d.npz" % STEPS)
    frozen = [n for n in z.files if n != "manifest.json" and "_lora_" not in n]
    before = np.load(work + "/start/model-1.npz")
    good = not any(n.endswith(("/m", "/v")) for n in frozen) and all(np.array_equal(z[n], before[n]) for n in frozen)
    good &= largest(logits[0], logits[3]) > 0.01  # the adapter does something
    good &= sorted(json.loads(bytes(z["manifest.json"]))["trained"]) == sorted(
        n for n in z.files if n.endswith(("_lora_a", "_lora_b")))
    good &= all(v <= (1e-4 if k == "trained logits" else TOLERANCE) for k, v in figures.items())
    print("%-10s %-12s %s" % ("ok" if good else "DIFFERENT", name, ", ".join("%s %.1e" % kv for kv in figures.items())),
          flush=True)
    return good


sys.exit(not all([check(n) for n in sys.argv[3:] or list(CASES)]))
