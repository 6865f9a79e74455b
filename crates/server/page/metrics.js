// Metrics tab: figures and charts from `/metrics`.

import { el, iconButton, icon } from "./dom.js";
import { count, percent, rate, secondsTick, short } from "./format.js";
import { Histogram, LineChart } from "./charts.js";
import * as feed from "./feed.js";

const wholePercent = (value) => percent(value, 0);
const axisNumber = (value, axis) => (axis ? (value >= 1000 ? short(value) : String(Math.round(value * 100) / 100)) : rate(value));
const FINISH_NAMES = { stop: "Stop", length: "Length", context: "Full context", tool_calls: "Tool calls", abort: "Cancelled", cancelled: "Cancelled", error: "Error", content_filter: "Filter" };

export class MetricsView {
  #unsubscribe = null;
  #paused = false;
  #model = "";
  #tiles = new Map();

  constructor() {
    this.select = el("select", { id: "metrics-model", "aria-label": "Model of the metrics" });
    this.select.addEventListener("change", () => { this.#model = this.select.value; this.#update(); });
    this.filter = el("div", { class: "select", hidden: true }, this.select);
    this.status = el("span", { class: "feed-status" });
    this.pause = iconButton("pause", "Pause", () => this.#toggle(), { "aria-pressed": "false", class: "is-bordered" });
    const tile = (key, label) => {
      const value = el("span", { class: "tile-value", text: "–" });
      const detail = el("span", { class: "tile-detail" });
      this.#tiles.set(key, { value, detail });
      return el("div", { class: "card tile" }, el("span", { class: "tile-label", text: label }), value, detail);
    };
    const integer = (value, axis) => (axis ? String(Math.round(value * 10) / 10) : count(value));
    this.lines = {
      generation: new LineChart({ title: "Generated tokens per second", series: [{ name: "Generated", color: "1" }], format: axisNumber }),
      prompt: new LineChart({ title: "Prompt tokens per second", series: [{ name: "Prompt", color: "3" }], format: axisNumber }),
      requests: new LineChart({ title: "Requests", series: [{ name: "Running", color: "1" }, { name: "Waiting", color: "2" }], format: integer, minimum: 4 }),
      kv: new LineChart({ title: "KV cache use", series: [{ name: "Used", color: "4" }], format: wholePercent, max: 1 }),
      hits: new LineChart({ title: "Prefix-cache hit rate", series: [{ name: "Hits", color: "3" }], format: wholePercent, max: 1 }),
    };
    this.histograms = {
      tabla_time_to_first_token_seconds: new Histogram({ title: "Time to first token", format: secondsTick, color: "1" }),
      tabla_inter_token_latency_seconds: new Histogram({ title: "Inter-token latency", format: secondsTick, color: "3" }),
      tabla_request_duration_seconds: new Histogram({ title: "Request duration", format: secondsTick, color: "4" }),
    };
    this.finish = el("div", { class: "finish-list" });
    this.element = el("div", { class: "page" },
      el("div", { class: "page-head" }, el("h2", { text: "Metrics" }), this.status, el("span", { class: "grow" }), this.filter, this.pause),
      el("div", { class: "tiles" }, tile("generation", "Generated"), tile("prompt", "Prompt"), tile("running", "Requests"), tile("kv", "KV cache"), tile("hits", "Prefix cache"), tile("total", "Since start")),
      el("div", { class: "charts" }, this.lines.generation.element, this.lines.prompt.element, this.lines.requests.element, this.lines.kv.element, this.lines.hits.element,
        el("section", { class: "card chart-card" }, el("div", { class: "chart-head" }, el("h3", { text: "Finished requests" })), this.finish)),
      el("h3", { class: "section-title", text: "Latency since the start of the server" }),
      el("div", { class: "charts is-dense" }, Object.values(this.histograms).map((chart) => chart.element)));
  }

  /** Starts polling. */
  show() {
    if (!this.#paused) this.#unsubscribe ??= feed.subscribe(() => this.#update());
    this.#update();
  }

  /** Stops polling. */
  hide() {
    this.#unsubscribe?.();
    this.#unsubscribe = null;
  }

  #toggle() {
    this.#paused = !this.#paused;
    this.pause.setAttribute("aria-pressed", String(this.#paused));
    this.pause.setAttribute("aria-label", this.#paused ? "Resume" : "Pause");
    this.pause.title = this.#paused ? "Resume" : "Pause";
    this.pause.replaceChildren(icon(this.#paused ? "play" : "pause"));
    if (this.#paused) { this.hide(); this.#update(); } else this.show();
  }

  #tile(key, value, detail = "") {
    const tile = this.#tiles.get(key);
    tile.value.textContent = value;
    tile.detail.textContent = detail;
  }

  #update() {
    const error = feed.error();
    this.status.textContent = this.#paused ? "Paused" : error ? `No data: ${error.message}` : feed.latest() ? "Updates every 2 s" : "Loading";
    this.status.classList.toggle("is-error", Boolean(error) && !this.#paused);
    this.status.classList.toggle("is-live", !error && !this.#paused);
    const last = feed.latest();
    if (!last) return;
    const all = feed.snapshots();
    const model = this.#model || undefined;
    const names = last.models();
    this.filter.hidden = names.length < 2;
    if (this.select.options.length !== names.length + 1) {
      this.select.replaceChildren(el("option", { value: "", text: "All models" }), ...names.map((name) => el("option", { value: name, text: name })));
      this.select.value = names.includes(this.#model) ? this.#model : "";
    }
    const times = all.map((snapshot) => snapshot.time / 1000);
    const rates = (name) => all.map((snapshot, i) => (i ? feed.increase(name, all[i - 1], snapshot, model)?.rate ?? null : null));
    const values = (name, kind = "sum") => all.map((snapshot) => snapshot[kind](name, model));
    const generated = rates("tabla_generation_tokens_total");
    const prompt = rates("tabla_prompt_tokens_total");
    const kv = values("tabla_kv_cache_usage_ratio", "max");
    // Polls without prompt tokens have no hit rate: the last known rate continues.
    let known = null;
    const hits = all.map((snapshot, i) => {
      const queries = i ? feed.increase("tabla_prefix_cache_queries_total", all[i - 1], snapshot, model) : null;
      const found = i ? feed.increase("tabla_prefix_cache_hits_total", all[i - 1], snapshot, model) : null;
      if (queries?.delta > 0 && found) known = found.delta / queries.delta;
      return known;
    });
    this.lines.generation.update(times, [generated]);
    this.lines.prompt.update(times, [prompt]);
    this.lines.requests.update(times, [values("tabla_requests_running"), values("tabla_requests_waiting")]);
    this.lines.kv.update(times, [kv]);
    this.lines.hits.update(times, [hits]);
    for (const [name, chart] of Object.entries(this.histograms)) chart.update(last.histogram(name, model));

    const number = (name) => last.sum(name, model);
    const text = (value, format) => (value === null || value === undefined ? "–" : format(value));
    const queries = number("tabla_prefix_cache_queries_total");
    const found = number("tabla_prefix_cache_hits_total");
    this.#tile("generation", text(generated.at(-1), rate), "tok/s");
    this.#tile("prompt", text(prompt.at(-1), rate), "tok/s");
    this.#tile("running", text(number("tabla_requests_running"), count), `running, ${text(number("tabla_requests_waiting"), count)} waiting`);
    this.#tile("kv", text(kv.at(-1), wholePercent), "in use");
    this.#tile("hits", queries ? wholePercent(found / queries) : "–", queries ? `${short(found)} of ${short(queries)}` : "no prompts yet");
    this.#tile("total", text(number("tabla_generation_tokens_total"), short), "generated tokens");
    this.#updateFinish(last.by("tabla_requests_total", "finish_reason", model));
  }

  #updateFinish(values) {
    const entries = [...values].sort((a, b) => b[1] - a[1]);
    const total = entries.reduce((sum, [, value]) => sum + value, 0);
    if (!total) {
      this.finish.replaceChildren(el("p", { class: "list-empty", text: "No requests yet" }));
      return;
    }
    this.finish.replaceChildren(...entries.map(([reason, value]) => {
      const bar = el("i", {});
      bar.style.width = `${(value / total) * 100}%`;
      return el("div", { class: "finish-row" }, el("span", { text: FINISH_NAMES[reason] ?? (reason || "Other") }), el("span", { class: "finish-track", "aria-hidden": "true" }, bar),
        el("b", { text: count(value) }), el("small", { text: percent(value / total, 0) }));
    }));
  }
}
