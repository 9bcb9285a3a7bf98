/* report.js -- the curves of the report of --mode=report, and the controls of its table of runs.
 *
 * The page is whole without this program: tables, samples and pictures are HTML. The program reads the block of JSON
 * with the id "data". It writes texts of the runs only as text, never as HTML, and loads nothing. */
(function () {
"use strict";

/* ---- the data ---- */

const LIGHT = ["#1f6fd6", "#d9480f", "#1a8a4c", "#a33bb5", "#a67200", "#0b8793", "#c2255c", "#5f6b7a", "#6741d9", "#7a5a3a"];
const DARK = ["#6ea8ff", "#ff8f5c", "#5fd08f", "#d98be8", "#e6b84a", "#4fd0dd", "#ff7eb0", "#aeb8c4", "#a996ff", "#c9a27c"];
const DASHES = [[], [7, 3], [2, 2], [9, 3, 2, 3], [4, 4]];
const MISSING = 65535;

/* Turns base64 into its bytes. */
function bytesOf(text) {
    const s = atob(text);
    const out = new Uint8Array(s.length);
    for (let i = 0; i < s.length; i++) out[i] = s.charCodeAt(i);
    return out;
}

/* Little-endian numbers of 16 bits: steps between `low` and `high`, on a scale of logarithms if `log`. */
function valuesOf(text, low, high, log) {
    const b = bytesOf(text);
    const out = new Float64Array(b.length / 2);
    for (let i = 0; i < out.length; i++) {
        const q = b[2 * i] | b[2 * i + 1] << 8;
        const v = low + (high - low) * q / (MISSING - 1);
        out[i] = q === MISSING ? NaN : log ? Math.exp(v) : v;
    }
    return out;
}

function floatsOf(text) {
    const b = bytesOf(text);
    return new Float32Array(b.buffer, 0, b.length / 4);
}

/* A table of columns over steps. Columns are decoded when they are used. */
class Table {
    constructor(json) {
        this.step = floatsOf(json.step);
        this.time = json.time ? valuesOf(json.time, 0, json.seconds, false) : null;
        this.columns = new Map(json.columns.map((c) => [c.name, c]));
        this.ready = new Map();
    }

    /* Means of groups of 2^k rows: columns may be coarser than the table. */
    static grouped(x, k) {
        if (k === 0) return x;
        const size = 1 << k;
        const out = new Float64Array(Math.ceil(x.length / size));
        for (let i = 0; i < out.length; i++) {
            const end = Math.min(x.length, (i + 1) * size);
            let sum = 0;
            for (let j = i * size; j < end; j++) sum += x[j];
            out[i] = sum / (end - i * size);
        }
        return out;
    }

    /* {step, time, mean, low, high} of a column; null: there is none. */
    column(name) {
        const c = this.columns.get(name);
        if (!c) return null;
        if (this.ready.has(name)) return this.ready.get(name);
        const step = Table.grouped(this.step, c.k), time = this.time && Table.grouped(this.time, c.k);
        let mean, low = null, high = null;
        if (c.c !== undefined) {
            mean = new Float64Array(step.length).fill(c.c);
        } else {
            mean = valuesOf(c.m, c.from, c.to, c.log);
            if (c.l) {
                low = valuesOf(c.l, c.from, c.to, c.log);
                high = valuesOf(c.h, c.from, c.to, c.log);
            }
        }
        const out = {step, time, mean, low, high};
        this.ready.set(name, out);
        return out;
    }
}

const source = document.getElementById("data");
if (!source) return;
const data = JSON.parse(source.textContent);
const runs = data.runs.map((r, i) => ({
    index: i,
    name: r.name,
    figure: r.figure,
    train: r.train ? new Table(r.train) : null,
    evals: r.eval ? new Table(r.eval) : null,
    shown: true,
}));

/* ---- figures: what a chart draws ---- */

const TITLES = {
    loss: "Loss", loss_per_token: "Loss per token", accuracy: "Accuracy", accuracy_top5: "Accuracy, top 5",
    learning_rate: "Learning rate", tokens_per_s: "Throughput, tokens/s", images_per_s: "Throughput, images/s",
    samples_per_s: "Throughput, samples/s", target_tokens_per_s: "Throughput, target tokens/s",
    exchange_share: "Exchange, exposed share", comm_s: "Exchange, seconds of a step",
    comm_exposed_s: "Exchange, exposed seconds", comm_bus_gb_per_s: "Exchange, bus GB/s", grad_norm: "Gradient norm",
    input_wait: "Waiting for input, share", step_s: "Seconds of a step", step_memory_bytes: "Memory of a step, bytes",
    perplexity: "Perplexity", BLEU: "BLEU", skipped: "Steps skipped", read_retries: "Reads tried again",
    rank_s_min: "Fastest rank, seconds", rank_s: "Mean of the ranks, seconds", rank_s_max: "Slowest rank, seconds",
};
const SHARES = new Set(["exchange_share", "input_wait"]);
const ORDER = ["loss", "accuracy", "BLEU", "perplexity", "learning_rate", "tokens_per_s", "images_per_s", "exchange_share",
    "grad_norm", "input_wait", "step_s"];
/* Figures of the evaluation's rows that are not results. */
const NOT_RESULTS = new Set(["samples", "targets", "eval_s", "epoch", "updates", "train_samples", "learning_rate", "not_improved"]);

function figuresOf() {
    const found = new Map();
    const add = (id, part, column) => {
        if (!found.has(id)) found.set(id, {id, title: TITLES[id] || id, train: new Set(), evals: new Set()});
        found.get(id)[part].add(column);
    };
    for (const r of runs) {
        if (r.train) for (const name of r.train.columns.keys()) add(name.replace(/_mean$/, "") || name, "train", name);
        if (r.evals) for (const name of r.evals.columns.keys()) if (!NOT_RESULTS.has(name)) add(name, "evals", name);
    }
    const rank = (f) => {
        const at = ORDER.indexOf(f.id);
        if (f.id === "loss") return 0;
        if (runs.some((r) => r.figure === f.id)) return 0.5;
        return at >= 0 ? at + 1 : f.evals.size ? 50 : 60;
    };
    return [...found.values()].sort((a, b) => rank(a) - rank(b));
}

const figures = figuresOf();
const multi = runs.length > 1;

/* ---- what the user has chosen ---- */

const state = {
    x: "step", smooth: 0, range: null, focus: -1,
    shown: new Set(figures.filter((f, i) => i === 0 || runs.some((r) => r.figure === f.id) ||
        ["loss", "accuracy", "learning_rate", "tokens_per_s", "images_per_s", "exchange_share", "grad_norm"].includes(f.id))
        .map((f) => f.id)),
};
const charts = [];

/* ---- small helpers ---- */

function make(tag, props, ...children) {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(props || {})) {
        if (k === "text") e.textContent = v;
        else if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
        else if (v !== null && v !== undefined && v !== false) e.setAttribute(k, v === true ? "" : v);
    }
    e.append(...children);
    return e;
}

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const colour = (i) => (dark.matches ? DARK : LIGHT)[i % LIGHT.length];
const dash = (i) => DASHES[Math.floor(i / LIGHT.length) % DASHES.length];

function trim(text) {
    return text.includes("e") ? text.replace(/\.?0+e/, "e") : text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/* A number for people: at least four digits. */
function number(v, share) {
    if (!Number.isFinite(v)) return "–";
    if (share) return trim((100 * v).toPrecision(3)) + " %";
    if (v === 0) return "0";
    const a = Math.abs(v);
    if (a >= 1e9) return trim((v / 1e9).toPrecision(4)) + " G";
    if (a >= 1e6) return trim((v / 1e6).toPrecision(4)) + " M";
    if (a >= 1e5) return trim((v / 1e3).toPrecision(4)) + " k";
    return trim(a >= 1e4 ? v.toFixed(0) : v.toPrecision(5));
}

function duration(s) {
    if (s < 60) return trim(s.toPrecision(3)) + " s";
    if (s < 3600) return Math.floor(s / 60) + "m " + String(Math.round(s % 60)).padStart(2, "0") + "s";
    return Math.floor(s / 3600) + "h " + String(Math.floor(s % 3600 / 60)).padStart(2, "0") + "m";
}

const xText = (v) => state.x === "time" ? duration(v) : number(Math.round(v));

/* Marks between two numbers, at 1, 2 or 5 times a power of ten; of times at whole seconds, minutes and hours. */
function ticks(from, to, most) {
    const out = [];
    let step = Math.pow(10, Math.floor(Math.log10((to - from) / most)));
    for (const m of [1, 2, 5, 10]) {
        if ((to - from) / (step * m) <= most) {
            step *= m;
            break;
        }
    }
    if (!(step > 0)) return [from];
    for (let v = Math.ceil(from / step); v * step <= to && out.length < 50; v++) out.push(v * step);
    return out;
}

function timeTicks(from, to, most) {
    const steps = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800];
    const step = steps.find((s) => (to - from) / s <= most);
    if (!step || to - from < most) return ticks(from, to, most);
    const out = [];
    for (let v = Math.ceil(from / step) * step; v <= to; v += step) out.push(v);
    return out;
}

function logTicks(from, to) {
    const out = [], decades = Math.log10(to / from);
    const marks = decades > 4 ? [1] : decades > 1.2 ? [1, 3] : [1, 1.5, 2, 3, 5, 7];
    const every = Math.max(1, Math.ceil(decades / 8));
    for (let e = Math.floor(Math.log10(from)); e <= Math.ceil(Math.log10(to)); e++) {
        if (e % every !== 0) continue;
        for (const m of marks) {
            const v = m * Math.pow(10, e);
            if (v >= from * 0.999 && v <= to * 1.001) out.push(v);
        }
    }
    return out;
}

/* The exponential mean of TensorBoard: the weight of what came before, corrected at the beginning. */
function smoothed(values, weight) {
    if (!(weight > 0)) return values;
    const out = new Float64Array(values.length);
    let sum = 0, part = 0;
    for (let i = 0; i < values.length; i++) {
        if (Number.isFinite(values[i])) {
            sum = sum * weight + (1 - weight) * values[i];
            part = part * weight + (1 - weight);
        }
        out[i] = part > 0 && Number.isFinite(values[i]) ? sum / part : NaN;
    }
    return out;
}

/* The value of y at x, between the points of a curve. */
function between(xs, ys, x) {
    let a = 0, b = xs.length - 1;
    if (b < 0) return NaN;
    while (b - a > 1) {
        const m = (a + b) >> 1;
        if (xs[m] <= x) a = m;
        else b = m;
    }
    if (x <= xs[a] || b === a) return ys[a];
    if (x >= xs[b]) return ys[b];
    return ys[a] + (ys[b] - ys[a]) * (x - xs[a]) / (xs[b] - xs[a]);
}

function nearest(xs, x) {
    let a = 0, b = xs.length - 1;
    while (b - a > 1) {
        const m = (a + b) >> 1;
        if (xs[m] <= x) a = m;
        else b = m;
    }
    return b >= 0 && Math.abs(xs[b] - x) < Math.abs(xs[a] - x) ? b : a;
}

/* ---- charts ---- */

/* The curves of a run in a figure: {x, y, raw, low, high, evaluation}. */
function curvesOf(run, figure) {
    const out = [];
    const column = run.train && [figure.id + "_mean", figure.id].map((n) => run.train.column(n)).find((c) => c);
    if (column) {
        const x = state.x === "time" ? column.time : column.step;
        if (x) {
            out.push({run, x, y: smoothed(column.mean, state.smooth), raw: column.mean, low: column.low,
                high: column.high, evaluation: false});
        }
    }
    const e = run.evals && figure.evals.size ? run.evals.column(figure.id) : null;
    if (e) {
        let x = e.step;
        if (state.x === "time") {
            if (!run.train || !run.train.time) return out;
            x = Float64Array.from(e.step, (s) => between(run.train.step, run.train.time, s));
        }
        out.push({run, x, y: e.mean, raw: e.mean, low: null, high: null, evaluation: true});
    }
    return out;
}

function extent(curves, log, range) {
    let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
    for (const c of curves) {
        for (let i = 0; i < c.x.length; i++) {
            const x = c.x[i], y = c.y[i];
            if (range && (x < range[0] || x > range[1])) continue;
            if (!Number.isFinite(y) || (log && y <= 0)) continue;
            if (x < x0) x0 = x;
            if (x > x1) x1 = x;
            if (y < y0) y0 = y;
            if (y > y1) y1 = y;
        }
    }
    if (range) [x0, x1] = range;
    if (!(x1 > x0)) {
        x0 = Number.isFinite(x0) ? x0 - 0.5 : 0;
        x1 = x0 + 1;
    }
    if (!(y0 <= y1)) return {x0, x1, y0: log ? 0.1 : 0, y1: 1, empty: true};
    if (log) {
        const room = Math.max(1.02, Math.pow(y1 / y0, 0.05));
        return {x0, x1, y0: y0 / room, y1: y1 * room};
    }
    const room = y1 > y0 ? 0.05 * (y1 - y0) : Math.abs(y0) * 0.1 || 1;
    return {x0, x1, y0: y0 >= 0 && y0 - room < 0 ? 0 : y0 - room, y1: y1 + room};
}

class Chart {
    constructor(figure, holder) {
        this.figure = figure;
        this.log = false;
        this.cursor = NaN; /* x of the hair line */
        this.drag = null;
        const id = "chart" + charts.length;
        const button = (text, label, fn) => make("button", {type: "button", text, "aria-label": label, title: label, onclick: fn});
        this.logButton = make("button", {type: "button", text: "log", "aria-pressed": "false",
            title: "logarithmic scale (key: l)", onclick: () => this.toggleLog()});
        this.wideButton = make("button", {type: "button", text: "⤢", "aria-pressed": "false", "aria-label": "wide chart",
            title: "wide chart", onclick: () => this.toggleWide()});
        this.base = document.createElement("canvas");
        this.canvas = make("canvas", {tabindex: "0", role: "img", "aria-describedby": "keys"});
        this.tip = make("div", {class: "tip", hidden: true, "aria-hidden": "true"});
        this.live = make("div", {class: "sr", "aria-live": "polite"});
        this.values = make("details", {class: "values", ontoggle: () => this.fillValues()},
            make("summary", {text: "Values as a table"}));
        this.box = make("section", {class: "box chart", "aria-labelledby": id},
            make("div", {class: "head"}, make("h3", {id, text: figure.title}),
                make("div", {class: "tools"}, button("+", "zoom in", () => zoomBy(0.5, NaN)),
                    button("−", "zoom out", () => zoomBy(2, NaN)), button("⟲", "whole curve", () => setRange(null)),
                    this.logButton, this.wideButton)),
            make("div", {class: "plot"}, this.canvas, this.tip), this.live, this.values);
        holder.append(this.box);
        this.listen();
    }

    /* The curves of the runs that are shown; kept until the axis or the smoothing changes. */
    curves() {
        const kind = state.x + state.smooth;
        if (this.kind !== kind) this.kept = new Map();
        this.kind = kind;
        const out = [];
        for (const r of runs) {
            if (!r.shown) continue;
            if (!this.kept.has(r)) this.kept.set(r, curvesOf(r, this.figure));
            out.push(...this.kept.get(r));
        }
        return out;
    }

    toggleLog() {
        this.log = !this.log;
        this.logButton.setAttribute("aria-pressed", String(this.log));
        this.draw();
    }

    toggleWide() {
        const wide = this.box.classList.toggle("wide");
        this.wideButton.setAttribute("aria-pressed", String(wide));
        this.draw();
    }

    /* Pixels of the canvas to x, and back. */
    xOf(px) {
        const v = this.view;
        return v.x0 + (px - v.left) / (v.right - v.left) * (v.x1 - v.x0);
    }

    /* Draws the curves aside, then the chart: the hair line moves without drawing the curves again. */
    draw() {
        if (this.box.hidden) return;
        this.stale = false;
        const width = this.canvas.clientWidth, height = this.canvas.clientHeight, dpr = window.devicePixelRatio || 1;
        if (width < 10 || height < 10) return;
        if (this.canvas.width !== Math.round(width * dpr)) this.canvas.width = Math.round(width * dpr);
        if (this.canvas.height !== Math.round(height * dpr)) this.canvas.height = Math.round(height * dpr);
        this.base.width = this.canvas.width;
        this.base.height = this.canvas.height;
        const g = this.base.getContext("2d");
        const css = getComputedStyle(document.documentElement);
        this.colours = {ink: css.getPropertyValue("--dim").trim(), accent: css.getPropertyValue("--accent").trim()};
        const ink = css.getPropertyValue("--dim").trim(), line = css.getPropertyValue("--line").trim();
        const curves = this.curves();
        const b = extent(curves, this.log, state.range);
        const share = SHARES.has(this.figure.id);
        const marks = this.log ? logTicks(b.y0, b.y1) : ticks(b.y0, b.y1, 5);
        g.setTransform(dpr, 0, 0, dpr, 0, 0);
        g.font = "12px system-ui, sans-serif";
        const labels = marks.map((v) => number(v, share));
        const left = Math.ceil(Math.max(28, ...labels.map((t) => g.measureText(t).width))) + 8;
        this.view = {...b, left, right: width - 8, top: 8, bottom: height - 22};
        const v = this.view;
        const px = (x) => v.left + (x - v.x0) / (v.x1 - v.x0) * (v.right - v.left);
        const y0 = this.log ? Math.log(v.y0) : v.y0, y1 = this.log ? Math.log(v.y1) : v.y1;
        const py = (y) => v.bottom - ((this.log ? Math.log(y) : y) - y0) / (y1 - y0) * (v.bottom - v.top);
        this.px = px;
        this.py = py;
        g.strokeStyle = line;
        g.fillStyle = ink;
        g.lineWidth = 1;
        g.textBaseline = "middle";
        g.textAlign = "right";
        marks.forEach((m, i) => {
            const y = Math.round(py(m)) + 0.5;
            g.beginPath();
            g.moveTo(v.left, y);
            g.lineTo(v.right, y);
            g.stroke();
            g.fillText(labels[i], v.left - 6, y);
        });
        g.textBaseline = "alphabetic";
        g.textAlign = "center";
        const most = Math.max(2, Math.floor((v.right - v.left) / 70));
        const xMarks = state.x === "time" ? timeTicks(v.x0, v.x1, most) : ticks(v.x0, v.x1, most);
        for (const m of xMarks) {
            const x = px(m), text = xText(m), half = g.measureText(text).width / 2;
            g.fillText(text, Math.min(Math.max(x, v.left + half - 6), width - half - 1), height - 6);
            g.beginPath();
            g.moveTo(Math.round(x) + 0.5, v.bottom);
            g.lineTo(Math.round(x) + 0.5, v.bottom + 4);
            g.stroke();
        }
        if (b.empty) {
            g.fillText(this.log ? "no positive value here" : "nothing recorded here", (v.left + v.right) / 2, (v.top + v.bottom) / 2);
        }
        g.save();
        g.beginPath();
        g.rect(v.left, v.top - 2, v.right - v.left, v.bottom - v.top + 4);
        g.clip();
        const few = curves.length <= 6;
        for (const c of curves) if (c.run.index !== state.focus) this.drawCurve(g, c, few);
        for (const c of curves) if (c.run.index === state.focus) this.drawCurve(g, c, true);
        g.restore();
        this.canvas.setAttribute("aria-label", this.summary(curves));
        this.overlay();
    }

    /* Puts the curves, the hair line and the part that is being chosen on the chart. */
    overlay() {
        const v = this.view, dpr = window.devicePixelRatio || 1, g = this.canvas.getContext("2d");
        if (!v) return;
        g.setTransform(1, 0, 0, 1, 0, 0);
        g.clearRect(0, 0, this.canvas.width, this.canvas.height);
        g.drawImage(this.base, 0, 0);
        g.setTransform(dpr, 0, 0, dpr, 0, 0);
        if (Number.isFinite(this.cursor) && this.cursor >= v.x0 && this.cursor <= v.x1) {
            g.strokeStyle = this.colours.ink;
            g.lineWidth = 1;
            g.beginPath();
            g.moveTo(Math.round(this.px(this.cursor)) + 0.5, v.top);
            g.lineTo(Math.round(this.px(this.cursor)) + 0.5, v.bottom);
            g.stroke();
        }
        if (this.drag) {
            g.fillStyle = this.colours.accent;
            g.globalAlpha = 0.15;
            g.fillRect(Math.min(this.drag.from, this.drag.to), v.top, Math.abs(this.drag.to - this.drag.from), v.bottom - v.top);
            g.globalAlpha = 1;
        }
    }

    drawCurve(g, c, whole) {
        const v = this.view, i = c.run.index, dim = state.focus >= 0 && state.focus !== i;
        const usable = (y) => Number.isFinite(y) && !(this.log && y <= 0);
        let from = 0, to = c.x.length;
        if (state.range) { /* one point outside on each side, so that lines reach the edge */
            while (from + 1 < to && c.x[from + 1] < v.x0) from++;
            while (to - 2 > from && c.x[to - 2] > v.x1) to--;
        }
        g.strokeStyle = g.fillStyle = colour(i);
        /* One of many curves needs no more than a point for a pixel: the mean of those there. */
        const coarse = !whole && to - from > v.right - v.left;
        const path = (ys) => {
            let on = false;
            g.beginPath();
            for (let k = from; k < to; k++) {
                if (!usable(ys[k])) {
                    on = false;
                    continue;
                }
                let x = this.px(c.x[k]), y = this.py(ys[k]);
                if (coarse) {
                    let n = 1;
                    const edge = Math.floor(x) + 1;
                    while (k + 1 < to && usable(ys[k + 1]) && this.px(c.x[k + 1]) < edge) {
                        k++;
                        n++;
                        x += this.px(c.x[k]);
                        y += this.py(ys[k]);
                    }
                    x /= n;
                    y /= n;
                }
                if (on) g.lineTo(x, y);
                else g.moveTo(x, y);
                on = true;
            }
            g.stroke();
        };
        g.globalAlpha = dim ? 0.05 : 0.16;
        if (whole && c.low && state.smooth === 0) { /* smallest to largest value of each point */
            for (let k = from; k < to;) {
                let end = k;
                while (end < to && usable(c.low[end]) && usable(c.high[end])) end++;
                if (end > k + 1) {
                    g.beginPath();
                    for (let m = k; m < end; m++) g.lineTo(this.px(c.x[m]), this.py(c.high[m]));
                    for (let m = end - 1; m >= k; m--) g.lineTo(this.px(c.x[m]), this.py(c.low[m]));
                    g.closePath();
                    g.fill();
                }
                k = Math.max(end, k + 1);
            }
        }
        if (whole && state.smooth > 0 && !c.evaluation) {
            g.globalAlpha = dim ? 0.06 : 0.25;
            g.lineWidth = 1;
            path(c.raw);
        }
        g.globalAlpha = dim ? 0.25 : 1;
        g.lineWidth = state.focus === i ? 2.6 : !whole || c.evaluation ? 1 : 1.7;
        g.setLineDash(dash(i));
        path(c.y);
        g.setLineDash([]);
        if (c.evaluation || c.x.length === 1) {
            const step = Math.max(1, Math.ceil((to - from) / 80));
            for (let k = from; k < to; k++) {
                if (!usable(c.y[k]) || (k % step !== 0 && k + 1 !== to)) continue;
                g.beginPath();
                g.arc(this.px(c.x[k]), this.py(c.y[k]), 2.8, 0, 2 * Math.PI);
                g.fill();
            }
        }
        g.globalAlpha = 1;
    }

    /* What a screen reader says of the picture. */
    summary(curves) {
        const share = SHARES.has(this.figure.id);
        const parts = curves.slice(0, 8).map((c) => {
            let last = c.y.length - 1;
            while (last > 0 && !Number.isFinite(c.y[last])) last--;
            return c.run.name + (c.evaluation ? " (evaluation)" : "") + ": from " + number(c.y[0], share) + " to " +
                number(c.y[last], share);
        });
        if (curves.length > 8) parts.push("and " + (curves.length - 8) + " more curves");
        return "Chart of " + this.figure.title + ". " + parts.join("; ");
    }

    /* The values at an x. */
    at(x) {
        const out = [];
        for (const c of this.curves()) {
            if (c.x.length === 0) continue;
            const k = nearest(c.x, x);
            if (Number.isFinite(c.y[k])) out.push({c, k, x: c.x[k], y: c.y[k]});
        }
        return out;
    }

    showTip(x) {
        this.cursor = x;
        const share = SHARES.has(this.figure.id), most = 12;
        const rows = this.at(x).sort((a, b) => b.y - a.y);
        this.tip.textContent = "";
        this.tip.hidden = rows.length === 0;
        if (rows.length > 0) {
            const table = make("table", {});
            let list = rows;
            if (rows.length > most && Number.isFinite(this.pointer)) /* those next to the pointer */
                list = rows.slice().sort((a, b) => Math.abs(this.py(a.y) - this.pointer) - Math.abs(this.py(b.y) - this.pointer))
                    .slice(0, most).sort((a, b) => b.y - a.y);
            for (const r of list.slice(0, most)) {
                table.append(make("tr", {}, make("td", {}, swatch(r.c.run)),
                    make("td", {text: (multi ? r.c.run.name : "") + (r.c.evaluation ? " evaluation" : multi ? "" : "training")}),
                    make("td", {class: "n", text: number(r.y, share)})));
            }
            this.tip.append(make("div", {class: "dim", text: (state.x === "time" ? "after " : "step ") + xText(x) +
                (rows.length > most ? ", " + most + " of " + rows.length + " curves" : "")}), table);
            const right = this.px(x) > this.canvas.clientWidth / 2;
            this.tip.style.left = right ? "auto" : this.px(x) + 12 + "px";
            this.tip.style.right = right ? this.canvas.clientWidth - this.px(x) + 12 + "px" : "auto";
        }
        this.overlay();
    }

    hideTip() {
        this.cursor = NaN;
        this.tip.hidden = true;
        this.overlay();
    }

    /* Moves the hair line by a number of points, and says the values. */
    moveCursor(by) {
        const curves = this.curves().filter((c) => c.x.length > 0);
        if (curves.length === 0) return;
        const first = curves[0], v = this.view;
        let k = Number.isFinite(this.cursor) ? nearest(first.x, this.cursor) + by : nearest(first.x, by > 0 ? v.x0 : v.x1);
        k = Math.min(Math.max(k, 0), first.x.length - 1);
        this.pointer = NaN;
        this.showTip(first.x[k]);
        const share = SHARES.has(this.figure.id);
        this.live.textContent = (state.x === "time" ? "after " : "step ") + xText(first.x[k]) + ": " +
            this.at(first.x[k]).slice(0, 8).map((r) => r.c.run.name + (r.c.evaluation ? " evaluation " : " ") + number(r.y, share)).join(", ");
    }

    listen() {
        const c = this.canvas;
        const place = (e) => e.clientX - c.getBoundingClientRect().left;
        c.addEventListener("pointerdown", (e) => {
            if (e.button !== 0 || e.pointerType === "touch") return;
            this.drag = {from: place(e), to: place(e)};
            c.setPointerCapture(e.pointerId);
        });
        c.addEventListener("pointermove", (e) => {
            const x = place(e), v = this.view;
            if (!v) return;
            this.pointer = e.clientY - c.getBoundingClientRect().top;
            if (this.drag) this.drag.to = Math.min(Math.max(x, v.left), v.right);
            if (x >= v.left && x <= v.right) this.showTip(this.xOf(x));
            else this.hideTip();
        });
        c.addEventListener("pointerup", () => {
            const d = this.drag;
            this.drag = null;
            if (d && Math.abs(d.to - d.from) > 5) setRange([this.xOf(Math.min(d.from, d.to)), this.xOf(Math.max(d.from, d.to))]);
            else this.overlay();
        });
        c.addEventListener("pointercancel", () => {
            this.drag = null;
            this.overlay();
        });
        c.addEventListener("pointerleave", () => {
            if (!this.drag) this.hideTip();
        });
        c.addEventListener("blur", () => this.hideTip());
        c.addEventListener("dblclick", () => setRange(null));
        c.addEventListener("wheel", (e) => {
            if (document.activeElement !== c && !e.ctrlKey) return;
            e.preventDefault();
            zoomBy(e.deltaY > 0 ? 1.25 : 0.8, this.xOf(place(e)));
        }, {passive: false});
        c.addEventListener("keydown", (e) => {
            if (e.ctrlKey || e.metaKey || e.altKey) return;
            const at = Number.isFinite(this.cursor) ? this.cursor : NaN;
            const actions = {
                ArrowLeft: () => e.shiftKey ? panBy(-0.2) : this.moveCursor(-1),
                ArrowRight: () => e.shiftKey ? panBy(0.2) : this.moveCursor(1),
                "+": () => zoomBy(0.5, at), "=": () => zoomBy(0.5, at), "-": () => zoomBy(2, at), "0": () => setRange(null),
                l: () => this.toggleLog(), Escape: () => this.hideTip(),
            };
            if (!actions[e.key]) return;
            e.preventDefault();
            actions[e.key]();
        });
    }

    /* At most 25 rows of the range that is shown, for readers of tables. */
    fillValues() {
        const old = this.values.querySelector(".scroll");
        if (old) old.remove();
        if (!this.values.open || !this.view) return;
        const curves = this.curves(), v = this.view, share = SHARES.has(this.figure.id);
        const xs = new Set();
        for (let i = 0; i <= 24; i++) {
            const x = v.x0 + (v.x1 - v.x0) * i / 24;
            for (const c of curves.slice(0, 1)) xs.add(c.x[nearest(c.x, x)]);
        }
        const head = make("tr", {}, make("th", {scope: "col", text: state.x === "time" ? "after" : "step"}));
        for (const c of curves) {
            head.append(make("th", {scope: "col", class: "n", text: c.run.name + (c.evaluation ? " (evaluation)" : "")}));
        }
        const body = make("tbody", {});
        for (const x of [...xs].sort((a, b) => a - b)) {
            const row = make("tr", {}, make("th", {scope: "row", text: xText(x)}));
            for (const c of curves) row.append(make("td", {class: "n", text: number(c.y[nearest(c.x, x)], share)}));
            body.append(row);
        }
        this.values.append(make("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "Values of " + this.figure.title},
            make("table", {}, make("thead", {}, head), body)));
    }
}

/* Draws the charts once, before the next frame; those out of view when they come into view. */
let due = false;
function drawOrWait(c) {
    c.stale = true;
    if (c.inView) c.draw();
}

function drawAll() {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
        due = false;
        for (const c of charts) {
            drawOrWait(c);
            if (c.values.open) c.fillValues();
        }
    });
}

