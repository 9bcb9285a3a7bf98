"""Writes golden values of language models: logits, losses, gradients, AdamW steps of Hugging Face's transformers.

    python make_gpt.py [--only PART_OF_A_NAME] [--check]

Each case is a random small model of transformers (GPT-2, Llama, Qwen 2, Qwen 3) in float64, with weights in steps of
1/64. The .npz file in gpt/ has the members that README.md lists. A case "lora_..." is such a model with adapters of PEFT.
Needs numpy, torch, transformers and peft. No code of run_dist is used. The script also computes the models of a formula (gpt.c has their numbers) and stops at a difference. --check
writes nothing.
"""

import argparse
import json
import math
import os

import numpy as np
import peft
import torch
import transformers
from transformers import GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

V, STEPS, LR, EPSILON, BETAS, DECAY = 19, 10, 1e-2, 1e-3, (0.9, 0.95), 0.1
SAMPLES = [[1, 4, 9, 2, 7, 3, 10], [5, 18, 0, 6, 11], [12, 13, 13, 8, 17, 16, 14, 15, 2]]


def llama(kind, **more):
    common = dict(vocab_size=V, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, max_position_embeddings=32, rms_norm_eps=1e-5, tie_word_embeddings=False,
                  attention_dropout=0.0, attn_implementation="eager")
    common.update(more)
    return kind(**common)


def keys(c, **more):
    """The keys of run_dist for a config of the Llama family."""
    k = dict(model="gpt", n_layers=c.num_hidden_layers, n_embd=c.hidden_size, n_heads=c.num_attention_heads,
             n_kv_heads=c.num_key_value_heads, ff_dim=c.intermediate_size, max_len=32, norm_type="rms",
             norm_eps=c.rms_norm_eps, pos="rope", activation="silu", gated_ff=True, bias="none",
             tie_embeddings="all" if c.tie_word_embeddings else "none")
    k.update(more)
    return k


def cases():
    """name -> (config of transformers, keys of run_dist)."""
    gpt2 = dict(vocab_size=V, n_embd=24, n_head=3, n_positions=16, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                attn_implementation="eager")
    mine = dict(model="gpt", n_embd=24, n_heads=3, ff_dim=96, max_len=16, norm_eps=1e-5, pos="learned", bias="all")
    plain = llama(LlamaConfig)
    scaled = llama(LlamaConfig, tie_word_embeddings=True, rope_parameters=dict(
        rope_type="llama3", rope_theta=100.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=16))
    two = llama(Qwen2Config, use_sliding_window=False)
    three = llama(Qwen3Config, head_dim=10, use_sliding_window=False)
    return {
        "gpt2": (GPT2Config(n_layer=2, **gpt2), dict(mine, n_layers=2, activation="gelu_tanh")),
        "gpt2_erf": (GPT2Config(n_layer=1, activation_function="gelu", **gpt2),
                     dict(mine, n_layers=1, activation="gelu_erf", vocab_multiple=8)),
        "llama": (plain, keys(plain)),
        "llama_scaled": (scaled, keys(scaled, rope_theta=100, rope_scaling="llama3", rope_factor=4,
                                      rope_original_len=16)),
        "qwen2": (two, keys(two, bias="qkv")),
        "qwen3": (three, keys(three, head_dim=10, qk_norm=True)),
        "lora_gpt2": (GPT2Config(n_layer=1, **gpt2), dict(mine, n_layers=1, activation="gelu_tanh", lora_rank=3, lora_alpha=6,
                                                          lora_targets=["c_attn", "c_proj"])),
        "lora_llama": (plain, keys(plain, lora_rank=4, lora_alpha=2)),
        "lora_qwen3": (three, keys(three, head_dim=10, qk_norm=True, lora_rank=2, lora_alpha=3, lora_rslora=True,
                                   lora_targets=["all-linear"])),
    }


ADAPTED = {"attn.c_attn": "attention/qkv", "attn.c_proj": "attention/out", "mlp.c_fc": "ff/kernel1",
           "mlp.c_proj": "ff/kernel2", "self_attn.q_proj": "attention/q", "self_attn.k_proj": "attention/k",
           "self_attn.v_proj": "attention/v", "self_attn.o_proj": "attention/out", "mlp.gate_proj": "ff/kernel1",
           "mlp.up_proj": "ff/gate", "mlp.down_proj": "ff/kernel2"}


