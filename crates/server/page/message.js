// View of one message: text, reasoning, tool calls, token probabilities, figures, actions.

import { button, copyButton, el, icon, iconButton } from "./dom.js";
import { count, percent, rate, seconds, sentence } from "./format.js";
import { codeBlock, render } from "./markdown.js";
import { TokenView } from "./tokens.js";

const FINISH_NOTES = {
  length: "The answer reached the maximum number of tokens.",
  content_filter: "The server stopped the answer.",
  stopped: "Stopped.",
};

function pretty(source) {
  try { return JSON.stringify(JSON.parse(source), null, 2); } catch { return source; }
}

/** Figures of an answer as short texts with tooltips. */
export function figures(node, run) {
  const stats = node.stats ?? {};
  const items = [];
  const speed = run ? run.rate : stats.tokensPerSecond;
  if (Number.isFinite(speed)) items.push([`${rate(speed)} tok/s`, "Decode speed in tokens per second"]);
  const tokens = (node.earlierTokens ?? 0) + ((run ? run.tokens : stats.completionTokens) ?? 0);
  if (tokens) items.push([`${count(tokens)} token${tokens === 1 ? "" : "s"}`, "Generated tokens, including reasoning and tool calls"]);
  if (!run && Number.isFinite(stats.firstTokenSeconds)) items.push([`${seconds(stats.firstTokenSeconds)} to first token`, "Time from the request to the first token"]);
  if (!run && stats.promptTokens) {
    const cached = stats.cachedTokens ?? 0;
    const speedText = stats.promptPerSecond ? `, prompt processing ${rate(stats.promptPerSecond)} tok/s` : "";
    items.push([cached ? `${percent(cached / stats.promptTokens, 0)} of prompt cached` : `${count(stats.promptTokens)} prompt tokens`,
      `${count(cached)} of ${count(stats.promptTokens)} prompt tokens came from the prefix cache${speedText}`]);
  }
  return items;
}

export class MessageView {
  #handlers;
  #body = el("div", { class: "message-body" });
  #actions = el("div", { class: "message-actions" });
  #figures = el("div", { class: "message-figures" });
  #text = el("div", { class: "message-text", dir: "auto" });
  #reasoning = null;
  #tokens = null;
  #tools = null;
  #toolKey = "";
  #status = null;
  #note = el("div", { class: "message-note", hidden: true });
  #noteKey = "";
  #actionKey = "";

