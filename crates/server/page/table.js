// Dispatch-table tab: the commands of the running model by layer, roofline, live decode speed.

import { getJson } from "./api.js";
import { announce, button, el, icon, toast } from "./dom.js";
import { bandwidth, bytes, count, flops, percent, rate, seconds, short } from "./format.js";
import * as feed from "./feed.js";
import * as models from "./models.js";
import { Roofline } from "./roofline.js";

/** Number of colours. Kinds of operation beyond it share the last one. */
const COLORS = 8;
const sum = (items, read) => items.reduce((total, item) => total + (read(item) ?? 0), 0);
const timed = (commands) => commands.some((command) => command.seconds !== null && command.seconds !== undefined);

/** Groups consecutive commands of one layer. */
function layersOf(commands) {
  const groups = [];
  for (const command of commands) {
    const layer = command.layer ?? null;
    if (groups.at(-1)?.layer === layer && groups.length) groups.at(-1).commands.push(command);
    else groups.push({ layer, commands: [command] });
  }
  return groups;
}

const shape = (command) => [command.op, command.kernel, command.grid?.join("x"), command.bytes, command.flops].join("|");

/** Merges consecutive layers with the same commands. Labels and times may differ. */
function foldLayers(groups) {
  const folded = [];
  for (const group of groups) {
    const signature = group.layer === null ? null : group.commands.map(shape).join("\n");
    const last = folded.at(-1);
    if (signature !== null && last?.signature === signature && last.layers.at(-1) === group.layer - 1) {
      last.layers.push(group.layer);
      last.members.push(group.commands);
    } else folded.push({ signature, layers: group.layer === null ? [] : [group.layer], members: [group.commands] });
  }
  return folded;
}

const labelOf = (command, folded) => (folded ? command.label.replace(/(blk|layers?)\.\d+/, "$1.*") : command.label);

export class TableView {
  #data = null;
  #model = null;
  #at = 0;
  #open = new Set();
  #fold = true;
  #unsubscribe = null;
  #controller = null;
  #colors = new Map();

