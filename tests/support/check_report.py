#!/usr/bin/env python3
"""Reads a report of --mode=report as another program would, and compares it with the log folders.

    check_report.py REPORT [LOGDIR]

Checks: the only scripts are the data and the program; the page's policy has the hashes of program and style; no element
has an attribute that runs script, no address leads out of the page; and with LOGDIR, that each curve has the figures of
metrics.jsonl: every value in its row's range, the largest and the smallest of all kept. If html5lib is installed, the
page must have no syntax error for it. Prints a line; the exit status is 1 after a finding."""
import base64
import hashlib
import html.parser
import json
import math
import os
import re
import struct
import sys

findings = 0


def check(what, holds, more=""):
    global findings
    if not holds:
        findings += 1
        print(f"FAILED: {what} {more}")


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.inside, self.blocks, self.policy, self.elements = None, [], "", 0

    def handle_starttag(self, tag, attrs):
        self.elements += 1
        values = dict(attrs)
        check("elements are those of the report", tag not in ("iframe", "object", "embed", "link", "base", "form", "svg", "video"), tag)
        for name, value in attrs:
            check("no attribute runs script", not name.startswith("on") and name not in ("style", "srcdoc", "action"), f"{tag} {name}")
            if name == "src":
                check("pictures are in the page", tag == "img" and re.match(r"data:image/(png|jpeg);base64,[A-Za-z0-9+/=]+$", value))
            if name == "href":
                check("links stay in the page", value.startswith("#"), value)
        if tag == "meta" and values.get("http-equiv"):
            self.policy = values["content"]
        if tag in ("script", "style"):
            self.inside = [tag, values, ""]

    def handle_data(self, data):
        if self.inside:
            self.inside[2] += data

    def handle_endtag(self, tag):
        if self.inside and tag == self.inside[0]:
            self.blocks.append(self.inside)
            self.inside = None


def floats(text):
    b = base64.b64decode(text)
    return struct.unpack(f"<{len(b) // 4}f", b)


def values(text, low, high, log):
    b = base64.b64decode(text)
    out = []
    for q in struct.unpack(f"<{len(b) // 2}H", b):
        v = low + (high - low) * q / 65534
        out.append(math.nan if q == 65535 else math.exp(v) if log else v)
    return out


def near(a, b, c):
    """Equal within the 16 bits of a value in the page."""
    width = math.expm1((c["to"] - c["from"]) / 65534) * abs(b) if c["log"] else (c["to"] - c["from"]) / 65534
    return abs(a - b) <= width + 1e-6 * abs(b)


def compare(table, path, sorted_rows):
    """The curves of a run against the lines of a file."""
    lines = []
    with open(path, "rb") as f:
        for line in f:
            try:
                o = json.loads(line)
            except ValueError:
                continue
            if isinstance(o, dict) and isinstance(o.get("step"), (int, float)) and o["step"] >= 0:
                lines.append(o)
    if sorted_rows:
        lines = sorted({o["step"]: o for o in lines}.values(), key=lambda o: o["step"])
    rows = len(floats(table["step"]))
    check("a table has no more rows than the file", 0 < rows <= len(lines), f"{path}: {rows} of {len(lines)}")
    steps = floats(table["step"])
    check("steps rise", list(steps) == sorted(steps), path)
    compared = 0
    for c in table["columns"]:
        want = [o[c["name"]] for o in lines if isinstance(o.get(c["name"]), (int, float))]
        if c["name"] == "exchange_share":
            want = [min(1, o["comm_exposed_s"] / o["step_s"]) for o in lines]
        check("a column is in the file", want, c["name"])
        if not want:
            continue
        compared += 1
        if "c" in c:
            check("a constant", all(math.isclose(v, c["c"], rel_tol=1e-6) for v in want), c["name"])
            continue
        mean = values(c["m"], c["from"], c["to"], c["log"])
        low = values(c["l"], c["from"], c["to"], c["log"]) if "l" in c else mean
        high = values(c["h"], c["from"], c["to"], c["log"]) if "h" in c else mean
        check("the smallest value", near(min(v for v in low if v == v), min(want), c), c["name"])
        check("the largest value", near(max(v for v in high if v == v), max(want), c), c["name"])
        if len(mean) == len(want):
            for a, b in zip(mean, want):
                check("a value", near(a, b, c), f"{c['name']}: {a} {b}")
        else:
            for a, b, d in zip(low, mean, high):
                check("a mean is between", not (b < a or b > d), c["name"])
    return compared


def main():
    text = open(sys.argv[1], "rb").read().decode("utf-8")
    page = Page()
    page.feed(text)
    page.close()
    scripts = [b for b in page.blocks if b[0] == "script"]
    styles = [b for b in page.blocks if b[0] == "style"]
    check("there is one style, one block of data, one program", len(scripts) == 2 and len(styles) == 1, str(len(scripts)))
    check("the data is no program", scripts[0][1].get("type") == "application/json" and "<" not in scripts[0][2])
    for block, rule in ((scripts[1], "script-src"), (styles[0], "style-src")):
        digest = base64.b64encode(hashlib.sha256(block[2].encode()).digest()).decode()
        check(f"the policy has the hash of {rule}", f"{rule} 'sha256-{digest}';" in page.policy)
    check("the policy forbids the rest", page.policy.startswith("default-src 'none';") and "unsafe" not in page.policy)
    data = json.loads(scripts[0][2])
    compared = 0
    if len(sys.argv) > 2:
        for run in data["runs"]:
            path = os.path.join(sys.argv[2], run["name"])
            for part, name in (("train", "metrics.jsonl"), ("eval", "eval/metrics.jsonl")):
                if run[part] and os.path.exists(os.path.join(path, name)):
                    compared += compare(run[part], os.path.join(path, name), part == "eval")
        check("curves were compared", compared > 0)
    parser = "html5lib is not installed"
    try:
        import html5lib
        p = html5lib.HTMLParser()
        p.parse(text)
        check("html5lib finds no error", not p.errors, str(p.errors[:3]))
        parser = "html5lib agrees"
    except ImportError:
        pass
    if findings:
        sys.exit(1)
    print(f"{len(data['runs'])} runs, {compared} columns compared, {page.elements} elements, {parser}: ok")


main()