  constructor(node, handlers) {
    this.node = node;
    this.#handlers = handlers;
    const who = { user: "You", assistant: node.mode === "completion" ? "Continuation" : "Answer", tool: "Tool result" }[node.role];
    this.element = el("article", { class: `message message-${node.role}`, data: { node: node.id, role: node.role } },
      el("h2", { class: "visually-hidden", text: who }), this.#body,
      el("div", { class: "message-foot" }, this.#actions, this.#figures));
    this.#body.append(this.#text, this.#note);
  }

  /**
   * `state`: `run` (running generation or null), `versions`, `at`, `showTokens`, `last`, `busy` (an answer of the
   * conversation is generated), `full` (the context is full:
   * `size`, and whether messages `canDrop`; or null), `blocked` (no answer can be generated now).
   */
  update(state) {
    const { node } = this;
    const busy = Boolean(state.run);
    this.element.classList.toggle("is-running", busy);
    this.element.classList.toggle("is-last", state.last);
    this.element.classList.toggle("mode-completion", node.mode === "completion");
    this.element.setAttribute("aria-busy", String(busy));
    if (node.role === "user") this.#text.textContent = node.content;
    else if (node.role === "tool") this.#updateToolResult();
    else this.#updateAnswer(state);
    this.#updateActions(state);
    this.#figures.replaceChildren(...(node.role === "assistant" ? figures(node, state.run).map(([text, title]) => el("span", { text, title })) : []));
  }

  #updateAnswer(state) {
    const { node } = this;
    this.#updateReasoning(state.run);
    const tokensShown = state.showTokens && node.tokens?.length > 0;
    this.#text.hidden = tokensShown || node.content === "";
    if (tokensShown) {
      if (!this.#tokens) {
        this.#tokens = new TokenView();
        this.#text.after(this.#tokens.element);
      }
      this.#tokens.update(node.tokens);
    } else if (node.mode === "completion") {
      this.#text.classList.add("is-plain");
      if (this.#text.textContent !== node.content) this.#text.textContent = node.content;
    } else {
      this.#text.classList.add("markdown");
      render(this.#text, node.content);
    }
    if (this.#tokens) this.#tokens.element.hidden = !tokensShown;
    this.#updateTools(state);
    const waiting = state.run && !node.content && !node.reasoning && !node.toolCalls;
    if (waiting && !this.#status) {
      this.#status = el("div", { class: "message-status" }, el("span", { class: "pulse", "aria-hidden": "true" }, el("i"), el("i"), el("i")), el("span", { text: "Processing the prompt" }));
      this.#body.prepend(this.#status);
    } else if (!waiting && this.#status) {
      this.#status.remove();
      this.#status = null;
    }
    this.#updateNote(state);
  }

  /** Shows why the answer ended, and what can be done. */
  #updateNote(state) {
    const { node } = this;
    const text = state.run ? null : this.#noteText(state);
    const actions = text && state.last ? this.#noteActions(state) : [];
    const key = [text, node.error !== undefined, state.blocked, ...actions.map(([label]) => label)].join("\n");
    if (key === this.#noteKey) return;
    this.#noteKey = key;
    this.#note.hidden = text === null;
    this.#note.classList.toggle("is-error", node.error !== undefined);
    this.#note.replaceChildren(node.error === undefined ? "" : icon("alert", 16), el("span", { text }),
      ...actions.map(([label, glyph, run]) => button(label, run, { icon: glyph, class: "is-small", disabled: state.blocked })));
  }

  #noteText(state) {
    const { node } = this;
    if (state.full && state.last) {
      const advice = state.full.canDrop ? "" : ` ${node.error === undefined ? "Start a new conversation." : "Shorten the message, or start a new conversation."}`;
      return `The context of ${count(state.full.size)} tokens is full.${advice}`;
    }
    const empty = !node.content && !node.reasoning && !node.toolCalls?.length;
    if (node.finish === "length" && node.reasoning && !node.content) return "The answer reached the maximum number of tokens within its reasoning.";
    return (node.error === undefined ? null : sentence(node.error)) ?? FINISH_NOTES[node.finish] ?? (empty ? "The answer is empty." : null);
  }

  /** Buttons of the note: label, icon, function. */
  #noteActions(state) {
    const { node } = this;
    const handlers = this.#handlers;
    // The server continues text only: neither reasoning nor tool calls.
    const extendable = node.content !== "" && !node.toolCalls?.length;
    const next = extendable ? () => handlers.extend(node) : () => handlers.regenerate(node);
    if (state.full) {
      const drop = [`Drop the oldest messages and ${extendable ? "continue" : "retry"}`, "compress", () => handlers.drop(node, next)];
      return [...(state.full.canDrop ? [drop] : []), ["New conversation", "compose", handlers.restart]];
    }
    const actions = [];
    if (extendable && (node.error !== undefined || node.finish === "length" || node.finish === "stopped")) actions.push(["Continue", "play", next]);
    if (node.error !== undefined) actions.push(["Retry", "refresh", () => handlers.regenerate(node)]);
    return actions;
  }

  #updateReasoning(run) {
    const { node } = this;
    if (!node.reasoning) return;
    if (!this.#reasoning) {
      const label = el("span", { class: "reasoning-label" });
      const text = el("div", { class: "reasoning-text" });
      const details = el("details", { class: "reasoning" }, el("summary", {}, icon("reasoning", 16), label, icon("down", 14)), text);
      this.#reasoning = { label, text, details };
      details.addEventListener("toggle", () => { if (details.open) render(text, node.reasoning); });
      this.#body.prepend(details);
    }
    const { label, text, details } = this.#reasoning;
    const active = run && !node.content && !node.toolCalls;
    details.classList.toggle("is-active", Boolean(active));
    const time = Number.isFinite(node.reasoningSeconds) ? `, ${seconds(node.reasoningSeconds)}` : "";
    label.textContent = `${active ? "Reasoning…" : "Reasoning"}${time}`;
    text.classList.add("markdown");
    if (details.open) render(text, node.reasoning);
  }

