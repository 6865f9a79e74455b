// Token probabilities: the text of an answer as coloured tokens, alternatives in a tooltip.
// The arrow keys move between tokens; the tooltip follows the pointer and the focus.

import { el } from "./dom.js";
import { count, percent } from "./format.js";

/** Lower bounds of the probability levels 0 (likely, no colour) to 5. */
const LEVELS = [0.9, 0.7, 0.5, 0.3, 0.1];
const REPLACEMENT = "\uFFFD";

const level = (probability) => {
  const at = LEVELS.findIndex((bound) => probability >= bound);
  return at < 0 ? LEVELS.length : at;
};

/** Converts the `logprobs` of one chunk to tokens. Accepts the chat shape and the completions shape. */
export function readLogprobs(logprobs) {
  if (!logprobs) return [];
  if (Array.isArray(logprobs.content)) {
    return logprobs.content.map((entry) => ({
      text: entry.token ?? "",
      logprob: entry.logprob ?? 0,
      top: (entry.top_logprobs ?? []).map((other) => [other.token, other.logprob]),
      // Bytes are needed only where the token is not complete UTF-8.
      ...(entry.token?.includes(REPLACEMENT) && entry.bytes ? { bytes: entry.bytes } : {}),
    }));
  }
  if (Array.isArray(logprobs.tokens)) {
    return logprobs.tokens.map((text, i) => ({
      text,
      logprob: logprobs.token_logprobs?.[i] ?? 0,
      top: Object.entries(logprobs.top_logprobs?.[i] ?? {}).sort((a, b) => b[1] - a[1]),
      ...(byteToken(text) ? { bytes: byteToken(text) } : {}),
    }));
  }
  return [];
}

/** Bytes of a token spelled as `bytes:\xNN` or `<0xNN>`, otherwise null. */
function byteToken(text) {
  if (!/^(?:bytes:(?:\\x[\da-f]{2})+|<0x[\da-f]{2}>)$/i.test(text)) return null;
  return [...text.matchAll(/x([\da-f]{2})/gi)].map((match) => Number.parseInt(match[1], 16));
}

/** Joins tokens that carry parts of one character. */
function units(tokens) {
  const result = [];
  for (let i = 0; i < tokens.length; i += 1) {
    const token = tokens[i];
    if (!token.bytes) { result.push(token); continue; }
    const bytes = [];
    let logprob = 0;
    let end = i;
    let text = null;
    while (end < tokens.length && end < i + 8 && text === null) {
      const next = tokens[end];
      bytes.push(...(next.bytes ?? new TextEncoder().encode(next.text)));
      logprob += next.logprob;
      end += 1;
      try { text = new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(bytes)); } catch { /* incomplete */ }
    }
    if (text === null) { result.push({ ...token, text: REPLACEMENT }); continue; }
    result.push({ ...token, text, logprob, parts: end - i });
    i = end - 1;
  }
  return result;
}

/** Text of a token with visible white space. */
export function visible(text) {
  if (text === "") return "(empty)";
  return text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length));
}

/** Mean log-probability figures of an answer. */
export function summary(tokens) {
  const mean = tokens.reduce((sum, token) => sum + Math.max(token.logprob, -100), 0) / Math.max(tokens.length, 1);
  return { count: tokens.length, perplexity: Math.exp(-mean), mean: Math.exp(mean) };
}

let tooltip = null;
let shown = null;

function hide() {
  if (!shown) return;
  shown.removeAttribute("aria-describedby");
  shown.classList.remove("is-active");
  shown = null;
  tooltip.hidden = true;
}

function show(target, token) {
  hide();
  if (!tooltip) {
    tooltip = el("div", { id: "token-tooltip", class: "token-tooltip", role: "tooltip", hidden: true });
    document.body.append(tooltip);
    window.addEventListener("scroll", hide, { capture: true, passive: true });
    window.addEventListener("resize", hide);
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  }
  shown = target;
  const probability = Math.exp(token.logprob);
  const listed = token.top.some(([text]) => text === token.text);
  const rows = listed || token.top.length === 0 ? token.top : [...token.top, [token.text, token.logprob]];
  const bars = rows.map(([text, logprob]) => {
    const bar = el("span", { class: "alternative-bar" });
    bar.style.width = `${Math.max(1, Math.exp(logprob) * 100)}%`;
    return el("div", { class: `alternative${text === token.text ? " is-chosen" : ""}` },
      el("span", { class: "alternative-text", text: visible(text) }),
      el("span", { class: "alternative-track", "aria-hidden": "true" }, bar),
      el("span", { class: "alternative-value", text: percent(Math.exp(logprob)) }));
  });
  tooltip.replaceChildren(
    el("div", { class: "token-head" },
      el("code", { text: visible(token.text) }),
      el("span", { class: "token-probability", text: percent(probability) })),
    el("div", { class: "token-detail", text: `log-probability ${token.logprob.toFixed(3)}${token.parts > 1 ? `, ${token.parts} tokens` : ""}` }),
    ...bars);
  tooltip.hidden = false;
  const box = target.getClientRects()[0] ?? target.getBoundingClientRect();
  const size = tooltip.getBoundingClientRect();
  const left = Math.min(Math.max(8, box.left + box.width / 2 - size.width / 2), window.innerWidth - size.width - 8);
  const top = box.top - size.height - 8 >= 8 ? box.top - size.height - 8 : box.bottom + 8;
  tooltip.style.left = `${left}px`;
  tooltip.style.top = `${top}px`;
  target.classList.add("is-active");
  target.setAttribute("aria-describedby", "token-tooltip");
}

