"""Writes tests/golden/weights: small random models that Hugging Face's transformers saves, and its mean loss of a text.

    python make_weights.py

CASE/ has config.json and model.safetensors, or several such files with their index. text.bin has the tokens of the text,
16 bits each. losses.txt has a line "CASE LOSS" for each case: the mean over all windows of T tokens, computed by
transformers in float32 from the saved weights. tests/unit/weights.sh compares run_dist with it. Needs numpy, torch,
safetensors and transformers.
"""

import os
import shutil

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

V, T, WINDOWS = 31, 16, 8
transformers.utils.logging.set_verbosity_error()


def llama(kind, **more):
    c = dict(vocab_size=V, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=32, rms_norm_eps=1e-5, tie_word_embeddings=False,
             bos_token_id=None, eos_token_id=None, attn_implementation="eager", initializer_range=0.3)
    c.update(more)
    return kind(**c)


LLAMA3 = dict(rope_type="llama3", rope_theta=100.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
# name: config of transformers, type of the saved weights, size of a file
CASES = {
    "gpt2": (GPT2Config(vocab_size=V, n_embd=16, n_head=2, n_layer=2, n_positions=16, bos_token_id=None,
                        eos_token_id=None, attn_implementation="eager", initializer_range=0.3), torch.float32, None),
    "llama": (llama(LlamaConfig), torch.float16, "4KB"),
    "llama3": (llama(LlamaConfig, tie_word_embeddings=True, rope_parameters=LLAMA3), torch.bfloat16, None),
    "qwen2": (llama(Qwen2Config, use_sliding_window=False), torch.float32, "8KB"),
    "qwen3": (llama(Qwen3Config, head_dim=6, use_sliding_window=False), torch.bfloat16, None),
}


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "weights")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    ids = np.random.default_rng(3).integers(0, V, WINDOWS * T + 1).astype(np.uint16)
    ids.tofile(os.path.join(folder, "text.bin"))
    x = torch.tensor(np.lib.stride_tricks.sliding_window_view(ids, T + 1)[::T].astype(np.int64))
    with open(os.path.join(folder, "losses.txt"), "w") as f:
        for name, (config, dtype, size) in CASES.items():
            torch.manual_seed(sum(map(ord, name)))
            kind = {"gpt2": "GPT2", "llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[config.model_type]
            kind = getattr(transformers, kind + ("LMHeadModel" if kind == "GPT2" else "ForCausalLM"))
            model = kind(config)
            with torch.no_grad():
                for p in model.parameters():  # no array keeps its usual ones or zeros
                    if p.dim() == 1:
                        p.add_(torch.randn_like(p) * 0.2)
            at = os.path.join(folder, name)
            model.to(dtype).save_pretrained(at, **({"max_shard_size": size} if size else {}))
            os.unlink(os.path.join(at, "generation_config.json"))
            model = kind.from_pretrained(at, dtype=torch.float32, attn_implementation="eager").eval()
            with torch.no_grad():
                loss = torch.nn.functional.cross_entropy(model(x[:, :-1]).logits.reshape(-1, V).double(), x[:, 1:].reshape(-1))
            f.write("%s %.9f\n" % (name, loss.item()))
            if name == "gpt2":  # names and masks as in the published file
                old = at + "_published"
                os.makedirs(old)
                shutil.copy(at + "/config.json", old)
                arrays = {n[len("transformer."):]: a for n, a in load_file(at + "/model.safetensors").items()}
                arrays.update(("h.%d.attn.bias" % i, torch.ones(1, 1, 16, 16).tril()) for i in range(2))
                save_file(arrays, old + "/model.safetensors")
                f.write("%s %.9f\n" % (name + "_published", loss.item()))
            print(name, loss.item())


main()