def adapt(model, config, mine, rng):
    """PEFT's model with random adapters."""
    targets = mine.get("lora_targets", ["q_proj", "v_proj"])
    out = peft.get_peft_model(model, peft.LoraConfig(
        task_type="CAUSAL_LM", r=mine["lora_rank"], lora_alpha=mine["lora_alpha"], use_rslora=mine.get("lora_rslora", False),
        target_modules="all-linear" if targets == ["all-linear"] else targets,
        fan_in_fan_out=config.model_type == "gpt2")).double().train()
    with torch.no_grad():
        for p in out.parameters():
            if p.requires_grad:
                p.copy_(torch.from_numpy(np.round(rng.standard_normal(tuple(p.shape)) * 0.25 * 64) / 64))
    return out


def adapters(model, get):
    """Our parameters from those of PEFT's adapters: name -> array."""
    out = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            words = name.split(".")
            layer, matrix, letter = words[-6], ".".join(words[-5:-3]), words[-3][-1].lower()
            out["decoder/layer%s/%s_lora_%s" % (layer, ADAPTED[matrix], letter)] = get(p).T.copy()
    return out


def model_of(config):
    kind = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM",
            "qwen3": "Qwen3ForCausalLM"}[config.model_type]
    return getattr(transformers, kind)(config).double().train()


def ours(config, get, rows):
    """Our parameters from those of transformers: name -> array. get(name): an array. rows: of the table."""
    out = {}

    def padded(x):
        return np.concatenate([x, np.zeros((rows - len(x), x.shape[1]))])

    if config.model_type == "gpt2":
        out["embedding"], out["positions"] = padded(get("transformer.wte.weight")), get("transformer.wpe.weight")
        for i in range(config.n_layer):
            h, to = "transformer.h.%d." % i, "decoder/layer%d/" % i
            for mine, his in [("attention/norm_gain", "ln_1.weight"), ("attention/norm_bias", "ln_1.bias"),
                              ("attention/qkv_kernel", "attn.c_attn.weight"), ("attention/qkv_bias", "attn.c_attn.bias"),
                              ("attention/out_kernel", "attn.c_proj.weight"), ("attention/out_bias", "attn.c_proj.bias"),
                              ("ff/norm_gain", "ln_2.weight"), ("ff/norm_bias", "ln_2.bias"),
                              ("ff/kernel1", "mlp.c_fc.weight"), ("ff/bias1", "mlp.c_fc.bias"),
                              ("ff/kernel2", "mlp.c_proj.weight"), ("ff/bias2", "mlp.c_proj.bias")]:
                out[to + mine] = get(h + his)
        out["decoder/norm_gain"], out["decoder/norm_bias"] = get("transformer.ln_f.weight"), get("transformer.ln_f.bias")
        return out
    out["embedding"] = padded(get("model.embed_tokens.weight"))
    for i in range(config.num_hidden_layers):
        h, to = "model.layers.%d." % i, "decoder/layer%d/" % i
        parts = [h + "self_attn.%s_proj." % p for p in "qkv"]
        out[to + "attention/norm_gain"] = get(h + "input_layernorm.weight")
        out[to + "attention/qkv_kernel"] = np.concatenate([get(p + "weight").T for p in parts], 1)
        if config.model_type == "qwen2":
            out[to + "attention/qkv_bias"] = np.concatenate([get(p + "bias") for p in parts])
        if config.model_type == "qwen3":
            out[to + "attention/q_norm_gain"] = get(h + "self_attn.q_norm.weight")
            out[to + "attention/k_norm_gain"] = get(h + "self_attn.k_norm.weight")
        out[to + "attention/out_kernel"] = get(h + "self_attn.o_proj.weight").T
        out[to + "ff/norm_gain"] = get(h + "post_attention_layernorm.weight")
        out.update(feed_forward(to + "ff/", get(h + "mlp.gate_proj.weight").T, get(h + "mlp.up_proj.weight").T))
        out[to + "ff/kernel2"] = get(h + "mlp.down_proj.weight").T
    out["decoder/norm_gain"] = get("model.norm.weight")
    if not config.tie_word_embeddings:
        out["output_kernel"] = padded(get("lm_head.weight"))
    return out


