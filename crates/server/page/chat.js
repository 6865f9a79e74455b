// Chat view: thread of the current conversation, composer, empty state.

import { isFull, nextStart, sent } from "./context.js";
import { announce, button, el, iconButton, toast } from "./dom.js";
import { bytes, count, short } from "./format.js";
import * as generate from "./generate.js";
import { Composer } from "./composer.js";
import { MessageView } from "./message.js";
import * as models from "./models.js";
import { defaultSettings } from "./panel.js";
import * as store from "./store.js";

const CHAT_EXAMPLES = [
  ["Explain a concept", "Explain how a KV cache speeds up the decoding of a transformer, with a small example."],
  ["Write code", "Write a Rust function that parses a duration such as \"1h 20m\" and returns the seconds. Include tests."],
  ["Compare options", "Compare B-trees and LSM trees in a table: reads, writes, space, typical databases."],
  ["Draft a text", "Draft a short, friendly e-mail that moves a meeting from Tuesday to Thursday."],
];
const COMPLETION_EXAMPLES = [
  ["Story about a girl", "Once upon a time, there was a little girl named Lily."],
  ["Story about a dog", "One day, a big brown dog found a shiny red ball in the park."],
  ["Story with a dialogue", "\"Can we go to the sea today?\" asked Tom. His mom smiled and said,"],
  ["Story about the night", "The moon was very bright, and the little owl could not sleep."],
];
/** Distance from the end of the thread, in pixels, within which new text scrolls into view. */
const FOLLOW_DISTANCE = 80;
/** Distance from the end, in pixels, above which the button to the end is shown. */
const JUMP_DISTANCE = 240;

export class ChatView {
  #conversation = null;
  #views = new Map();
  #tokenOverrides = new Map();
  #follow = true;
  #frame = 0;
  #dirty = new Set();
  #divider;