  constructor() {
    this.roofline = new Roofline();
    this.title = el("span", { class: "page-sub" });
    this.tabs = el("div", { class: "segmented", role: "group", "aria-label": "Table" });
    this.measure = button("Measure", () => this.load(true), { icon: "gauge", class: "is-primary", id: "table-measure", title: "Run the table once and time every command" });
    this.tiles = el("div", { class: "tiles" });
    this.ops = el("section", { class: "card ops-card" });
    this.fold = el("input", { type: "checkbox", class: "switch", role: "switch", id: "table-fold", checked: true });
    this.fold.addEventListener("change", () => { this.#fold = this.fold.checked; this.#open.clear(); this.#drawTable(); });
    this.table = el("table", { class: "dispatch" });
    this.message = el("div", { class: "page-message", hidden: true });
    this.content = el("div", { class: "page-content", hidden: true }, this.tiles,
      el("div", { class: "table-charts" }, this.roofline.element, this.ops),
      el("div", { class: "section-head" }, el("h3", { class: "section-title", text: "Commands" }), el("span", { class: "grow" }), el("label", { for: "table-fold", text: "Fold identical layers" }), this.fold),
      el("div", { class: "card dispatch-card", tabindex: "0", role: "region", "aria-label": "Commands" }, this.table));
    this.element = el("div", { class: "page" },
      el("div", { class: "page-head" }, el("h2", { text: "Dispatch table" }), this.title, el("span", { class: "grow" }), this.tabs, this.measure),
      this.message, this.content);
    models.changes.addEventListener("change", () => { if (this.#unsubscribe && models.inspected()?.id !== this.#model) this.load(); });
  }

  show() {
    this.#unsubscribe ??= feed.subscribe(() => this.#drawLive());
    if (models.inspected() && models.inspected().id !== this.#model) this.load();
  }

  hide() {
    this.#unsubscribe?.();
    this.#unsubscribe = null;
  }

  /** Loads the table of the selected model. `time` measures one pass. */
  async load(time = false) {
    const model = models.inspected()?.id;
    if (!model) return;
    this.#controller?.abort();
    const controller = new AbortController();
    this.#controller = controller;
    const fresh = model !== this.#model;
    this.#model = model;
    this.measure.disabled = true;
    this.measure.querySelector("span").textContent = time ? "Measuring" : "Measure";
    if (fresh) { this.content.hidden = true; this.#show("Loading the dispatch table"); }
    try {
      const data = await getJson(`table?model=${encodeURIComponent(model)}${time ? "&time=1" : ""}`, controller.signal);
      if (!Array.isArray(data.tables) || data.tables.length === 0) throw new Error("the server returned no table");
      if (fresh) { this.#at = 0; this.#open.clear(); }
      this.#data = data;
      this.#at = Math.min(this.#at, data.tables.length - 1);
      this.message.hidden = true;
      this.content.hidden = false;
      this.#draw();
      if (time) announce("Measurement complete");
    } catch (error) {
      if (error.name === "AbortError") return;
      if (fresh) { this.#model = null; this.#show(`The dispatch table is not available: ${error.message}`, true); } else toast(`measurement failed: ${error.message}`, { kind: "error" });
    } finally {
      if (this.#controller === controller) {
        this.measure.disabled = false;
        this.measure.querySelector("span").textContent = "Measure";
      }
    }
  }

  #show(text, failed = false) {
    this.message.hidden = false;
    this.message.replaceChildren(failed ? icon("alert", 18) : "", el("span", { text }), failed ? button("Retry", () => this.load(), { class: "is-small" }) : "");
  }

  get #table() { return this.#data.tables[this.#at]; }

  #colorOf(op) {
    return this.#colors.get(op) ?? COLORS;
  }

  #draw() {
    const { tables, device } = this.#data;
    this.title.textContent = device ?? "";
    this.tabs.hidden = tables.length < 2;
    this.tabs.replaceChildren(...tables.map((table, i) => el("button", {
      type: "button", "aria-pressed": String(i === this.#at), text: `${table.name}${table.tokens > 1 ? `, ${table.tokens} tokens` : ""}`,
      on: { click: () => { this.#at = i; this.#open.clear(); this.#draw(); this.tabs.children[i].focus(); } },
    })));
    // Colours follow the bytes of each kind of operation in the first table, so they stay the same in all tables.
    const totals = new Map();
    for (const table of tables) for (const command of table.commands) totals.set(command.op, (totals.get(command.op) ?? 0) + command.bytes);
    this.#colors = new Map([...totals].sort((a, b) => b[1] - a[1]).map(([op], i) => [op, Math.min(i + 1, COLORS)]));
    this.#drawTiles();
    this.#drawOps();
    this.#drawTable();
    this.#drawLive();
  }

  #byOp() {
    const groups = new Map();
    for (const command of this.#table.commands) {
      const group = groups.get(command.op) ?? { op: command.op, color: this.#colorOf(command.op), commands: 0, bytes: 0, flops: 0, seconds: null };
      group.commands += 1;
      group.bytes += command.bytes;
      group.flops += command.flops;
      if (Number.isFinite(command.seconds)) group.seconds = (group.seconds ?? 0) + command.seconds;
      groups.set(command.op, group);
    }
    return [...groups.values()].sort((a, b) => (b.seconds ?? 0) - (a.seconds ?? 0) || b.bytes - a.bytes);
  }

  #drawTiles() {
    const table = this.#table;
    const roof = this.#data.bandwidth_bytes_per_second;
    const time = timed(table.commands) ? sum(table.commands, (command) => command.seconds) : null;
    const total = table.bytes ?? sum(table.commands, (command) => command.bytes);
    const tile = (label, value, detail) => el("div", { class: "card tile" }, el("span", { class: "tile-label", text: label }), el("span", { class: "tile-value", text: value }), el("span", { class: "tile-detail", text: detail ?? "" }));
    this.tiles.replaceChildren(
      tile("Commands", count(table.commands.length), table.stage ? `stage: ${table.stage}` : ""),
      tile("Memory traffic", bytes(total), table.tokens === 1 ? "per token" : `for ${count(table.tokens)} tokens`),
      tile("Operations", flops(table.flops ?? sum(table.commands, (command) => command.flops)), `${((table.flops ?? 0) / Math.max(total, 1)).toPrecision(2)} FLOP per byte`),
      tile("Time of one pass", time === null ? "–" : seconds(time), time === null ? "not measured" : `${rate(table.tokens / time)} tok/s`),
      tile("Bandwidth", time === null ? "–" : bandwidth(total / time), time !== null && roof ? `${percent(total / time / roof, 0)} of ${bandwidth(roof)}` : roof ? `device: ${bandwidth(roof)}` : ""),
      this.liveTile = tile("Live decode", "–", "no requests"));
  }

  #drawOps() {
    const ops = this.#byOp();
    const total = { bytes: sum(ops, (op) => op.bytes), seconds: sum(ops, (op) => op.seconds) };
    const stack = (read, whole, label) => {
      const bar = el("div", { class: "stack", role: "img", "aria-label": `${label}: ${ops.slice(0, 4).map((op) => `${op.op} ${percent(read(op) / whole, 0)}`).join(", ")}` });
      for (const op of ops) {
        const share = read(op) / whole;
        if (!(share > 0.002)) continue;
        const part = el("i", { class: `fill-${op.color}`, title: `${op.op}: ${percent(share)}` });
        part.style.width = `${share * 100}%`;
        bar.append(part);
      }
      return el("div", { class: "stack-row" }, el("span", { text: label }), bar);
    };
    const measured = total.seconds > 0;
    this.ops.replaceChildren(el("div", { class: "chart-head" }, el("h3", { text: "By operation" })),
      stack((op) => op.bytes, total.bytes, "Bytes"), measured ? stack((op) => op.seconds ?? 0, total.seconds, "Time") : "",
      el("div", { class: "ops-scroll" }, el("table", { class: "ops-table" },
        el("thead", {}, el("tr", {}, ["Operation", "Count", "Bytes", "Time", "GB/s"].map((name, i) => el("th", { scope: "col", class: i ? "num" : null, text: name })))),
        el("tbody", {}, ops.map((op) => el("tr", {}, el("th", { scope: "row" }, el("i", { class: `swatch fill-${op.color}` }), op.op),
          el("td", { class: "num", text: count(op.commands) }), el("td", { class: "num", text: bytes(op.bytes) }),
          el("td", { class: "num", text: op.seconds === null ? "–" : seconds(op.seconds) }),
          el("td", { class: "num", text: op.seconds > 0 ? (op.bytes / op.seconds / 1e9).toFixed(1) : "–" })))))));
  }

  #drawTable() {
    const table = this.#table;
    const layers = layersOf(table.commands);
    const groups = this.#fold ? foldLayers(layers) : layers.map((group) => ({ layers: group.layer === null ? [] : [group.layer], members: [group.commands] }));
    const totalOf = (group, read) => group.members.reduce((all, commands) => all + sum(commands, read), 0);
    const peak = {
      group: { bytes: Math.max(...groups.map((group) => totalOf(group, (c) => c.bytes)), 1), seconds: Math.max(...groups.map((group) => totalOf(group, (c) => c.seconds)), 1e-12) },
      command: { bytes: Math.max(...table.commands.map((c) => c.bytes), 1), seconds: Math.max(...table.commands.map((c) => c.seconds ?? 0), 1e-12) },
    };
    const measured = timed(table.commands);
    const head = el("thead", {}, el("tr", {}, [["Command", ""], ["Kernel", "wide"], ["Grid", "wide"], ["Bytes", ""], ["FLOPs", "wide num"], ["Time", ""], ["GB/s", "wide num"]]
      .map(([name, className]) => el("th", { scope: "col", class: className, text: name }))));
    this.table.classList.toggle("is-measured", measured);
    this.table.replaceChildren(head, ...groups.map((group, i) => this.#group(group, i, peak, totalOf)));
  }

  #bar(value, peak, text, color) {
    const fill = el("i", { class: `fill-${color}` });
    fill.style.width = `${Math.min(100, (value / peak) * 100)}%`;
    return el("td", { class: "bar-cell" }, el("span", { class: "bar-track", "aria-hidden": "true" }, fill), el("span", { class: "bar-value", text }));
  }

  #group(group, index, peak, totalOf) {
    const repeated = group.members.length;
    const commands = group.members[0];
    const single = group.layers.length === 0;
    const body = el("tbody", { class: single ? "is-single" : null });
    const row = (command, at) => {
      // A folded row has the mean time over its layers.
      const times = group.members.map((member) => member[at].seconds).filter(Number.isFinite);
      const time = times.length ? times.reduce((a, b) => a + b, 0) / times.length : null;
      const color = this.#colorOf(command.op);
      return el("tr", { class: "command-row" },
        el("th", { scope: "row" }, el("div", { class: "command" }, el("i", { class: `swatch fill-${color}`, title: command.op }), el("span", { class: "command-label", text: labelOf(command, repeated > 1) }), el("small", { text: command.op }))),
        el("td", { class: "wide" }, el("code", { text: command.kernel, title: command.kernel })),
        el("td", { class: "wide dim", text: command.grid?.join(" × ") ?? "" }),
        this.#bar(command.bytes, peak.command.bytes, bytes(command.bytes), color),
        el("td", { class: "wide num dim", text: command.flops ? short(command.flops) : "–" }),
        this.#bar(time ?? 0, peak.command.seconds, time === null ? "–" : seconds(time), color),
        el("td", { class: "wide num", text: time > 0 ? (command.bytes / time / 1e9).toFixed(1) : "–" }));
    };
    if (single) {
      body.append(...commands.map((command, at) => row(command, at)));
      return body;
    }
    const open = this.#open.has(index);
    const name = repeated > 1 ? `Layers ${group.layers[0]} to ${group.layers.at(-1)}` : `Layer ${group.layers[0]}`;
    const total = { bytes: totalOf(group, (c) => c.bytes), flops: totalOf(group, (c) => c.flops), seconds: totalOf(group, (c) => c.seconds) };
    const toggle = el("button", {
      type: "button", class: "group-toggle", "aria-expanded": String(open),
      on: { click: () => {
        if (this.#open.has(index)) this.#open.delete(index); else this.#open.add(index);
        const next = this.#group(group, index, peak, totalOf);
        body.replaceWith(next);
        next.querySelector(".group-toggle").focus();
      } },
    }, icon("right", 14), el("span", { text: name }), el("small", { text: repeated > 1 ? `${repeated} × ${commands.length} commands` : `${commands.length} commands` }));
    body.append(el("tr", { class: "group-row" }, el("th", { scope: "row" }, toggle), el("td", { class: "wide" }), el("td", { class: "wide" }),
      this.#bar(total.bytes, peak.group.bytes, bytes(total.bytes), "layer"), el("td", { class: "wide num dim", text: short(total.flops) }),
      this.#bar(total.seconds, peak.group.seconds, total.seconds > 0 ? seconds(total.seconds) : "–", "layer"),
      el("td", { class: "wide num", text: total.seconds > 0 ? (total.bytes / total.seconds / 1e9).toFixed(1) : "–" })));
    if (open) body.append(...commands.map((command, at) => row(command, at)));
    return body;
  }

  /** Places the decode of the running server in the roofline. */
  #drawLive() {
    if (!this.#data || this.content.hidden) return;
    const all = feed.snapshots();
    const last = all.at(-1);
    const known = last?.models().includes(this.#model) ? this.#model : undefined;
    const speed = last && all.length > 1 ? feed.increase("tabla_generation_tokens_total", all.at(-2), last, known)?.rate ?? 0 : 0;
    const step = this.#data.tables.find((table) => table.tokens === 1) ?? this.#data.tables[0];
    const perToken = { bytes: (step.bytes ?? sum(step.commands, (c) => c.bytes)) / step.tokens, flops: (step.flops ?? sum(step.commands, (c) => c.flops)) / step.tokens };
    const roof = this.#data.bandwidth_bytes_per_second ?? null;
    const [, value, detail] = this.liveTile.children;
    value.textContent = speed > 0 ? `${rate(speed)} tok/s` : "–";
    detail.textContent = speed > 0 ? `${bandwidth(speed * perToken.bytes)}${roof ? `, ${percent((speed * perToken.bytes) / roof, 0)}` : ""}` : "no generation now";
    const live = speed > 0 && perToken.bytes > 0 && perToken.flops > 0
      ? { intensity: perToken.flops / perToken.bytes, performance: speed * perToken.flops, label: `Live: ${rate(speed)} tok/s` } : null;
    this.liveTile.classList.toggle("is-live", speed > 0);
    this.roofline.update({ ops: this.#byOp(), roof, live });
  }
}
