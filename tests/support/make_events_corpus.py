#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/events/tensorboard.tfevents with TensorBoard's own summary builders and record writer.

The file has the golden records of tests/unit/events.c, in the order of its table. It was made with tensorboard
2.21.0. Other versions give the same bytes as long as their protos keep their fields."""
import io
import os
import struct
import zlib

import numpy as np
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.hparams import summary_v2 as hparams
from tensorboard.plugins.histogram import summary_v2 as histogram
from tensorboard.plugins.image import metadata as image_metadata
from tensorboard.plugins.scalar import metadata as scalar_metadata
from tensorboard.plugins.text import summary_v2 as text
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util import tensor_util

here = os.path.dirname(os.path.abspath(__file__))
out = os.path.join(here, "..", "fuzz", "corpus", "events")
os.makedirs(out, exist_ok=True)


def event(step, **kw):
    return event_pb2.Event(wall_time=1234.5, step=step, **kw)


def value(tag, **kw):
    return summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, **kw)])


def png():
    """A PNG of 2 x 1 RGB pixels, not compressed (level 0 of zlib)."""
    raw = b"\x00" + bytes([255, 0, 0, 0, 0, 255])

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 1, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(raw, 0)) + chunk(b"IEND", b""))


x = np.array([(i * 37 % 101) / 8 - 3 for i in range(100)], np.float32)
image_tensor = tensor_util.make_tensor_proto([b"2", b"1", png()], shape=(3,))
image_meta = image_metadata.create_summary_metadata(display_name=None, description=None, converted_to_tensor=None)
scalar_meta = scalar_metadata.create_summary_metadata(display_name=None, description=None)

events = [
    event(0, file_version="brain.Event:2"),
    event(0, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START)),
    event(7, summary=value("loss", simple_value=0.5)),
    event(2**40, summary=value("a/b", simple_value=float("nan"))),
    event(1, summary=histogram.histogram_pb("w", x)),
    event(2, summary=histogram.histogram_pb("same", np.full(5, 2.5))),
    event(3, summary=histogram.histogram_pb("none", np.array([]))),
    event(4, summary=text.text_pb("note", "# Title\n\nGr\u00fc\u00dfe")),
    event(5, summary=value("picture", tensor=image_tensor, metadata=image_meta)),
    event(0, summary=hparams.hparams_config_pb([], [], time_created_secs=1234.5)),
    event(0, summary=hparams.hparams_pb({"lr": 0.5}, trial_id="", start_time_secs=1234.5)),
    # run_dist reads these but does not write them: scalars as tensors, an old histogram and an old image.
    event(8, summary=value("tensor", tensor=tensor_util.make_tensor_proto(0.25, dtype=np.float32),
                           metadata=scalar_meta)),
    event(9, summary=value("double", tensor=tensor_util.make_tensor_proto(0.125, dtype=np.float64))),
    event(10, summary=value("old", histo=summary_pb2.HistogramProto(min=0, max=1, num=6, bucket_limit=[1],
                                                                    bucket=[6]))),
    event(11, summary=value("old_picture", image=summary_pb2.Summary.Image(height=1, width=2,
                                                                           encoded_image_string=png()))),
]


class Buffer(io.BytesIO):
    def close(self):
        pass


b = Buffer()
writer = RecordWriter(b)
starts = [0]
for e in events:
    writer.write(e.SerializeToString())
    writer.flush()
    starts.append(len(b.getvalue()))
data = b.getvalue()


def put(name, content):
    with open(os.path.join(out, name), "wb") as f:
        f.write(content)


put("tensorboard.tfevents", data)
put("cut.tfevents", data[:starts[5] - 3])
flipped = bytearray(data)
flipped[starts[2] + 20] ^= 4
put("flipped.tfevents", flipped)
put("empty.tfevents", b"")
put("no-event.tfevents", b"this is not an event file at all")


def record(payload):
    r = Buffer()
    w = RecordWriter(r)
    w.write(payload)
    w.flush()
    return r.getvalue()


for name, payload in {
    "varint-without-end": b"\x10" + b"\xff" * 11,
    "bytes-past-end": b"\x2a\x7f\x0a",
    "nested-past-end": b"\x2a\x04\x0a\x7f\x0a\x01",
    "group": b"\x0b\x0c",
    "field-0": b"\x00\x00",
    "deep": b"\x2a\x0a\x0a\x08\x42\x06\x12\x04\x12\x02\x08\xff",
}.items():
    put(name + ".tfevents", record(payload))
print("starts of the records:", *starts)