function wholeRange() {
    let a = Infinity, b = -Infinity;
    for (const c of charts) {
        if (c.box.hidden) continue;
        const e = extent(c.curves(), false, null);
        if (e.empty) continue;
        a = Math.min(a, e.x0);
        b = Math.max(b, e.x1);
    }
    return [a, b];
}

function setRange(range) {
    if (range) {
        const whole = wholeRange();
        range = [Math.max(range[0], whole[0]), Math.min(range[1], whole[1])];
        if (!(range[1] - range[0] > 1e-9 * Math.abs(range[1])) || (range[0] <= whole[0] && range[1] >= whole[1])) range = null;
    }
    state.range = range;
    drawAll();
}

function zoomBy(factor, around) {
    const [a, b] = state.range || wholeRange();
    if (!(b > a)) return;
    const at = Number.isFinite(around) ? around : (a + b) / 2;
    setRange([at - (at - a) * factor, at + (b - at) * factor]);
}

function panBy(part) {
    if (!state.range) return;
    const [a, b] = state.range, whole = wholeRange();
    const by = Math.min(Math.max((b - a) * part, whole[0] - a), whole[1] - b);
    setRange([a + by, b + by]);
}

/* ---- runs: colours, choice, order ---- */

function swatch(run) {
    const c = make("canvas", {class: "swatch", width: "28", height: "12", "aria-hidden": "true"});
    const g = c.getContext("2d");
    g.strokeStyle = colour(run.index);
    g.lineWidth = 4;
    g.setLineDash(dash(run.index).map((v) => v * 1.3));
    g.beginPath();
    g.moveTo(0, 6);
    g.lineTo(28, 6);
    g.stroke();
    return c;
}

