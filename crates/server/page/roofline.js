// Roofline chart: arithmetic intensity against performance, one dot for each kind of operation.

import { el, svg } from "./dom.js";
import { bandwidth, percent, seconds } from "./format.js";

const HEIGHT = 340;
const EMPTY_HEIGHT = 170;
const decade = (value) => Math.floor(Math.log10(value));
const SUPER = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

/** Label of a power of ten. */
function powerLabel(power) {
  if (power >= -2 && power <= 3) return String(Number((10 ** power).toPrecision(1)));
  return `10${[...String(power)].map((char) => SUPER[char]).join("")}`;
}

const gflops = (value) => {
  const number = value / 1e9;
  return number >= 1000 ? `${(number / 1000).toFixed(2)} TFLOP/s` : `${number.toPrecision(3)} GFLOP/s`;
};

export class Roofline {
  #data = null;
  #width = 0;

  constructor() {
    this.plot = el("div", { class: "chart-plot roofline" });
    this.tip = el("div", { class: "chart-tip roofline-tip", hidden: true });
    this.note = el("p", { class: "card-note" });
    this.element = el("section", { class: "card chart-card roofline-card" },
      el("div", { class: "chart-head" }, el("h3", { text: "Roofline" }), el("span", { class: "chart-sub", text: "GFLOP/s over FLOP per byte, log scales" })),
      el("div", { class: "chart-frame" }, this.plot, this.tip), this.note);
    new ResizeObserver(([entry]) => {
      const width = Math.round(entry.contentRect.width);
      if (width > 0 && width !== this.#width) { this.#width = width; this.#draw(); }
    }).observe(this.plot);
  }

  /**
   * `data`: `ops` ([{op, flops, bytes, seconds or null, commands, color}]), `roof` (bytes per second or null),
   * `live` ({intensity, performance, label} or null), `total` (seconds or null).
   */
  update(data) {
    this.#data = data;
    this.note.textContent = data.roof
      ? data.ops.some((op) => op.seconds) ? "Area of a dot: share of the time. The line is the memory bandwidth of the device; a dot on the line uses all of it."
        : "Hollow dots: the bound of each operation at full memory bandwidth. Measure to see the real performance."
      : "The memory bandwidth of this device is unknown. Measure to place the operations.";
    this.#draw();
  }

  #draw() {
    const data = this.#data;
    const width = this.#width;
    if (!data || !width) return;
    const points = data.ops.filter((op) => op.flops > 0 && op.bytes > 0).map((op) => {
      const intensity = op.flops / op.bytes;
      const measured = op.seconds > 0;
      const performance = measured ? op.flops / op.seconds : data.roof ? intensity * data.roof : null;
      return { ...op, intensity, performance, measured };
    }).filter((point) => point.performance);
    const live = data.live;
    const xs = [...points.map((point) => point.intensity), ...(live ? [live.intensity] : []), 0.5, 8];
    const ys = [...points.map((point) => point.performance), ...(live ? [live.performance] : [])];
    if (data.roof) for (const x of [Math.min(...xs), Math.max(...xs)]) ys.push(x * data.roof);
    const height = ys.length ? HEIGHT : EMPTY_HEIGHT;
    const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": this.#describe(points, live) });
    this.plot.replaceChildren(root);
    if (!ys.length) {
      root.append(svg("text", { x: width / 2, y: height / 2, "text-anchor": "middle", class: "tick" }, "Not measured yet"));
      return;
    }
    const x0 = Math.log10(Math.min(...xs)) - 0.25;
    const x1 = Math.log10(Math.max(...xs)) + 0.25;
    const y0 = Math.log10(Math.min(...ys)) - 0.3;
    const y1 = Math.log10(Math.max(...ys)) + 0.35;
    const box = { left: 50, right: width - 12, top: 10, bottom: HEIGHT - 38 };
    const x = (value) => box.left + ((Math.log10(value) - x0) / (x1 - x0)) * (box.right - box.left);
    const y = (value) => box.bottom - ((Math.log10(value) - y0) / (y1 - y0)) * (box.bottom - box.top);
    for (let power = Math.ceil(x0); power <= x1; power += 1) {
      root.append(svg("line", { x1: x(10 ** power), x2: x(10 ** power), y1: box.top, y2: box.bottom, class: "grid" }),
        svg("text", { x: x(10 ** power), y: box.bottom + 16, "text-anchor": "middle", class: "tick" }, powerLabel(power)));
    }
    for (let power = Math.ceil(y0); power <= y1; power += 1) {
      root.append(svg("line", { x1: box.left, x2: box.right, y1: y(10 ** power), y2: y(10 ** power), class: "grid" }),
        svg("text", { x: box.left - 8, y: y(10 ** power) + 4, "text-anchor": "end", class: "tick" }, powerLabel(power - 9)));
    }
    root.append(svg("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "axis" }),
      svg("line", { x1: box.left, x2: box.left, y1: box.top, y2: box.bottom, class: "axis" }),
      svg("text", { x: (box.left + box.right) / 2, y: HEIGHT - 6, "text-anchor": "middle", class: "tick" }, "Arithmetic intensity (FLOP per byte)"),
      svg("text", { x: 12, y: (box.top + box.bottom) / 2, "text-anchor": "middle", class: "tick", transform: `rotate(-90 12 ${(box.top + box.bottom) / 2})` }, "GFLOP/s"));
    if (data.roof) this.#roof(root, data.roof, points, live, { x, y, x0, x1, y0, y1, box });
    const total = points.reduce((sum, point) => sum + (point.seconds ?? 0), 0);
    // Large dots first, so that small ones stay visible and reachable.
    points.sort((a, b) => (b.seconds ?? 0) - (a.seconds ?? 0));
    for (const point of points) {
      const radius = point.measured ? 5 + 15 * Math.sqrt(point.seconds / total) : 6;
      const dot = svg("circle", { cx: x(point.intensity), cy: y(point.performance), r: radius, tabindex: "0", role: "img", class: `dot ${point.measured ? `fill-${point.color}` : "is-hollow"} stroke-${point.color}`,
        "aria-label": `${point.op}: ${point.intensity.toPrecision(3)} FLOP per byte, ${gflops(point.performance)}${point.measured ? "" : ", bound"}` });
      const reveal = () => this.#show(point, data.roof, total, x(point.intensity), y(point.performance));
      dot.addEventListener("pointerenter", reveal);
      dot.addEventListener("focus", reveal);
      dot.addEventListener("pointerleave", () => { this.tip.hidden = true; });
      dot.addEventListener("blur", () => { this.tip.hidden = true; });
      root.append(dot);
    }
    const liveLabel = live ? this.#live(root, live, x, y, box) : null;
    this.#labels(root, points, x, y, total, box, liveLabel);
  }

  #roof(root, roof, points, live, { x, y, x0, x1, y0, y1, box }) {
    // The line y = bandwidth × x, cut at the edges of the plot.
    const from = Math.max(10 ** x0, 10 ** y0 / roof);
    const to = Math.min(10 ** x1, 10 ** y1 / roof);
    const angle = (Math.atan2(y(to * roof) - y(from * roof), x(to) - x(from)) * 180) / Math.PI;
    const label = x(to) - x(from) > 420 ? `Memory bandwidth ${bandwidth(roof)}` : bandwidth(roof);
    const half = label.length * 3.2 * Math.cos((angle * Math.PI) / 180);
    // The label stands where the dots are farthest away.
    const dots = points.map((point) => [x(point.intensity), y(point.performance)]);
    if (live) dots.push([x(live.intensity), y(live.performance)]);
    const place = (share) => 10 ** (Math.log10(from) * (1 - share) + Math.log10(to) * share);
    const room = (value) => Math.min(1e6, ...dots.map(([left, top]) => Math.hypot(left - x(value), top - y(value * roof))));
    const at = [0.2, 0.35, 0.5, 0.65, 0.8].map(place).filter((value) => x(value) - half > box.left && x(value) + half < box.right).reduce((best, value) => (room(value) > room(best) ? value : best), place(0.5));
    root.append(svg("path", { d: `M${x(from)} ${y(from * roof)}L${x(to)} ${y(to * roof)}L${x(to)} ${box.top}L${box.left} ${box.top}L${box.left} ${y(from * roof)}Z`, class: "roof-area" }),
      svg("line", { x1: x(from), y1: y(from * roof), x2: x(to), y2: y(to * roof), class: "roof" }),
      svg("text", { x: x(at), y: y(at * roof) - 9, "text-anchor": "middle", class: "tick strong", transform: `rotate(${angle} ${x(at)} ${y(at * roof) - 9})` }, label));
  }