  /**
   * `handlers`: `route(id)` shows a conversation address, `settings()` refreshes the settings panel, `restart()`
   * begins a new conversation.
   */
  constructor(handlers) {
    this.handlers = handlers;
    this.thread = el("div", { class: "thread", id: "thread" });
    this.scroll = el("div", { class: "thread-scroll", tabindex: "-1" }, this.thread);
    this.jump = iconButton("down", "Scroll to the latest message", () => this.scrollToEnd(true), { class: "jump-button" });
    this.jump.hidden = true;
    this.composer = new Composer({
      send: (text) => this.send(text),
      stop: () => this.stop(),
      editLast: () => this.editLast(),
      toggleTokens: () => this.#toggleAllTokens(),
    });
    this.#divider = el("div", { class: "context-divider", role: "note" }, el("span", { text: "The model no longer receives the messages above." }),
      button("Include them again", () => this.#include(), { class: "is-quiet is-small" }));
    this.element = el("div", { class: "chat-column" }, this.scroll,
      el("div", { class: "composer-dock" }, this.jump, this.composer.element));
    const distance = () => this.scroll.scrollHeight - this.scroll.scrollTop - this.scroll.clientHeight;
    this.scroll.addEventListener("scroll", () => {
      this.#follow = distance() < FOLLOW_DISTANCE;
      this.jump.hidden = distance() < JUMP_DISTANCE;
    }, { passive: true });
    new ResizeObserver(() => {
      if (this.#follow) this.scrollToEnd();
      this.jump.hidden = distance() < JUMP_DISTANCE;
    }).observe(this.thread);
    for (const type of ["start", "update", "end"]) generate.events.addEventListener(type, (event) => this.#event(type, event.detail));
    models.changes.addEventListener("change", () => this.refresh());
  }

  get conversation() { return this.#conversation; }

  /** Shows a stored conversation, or a new one for null. */
  open(id) {
    if (id && this.#conversation?.id === id) return;
    const stored = id ? store.get(id) : null;
    this.#conversation = stored ?? store.create(defaultSettings());
    if (stored?.model && models.find(stored.model)) models.select(stored.model, { remember: false });
    this.#views.clear();
    this.#tokenOverrides.clear();
    this.#follow = true;
    this.render();
    this.handlers.settings();
    requestAnimationFrame(() => this.scrollToEnd());
  }

  #showsTokens(node) {
    return this.#tokenOverrides.get(node.id) ?? store.preference("showTokens", false);
  }

  #toggleAllTokens() {
    store.setPreference("showTokens", !store.preference("showTokens", false));
    this.#tokenOverrides.clear();
    this.refresh();
  }

  /** Rebuilds the thread from the selected path. Views of unchanged messages are kept. */
  render() {
    const conversation = this.#conversation;
    const nodes = store.path(conversation);
    if (nodes.length === 0) {
      this.#views.clear();
      this.thread.replaceChildren(this.#emptyState());
    } else {
      const views = new Map(nodes.map((node) => [node.id, this.#views.get(node.id) ?? this.#createView(node)]));
      this.#views = views;
      const start = conversation.start === nodes[0].id ? null : conversation.start;
      const elements = [...views].flatMap(([id, view]) => (id === start ? [this.#divider, view.element] : [view.element]));
      if (elements.length !== this.thread.children.length || elements.some((item, i) => this.thread.children[i] !== item)) this.thread.replaceChildren(...elements);
    }
    this.refresh();
  }

  #createView(node) {
    return new MessageView(node, {
      edit: (target, text) => this.#edit(target, text),
      regenerate: (target) => this.#continue(() => this.#regenerate(target)),
      answer: (target) => this.#continue(() => generate.generate(this.#conversation, target.id)),
      extend: (target) => this.#continue(() => generate.extend(this.#conversation, target)),
      drop: (target, next) => this.#drop(target, next),
      restart: () => this.handlers.restart(),
      remove: (target) => this.#remove(target),
      version: (target, offset) => this.#version(target, offset),
      toolResult: (target, call, text) => this.#toolResult(target, call, text),
      toggleTokens: (target) => {
        this.#tokenOverrides.set(target.id, !this.#showsTokens(target));
        this.#updateView(target.id);
      },
    });
  }

  #updateView(id) {
    const view = this.#views.get(id);
    if (!view) return;
    const conversation = this.#conversation;
    const run = generate.state(conversation.id);
    const versions = store.siblings(conversation, view.node);
    view.update({
      run: run?.node === view.node ? run : null,
      busy: Boolean(run),
      blocked: Boolean(run) || !models.selected(),
      full: this.#fullContext(view.node),
      versions: versions.length,
      at: versions.indexOf(view.node),
      showTokens: this.#showsTokens(view.node),
      last: conversation.leaf === id,
    });
  }

  /** Updates every view and the composer. */
  refresh() {
    if (!this.#conversation) return;
    for (const id of this.#views.keys()) this.#updateView(id);
    if (this.#views.size === 0) this.thread.replaceChildren(this.#emptyState());
    this.#refreshComposer();
  }

  #refreshComposer() {
    const conversation = this.#conversation;
    const run = generate.state(conversation.id);
    const completion = models.mode() === "completion";
    this.composer.setState({ running: Boolean(run), missing: models.noneGenerates(), completion, continues: completion && this.#views.size > 0, name: models.name(models.selected()) });
    this.composer.tokens.setAttribute("aria-pressed", String(store.preference("showTokens", false)));
    const answers = store.path(conversation).filter((node) => node.stats?.promptTokens);
    const last = answers.at(-1);
    const stats = last?.stats ?? {};
    const live = run && run.node !== last ? run.tokens : 0;
    this.composer.setContext({
      used: (stats.promptTokens ?? 0) + (stats.completionTokens ?? 0) + live,
      size: models.contextSize(), cached: stats.cachedTokens ?? 0, prompt: stats.promptTokens ?? 0,
    });
  }

  #emptyState() {
    const model = models.selected();
    const completion = models.mode() === "completion";
    const meta = model?.meta ?? {};
    const facts = model ? [
      meta.n_params ? `${short(meta.n_params)} parameters` : null,
      meta.size ? bytes(meta.size) : null,
      models.contextSize() ? `${count(models.contextSize())} tokens of context` : null,
      model.status && model.status !== "loaded" ? { unloaded: "loads with the first message", loading: "loading" }[model.status] ?? model.status : null,
    ].filter(Boolean) : [];
    const examples = completion ? COMPLETION_EXAMPLES : CHAT_EXAMPLES;
    return el("div", { class: "empty" },
      el("div", { class: "empty-mark", "aria-hidden": "true" }),
      el("h2", { text: models.noneGenerates() ? "No model can chat" : completion ? "Begin a text, the model continues it" : "What can I help with?" }),
      model ? el("p", { class: "empty-model" }, el("strong", { text: models.name(model) }), facts.map((fact) => el("span", { text: fact }))) : null,
      completion ? el("p", { class: "empty-note", text: "This model has no chat template. It completes text instead of answering messages." }) : null,
      model ? el("div", { class: "examples" }, examples.map(([title, text]) => el("button", {
        type: "button", class: "example", on: { click: () => { this.composer.text = text; this.composer.focus(); } },
      }, el("strong", { text: title }), el("span", { text })))) : null);
  }

  #event(type, { conversation, node }) {
    if (conversation !== this.#conversation) return;
    if (type === "update") {
      this.#dirty.add(node.id);
      this.#frame ||= requestAnimationFrame(() => {
        this.#frame = 0;
        for (const id of this.#dirty) this.#updateView(id);
        this.#dirty.clear();
        this.#refreshComposer();
      });
      return;
    }
    this.render();
    if (type === "start") { this.#follow = true; this.scrollToEnd(); announce("Generating"); }
    else announce(node.error ? `The answer failed: ${node.error}` : node.finish === "stopped" ? "Generation stopped" : "The answer is complete");
  }

  scrollToEnd(smooth = false) {
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.scroll.scrollTo({ top: this.scroll.scrollHeight, behavior: smooth && !calm ? "smooth" : "instant" });
  }

  send(text) {
    const conversation = this.#conversation;
    if (generate.isRunning(conversation.id) || !models.selected()) return;
    const first = Object.keys(conversation.nodes).length === 0;
    if (text.trim()) store.addNode(conversation, conversation.leaf, { role: "user", content: text, mode: models.mode() });
    else if (!conversation.leaf) return;
    this.composer.text = "";
    if (first) {
      store.add(conversation);
      this.handlers.route(conversation.id);
    }
    generate.generate(conversation, conversation.leaf);
  }

  stop() { generate.stop(this.#conversation.id); }

  editLast() {
    const node = store.path(this.#conversation).findLast((item) => item.role === "user");
    if (node && !generate.isRunning(this.#conversation.id)) this.#views.get(node.id)?.startEdit();
  }

  #edit(node, text) {
    const conversation = this.#conversation;
    if (generate.isRunning(conversation.id) || !models.selected()) return;
    const edited = store.addNode(conversation, node.parent, { role: "user", content: text, mode: models.mode() });
    generate.generate(conversation, edited.id);
  }

  /** Runs a function that generates text. The button that was pressed disappears, so the focus moves to the thread. */
  #continue(run) {
    this.scroll.focus({ preventScroll: true });
    run();
  }

  /** Generates another version of an answer. One that failed before its first token is not kept as a version. */
  #regenerate(node) {
    const conversation = this.#conversation;
    if (node.error !== undefined && !node.content && !node.reasoning && !node.toolCalls?.length) delete conversation.nodes[node.id];
    generate.generate(conversation, node.parent);
  }

  #fullContext(node) {
    const size = models.contextSize();
    if (!isFull(node, size)) return null;
    return { size: size ?? 0, canDrop: this.#nextStart(node, size) !== null };
  }

  #nextStart(node, size) {
    const conversation = this.#conversation;
    const { promptTokens = 0, completionTokens = 0 } = node.stats ?? {};
    return nextStart(sent(store.path(conversation, node.id), conversation.start), promptTokens + completionTokens, size);
  }

  /** Leaves the oldest messages out of the following requests. */
  #drop(node, next) {
    const conversation = this.#conversation;
    conversation.start = this.#nextStart(node, models.contextSize());
    store.save(conversation, { now: true });
    this.render();
    this.#continue(next);
  }

  #include() {
    delete this.#conversation.start;
    store.save(this.#conversation, { now: true });
    this.scroll.focus({ preventScroll: true });
    this.render();
  }

  #remove(node) {
    const conversation = this.#conversation;
    const { number, undo } = store.removeMessage(conversation, node);
    this.render();
    this.scroll.focus({ preventScroll: true });
    const restore = () => {
      undo();
      if (conversation === this.#conversation) this.render();
    };
    toast(number === 1 ? "Message deleted" : `${number} messages deleted`, { action: "Undo", seconds: 10, onAction: restore });
  }

  #version(node, offset) {
    const chosen = store.selectVersion(this.#conversation, node, offset);
    this.#follow = false;
    this.render();
    const view = chosen && this.#views.get(chosen.id);
    view?.element.querySelector(`[aria-label="${offset < 0 ? "Previous" : "Next"} version"]:not([disabled]), .versions button:not([disabled])`)?.focus();
  }

  #toolResult(node, call, text) {
    const conversation = this.#conversation;
    if (generate.isRunning(conversation.id)) return;
    const result = store.addNode(conversation, conversation.leaf, { role: "tool", content: text, name: call.name, toolCallId: call.id });
    const answered = new Set(store.path(conversation).filter((item) => item.role === "tool").map((item) => item.toolCallId));
    // The model continues after every call of the message has a result.
    if (node.toolCalls.every((item) => answered.has(item.id))) generate.generate(conversation, result.id);
    else { store.save(conversation, { now: true }); this.render(); }
  }
}