def feed_forward(to, gate, up):
    return {to + "kernel1": gate, to + "gate_kernel": up}


def draw(model, rng):
    """Weights about N(0, 1/16), gains near 1, in steps of 1/64."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = rng.standard_normal(tuple(p.shape)) * 0.25
            if "norm" in name.replace("ln_", "norm_") and name.endswith("weight"):
                x = 1 + x
            p.copy_(torch.from_numpy(np.round(x * 64) / 64))


def nlls(model):
    """The losses of all targets, sample after sample, and the logits of the last row of the first sample."""
    out, last = [], None
    for s in SAMPLES:
        logits = model(torch.tensor([s[:-1]])).logits[0]
        out.append(torch.nn.functional.cross_entropy(logits, torch.tensor(s[1:]), reduction="none"))
        last = logits[-1] if last is None else last
    return torch.cat(out), last


def train(model):
    """Losses before each update of torch.optim.AdamW and after the last. Decay as in GPT-2's training: 2-d arrays."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if p.dim() >= 2], "weight_decay": DECAY},
              {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0}]
    adam, losses = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPSILON), []
    for t in range(STEPS + 1):
        adam.zero_grad()
        loss = nlls(model)[0].mean()
        losses.append(loss.item())
        loss.backward()
        if t < STEPS:
            adam.step()
    return losses


def make(name, config, mine, folder, check):
    torch.manual_seed(0)
    model = model_of(config)
    draw(model, np.random.default_rng(sum(map(ord, name))))
    k = mine.get("vocab_multiple", 1)
    rows = (V + k - 1) // k * k
    values = ours(config, lambda n: dict(model.named_parameters())[n].detach().numpy().copy(), rows)
    if "lora_rank" in mine:
        model = adapt(model, config, mine, np.random.default_rng(len(name)))
        values.update(adapters(model, lambda p: p.detach().numpy()))
    loss, last = nlls(model)
    loss.mean().backward()
    if "lora_rank" in mine:
        grads = {n: np.zeros_like(x) for n, x in values.items()}
        grads.update(adapters(model, lambda p: p.grad.numpy()))
    else:
        grads = ours(config, lambda n: dict(model.named_parameters())[n].grad.numpy().copy(), rows)
    adam = train(model)
    params, at = [], 0
    for n, x in values.items():
        params.append([n, list(x.shape), at])
        at += x.size
    mine = dict(mine, dropout_attention=0.0, dropout_residual=0.0, optimizer="adamw", learning_rate=LR,
                adam_beta1=BETAS[0], adam_beta2=BETAS[1], adam_epsilon=EPSILON, weight_decay=DECAY, batch_size=3)
    case = dict(vocab=V, parameters=params, transformers=transformers.__version__, torch=torch.__version__)
    off = np.cumsum([0] + [len(s) for s in SAMPLES])
    flat = lambda d: np.concatenate([d[n].ravel() for n, _, _ in params]).astype(np.float32)
    out = dict(config_json=np.frombuffer(json.dumps(mine).encode(), np.uint8),
               case_json=np.frombuffer(json.dumps(case).encode(), np.uint8),
               ids=np.array(sum(SAMPLES, []), np.int32), off=off.astype(np.int64), params=flat(values),
               grads=flat(grads), nll=loss.detach().numpy(), logits=last.detach().numpy(),
               adam_loss=np.array(adam))
    print("%-14s loss %.10f, after ten steps %.10f" % (name, adam[0], adam[-1]))
    if not check:
        np.savez_compressed(os.path.join(folder, name + ".npz"), **out)


# ---- the models of a formula ----

def fill(arrays):
    """p_n = 0.3 sin(1.7 n + 0.3) with one running n; gains are 1 + p_n. arrays: (array in [out][in], is a gain)."""
    n = 0
    with torch.no_grad():
        for p, gain in arrays:
            x = 0.3 * torch.sin(1.7 * torch.arange(n, n + p.numel(), dtype=torch.float64) + 0.3)
            p.copy_((1 + x if gain else x).reshape(p.shape))
            n += p.numel()
    return n


