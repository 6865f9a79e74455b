// Settings of a conversation: system prompt, sampler, reasoning, tools.

import { button, el, iconButton, toast } from "./dom.js";
import * as models from "./models.js";
import { preference, setPreference } from "./store.js";
import { parseTools } from "./tools.js";

/** Sampler settings: name, label, range and help. `max` of the slider may be lower than the accepted maximum. */
const SAMPLERS = [
  { name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05, fallback: 0.8, help: "Randomness of the choice. 0 always takes the most likely token." },
  { name: "top_p", label: "Top-p", min: 0, max: 1, step: 0.01, fallback: 0.95, help: "Keeps the most likely tokens whose probabilities sum to this value." },
  { name: "top_k", label: "Top-k", min: 0, max: 100, step: 1, fallback: 40, open: true, help: "Keeps this many of the most likely tokens. 0 keeps all." },
  { name: "min_p", label: "Min-p", min: 0, max: 1, step: 0.01, fallback: 0.05, help: "Drops tokens less likely than this fraction of the most likely token." },
  { name: "repeat_penalty", label: "Repeat penalty", min: 1, max: 2, step: 0.01, fallback: 1, open: true, help: "Divides the score of tokens that occurred recently. 1 disables it." },
  { name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: 0.05, fallback: 0, help: "Lowers the score of every token that occurred." },
  { name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: 0.05, fallback: 0, help: "Lowers the score in proportion to the number of occurrences." },
];
const EFFORTS = [["", "Model default"], ["none", "None"], ["minimal", "Minimal"], ["low", "Low"], ["medium", "Medium"], ["high", "High"]];

/** Settings for new conversations. */
export const defaultSettings = () => preference("settings", {}) ?? {};

export class SettingsPanel {
  #settings = {};
  #fields = [];
  #changed;