/** View of the tokens of one answer. `update` appends tokens that arrived since the last call. */
export class TokenView {
  #text = el("div", { class: "token-text", role: "group", "aria-label": "Tokens coloured by probability. Arrow keys move between tokens." });
  #note = el("span", { class: "token-note" });
  #units = [];
  #current = 0;
  #size = 0;

  constructor() {
    const scale = el("span", { class: "token-scale", "aria-hidden": "true" }, el("span", { text: "likely" }),
      [0, 1, 2, 3, 4, 5].map((step) => el("i", { class: `token-swatch token-${step}` })), el("span", { text: "unlikely" }));
    this.element = el("div", { class: "token-view" }, el("div", { class: "token-legend" }, scale, this.#note), this.#text);
    const unitOf = (event) => (event.target.dataset?.token !== undefined ? event.target : null);
    const reveal = (event) => {
      const target = unitOf(event);
      if (target) show(target, this.#units[target.dataset.token]);
    };
    this.#text.addEventListener("pointerover", reveal);
    this.#text.addEventListener("pointerout", (event) => { if (unitOf(event) && document.activeElement !== event.target) hide(); });
    this.#text.addEventListener("focusin", (event) => { const target = unitOf(event); if (target) this.#select(Number(target.dataset.token)); reveal(event); });
    this.#text.addEventListener("focusout", hide);
    this.#text.addEventListener("keydown", (event) => this.#move(event));
  }

  update(tokens) {
    // Rebuilding only the last unit keeps an answer of n tokens linear: a later token can complete its character.
    if (tokens.length === this.#size) return;
    this.#size = tokens.length;
    const next = units(tokens);
    let same = 0;
    while (same < this.#units.length && same < next.length && this.#units[same].text === next[same].text && this.#units[same].logprob === next[same].logprob) same += 1;
    while (this.#text.children.length > same) this.#text.lastElementChild.remove();
    this.#units = next;
    const fragment = document.createDocumentFragment();
    for (let i = same; i < next.length; i += 1) {
      const node = el("span", { class: `token token-${level(Math.exp(next[i].logprob))}`, tabindex: i === this.#current ? "0" : "-1", text: next[i].text });
      node.dataset.token = i;
      fragment.append(node);
    }
    this.#text.append(fragment);
    const { count: total, perplexity } = summary(tokens);
    this.#note.textContent = `${count(total)} tokens, perplexity ${perplexity.toFixed(2)}`;
  }

  #select(index) {
    this.#text.children[this.#current]?.setAttribute("tabindex", "-1");
    this.#current = index;
    this.#text.children[index]?.setAttribute("tabindex", "0");
  }

  #move(event) {
    const last = this.#units.length - 1;
    const target = { ArrowRight: this.#current + 1, ArrowLeft: this.#current - 1, ArrowDown: this.#line(1), ArrowUp: this.#line(-1), Home: 0, End: last }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    this.#text.children[Math.max(0, Math.min(last, target))]?.focus();
  }

  /** Index of the token above (-1) or below (1) the current one. */
  #line(direction) {
    const nodes = this.#text.children;
    const box = nodes[this.#current].getBoundingClientRect();
    let line = null;
    let best = this.#current;
    let distance = Infinity;
    for (let i = this.#current + direction; i >= 0 && i < nodes.length; i += direction) {
      const other = nodes[i].getBoundingClientRect();
      if (Math.abs(other.top - box.top) < 4) continue;
      line ??= other.top;
      if (Math.abs(other.top - line) > 4) break;
      if (Math.abs(other.left - box.left) < distance) { distance = Math.abs(other.left - box.left); best = i; }
    }
    return best;
  }
}
