// Number formats shared by the chat, the dispatch table and the charts.

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** Integer with thousands separators. */
export const count = (value) => grouped.format(value);

function scaled(value, units, base, digits) {
  let unit = 0;
  while (Math.abs(value) >= base && unit < units.length - 1) { value /= base; unit += 1; }
  const places = value === 0 || Math.abs(value) >= 100 || (unit === 0 && Number.isInteger(value)) ? 0 : Math.abs(value) >= 10 ? Math.min(1, digits) : digits;
  return `${value.toFixed(places)} ${units[unit]}`.trim();
}

/** Message of an error as a sentence for the reader. */
export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Bytes with a binary prefix. */
export const bytes = (value) => scaled(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024, 2);

/** Number with a decimal prefix, as in `1.2M`. */
export const short = (value) => scaled(value, ["", "K", "M", "B", "T"], 1000, 1).replace(" ", "");

/** Floating-point operations. */
export const flops = (value) => scaled(value, ["FLOP", "KFLOP", "MFLOP", "GFLOP", "TFLOP"], 1000, 2);

/** Bytes per second with a decimal prefix, as vendors state memory bandwidth. */
export const bandwidth = (value) => scaled(value, ["B/s", "KB/s", "MB/s", "GB/s", "TB/s"], 1000, 1);

/** Duration in the unit that suits it. */
export function seconds(value) {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0 s";
  if (value < 1e-3) return `${(value * 1e6).toFixed(value < 1e-5 ? 1 : 0)} µs`;
  if (value < 1) return `${(value * 1e3).toFixed(value < 0.01 ? 2 : value < 0.1 ? 1 : 0)} ms`;
  if (value < 60) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  const whole = Math.round(value);
  return `${Math.floor(whole / 60)} min${whole % 60 ? ` ${whole % 60} s` : ""}`;
}

/** Duration without trailing zeros, for axes. */
export const secondsTick = (value) => seconds(value).replace(/\.0+(?= )|(\.\d*?)0+(?= )/, "$1");

/** Ratio 0..1 as a percentage. */
export function percent(value, digits) {
  if (!Number.isFinite(value)) return "–";
  const scaledValue = value * 100;
  const places = digits ?? (scaledValue === 0 || scaledValue >= 10 ? 0 : scaledValue >= 1 ? 1 : 2);
  return `${scaledValue.toFixed(scaledValue > 99.5 && scaledValue < 100 && digits === undefined ? 1 : places)}%`;
}

/** Rate with one decimal below 100. */
export const rate = (value) => (!Number.isFinite(value) ? "–" : value >= 100 ? count(value) : value.toFixed(1));

/** Day group of a conversation list. */
export function dayGroup(time, now = Date.now()) {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  if (time >= midnight) return "Today";
  if (time >= midnight - 86_400_000) return "Yesterday";
  if (time >= midnight - 6 * 86_400_000) return "Previous 7 days";
  if (time >= midnight - 29 * 86_400_000) return "Previous 30 days";
  return "Older";
}