function setUpRuns() {
    const table = document.getElementById("runs");
    if (!table || !multi) return;
    const rows = [...table.tBodies[0].rows];
    for (const row of rows) {
        const run = runs[Number(row.dataset.run)];
        const cell = row.cells[0];
        if (!run) continue;
        const box = make("input", {type: "checkbox", checked: true});
        const name = make("span", {text: cell.textContent});
        run.box = box;
        run.mark = swatch(run);
        box.addEventListener("change", () => {
            run.shown = box.checked;
            drawAll();
        });
        cell.textContent = "";
        cell.append(make("label", {}, box, run.mark, name));
        const focus = (on) => {
            state.focus = on ? run.index : -1;
            row.classList.toggle("on", on);
            drawAll();
        };
        row.addEventListener("pointerenter", () => focus(true));
        row.addEventListener("pointerleave", () => focus(false));
        row.addEventListener("focusin", () => focus(true));
        row.addEventListener("focusout", () => focus(false));
    }
    [...table.tHead.rows[0].cells].forEach((th, k) => {
        const button = make("button", {type: "button", text: th.textContent});
        th.textContent = "";
        th.append(button);
        button.addEventListener("click", () => sortRows(table, th, k));
    });
    const shows = (row, on) => {
        const run = runs[Number(row.dataset.run)];
        if (!run || !run.box) return;
        run.box.checked = run.shown = on;
    };
    const find = make("input", {type: "search", placeholder: "a part of the row", "aria-label": "rows of the table that contain"});
    const count = make("span", {class: "dim", "aria-live": "polite"});
    find.addEventListener("input", () => {
        const word = find.value.toLowerCase();
        let n = 0;
        for (const row of rows) {
            row.hidden = word !== "" && !row.textContent.toLowerCase().includes(word);
            n += !row.hidden;
            shows(row, !row.hidden);
        }
        count.textContent = n + " of " + rows.length + " runs";
        drawAll();
    });
    const all = (on) => () => {
        for (const row of rows) if (!row.hidden) shows(row, on);
        drawAll();
    };
    table.closest(".scroll").before(make("div", {class: "controls"}, make("label", {text: "Only "}, find), count,
        make("button", {type: "button", text: "draw all", onclick: all(true)}),
        make("button", {type: "button", text: "draw none", onclick: all(false)})));
}

