#!/usr/bin/env python3
"""Opens a report of --mode=report in headless Chromium, uses it, and checks what happens.

    report_browser.py REPORT [--shots FOLDER] [--limit MS] [--no-curves]

Checks: no message or error on the console, no violation of the page's policy, no dialog, no request for another file,
no script of the data has run (a report of hostile texts sets window.hurt), the curves are there within the limit, and
each way to use them works: zoom by drag, wheel and keys, reading values by keys, logarithmic scales, smoothing, time as
the axis, choice of runs and of figures, order of the table. Prints the times; --shots writes screenshots: light, dark,
narrow.

The exit status is 77 if Chromium is not installed, 1 after a finding. Chromium speaks the DevTools protocol over a pipe,
so nothing else is needed."""
import argparse
import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time


class Browser:
    """One page of headless Chromium."""

    def __init__(self, program, folder):
        to_child, self.out = os.pipe()
        self.inp, from_child = os.pipe()
        os.set_inheritable(to_child, True)
        os.set_inheritable(from_child, True)

        def pipes():  # Chromium reads 3 and writes 4
            a, b = os.dup(to_child), os.dup(from_child)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
             "--disable-dev-shm-usage", f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)
        self.buffer, self.last, self.events = b"", 0, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Performance.setTimeDomain", timeDomain="threadTicks")
        for domain in ("Page", "Runtime", "Log", "Network", "Performance"):
            self.call(domain + ".enable")

    def read(self, seconds):
        """The next message; None after the time."""
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.inp], [], [], left)[0]:
                return None
            part = os.read(self.inp, 1 << 20)
            if not part:
                sys.exit("Chromium has ended")
            self.buffer += part
        line, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read(60)
            if answer is None:
                sys.exit(f"no answer to {method}")
            if answer.get("id") == self.last:
                if "error" in answer:
                    sys.exit(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def js(self, text):
        """The value of an expression, after the promises in it."""
        answer = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            sys.exit(f"{text}: {answer['exceptionDetails']['exception'].get('description')}")
        return answer["result"].get("value")

    def load(self, path):
        self.events.clear()
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        for _ in range(600):
            if self.js("document.readyState") == "complete" and self.js("location.protocol") == "file:":
                return
            time.sleep(0.05)
        sys.exit("the page did not load")

    def size(self, width, height, scheme):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.frames()

    def busy(self):
        """Milliseconds that the page's main thread has computed: other programs of the machine do not count."""
        metrics = {m["name"]: m["value"] for m in self.call("Performance.getMetrics")["metrics"]}
        return 1000 * metrics["TaskDuration"]

    def frames(self):
        self.js("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")

    def shot(self, path, whole=True):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def key(self, key, **more):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=key if len(key) == 1 and kind == "keyDown" else "", **more)
        self.frames()

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, x0, x1, y):
        self.mouse("mousePressed", x0, y, button="left", clickCount=1)
        for i in range(1, 5):
            self.mouse("mouseMoved", x0 + (x1 - x0) * i / 4, y, button="left", buttons=1)
        self.mouse("mouseReleased", x1, y, button="left", clickCount=1)
        self.frames()

    def close(self):
        self.process.terminate()
        self.process.wait(20)


findings = 0


def check(what, holds, more=""):
    global findings
    if not holds:
        findings += 1
        print(f"FAILED: {what} {more}")


def check_events(page):
    for e in page.events:
        method, p = e["method"], e["params"]
        if method in ("Runtime.exceptionThrown", "Page.javascriptDialogOpening"):
            check("the page has no error and no dialog", False, json.dumps(p)[:400])
        if method == "Runtime.consoleAPICalled" or method == "Log.entryAdded":
            check("the console stays empty", False, json.dumps(p)[:400])
        if method == "Network.requestWillBeSent":
            url = p["request"]["url"]
            check("nothing is loaded", url.startswith("data:") or p.get("type") == "Document", url[:200])


# The picture of the first chart that is shown, to see whether an action changes it.
PICTURE = "[...document.querySelectorAll('.chart')].find(c => !c.hidden).querySelector('canvas').toDataURL()"
CANVAS = "[...document.querySelectorAll('.chart')].find(c => !c.hidden).querySelector('canvas')"