  /** Names the dots with the largest share, without overlaps. */
  #labels(root, points, x, y, total, box, liveLabel) {
    const placed = liveLabel ? [liveLabel] : [];
    for (const point of points.slice(0, 8)) {
      const radius = point.measured ? 5 + 15 * Math.sqrt(point.seconds / total) : 6;
      const label = { x: x(point.intensity) + radius + 5, y: y(point.performance) + 4, width: point.op.length * 7 };
      if (label.x + label.width > box.right) label.x = x(point.intensity) - radius - 5 - label.width;
      if (placed.some((other) => Math.abs(other.y - label.y) < 13 && label.x < other.x + other.width && other.x < label.x + label.width)) continue;
      placed.push(label);
      root.append(svg("text", { x: label.x, y: label.y, class: "tick dot-label" }, point.op));
    }
  }

  /** Draws the live decode. Returns the box of its label. */
  #live(root, live, x, y, box) {
    const px = x(live.intensity);
    const py = y(live.performance);
    const width = live.label.length * 7;
    const end = px + 8 + width > box.right;
    const label = { x: end ? px - 8 - width : px + 8, y: box.bottom - 10, width };
    root.append(svg("line", { x1: px, x2: px, y1: py, y2: box.bottom, class: "live-line" }), svg("circle", { cx: px, cy: py, r: 11, class: "live-halo" }), svg("circle", { cx: px, cy: py, r: 5, class: "live-dot" }),
      svg("text", { x: end ? px - 8 : px + 8, y: label.y, "text-anchor": end ? "end" : "start", class: "tick strong live-label" }, live.label));
    return label;
  }

  #show(point, roof, total, left, top) {
    const row = (name, value) => el("span", {}, `${name} `, el("b", { text: value }));
    this.tip.replaceChildren(el("span", { class: "tip-time" }, el("i", { class: `swatch fill-${point.color}` }), `${point.op}, ${point.commands} commands`),
      row("Intensity", `${point.intensity.toPrecision(3)} FLOP/B`),
      row(point.measured ? "Performance" : "Bound", gflops(point.performance)),
      ...(point.measured ? [row("Bandwidth", `${bandwidth(point.bytes / point.seconds)}${roof ? ` (${percent(point.bytes / point.seconds / roof, 0)})` : ""}`), row("Time", `${seconds(point.seconds)} (${percent(point.seconds / total, 0)})`)] : []));
    this.tip.hidden = false;
    const width = this.plot.clientWidth;
    this.tip.style.left = `${Math.max(4, Math.min(width - this.tip.offsetWidth - 4, left > width / 2 ? left - this.tip.offsetWidth - 18 : left + 18))}px`;
    this.tip.style.top = `${Math.max(0, Math.min(HEIGHT - this.tip.offsetHeight, top - this.tip.offsetHeight / 2))}px`;
  }

  #describe(points, live) {
    const list = points.map((point) => `${point.op} ${gflops(point.performance)} at ${point.intensity.toPrecision(2)} FLOP per byte`);
    return `Roofline chart. ${list.join("; ")}${live ? `; ${live.label}` : ""}`;
  }
}
