#!/usr/bin/env python3
"""Makes log folders as run_dist writes them, for tests of the modes that read them.

    make_runs.py FOLDER RUNS POINTS

The figures are made: a loss that falls with noise, a rate that falls, speeds, the exchange of two ranks. config.json has
three keys that differ."""
import json
import math
import os
import random
import sys

folder, n_runs, n_points = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for r in range(n_runs):
    rng = random.Random(r)
    path = os.path.join(folder, f"run{r:02d}")
    os.makedirs(os.path.join(path, "eval"))
    rate, units = 10 ** rng.uniform(-4, -1), rng.choice([128, 256, 512])
    floor, speed = 1.2 + 0.4 * abs(math.log10(rate) + 2.5), 40000 / units * 128
    config = {"model": "seq2seq", "learning_rate": rate, "encoder_cell_units": units, "seed": r, "metric": "bleu"}
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump({k: {"value": v, "source": "--set" if k in ("learning_rate", "encoder_cell_units", "seed") else "x.json:3:5"}
                   for k, v in config.items()}, f)
    begin = 1700000000 + 1000 * r
    open(os.path.join(path, f"events.out.tfevents.{begin}.host.{r}.0"), "w").close()
    lines = []
    for i in range(1, n_points + 1):
        part = i / n_points
        loss = floor + 8 * math.exp(-40 * part * (rate * 100) ** 0.3) + rng.gauss(0, 0.15) * (1.2 - part)
        step_s = 0.05 * (1 + 0.1 * rng.random())
        lines.append('{"step":%d,"epoch":%d,"loss":%.15g,"loss_mean":%.15g,"loss_per_token":%.15g,"perplexity":%.15g,"accuracy":%.15g,'
                     '"learning_rate":%.15g,"grad_norm":%.15g,"tokens_per_s":%.15g,"target_tokens_per_s":%.15g,"samples_per_s":%.15g,'
                     '"step_s":%.15g,"input_wait":%.15g,"comm_s":%.15g,"comm_exposed_s":%.15g,"comm_bytes":1048576,'
                     '"comm_bus_gb_per_s":%.15g,"rank_s_min":%.15g,"rank_s_mean":%.15g,"rank_s_max":%.15g,"slowest_rank":%d,'
                     '"samples":64,"targets":%d,"skipped":0,"read_retries":0,"step_memory_bytes":%d,"time":%.6f}\n' % (
                         10 * i, int(20 * part), loss + rng.gauss(0, 0.3), loss, loss, math.exp(min(loss, 20)), 1 / (1 + loss),
                         rate * (1 - part) + 1e-6, 3 * math.exp(rng.gauss(0, 0.3)), speed * (1 + rng.gauss(0, 0.05)), speed / 2, speed / 30,
                         step_s, 0.03 * rng.random(), 0.01 * rng.random() + 0.01, 0.004 * rng.random(), 3 + rng.random(),
                         step_s * 0.9, step_s * 0.95, step_s, rng.randrange(2), 1500 + rng.randrange(200), 50000000 + r, begin + 0.5 * i))
    with open(os.path.join(path, "metrics.jsonl"), "w") as f:
        f.writelines(lines)
    with open(os.path.join(path, "eval", "metrics.jsonl"), "w") as f:
        for i in range(1, 21):
            loss = floor + 3 * math.exp(-i / 4) + 0.3
            f.write(json.dumps({"step": 10 * n_points * i // 20, "loss": loss, "perplexity": math.exp(loss), "accuracy": 1 / (1 + loss),
                                "samples": 1000, "targets": 25000, "BLEU": 32 * (1 - math.exp(-i / 6)) / floor, "eval_s": 2.0}) + "\n")
    with open(os.path.join(path, "run.log"), "w") as f:
        f.write("run_dist 0.1.0: train_eval, config g2p.json\nworld: 2 ranks on host\ndevice: CPU, 1 core of each rank\n"
                f"model: seq2seq, 1,203,{r:03d} parameters\ndata: 60,000 samples\nvocabulary: 30 and 42 words\nglobal batch: 64\n"
                f"optimizer: adam, learning rate {rate:g}, up to step {10 * n_points}\n"
                + (f"done: step {10 * n_points}\n" if r % 7 != 3 else "run_dist: error: the training diverges\n"))