  /** `handlers`: `change(settings)`, `close()`. */
  constructor(handlers) {
    this.#changed = () => handlers.change(this.#settings);
    const body = el("div", { class: "settings-body" },
      this.#textField("system", "System prompt", { rows: 5, placeholder: "Instructions for the whole conversation", chat: true }),
      el("h3", { class: "settings-title", text: "Sampler" }),
      SAMPLERS.map((sampler) => this.#samplerField(sampler)),
      el("div", { class: "settings-pair" },
        this.#numberField("seed", "Seed", "Random", 0, "The same seed, model and settings give the same answer."),
        this.#numberField("max_tokens", "Max tokens", "No limit", 1, "Maximum number of tokens to generate.")),
      this.#textField("stop", "Stop strings", { rows: 2, placeholder: "One per line; \\n is a line break", mono: true }),
      el("h3", { class: "settings-title", text: "Output" }),
      this.#effortField(),
      this.#switchField("logprobs", "Request token probabilities", "Top 5 alternatives for each token."),
      this.#textField("tools", "Tools", { rows: 4, placeholder: '[{"type": "function", "function": {"name": …}}]', mono: true, chat: true, check: parseTools, help: "JSON array in the format of the OpenAI API. Tool calls are shown, not executed." }));
    this.element = el("aside", { id: "settings", class: "settings", "aria-label": "Conversation settings", hidden: true },
      el("div", { class: "settings-head" }, el("h2", { text: "Settings" }), el("span", { class: "grow" }), iconButton("close", "Close settings", () => handlers.close())),
      body,
      el("div", { class: "settings-foot" },
        button("Reset", () => this.#replace({}), { class: "is-quiet is-small", title: "Use the defaults of the server" }),
        button("Save as default", () => { setPreference("settings", this.#settings); toast("Saved for new conversations"); }, { class: "is-small" })));
  }

  /** Shows the settings of a conversation. */
  show(settings) {
    this.#settings = settings;
    this.refresh();
  }

  refresh() {
    this.element.classList.toggle("is-completion", models.mode() === "completion");
    for (const update of this.#fields) update();
  }

  #replace(settings) {
    for (const key of Object.keys(this.#settings)) delete this.#settings[key];
    Object.assign(this.#settings, settings);
    this.refresh();
    this.#changed();
  }

  #set(name, value) {
    if (value === "" || value === null || (typeof value === "number" && Number.isNaN(value))) delete this.#settings[name];
    else this.#settings[name] = value;
    this.#changed();
  }

  #field(id, label, help, ...controls) {
    return el("div", { class: "setting" }, el("div", { class: "setting-head" }, el("label", { for: id, text: label }), controls.shift()), ...controls,
      help ? el("p", { class: "setting-help", id: `${id}-help`, text: help }) : null);
  }

  #textField(name, label, { rows, placeholder, mono, chat, check, help }) {
    const id = `setting-${name}`;
    const problem = el("p", { class: "setting-error", id: `${id}-error`, "aria-live": "polite", hidden: true });
    const input = el("textarea", { id, rows, placeholder, dir: mono ? null : "auto", class: `field${mono ? " is-mono" : ""}`, spellcheck: mono ? "false" : null, "aria-describedby": check ? `${id}-error` : null });
    const validate = () => {
      let text = "";
      try { check?.(input.value); } catch (error) { text = error.message; }
      problem.textContent = text;
      problem.hidden = text === "";
      input.setAttribute("aria-invalid", String(text !== ""));
    };
    input.addEventListener("input", () => { this.#set(name, input.value); validate(); });
    this.#fields.push(() => { if (document.activeElement !== input) input.value = this.#settings[name] ?? ""; validate(); });
    const field = this.#field(id, label, help, null, input, problem);
    if (chat) field.classList.add("chat-only");
    return field;
  }

  #samplerField({ name, label, min, max, step, fallback, open, help }) {
    const id = `setting-${name}`;
    const number = el("input", { id, type: "number", class: "field number", min, max: open ? null : max, step, inputmode: "decimal", "aria-describedby": `${id}-help` });
    const slider = el("input", { type: "range", class: "slider", min, max, step, "aria-label": label, tabindex: "-1" });
    const fill = () => slider.style.setProperty("--fill", `${((slider.value - min) / (max - min)) * 100}%`);
    slider.addEventListener("input", () => { number.value = slider.value; this.#set(name, Number(slider.value)); fill(); });
    number.addEventListener("input", () => {
      const valid = number.checkValidity();
      number.setAttribute("aria-invalid", String(!valid));
      if (valid) this.#set(name, number.value === "" ? null : Number(number.value));
      slider.value = number.value === "" ? this.#default(name, fallback) : number.value;
      fill();
    });
    this.#fields.push(() => {
      const value = this.#settings[name];
      number.placeholder = String(this.#default(name, fallback));
      if (document.activeElement !== number) number.value = value ?? "";
      slider.value = value ?? this.#default(name, fallback);
      fill();
    });
    return this.#field(id, label, help, number, slider);
  }

  #default(name, fallback) {
    const value = models.defaults()[name];
    return Number.isFinite(value) ? Math.round(value * 1000) / 1000 : fallback;
  }

  #numberField(name, label, placeholder, min, help) {
    const id = `setting-${name}`;
    const input = el("input", { id, type: "number", class: "field", min, step: 1, placeholder, inputmode: "numeric", title: help });
    input.addEventListener("input", () => {
      const valid = input.checkValidity();
      input.setAttribute("aria-invalid", String(!valid));
      if (valid) this.#set(name, input.value === "" ? null : Number(input.value));
    });
    this.#fields.push(() => { if (document.activeElement !== input) input.value = this.#settings[name] ?? ""; });
    return this.#field(id, label, null, null, input);
  }

  #effortField() {
    const id = "setting-reasoning";
    const select = el("select", { id, class: "field" }, EFFORTS.map(([value, text]) => el("option", { value, text })));
    select.addEventListener("change", () => this.#set("reasoning_effort", select.value));
    this.#fields.push(() => { select.value = this.#settings.reasoning_effort ?? ""; });
    const field = this.#field(id, "Reasoning effort", null, null, el("div", { class: "select" }, select));
    field.classList.add("chat-only");
    return field;
  }

  #switchField(name, label, help) {
    const id = `setting-${name}`;
    const input = el("input", { id, type: "checkbox", class: "switch", role: "switch", "aria-describedby": `${id}-help` });
    input.addEventListener("change", () => this.#set(name, input.checked ? null : false));
    this.#fields.push(() => { input.checked = this.#settings[name] !== false; });
    return this.#field(id, label, help, input);
  }
}
