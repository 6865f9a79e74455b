// SVG charts: lines over time and histograms. Colours come from CSS classes.

import { el, svg } from "./dom.js";

/** Calls `draw(width)` when the element is laid out or resized. */
function responsive(element, draw) {
  let width = 0;
  new ResizeObserver(([entry]) => {
    const next = Math.round(entry.contentRect.width);
    if (next > 0 && next !== width) { width = next; draw(width); }
  }).observe(element);
  return () => { if (width > 0) draw(width); };
}

/** Round step for about `target` intervals. */
function niceStep(range, target) {
  const raw = range / target;
  const power = 10 ** Math.floor(Math.log10(raw));
  const factor = [1, 2, 2.5, 5, 10].find((candidate) => candidate * power >= raw);
  return factor * power;
}

/**
 * Line chart over time. `options`: `title`, `series` ([{name, color}]), `format`, `max` (fixed maximum), `minimum` (smallest maximum).
 * `update(times, values)`: times in seconds, one array of numbers or null for each series.
 */
export class LineChart {
  #times = [];
  #values = [];
  #cursor = null;

  constructor({ title, series, format, max = null, minimum = 1 }) {
    Object.assign(this, { title, series, format, max, minimum });
    this.now = el("div", { class: "chart-now" });
    this.plot = el("div", { class: "chart-plot", tabindex: "0", role: "img" });
    this.tip = el("div", { class: "chart-tip", hidden: true });
    const legend = series.length > 1 ? el("div", { class: "chart-legend" }, series.map(({ name, color }) => el("span", {}, el("i", { class: `swatch fill-${color}` }), name))) : null;
    this.element = el("section", { class: "card chart-card" }, el("div", { class: "chart-head" }, el("h3", { text: title }), legend, this.now), el("div", { class: "chart-frame" }, this.plot, this.tip));
    this.draw = responsive(this.plot, (width) => this.#draw(width));
    this.plot.addEventListener("pointermove", (event) => this.#point(event));
    this.plot.addEventListener("pointerleave", () => this.#select(null));
    this.plot.addEventListener("blur", () => this.#select(null));
    this.plot.addEventListener("keydown", (event) => {
      const last = this.#times.length - 1;
      const at = this.#cursor ?? last;
      const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[event.key];
      if (event.key === "Escape") this.#select(null);
      if (next === undefined || last < 0) return;
      event.preventDefault();
      this.#select(Math.max(0, Math.min(last, next)));
    });
  }

  update(times, values) {
    this.#times = times;
    this.#values = values;
    const latest = values.map((list) => list.at(-1));
    this.now.textContent = latest.every((value) => value === null || value === undefined) ? "–" : latest.map((value) => (value === null || value === undefined ? "–" : this.format(value))).join(" / ");
    const spoken = this.series.map(({ name }, i) => {
      const known = values[i].filter((value) => value !== null);
      return known.length ? `${name}: now ${this.format(known.at(-1))}, lowest ${this.format(Math.min(...known))}, highest ${this.format(Math.max(...known))}` : `${name}: no data`;
    });
    this.plot.setAttribute("aria-label", `${this.title}. ${spoken.join(". ")}`);
    this.draw();
  }

  #draw(width) {
    const height = 150;
    const box = { left: 44, right: width - 8, top: 8, bottom: height - 20 };
    const known = this.#values.flat().filter((value) => value !== null);
    const peak = Math.max(this.minimum, ...known);
    const step = this.max ? this.max / 4 : niceStep(peak, 4);
    const top = this.max ?? Math.ceil(peak / step - 1e-9) * step;
    const end = this.#times.at(-1) ?? 0;
    const span = Math.max(60, end - (this.#times[0] ?? 0));
    const x = (time) => box.right - ((end - time) / span) * (box.right - box.left);
    const y = (value) => box.bottom - (value / top) * (box.bottom - box.top);
    const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    for (let i = 0; i * step <= top + 1e-9; i += 1) {
      root.append(svg("line", { x1: box.left, x2: box.right, y1: y(i * step), y2: y(i * step), class: i === 0 ? "axis" : "grid" }),
        svg("text", { x: box.left - 6, y: y(i * step) + 4, "text-anchor": "end", class: "tick" }, this.format(i * step, true)));
    }
    const marks = span > 300 ? 120 : span > 120 ? 60 : 15;
    for (let back = 0; back <= span; back += marks) {
      const at = x(end - back);
      root.append(svg("text", { x: Math.min(at, box.right), y: height - 4, "text-anchor": back === 0 ? "end" : "middle", class: "tick" }, back === 0 ? "now" : back % 60 === 0 ? `−${back / 60} min` : `−${back} s`));
    }
    this.series.forEach(({ color }, s) => {
      const runs = [[]];
      (this.#values[s] ?? []).forEach((value, i) => {
        if (value === null) { if (runs.at(-1).length) runs.push([]); } else runs.at(-1).push([x(this.#times[i]), y(value)]);
      });
      for (const run of runs.filter((points) => points.length)) {
        const line = run.map(([px, py], i) => `${i ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`).join("");
        if (this.series.length === 1) root.append(svg("path", { d: `${line}L${run.at(-1)[0].toFixed(1)} ${box.bottom}L${run[0][0].toFixed(1)} ${box.bottom}Z`, class: `area fill-${color}` }));
        root.append(svg("path", { d: line, class: `line stroke-${color}` }));
        if (run.length === 1) root.append(svg("circle", { cx: run[0][0], cy: run[0][1], r: 2, class: `fill-${color}` }));
      }
    });
    this.scaleX = x;
    if (this.#cursor !== null && this.#times[this.#cursor] !== undefined) {
      const at = x(this.#times[this.#cursor]);
      root.append(svg("line", { x1: at, x2: at, y1: box.top, y2: box.bottom, class: "cursor" }));
      this.series.forEach(({ color }, s) => {
        const value = this.#values[s][this.#cursor];
        if (value !== null && value !== undefined) root.append(svg("circle", { cx: at, cy: y(value), r: 3.5, class: `point fill-${color}` }));
      });
    }
    this.plot.replaceChildren(root);
  }

  #point(event) {
    if (!this.scaleX || !this.#times.length) return;
    const at = event.clientX - this.plot.getBoundingClientRect().left;
    let best = 0;
    this.#times.forEach((time, i) => { if (Math.abs(this.scaleX(time) - at) < Math.abs(this.scaleX(this.#times[best]) - at)) best = i; });
    this.#select(best);
  }

  #select(index) {
    this.#cursor = index;
    this.tip.hidden = index === null;
    this.draw();
    if (index === null) return;
    const ago = this.#times.at(-1) - this.#times[index];
    this.tip.replaceChildren(el("span", { class: "tip-time", text: ago < 0.5 ? "now" : `${Math.round(ago)} s ago` }),
      ...this.series.map(({ name, color }, s) => el("span", {}, el("i", { class: `swatch fill-${color}` }), `${name} `, el("b", { text: this.#values[s][index] === null ? "–" : this.format(this.#values[s][index]) }))));
    const width = this.plot.clientWidth;
    const left = this.scaleX(this.#times[index]);
    this.tip.style.left = `${Math.max(4, Math.min(width - this.tip.offsetWidth - 4, left > width / 2 ? left - this.tip.offsetWidth - 10 : left + 10))}px`;
  }
}

/** Histogram of a latency with p50 and p99. `update(histogram)` takes the result of `Snapshot.histogram`. */
export class Histogram {
  #data = null;

  constructor({ title, format, color }) {
    Object.assign(this, { title, format, color });
    this.now = el("div", { class: "chart-now chart-quantiles" });
    this.plot = el("div", { class: "chart-plot", role: "img" });
    this.element = el("section", { class: "card chart-card" }, el("div", { class: "chart-head" }, el("h3", { text: title }), this.now), this.plot);
    this.draw = responsive(this.plot, (width) => this.#draw(width));
  }

  update(data) {
    this.#data = data;
    const { format } = this;
    const value = (number) => (number === null || number === undefined ? "–" : format(number));
    this.now.replaceChildren(...[["p50", data?.p50], ["p99", data?.p99], ["mean", data?.mean]].map(([name, number]) => el("span", {}, el("small", { text: name }), value(number))));
    this.plot.setAttribute("aria-label", data ? `${this.title}: ${data.count} observations, p50 ${value(data.p50)}, p99 ${value(data.p99)}` : `${this.title}: no data`);
    this.draw();
  }

  #draw(width) {
    const height = 150;
    const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    const data = this.#data;
    if (!data || data.count === 0) {
      root.append(svg("text", { x: width / 2, y: height / 2, "text-anchor": "middle", class: "tick" }, "No requests yet"));
      this.plot.replaceChildren(root);
      return;
    }
    let bars = data.buckets.map((bucket, i) => ({ le: bucket.le, from: i ? data.buckets[i - 1].le : 0, value: bucket.count - (i ? data.buckets[i - 1].count : 0) }));
    // Empty buckets at both ends are cut, one of each is kept.
    const first = bars.findIndex((bar) => bar.value > 0);
    const last = bars.findLastIndex((bar) => bar.value > 0);
    bars = bars.slice(Math.max(0, first - 1), last + 2);
    const box = { left: 8, right: width - 8, top: 18, bottom: height - 22 };
    const peak = Math.max(...bars.map((bar) => bar.value));
    const slot = (box.right - box.left) / bars.length;
    const gap = Math.min(4, slot * 0.15);
    // A quantile marker stands inside its bar, at the fraction of the bucket.
    const place = (value) => {
      const at = bars.findIndex((bar) => value <= bar.le);
      if (at < 0) return null;
      const bar = bars[at];
      const fraction = bar.le === Infinity ? 0 : (value - bar.from) / (bar.le - bar.from);
      return box.left + (at + fraction) * slot;
    };
    const every = Math.max(1, Math.ceil(bars.length / (width / 56)));
    bars.forEach((bar, i) => {
      const size = bar.value === 0 ? 0 : Math.max(2, ((box.bottom - box.top) * bar.value) / peak);
      root.append(svg("rect", { x: box.left + i * slot + gap / 2, y: box.bottom - size, width: slot - gap, height: size, rx: Math.min(3, slot / 4), class: `bar fill-${this.color}` },
        svg("title", {}, `${this.format(bar.from)} to ${bar.le === Infinity ? "∞" : this.format(bar.le)}: ${bar.value}`)));
      if ((i + 1) % every === 0 && bar.le !== Infinity && i < bars.length - 1) root.append(svg("text", { x: box.left + (i + 1) * slot, y: height - 6, "text-anchor": "middle", class: "tick" }, this.format(bar.le, true)));
    });
    root.append(svg("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "axis" }));
    let previous = -Infinity;
    for (const [name, value] of [["p50", data.p50], ["p99", data.p99]]) {
      const at = value === null ? null : place(value);
      if (at === null) continue;
      const near = at - previous < 30;
      root.append(svg("line", { x1: at, x2: at, y1: box.top, y2: box.bottom, class: "quantile" }),
        svg("text", { x: Math.max(14, Math.min(width - 14, near ? at + 14 : at)), y: 12, "text-anchor": near ? "start" : "middle", class: "tick strong" }, name));
      previous = at;
    }
    this.plot.replaceChildren(root);
  }
}