  #updateTools(state) {
    const calls = this.node.toolCalls ?? [];
    if (!calls.length) return;
    const key = `${JSON.stringify(calls)}${Boolean(state.run)}${state.last}`;
    if (key === this.#toolKey) return;
    this.#toolKey = key;
    const list = el("div", { class: "tool-calls" }, calls.filter(Boolean).map((call) => this.#toolCall(call, state)));
    if (this.#tools) this.#tools.replaceWith(list);
    else this.#note.before(list);
    this.#tools = list;
  }

  #toolCall(call, state) {
    const card = el("div", { class: "tool-call" },
      el("div", { class: "tool-head" }, icon("tool", 16), el("span", { class: "tool-title", text: "Tool call" }), el("code", { text: call.name || "…" })),
      codeBlock(pretty(call.arguments), "json"));
    if (!state.run && state.last) {
      const input = el("textarea", { rows: "2", class: "field", "aria-label": `Result of ${call.name}`, placeholder: "Paste the result of this tool call" });
      const send = button("Send result", () => { if (input.value.trim()) this.#handlers.toolResult(this.node, call, input.value); }, { class: "is-small" });
      card.append(el("div", { class: "tool-reply" }, input, send));
    }
    return card;
  }

  #updateToolResult() {
    const { node } = this;
    if (this.#text.firstChild) return;
    this.#text.append(el("details", { class: "tool-result" },
      el("summary", {}, icon("tool", 16), el("span", { text: "Result of " }), el("code", { text: node.name || "tool" }), icon("down", 14)),
      codeBlock(pretty(node.content), "json")));
  }

  #updateActions(state) {
    const { node } = this;
    const busy = Boolean(state.run);
    const hasTokens = node.tokens?.length > 0;
    const key = [busy, node.content !== "", state.blocked, state.versions, state.at, hasTokens, state.showTokens, state.last, state.busy].join();
    if (key === this.#actionKey) return;
    this.#actionKey = key;
    const focused = this.#actions.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    const items = [];
    if (state.versions > 1) {
      const previous = iconButton("left", "Previous version", () => this.#handlers.version(node, -1), { size: 14, disabled: state.at === 0 || state.blocked });
      const next = iconButton("right", "Next version", () => this.#handlers.version(node, 1), { size: 14, disabled: state.at === state.versions - 1 || state.blocked });
      items.push(el("div", { class: "versions", role: "group", "aria-label": "Versions" }, previous,
        el("span", { text: `${state.at + 1}/${state.versions}`, "aria-label": `Version ${state.at + 1} of ${state.versions}` }), next));
    }
    if (!busy && node.role !== "tool") {
      if (node.content) items.push(copyButton("Copy", () => node.content, { size: 16 }));
      if (node.role === "user") items.push(iconButton("edit", "Edit", () => this.#edit(), { size: 16, disabled: state.blocked }));
      if (node.role === "assistant") items.push(iconButton("refresh", "Regenerate", () => this.#handlers.regenerate(node), { size: 16, disabled: state.blocked }));
      if (node.role === "user" && state.last) items.push(iconButton("play", "Generate an answer", () => this.#handlers.answer(node), { size: 16, disabled: state.blocked }));
      items.push(iconButton("trash", "Delete", () => this.#handlers.remove(node), { size: 16, disabled: state.busy }));
    }
    if (hasTokens && node.role === "assistant") {
      items.push(iconButton("heat", "Token probabilities", () => this.#handlers.toggleTokens(node), { size: 16, "aria-pressed": String(state.showTokens) }));
    }
    this.#actions.replaceChildren(...items);
    if (focused) this.#actions.querySelector(`[aria-label="${focused}"]:not([disabled])`)?.focus();
  }

  /** Opens the message for editing. */
  #edit() {
    if (this.element.classList.contains("is-editing")) return;
    const { node } = this;
    const input = el("textarea", { class: "edit-input", dir: "auto", "aria-label": "Edit message", rows: "1" });
    input.value = node.content;
    const fit = () => { input.style.height = "auto"; input.style.height = `${Math.min(input.scrollHeight + 2, 400)}px`; };
    const close = () => {
      this.element.classList.remove("is-editing");
      editor.remove();
      this.#text.hidden = false;
      this.#actions.querySelector('[aria-label="Edit"]')?.focus();
    };
    const submit = () => {
      if (!input.value.trim()) return;
      close();
      this.#handlers.edit(node, input.value);
    };
    const editor = el("div", { class: "editor" }, input,
      el("div", { class: "editor-buttons" }, button("Cancel", close, { class: "is-quiet is-small" }), button("Send", submit, { class: "is-primary is-small" })));
    input.addEventListener("input", fit);
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { event.stopPropagation(); close(); }
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); }
    });
    this.element.classList.add("is-editing");
    this.#text.hidden = true;
    this.#body.append(editor);
    fit();
    input.focus();
    input.setSelectionRange(input.value.length, input.value.length);
  }

  startEdit() { this.#edit(); }
}