def use_curves(page, limit):
    ready = int(page.js("document.documentElement.dataset.ready || 'NaN'"))
    print(f"ready after {ready} ms, {page.js('document.querySelectorAll(`.chart:not([hidden])`).length')} charts")
    check(f"ready within {limit} ms", ready <= limit, f"{ready} ms")
    check("a chart is drawn", page.js(f"""(() => {{ const c = {CANVAS};
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; }})()""") > 500)

    def changes(what, action):
        before = page.js(PICTURE)
        action()
        page.frames()
        check(what + " changes the chart", page.js(PICTURE) != before)

    def changes_soon(what, script):
        """Milliseconds from a change of a control to the frame that shows it."""
        before = page.js(PICTURE)
        took = page.js("(async () => { const begin = performance.now();" + script +
                       "; await new Promise(r => requestAnimationFrame(() => setTimeout(r))); return performance.now() - begin; })()")
        check(what + " changes the chart", page.js(PICTURE) != before)
        return took

    page.js(f"{CANVAS}.scrollIntoView({{block: 'center'}})")
    box = page.js(f"(() => {{ const r = {CANVAS}.getBoundingClientRect(); return [r.left, r.top, r.width, r.height]; }})()")
    middle = box[1] + box[3] / 2
    changes("a drag", lambda: page.drag(box[0] + box[2] * 0.4, box[0] + box[2] * 0.7, middle))
    page.mouse("mouseMoved", box[0] + box[2] / 2, middle)
    page.frames()
    tip = page.js(f"(() => {{ const t = {CANVAS}.parentElement.querySelector('.tip'); return [t.hidden, t.textContent, t.offsetHeight, t.offsetWidth]; }})()")
    check("the pointer shows values", not tip[0] and ("step " in tip[1] or "after " in tip[1]), str(tip))
    check("they leave room for the chart", tip[2] < 320 and tip[3] < 420, str(tip))
    page.mouse("mouseMoved", 2, 2)
    page.frames()
    zoomed = page.js(PICTURE)
    changes("the key 0", lambda: (page.js(f"{CANVAS}.focus()"), page.key("0")))
    changes("the key +", lambda: page.key("+"))
    changes("Shift and an arrow", lambda: page.key("ArrowRight", modifiers=8))
    changes("the wheel", lambda: page.mouse("mouseWheel", box[0] + box[2] / 2, middle, deltaX=0, deltaY=-200))
    check("zoom was something else", page.js(PICTURE) != zoomed)
    page.key("0")
    changes("the key l", lambda: page.key("l"))
    page.key("l")
    page.key("ArrowRight")
    page.key("ArrowRight")
    said = page.js(f"{CANVAS}.closest('.chart').querySelector('[aria-live]').textContent")
    check("arrow keys say values", ": " in said and any(c.isdigit() for c in said), said)
    page.key("Escape")
    check("a chart has a name", page.js(f"{CANVAS}.getAttribute('aria-label')").startswith("Chart of "))
    slow = changes_soon("logarithmic scales", "document.querySelector('#curves input[type=checkbox]').click()")
    page.js("document.querySelector('#curves input[type=checkbox]').click()")
    slow = max(slow, changes_soon("smoothing",
        "const e = document.querySelector('#curves input[type=range]'); e.value = '0.9'; e.dispatchEvent(new Event('input'))"))
    page.js("(() => { const e = document.querySelector('#curves input[type=range]'); e.value = '0'; e.dispatchEvent(new Event('input')); })()")
    if page.js("document.querySelectorAll('#curves select option').length") > 1:
        slow = max(slow, changes_soon("time as the axis",
            "const e = document.querySelector('#curves select'); e.value = 'time'; e.dispatchEvent(new Event('change'))"))
        page.js("(() => { const e = document.querySelector('#curves select'); e.value = 'step'; e.dispatchEvent(new Event('change')); })()")
    n = page.js("document.querySelectorAll('.chart:not([hidden])').length")
    page.js("[...document.querySelectorAll('.chips button')].find(b => b.getAttribute('aria-pressed') === 'true').click()")
    page.frames()
    check("a figure can be left out", page.js("document.querySelectorAll('.chart:not([hidden])').length") == n - 1)
    page.js("[...document.querySelectorAll('.chips button')].find(b => b.getAttribute('aria-pressed') === 'false').click()")
    page.frames()
    page.js(f"{CANVAS}.closest('.chart').querySelector('details').open = true")
    time.sleep(0.1)
    check("values are a table, too", page.js(f"{CANVAS}.closest('.chart').querySelectorAll('details tbody tr').length") > 0)
    page.js(f"{CANVAS}.closest('.chart').querySelector('details').open = false")
    if page.js("document.querySelectorAll('#runs tbody tr').length") > 1:
        slow = max(slow, changes_soon("a run left out", "document.querySelector('#runs tbody input').click()"))
        page.js("document.querySelector('#runs tbody input').click()")
        page.js("document.querySelectorAll('#runs thead button')[4].click()")
        order = page.js("[...document.querySelectorAll('#runs tbody tr')].map(r => Number(r.cells[4].dataset.v)).filter(v => v === v)")
        check("a column sorts the table", order == sorted(order), str(order)[:200])
        page.js("document.querySelectorAll('#runs thead button')[0].click()")
    print(f"the slowest change took {slow:.0f} ms")
    check("a change takes less than 1 s", slow < limit, f"{slow:.0f} ms")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("report")
    p.add_argument("--shots")
    p.add_argument("--limit", type=float, default=1000)
    p.add_argument("--no-curves", action="store_true")
    args = p.parse_args()
    program = next((w for w in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if w), None)
    if not program:
        print("skipped: Chromium is not installed")
        sys.exit(77)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = Browser(program, folder)
        try:
            page.size(1360, 900, "light")
            page.load(args.report)
            print(f"busy {page.busy():.0f} ms")
            check("no script of the data has run", page.js("window.hurt === undefined"))
            check("no element of the data is in the page",
                  page.js("document.querySelectorAll('script').length") == 2 and
                  page.js("document.querySelectorAll('iframe, object, embed, link, svg, [onerror], [onload]').length") == 0)
            if not args.no_curves:
                use_curves(page, args.limit)
            if args.shots:
                os.makedirs(args.shots, exist_ok=True)
                for name, width, scheme in (("light", 1360, "light"), ("dark", 1360, "dark"), ("narrow", 390, "light")):
                    page.size(width, 900, scheme)
                    page.js("window.scrollTo(0, 0)")
                    page.frames()
                    wide = page.js("document.documentElement.scrollWidth")
                    check(f"{name}: the page fits its width", wide <= width, f"{wide} > {width}")
                    page.shot(os.path.join(args.shots, name + ".png"))
            page.js("1")
            check_events(page)
        finally:
            page.close()
    if findings:
        sys.exit(1)
    print(f"{args.report}: ok")


if __name__ == "__main__":
    main()