function sortRows(table, th, k) {
    const up = th.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    th.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (row) => {
        const cell = row.cells[k];
        const v = cell.dataset.v === undefined ? NaN : Number(cell.dataset.v);
        return Number.isFinite(v) ? v : cell.textContent;
    };
    const rows = [...table.tBodies[0].rows].map((row) => ({row, v: key(row)}));
    rows.sort((a, b) => {
        const kind = (typeof a.v === "number" ? 0 : 1) - (typeof b.v === "number" ? 0 : 1);
        if (kind !== 0) return kind; /* numbers stay before texts, in both orders */
        const d = typeof a.v === "number" ? a.v - b.v : a.v.localeCompare(b.v, undefined, {numeric: true});
        return up ? d : -d;
    });
    table.tBodies[0].append(...rows.map((r) => r.row));
}

/* ---- the page ---- */

function setUpCurves() {
    const holder = document.getElementById("charts");
    if (!holder) return;
    holder.textContent = "";
    if (figures.length === 0) {
        holder.append(make("p", {class: "dim", text: "No run has recorded a figure."}));
        return;
    }
    const chips = make("fieldset", {class: "chips"}, make("legend", {text: "Figures"}));
    for (const f of figures) {
        const chart = new Chart(f, holder);
        charts.push(chart);
        chart.box.hidden = !state.shown.has(f.id);
        const chip = make("button", {type: "button", text: f.title, "aria-pressed": String(!chart.box.hidden)});
        chip.addEventListener("click", () => {
            chart.box.hidden = !chart.box.hidden;
            chip.setAttribute("aria-pressed", String(!chart.box.hidden));
            drawAll();
        });
        chips.append(chip);
    }
    const x = make("select", {"aria-label": "horizontal axis"}, make("option", {value: "step", text: "steps"}));
    if (runs.some((r) => r.train && r.train.time)) x.append(make("option", {value: "time", text: "time of training"}));
    x.addEventListener("change", () => {
        state.x = x.value;
        setRange(null);
    });
    const smooth = make("input", {type: "range", min: "0", max: "0.99", step: "0.01", value: "0", "aria-label": "smoothing"});
    const shown = make("span", {class: "dim", text: "0"});
    smooth.addEventListener("input", () => {
        state.smooth = Number(smooth.value);
        shown.textContent = smooth.value;
        drawAll();
    });
    const logs = make("input", {type: "checkbox"});
    logs.addEventListener("change", () => {
        for (const c of charts) if (c.log !== logs.checked) c.toggleLog();
    });
    holder.before(make("div", {class: "controls"}, make("label", {text: "Over "}, x),
        make("label", {text: "Smoothing "}, smooth, shown), make("label", {}, logs, "Logarithmic scales"),
        make("button", {type: "button", text: "whole curves", onclick: () => setRange(null)})), chips);
    if (window.ResizeObserver) new ResizeObserver(drawAll).observe(holder);
    dark.addEventListener("change", () => {
        for (const r of runs) {
            if (!r.mark) continue;
            const next = swatch(r);
            r.mark.replaceWith(next);
            r.mark = next;
        }
        drawAll();
    });
    const seen = new IntersectionObserver((entries) => {
        for (const e of entries) {
            const chart = charts.find((c) => c.box === e.target);
            chart.inView = e.isIntersecting;
            if (chart.inView && chart.stale) chart.draw();
        }
    }, {rootMargin: "200px"});
    for (const c of charts) {
        const r = c.box.getBoundingClientRect();
        c.inView = r.top < window.innerHeight + 200;
        seen.observe(c.box);
    }
    charts.forEach(drawOrWait);
    window.addEventListener("beforeprint", () => charts.forEach((c) => c.draw()));
}

setUpRuns();
setUpCurves();
document.documentElement.dataset.ready = String(Math.round(performance.now()));
})();
