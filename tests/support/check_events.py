#!/usr/bin/env python3
"""Reads event files with TensorBoard's own reader.

    check_events.py --unit BUILD/tests/unit    files of tests/unit/events.c: a run cut at step 5, continued from 3
    check_events.py LOGDIR                     log folder of a run: it loads, steps increase, tags and hparams exist

Prints one line for each. The exit status is 1 if anything differs."""
import argparse
import io
import os
import struct
import subprocess
import sys
import tempfile
import zlib

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import STORE_EVERYTHING_SIZE_GUIDANCE, EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as layout_metadata
from tensorboard.plugins.hparams import metadata, plugin_data_pb2
from tensorboard.util import tensor_util


def load(folder):
    a = EventAccumulator(folder, size_guidance=STORE_EVERYTHING_SIZE_GUIDANCE)
    a.Reload()
    return a


def scalars(a, tag):
    """Accepts both forms: the reader returns scalars of simple_value as they are, or as tensors."""
    if tag in a.Tags()["scalars"]:
        return [(e.step, e.value) for e in a.Scalars(tag)]
    return [(e.step, float(tensor_util.make_ndarray(e.tensor_proto))) for e in a.Tensors(tag)]


def hparams(a, tag):
    content = a.SummaryMetadata(tag).plugin_data.content
    return plugin_data_pb2.HParamsPluginData.FromString(content)


def charts(a):
    """The layout of the custom scalars plugin."""
    tag = layout_metadata.CONFIG_SUMMARY_TAG
    assert a.SummaryMetadata(tag).plugin_data.plugin_name == layout_metadata.PLUGIN_NAME
    return layout_pb2.Layout.FromString(tensor_util.make_ndarray(a.Tensors(tag)[-1].tensor_proto).item())


def png_pixels(data):
    """Reads the PNGs that run_dist writes, and checks every CRC."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, idat, shape = 8, b"", None
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + n]
        assert struct.unpack(">I", data[at + 8 + n:at + 12 + n])[0] == zlib.crc32(kind + body)
        if kind == b"IHDR":
            w, h, depth, color = struct.unpack(">IIBB", body[:10])
            assert depth == 8
            shape = (h, w, {0: 1, 2: 3, 6: 4}[color])
        idat += body if kind == b"IDAT" else b""
        at += 12 + n
    rows = np.frombuffer(zlib.decompress(idat), np.uint8).reshape(shape[0], 1 + shape[1] * shape[2])
    assert (rows[:, 0] == 0).all()
    return rows[:, 1:].reshape(shape)


def check_unit(programs):
    with tempfile.TemporaryDirectory() as tmp:
        env = dict(os.environ, RD_TEST_KEEP=tmp)
        done = subprocess.run([os.path.join(programs, "events")], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=300)
        if done.returncode != 0:
            sys.exit(f"events failed:\n{done.stdout.decode(errors='replace')}")
        assert len(os.listdir(tmp)) == 2
        a = load(tmp)
        loss = scalars(a, "loss")
        assert [s for s, _ in loss] == [1, 2, 3, 4, 5, 6, 7, 8], loss
        assert all(v == np.float32(10 / s) for s, v in loss), loss
        texts = a.Tensors("config")
        assert tensor_util.make_ndarray(texts[0].tensor_proto).item() == b"```json\n{}\n```\n"
        assert a.SummaryMetadata("config").plugin_data.plugin_name == "text"
        rows = tensor_util.make_ndarray(a.Tensors("weights/w")[-1].tensor_proto)
        counts, edges = np.histogram(np.arange(1000.0), 30)
        assert rows.shape == (30, 3) and np.allclose(rows[:, 0], edges[:-1]) and np.allclose(rows[:, 1], edges[1:])
        assert (rows[:, 2] == counts).all()
        w, h, png = tensor_util.make_ndarray(a.Tensors("image")[-1].tensor_proto)
        assert (w, h) == (b"3", b"2")
        assert (png_pixels(png).ravel() == [0, 50, 100, 150, 200, 250]).all()
        w, h, large = tensor_util.make_ndarray(a.Tensors("large")[-1].tensor_proto)
        assert (w, h) == (b"200", b"300")
        assert (png_pixels(large).ravel() == (np.arange(200 * 300 * 4) * 7 & 255)).all()
        try:
            from PIL import Image  # a second reader, if it is installed
            assert (np.asarray(Image.open(io.BytesIO(png))).ravel() == [0, 50, 100, 150, 200, 250]).all()
        except ImportError:
            pass
        start = hparams(a, metadata.SESSION_START_INFO_TAG).session_start_info.hparams
        assert start["lr"].number_value == 0.25 and start["batch_size"].number_value == 64
        assert start["shuffle"].bool_value is True and start["optimizer"].string_value == "Adam"
        assert start["list"].string_value == "[1,2]" and start["nothing"].string_value == "null"
        experiment = hparams(a, metadata.EXPERIMENT_TAG).experiment
        assert [(m.name.group, m.name.tag) for m in experiment.metric_infos] == [("", "loss"), ("eval", "metrics/BLEU")]
        assert [(i.name, i.type, i.differs) for i in experiment.hparam_infos] == [
            ("optimizer", 1, True), ("lr", 3, False)]
        layout = charts(a)
        assert layout.version == 1 and [c.title for c in layout.category] == ["Loss", "Speed"]
        assert [(c.title, list(c.multiline.tag)) for k in layout.category for c in k.chart] == [
            ("loss", ["loss$"]), ("speed", ["a", "b"]), ("waits", ["c"])]
        assert hparams(a, metadata.SESSION_END_INFO_TAG).session_end_info.status == 1
    print("TensorBoard's reader agrees with tests/unit/events: ok")


def check_logdir(folder):
    a = load(folder)
    tags = sorted(set(a.Tags()["scalars"]) | set(a.Tags()["tensors"]))
    plain = [t for t in tags if t in a.Tags()["scalars"] or a.SummaryMetadata(t).plugin_data.plugin_name == "scalars"]
    assert "loss" in plain, tags
    for tag in plain:
        steps = [s for s, _ in scalars(a, tag)]
        assert steps == sorted(set(steps)), (tag, steps)
    assert any(a.SummaryMetadata(t).plugin_data.plugin_name == "text" for t in tags if t not in plain), tags
    assert len(hparams(a, metadata.SESSION_START_INFO_TAG).session_start_info.hparams) > 0
    points = len(scalars(a, "loss"))
    print(f"{folder}: {len(plain)} scalars, {len(tags) - len(plain)} other tags, {points} points of loss: ok")


p = argparse.ArgumentParser()
p.add_argument("--unit")
p.add_argument("logdirs", nargs="*")
args = p.parse_args()
if args.unit:
    check_unit(args.unit)
for d in args.logdirs:
    check_logdir(d)
