// List of conversations: search, rename, export, delete with undo.

import { download, el, icon, iconButton, menu, toast } from "./dom.js";
import { dayGroup } from "./format.js";
import * as generate from "./generate.js";
import * as store from "./store.js";

const MAX_IMPORT = 64 * 1024 * 1024;

/** Title of a conversation: its name, or the beginning of its first message. */
function titleOf(conversation) {
  if (conversation.title) return conversation.title;
  const first = store.path(conversation).find((node) => node.role === "user");
  const line = first?.content.trim().split("\n")[0] ?? "";
  return line.length > 64 ? `${line.slice(0, 63)}…` : line || "New conversation";
}

const fileName = (title) => `${title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 40).toLowerCase() || "conversation"}.json`;

export function exportAll() {
  const items = store.list();
  if (!items.length) return toast("There are no conversations to export");
  download(`tabla-conversations-${new Date().toISOString().slice(0, 10)}.json`, store.exportJson(items));
}

export function importFile() {
  const input = el("input", { type: "file", accept: "application/json,.json" });
  input.addEventListener("change", async () => {
    const file = input.files[0];
    if (!file) return;
    try {
      if (file.size > MAX_IMPORT) throw new Error(`expected at most ${MAX_IMPORT} bytes, got ${file.size}`);
      const number = store.importJson(await file.text());
      toast(`Imported ${number} conversation${number === 1 ? "" : "s"}`);
    } catch (error) {
      toast(`import failed: ${error.message}`, { kind: "error", seconds: 8 });
    }
  });
  input.click();
}

export class ConversationList {
  #list = el("div", { class: "conversation-list" });
  #query = "";
  #current = null;

  /** `handlers`: `open(id)`, `removed(id)`. */
  constructor(handlers) {
    this.handlers = handlers;
    const search = el("input", { type: "search", id: "conversation-search", class: "search-input", placeholder: "Search", "aria-label": "Search conversations", autocomplete: "off" });
    search.addEventListener("input", () => { this.#query = search.value.trim().toLowerCase(); this.render(); });
    this.element = el("div", { class: "conversations" }, el("div", { class: "search" }, icon("search", 15), search), this.#list);
    this.#list.addEventListener("keydown", (event) => this.#key(event));
    store.changes.addEventListener("change", () => this.render());
    for (const type of ["start", "end"]) generate.events.addEventListener(type, () => this.render());
  }

  select(id) {
    this.#current = id;
    this.render();
  }

  #matches(conversation) {
    if (!this.#query) return true;
    return titleOf(conversation).toLowerCase().includes(this.#query)
      || Object.values(conversation.nodes).some((node) => node.content.toLowerCase().includes(this.#query));
  }

  render() {
    if (this.#list.querySelector(".rename-input")) return;
    const focused = document.activeElement?.closest?.(".conversation")?.dataset.id;
    const items = store.list().filter((item) => this.#matches(item));
    const groups = new Map();
    for (const item of items) {
      const group = dayGroup(item.updated);
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(item);
    }
    this.#list.replaceChildren(...[...groups].map(([group, members]) => el("section", { "aria-label": group },
      el("h3", { class: "group-title", text: group }),
      el("ul", {}, members.map((item) => this.#row(item))))));
    if (!items.length) this.#list.append(el("p", { class: "list-empty", text: this.#query ? "No conversation matches." : "Conversations appear here. They stay in this browser." }));
    if (focused) this.#list.querySelector(`[data-id="${focused}"] .conversation-open`)?.focus();
  }

  #row(conversation) {
    const title = titleOf(conversation);
    const current = conversation.id === this.#current;
    const more = iconButton("more", `Actions for ${title}`, () => menu(more, [
      { label: "Rename", icon: "edit", run: () => this.#rename(conversation) },
      { label: "Export", icon: "download", run: () => download(fileName(titleOf(conversation)), store.exportJson([conversation])) },
      { label: "Delete", icon: "trash", danger: true, run: () => this.#remove(conversation) },
    ]), { class: "conversation-more", "aria-haspopup": "menu", "aria-expanded": "false", size: 16 });
    return el("li", { class: `conversation${current ? " is-current" : ""}`, data: { id: conversation.id } },
      el("a", { href: `#/chat/${conversation.id}`, class: "conversation-open", "aria-current": current ? "page" : null, title },
        generate.isRunning(conversation.id) ? el("span", { class: "running-dot", role: "img", "aria-label": "Generating" }) : null,
        el("span", { class: "conversation-title", dir: "auto", text: title })), more);
  }

  #key(event) {
    const links = [...this.#list.querySelectorAll(".conversation-open")];
    const at = links.indexOf(document.activeElement);
    if (at < 0) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      links[at + (event.key === "ArrowDown" ? 1 : -1)]?.focus();
    } else if (event.key === "Delete") {
      event.preventDefault();
      this.#remove(store.get(links[at].closest(".conversation").dataset.id));
    } else if (event.key === "F2") {
      event.preventDefault();
      this.#rename(store.get(links[at].closest(".conversation").dataset.id));
    }
  }

  #rename(conversation) {
    const row = this.#list.querySelector(`[data-id="${conversation.id}"]`);
    if (!row) return;
    const input = el("input", { class: "rename-input", "aria-label": "Name of the conversation", maxlength: "200" });
    input.value = titleOf(conversation);
    let finished = false;
    const finish = (keep) => {
      if (finished) return;
      finished = true;
      input.remove();
      if (keep) {
        conversation.title = input.value.trim();
        store.save(conversation, { now: true, touch: false });
      }
      this.render();
      this.#list.querySelector(`[data-id="${conversation.id}"] .conversation-open`)?.focus();
    };
    input.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter" && !event.isComposing) finish(true);
      if (event.key === "Escape") finish(false);
    });
    input.addEventListener("blur", () => finish(true));
    row.replaceChildren(input);
    input.focus();
    input.select();
  }

  #remove(conversation) {
    generate.stop(conversation.id);
    const removed = store.remove(conversation.id);
    if (!removed) return;
    this.handlers.removed(conversation.id);
    toast("Conversation deleted", { action: "Undo", seconds: 10, onAction: () => { store.add(removed); this.handlers.open(removed.id); } });
  }
}
