"""Writes tests/golden/lm_eval: a small random model that Hugging Face's transformers saves, and what it finds in two files.

    python make_lm_eval.py

model/ has config.json, model.safetensors and tokenizer.json. values.txt has a line for each figure:

  stride S TARGETS LOSS        text.txt, by windows that begin S tokens after each other: number of tokens that were
                               scored, and their mean loss. It is the loop of transformers' page on perplexity: labels of
                               tokens that an earlier window has scored are -100.
  choices ACC NORM ANSWERS LOSS   questions.jsonl, in the form of HellaSwag's authors: share of the questions whose right
                               answer has the lowest sum of losses, and the lowest mean; number of answers; mean loss of
                               the tokens of all answers. Tokens and masks are those of llm.c's hellaswag.py: a space is
                               put before an answer, and only its tokens count.

All in float64. The best answer of each question leads by 1e-3 or more, so float32 chooses the same one.
tests/golden/lm_eval.sh compares run_dist with it. Needs numpy, torch, tokenizers and transformers.
"""

import json
import os
import random
import shutil

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel

T, STRIDES, ANSWERS = 40, (40, 29, 7, 1), 4
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lm_eval")
transformers.utils.logging.set_verbosity_error()


def sentence(rng):
    return "%s %s %s %s" % (rng.choice(["A man", "The woman", "She", "A dog", "Someone"]),
                            rng.choice(["opens", "throws", "holds", "paints", "sees"]), rng.choice(["a", "the", "her"]),
                            rng.choice(["ball", "door", "fence near the house", "roof", "very old boat"]))


def strided(model, ids, stride):
    """Mean loss and number of targets. A window has T + 1 tokens, so T targets."""
    nll, n, before = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + T + 1, len(ids))
        x = torch.tensor([ids[begin:end]])
        labels = x.clone()
        labels[:, :-(end - before)] = -100
        counted = int((labels[:, 1:] != -100).sum())
        nll += model(x, labels=labels).loss.item() * counted
        n, before = n + counted, end
        if end == len(ids):
            break
    assert n == len(ids) - 1, (n, len(ids))
    return nll / n, n


def answers(model, tok, question):
    """Sum and mean of the losses of each answer, and its number of tokens."""
    context, out = tok.encode(question["ctx"]).ids, []
    for ending in question["endings"]:
        ending = tok.encode(" " + ending).ids
        row = (context + ending)[-(T + 1):]
        losses = torch.nn.functional.cross_entropy(model(torch.tensor([row[:-1]])).logits[0], torch.tensor(row[1:]),
                                                   reduction="none")[-len(ending):]
        assert len(losses) == len(ending)
        out.append((losses.sum().item(), losses.mean().item(), len(ending)))
    return out


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER + "/model")
    rng = random.Random(5)
    text = "".join(sentence(rng) + rng.choice([". ", ", and then ", ".\n\n"]) for _ in range(40))
    with open(FOLDER + "/text.txt", "w") as f:
        f.write(text)
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator([text], trainers.BpeTrainer(vocab_size=340, special_tokens=["<|endoftext|>"], show_progress=False,
                                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tok.save(FOLDER + "/model/tokenizer.json")
    torch.manual_seed(11)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=tok.get_vocab_size(), n_embd=16, n_head=2, n_layer=2, n_positions=48,
                                       bos_token_id=None, eos_token_id=None, attn_implementation="eager",
                                       initializer_range=0.3))
    with torch.no_grad():
        for p in model.parameters():  # no array keeps its usual ones or zeros
            if p.dim() == 1:
                p.add_(torch.randn_like(p) * 0.2)
    model.half().save_pretrained(FOLDER + "/model")
    os.chmod(FOLDER + "/model/model.safetensors", 0o644)
    os.unlink(FOLDER + "/model/generation_config.json")
    model = GPT2LMHeadModel.from_pretrained(FOLDER + "/model", dtype=torch.float64, attn_implementation="eager").eval()
    right = [0, 0]
    total = [0.0, 0, 0]
    with torch.no_grad(), open(FOLDER + "/values.txt", "w") as f, open(FOLDER + "/questions.jsonl", "w") as q:
        ids = tok.encode(text).ids + [tok.token_to_id("<|endoftext|>")]  # as the text of one document
        for stride in STRIDES:
            loss, n = strided(model, ids, stride)
            f.write("stride %d %d %.12f\n" % (stride, n, loss))
        n = 0
        while n < 40:
            # Answers of different lengths. Every fifth context is longer than a window, and loses its beginning.
            question = dict(ind=n, ctx_a=sentence(rng) + ".", ctx_b="she", activity_label="tests", split="val", label=0,
                            endings=[sentence(rng)[2:] + rng.choice([".", " in the rain.", ""]) for _ in range(ANSWERS)])
            question["ctx"] = " ".join([question["ctx_a"]] * (5 if n % 5 == 0 else 1)) + " she"
            found = answers(model, tok, question)
            best = [min(range(ANSWERS), key=lambda k: found[k][i]) for i in (0, 1)]
            gap = [sorted(x[i] for x in found)[1] - found[best[i]][i] for i in (0, 1)]
            # A third of the labels is that of the lowest sum, a fifth that of the lowest mean.
            question["label"] = best[0] if n % 3 == 0 else best[1] if n % 5 == 1 else rng.randrange(ANSWERS)
            if min(gap) < 1e-3:
                continue
            n += 1
            for i in (0, 1):
                right[i] += best[i] == question["label"]
            for nll, _, tokens in found:
                total = [total[0] + nll, total[1] + tokens, total[2] + 1]
            q.write(json.dumps(question) + "\n")
        assert right[0] != right[1], right
        f.write("choices %.12f %.12f %d %.12f\n" % (right[0] / n, right[1] / n, total[2], total[0] / total[1]))


main()
