// Metrics feed: parses the Prometheus text of `/metrics` and keeps a history of samples.
// Polls only while a subscriber is active and the page is visible.

import { getText } from "./api.js";

const INTERVAL = 2000;
/** Number of samples kept: 10 minutes. */
const HISTORY = 300;
const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/;

/** Parses the labels of a sample. Values may contain escaped quotes, backslashes and line breaks. */
function parseLabels(text) {
  const labels = {};
  for (const [, key, value] of text.matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g)) {
    labels[key] = value.replace(/\\(.)/g, (_, char) => (char === "n" ? "\n" : char));
  }
  return labels;
}

/** Parses the Prometheus text format to `{name, labels, value}` samples. */
export function parse(text) {
  const samples = [];
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const match = LINE.exec(line);
    if (!match) continue;
    const value = match[3] === "+Inf" ? Infinity : match[3] === "-Inf" ? -Infinity : Number(match[3]);
    samples.push({ name: match[1], labels: parseLabels(match[2] ?? ""), value });
  }
  return samples;
}

/** Quantile of cumulative buckets by linear interpolation, as `histogram_quantile` of Prometheus. */
export function quantile(buckets, q) {
  const total = buckets.at(-1)?.count ?? 0;
  if (total === 0) return null;
  const rank = q * total;
  const at = buckets.findIndex((bucket) => bucket.count >= rank);
  const upper = buckets[at].le;
  if (upper === Infinity) return buckets.at(-2)?.le ?? null;
  const lower = at === 0 ? 0 : buckets[at - 1].le;
  const below = at === 0 ? 0 : buckets[at - 1].count;
  const inside = buckets[at].count - below;
  return inside === 0 ? upper : lower + (upper - lower) * ((rank - below) / inside);
}

/** One poll of `/metrics`. */
export class Snapshot {
  constructor(samples, time) {
    this.samples = samples;
    this.time = time;
  }

  #of(name, model) {
    return this.samples.filter((sample) => sample.name === name && (!model || sample.labels.model === undefined || sample.labels.model === model));
  }

  /** Sum of a metric over models and other labels; null where the server does not report it. */
  sum(name, model) {
    const found = this.#of(name, model);
    return found.length ? found.reduce((sum, sample) => sum + sample.value, 0) : null;
  }

  /** Maximum of a metric over models. */
  max(name, model) {
    const found = this.#of(name, model);
    return found.length ? Math.max(...found.map((sample) => sample.value)) : null;
  }

  /** Values of a counter by one label. */
  by(name, label, model) {
    const values = new Map();
    for (const sample of this.#of(name, model)) values.set(sample.labels[label] ?? "", (values.get(sample.labels[label] ?? "") ?? 0) + sample.value);
    return values;
  }

  /** Histogram with cumulative buckets, or null. */
  histogram(name, model) {
    const merged = new Map();
    for (const sample of this.#of(`${name}_bucket`, model)) {
      const le = sample.labels.le === "+Inf" ? Infinity : Number(sample.labels.le);
      merged.set(le, (merged.get(le) ?? 0) + sample.value);
    }
    if (!merged.size) return null;
    const buckets = [...merged].sort((a, b) => a[0] - b[0]).map(([le, total]) => ({ le, count: total }));
    const total = this.sum(`${name}_count`, model) ?? buckets.at(-1).count;
    const sum = this.sum(`${name}_sum`, model);
    return { buckets, count: total, mean: total > 0 && sum !== null ? sum / total : null, p50: quantile(buckets, 0.5), p99: quantile(buckets, 0.99) };
  }

  models() {
    return [...new Set(this.samples.map((sample) => sample.labels.model).filter(Boolean))].sort();
  }
}

const subscribers = new Set();
let timer = null;
let failure = null;
const history = [];

export const snapshots = () => history;
export const latest = () => history.at(-1) ?? null;
export const error = () => failure;

/** Increase per second of a counter between two snapshots; null after a restart of the server. */
export function increase(name, before, after, model) {
  const a = before?.sum(name, model);
  const b = after?.sum(name, model);
  if (a === null || a === undefined || b === null || b === undefined || b < a) return null;
  const elapsed = (after.time - before.time) / 1000;
  return elapsed > 0 ? { delta: b - a, rate: (b - a) / elapsed } : null;
}

async function poll() {
  clearTimeout(timer);
  timer = null;
  if (!subscribers.size || document.hidden) return;
  timer = setTimeout(poll, INTERVAL);
  try {
    const text = await getText("metrics", AbortSignal.timeout(10_000));
    history.push(new Snapshot(parse(text), performance.now()));
    if (history.length > HISTORY) history.shift();
    failure = null;
  } catch (problem) {
    failure = problem;
  }
  for (const listener of subscribers) listener();
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });

/** Calls `listener` after every poll until the returned function is called. */
export function subscribe(listener) {
  subscribers.add(listener);
  if (timer === null) poll();
  return () => subscribers.delete(listener);
}
