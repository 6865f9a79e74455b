// Message box: text area that grows, send and stop, context fill.

import { el, icon, svg } from "./dom.js";
import { count, percent, short } from "./format.js";

const CIRCUMFERENCE = 2 * Math.PI * 7;

export class Composer {
  #send;
  #meter;
  #meterText = el("span", { class: "meter-text" });
  #ring = svg("circle", { cx: 9, cy: 9, r: 7, class: "ring-fill", "stroke-dasharray": `0 ${CIRCUMFERENCE}` });
  #cache = el("span", { class: "meter-cache" });
  #running = false;
  #completion = false;
  #hasText = false;

  /** `handlers`: `send(text)`, `stop()`, `editLast()`, `toggleTokens()`. */
  constructor(handlers) {
    this.handlers = handlers;
    this.input = el("textarea", { id: "composer-input", class: "composer-input", rows: "1", dir: "auto", "aria-label": "Message", enterkeyhint: "send", autocomplete: "off" });
    this.#send = el("button", { type: "button", id: "composer-send", class: "send-button", "aria-label": "Send", title: "Send (Enter)", on: { click: () => this.#press() } }, icon("send", 18));
    this.tokens = el("button", { type: "button", id: "composer-tokens", class: "chip", "aria-pressed": "false", title: "Show answers as tokens coloured by probability", on: { click: () => handlers.toggleTokens() } }, icon("heat", 15), el("span", { text: "Probabilities" }));
    this.#meter = el("div", { class: "meter", role: "meter", "aria-label": "Context fill", "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": "0", hidden: true },
      svg("svg", { viewBox: "0 0 18 18", width: 18, height: 18, class: "ring", "aria-hidden": "true" }, svg("circle", { cx: 9, cy: 9, r: 7, class: "ring-track" }), this.#ring),
      this.#meterText, this.#cache);
    this.element = el("div", { class: "composer" }, this.input, el("div", { class: "composer-bar" }, this.tokens, this.#meter, el("span", { class: "grow" }), this.#send));
    this.element.addEventListener("pointerdown", (event) => {
      if (event.target === this.element || event.target.classList.contains("grow")) { event.preventDefault(); this.input.focus(); }
    });
    this.input.addEventListener("input", () => this.#fit());
    this.input.addEventListener("keydown", (event) => this.#key(event));
    this.#fit();
  }

  get text() { return this.input.value; }

  set text(value) {
    this.input.value = value;
    this.#fit();
  }

  focus() { this.input.focus(); }

  #press() {
    if (this.#running) return this.handlers.stop();
    const text = this.input.value;
    if (!text.trim() && !this.#completion) return;
    this.handlers.send(this.#completion ? text : text.trim());
  }

  #key(event) {
    // On a touch keyboard Enter starts a new line, because Shift+Enter is hard to type there.
    const touch = matchMedia("(pointer: coarse)").matches;
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !touch) {
      event.preventDefault();
      if (!this.#running) this.#press();
    } else if (event.key === "ArrowUp" && this.input.value === "") {
      event.preventDefault();
      this.handlers.editLast();
    }
  }

  #fit() {
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight, Math.max(120, window.innerHeight * 0.35))}px`;
    this.#hasText = this.input.value.trim() !== "";
    this.#refresh();
  }

  #refresh() {
    this.#send.disabled = !this.#running && (this.input.disabled || (!this.#hasText && !this.#continues));
    this.#send.classList.toggle("is-stop", this.#running);
  }

  #continues = false;

  /**
   * `running`: a generation runs. `missing`: no model generates text. `completion`: the model continues text.
   * `continues`: an empty message continues the text.
   */
  setState({ running, missing, completion, continues, name }) {
    this.#completion = completion;
    this.#continues = continues;
    this.input.disabled = missing;
    this.input.placeholder = missing ? "No model of this server generates text" : completion ? (continues ? "Add text, or send to continue" : "Write the beginning of a text") : name ? `Message ${name}` : "Message";
    if (running !== this.#running) {
      this.#running = running;
      this.#send.replaceChildren(icon(running ? "stop" : "send", 18));
      this.#send.setAttribute("aria-label", running ? "Stop" : "Send");
      this.#send.title = running ? "Stop (Esc)" : "Send (Enter)";
    }
    this.#refresh();
  }

  /** Shows how many tokens of the context are used, and the prefix-cache hits of the last request. */
  setContext({ used, size, cached, prompt }) {
    this.#meter.hidden = !size;
    if (!size) return;
    const ratio = Math.min(1, used / size);
    this.#ring.setAttribute("stroke-dasharray", `${ratio * CIRCUMFERENCE} ${CIRCUMFERENCE}`);
    this.#meter.classList.toggle("is-high", ratio > 0.85);
    this.#meterText.textContent = `${size < 100_000 ? count(used) : short(used)} / ${size < 100_000 ? count(size) : short(size)}`;
    this.#meter.setAttribute("aria-valuenow", String(Math.round(ratio * 100)));
    this.#meter.setAttribute("aria-valuetext", `${count(used)} of ${count(size)} tokens`);
    this.#cache.textContent = prompt && cached ? `${percent(cached / prompt, 0)} cached` : "";
    this.#meter.title = `Context: ${count(used)} of ${count(size)} tokens (${percent(ratio)})${prompt ? `\nPrefix cache: ${count(cached)} of ${count(prompt)} prompt tokens reused in the last request` : ""}`;
  }
}
