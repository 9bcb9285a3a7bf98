"""Writes lstm_values.h for tests/gpu/lstm.c: results of torch.nn.LSTM in float64 on sequences of several lengths.

    python make_lstm.py

The results are initial and final states, outputs, and all gradients. Needs torch on the CPU."""
import pathlib
import textwrap

import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

CASES = [(3, 5, [4, 4, 4]), (4, 3, [5, 3, 3, 1]), (7, 8, [6, 6, 6, 6, 6, 6, 6, 6])]  # input width, units, lengths


def numbers(*shape, scale=1.0):
    """Random multiples of 1/64, which are exact in bfloat16."""
    return torch.round((2 * torch.rand(*shape, dtype=torch.float64) - 1) * scale * 64) / 64


def case(width, units, lengths):
    steps, batch = lengths[0], len(lengths)
    lstm = torch.nn.LSTM(width, units, dtype=torch.float64)
    with torch.no_grad():
        for p in lstm.parameters():
            p.copy_(numbers(*p.shape))
    within = (torch.arange(steps)[:, None] < torch.tensor(lengths)[None, :])[:, :, None]
    x = (numbers(steps, batch, width) * within).requires_grad_()
    hx, cx = (numbers(1, batch, units).requires_grad_() for _ in range(2))
    dy, dhy, dcy = numbers(steps, batch, units) * within, numbers(1, batch, units), numbers(1, batch, units)
    packed, (hy, cy) = lstm(pack_padded_sequence(x, torch.tensor(lengths)), (hx, cx))
    y, _ = pad_packed_sequence(packed)
    ((y * dy).sum() + (hy * dhy).sum() + (cy * dcy).sum()).backward()
    w = {"W_x": lstm.weight_ih_l0, "W_h": lstm.weight_hh_l0, "b_x": lstm.bias_ih_l0, "b_h": lstm.bias_hh_l0}
    values = {**w, "x": x, "hx": hx, "cx": cx, "dy": dy, "dhy": dhy, "dcy": dcy, "y": y, "hy": hy, "cy": cy,
              "dx": x.grad, "dhx": hx.grad, "dcx": cx.grad, **{"d" + k: v.grad for k, v in w.items()}}
    return {k: v.detach().flatten().tolist() for k, v in values.items()}


def wrapped(text):
    return textwrap.wrap(text, 120, initial_indent="    ", subsequent_indent="    ")


def main():
    torch.manual_seed(3)
    lines = ["/* Written by make_lstm.py: torch.nn.LSTM in float64, padded, time first; gates i, f, g, o. */"]
    rows, members = [], []
    for n, (width, units, lengths) in enumerate(CASES):
        values = case(width, units, lengths)
        members = list(values)
        for name, v in values.items():
            text = ", ".join(f"{a:.9g}" for a in v)
            lines += [f"static const double lstm{n}_{name}[] = {{", *wrapped(text), "};"]
        lines += [f"static const int lstm{n}_length[] = {{{', '.join(map(str, lengths))}}};"]
        sizes = f"{width}, {units}, {lengths[0]}, {len(lengths)}, lstm{n}_length"
        rows += wrapped("{" + ", ".join([sizes, *(f"lstm{n}_{m}" for m in members)]) + "},")
    lines += ["", "static const struct lstm_case {", "    int width, units, steps, batch;", "    const int *length;",
              "    const double *" + ", *".join(members) + ";", "} lstm_cases[] = {", *rows, "};", ""]
    pathlib.Path(__file__).with_name("lstm_values.h").write_text("\n".join(lines))


main()