def formula(kind):
    """Loss, norm of its gradient, first logits, number of parameters."""
    if kind.startswith("gpt2"):
        m = model_of(GPT2Config(vocab_size=11, n_embd=8, n_head=2, n_layer=2, n_positions=6, resid_pdrop=0.0, embd_pdrop=0.0,
                                attn_pdrop=0.0, attn_implementation="eager",
                                activation_function="gelu" if kind == "gpt2_erf" else "gelu_new"))
        t = m.transformer
        arrays = [(t.wte.weight, False), (t.wpe.weight, False)]
        for h in t.h:
            arrays += [(h.ln_1.weight, True), (h.ln_1.bias, False)]
            for c in (h.attn.c_attn, h.attn.c_proj):
                arrays += [(c.weight.t(), False), (c.bias, False)]
            arrays += [(h.ln_2.weight, True), (h.ln_2.bias, False)]
            for c in (h.mlp.c_fc, h.mlp.c_proj):
                arrays += [(c.weight.t(), False), (c.bias, False)]
        arrays += [(t.ln_f.weight, True), (t.ln_f.bias, False)]
    else:
        common = dict(vocab_size=11, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
                      num_key_value_heads=1, head_dim=4, max_position_embeddings=16, rms_norm_eps=1e-6,
                      tie_word_embeddings=False, attn_implementation="eager")
        m = model_of(Qwen3Config(**common) if kind == "llama_qk" else LlamaConfig(**common))
        arrays = [(m.model.embed_tokens.weight, False)]
        for h in m.model.layers:
            a = h.self_attn
            arrays += [(h.input_layernorm.weight, True), (a.q_proj.weight, False), (a.k_proj.weight, False),
                       (a.v_proj.weight, False)]
            if kind == "llama_qk":
                arrays += [(a.q_norm.weight, True), (a.k_norm.weight, True)]
            arrays += [(a.o_proj.weight, False), (h.post_attention_layernorm.weight, True), (h.mlp.gate_proj.weight, False),
                       (h.mlp.up_proj.weight, False), (h.mlp.down_proj.weight, False)]
        arrays += [(m.model.norm.weight, True), (m.lm_head.weight, False)]
    n = fill(arrays)
    logits = m(torch.tensor([[1, 4, 9, 2, 7, 3]])).logits[0]
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor([4, 9, 2, 7, 3, 10]))
    loss.backward()
    norm = math.sqrt(sum((p.grad ** 2).sum().item() for p in m.parameters()))
    return loss.item(), norm, logits[0, :4].tolist(), n


FORMULAS = {"gpt2": (2.8867418039, 2.2735626230, [0.46790061, -1.17319651, -1.66855929, -0.53442038], 1896),
            "gpt2_erf": (2.8867323719, 2.2736360969, None, 1896),
            "llama": (2.6071629074, 2.7527012189, [0.33436329, -0.01232440, -0.34697618, -0.34277379], 1176),
            "llama_qk": (2.5905567680, 3.9032907073, [-0.28818480, 0.01390137, 0.30241157, 0.29558905], 1192)}


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--only", default="")
    a.add_argument("--check", action="store_true")
    args = a.parse_args()
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpt")
    os.makedirs(folder, exist_ok=True)
    for name, (loss, norm, logits, n) in FORMULAS.items():
        got = formula(name)
        # Norms and rotary angles of transformers are float32 in every type.
        most = 1e-9 if "gpt2" in name else 1e-6
        near = abs(got[0] - loss) < most and abs(got[1] - norm) < most and got[3] == n
        if logits:
            near = near and max(abs(x - y) for x, y in zip(got[2], logits)) < 1e-6
        print("%-14s loss %.10f, norm %.10f, %d parameters" % (name, got[0], got[1], got[3]))
        if not near:
            raise SystemExit("%s: gpt.c has other numbers: %r" % (name, got))
    for name, (config, mine) in cases().items():
        if args.only in name:
            make(name, config, mine, folder, args.check)


main()
