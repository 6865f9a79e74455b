// Entry point: views, address, model selector, theme, dialogs, keyboard shortcuts.

import { apiKey, onKeyRequired } from "./api.js";
import { ChatView } from "./chat.js";
import { button, el, icon, iconButton, menu, toast } from "./dom.js";
import { sentence } from "./format.js";
import * as models from "./models.js";
import { MetricsView } from "./metrics.js";
import { SettingsPanel } from "./panel.js";
import { ConversationList, exportAll, importFile } from "./sidebar.js";
import * as store from "./store.js";
import { TableView } from "./table.js";

const VIEWS = [["chat", "Chat", "chat"], ["table", "Dispatch table", "table"], ["metrics", "Metrics", "chart"]];
const THEMES = { system: ["system", "System theme"], light: ["sun", "Light theme"], dark: ["moon", "Dark theme"] };

const find = (id) => document.getElementById(id);
const phone = matchMedia("(max-width: 820px)");
const narrow = matchMedia("(max-width: 1100px)");

let view = "chat";

// Address: `#/chat`, `#/chat/ID`, `#/table`, `#/metrics`.
function readAddress() {
  const [, name, id] = location.hash.split("/");
  return { name: VIEWS.some(([known]) => known === name) ? name : "chat", id: name === "chat" && id ? decodeURIComponent(id) : null };
}

function go(hash, replace = false) {
  if (location.hash === hash) return applyAddress();
  if (replace) { history.replaceState(null, "", hash); applyAddress(); } else location.hash = hash;
}

// Settings panel and sidebar.

const panel = new SettingsPanel({
  change: () => { if (store.get(chat.conversation.id)) store.save(chat.conversation, { touch: false }); },
  close: () => setSettings(false, true),
});
const chat = new ChatView({
  route: (id) => go(`#/chat/${id}`, true),
  settings: () => panel.show(chat.conversation.settings),
  restart: () => newChat(),
});
const list = new ConversationList({
  open: (id) => go(`#/chat/${id}`),
  removed: (id) => { if (chat.conversation.id === id) newChat(); },
});
const pages = { table: new TableView(), metrics: new MetricsView() };

const settingsButton = iconButton("sliders", "Settings", () => setSettings(panel.element.hidden), { id: "settings-toggle", "aria-expanded": "false", "aria-controls": "settings" });

function setSettings(open, refocus = false) {
  panel.element.hidden = !open;
  settingsButton.setAttribute("aria-expanded", String(open));
  if (open) {
    if (narrow.matches) setSidebar(false);
    panel.refresh();
    if (narrow.matches) panel.element.querySelector("button").focus();
  } else if (refocus) settingsButton.focus();
  if (!narrow.matches) store.setPreference("settingsOpen", open);
  updateOverlay();
}

const sidebarOpen = iconButton("sidebar", "Show conversations", () => setSidebar(true, true), { id: "sidebar-toggle", "aria-controls": "sidebar" });
const sidebarClose = iconButton("sidebar", "Hide conversations", () => setSidebar(false, true), { "aria-controls": "sidebar" });

function setSidebar(open, refocus = false) {
  find("app").classList.toggle("has-sidebar", open);
  find("sidebar").inert = !open;
  sidebarOpen.hidden = open;
  if (!phone.matches) store.setPreference("sidebar", open);
  updateOverlay();
  if (refocus) (open ? sidebarClose : sidebarOpen).focus();
}

const sidebarIsOpen = () => find("app").classList.contains("has-sidebar");

/** On a narrow screen an open panel covers the page: the rest becomes inert. */
function updateOverlay() {
  const sidebar = phone.matches && sidebarIsOpen();
  const settings = narrow.matches && !panel.element.hidden && view === "chat";
  find("scrim").hidden = !sidebar && !settings;
  find("main").inert = sidebar;
  chat.element.inert = settings;
  document.querySelector(".topbar").inert = settings;
}

function newChat() {
  go("#/chat");
  if (phone.matches) setSidebar(false);
  chat.composer.focus();
}

// Views.

function applyAddress() {
  const address = readAddress();
  if (address.id && !store.get(address.id)) { go("#/chat", true); return; }
  view = address.name;
  for (const [name, title] of VIEWS) {
    const selected = name === view;
    const tab = find(`tab-${name}`);
    tab.setAttribute("aria-selected", String(selected));
    tab.tabIndex = selected ? 0 : -1;
    find(`panel-${name}`).hidden = !selected;
    if (selected && name !== "chat") document.title = `${title} · Tabla`;
    if (name in pages) { if (selected) pages[name].show(); else pages[name].hide(); }
  }
  settingsButton.hidden = view !== "chat";
  if (view === "chat") {
    if (!address.id && Object.keys(chat.conversation?.nodes ?? { x: 1 }).length > 0) chat.open(null);
    else if (address.id) chat.open(address.id);
    list.select(address.id);
    document.title = "Tabla";
    if (phone.matches && sidebarIsOpen()) setSidebar(false);
  }
  updateOverlay();
}

/** Address of a view. The chat view returns to its conversation. */
function viewHash(name) {
  return name === "chat" && store.get(chat.conversation.id) ? `#/chat/${chat.conversation.id}` : `#/${name}`;
}

function buildTabs() {
  const tabs = VIEWS.map(([name, title, glyph]) => el("button", {
    type: "button", role: "tab", id: `tab-${name}`, class: "tab", "aria-controls": `panel-${name}`, title,
    on: { click: () => go(viewHash(name)) },
  }, icon(glyph, 16), el("span", { text: title })));
  find("tabs").append(...tabs);
  find("tabs").addEventListener("keydown", (event) => {
    const at = tabs.indexOf(document.activeElement);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const target = tabs[(next + tabs.length) % tabs.length];
    target.focus();
    target.click();
  });
}

// Models.

function renderModels() {
  const select = find("model");
  const items = models.generators();
  const key = JSON.stringify(items.map((model) => [model.id, model.status, model.display_name]));
  if (select.dataset.key !== key) {
    select.dataset.key = key;
    select.replaceChildren(...items.map((model) => {
      const state = { unloaded: " (not loaded)", loading: " (loading)" }[model.status] ?? "";
      return el("option", { value: model.id, text: models.name(model) + state });
    }));
  }
  if (!items.length) select.replaceChildren(el("option", { text: models.error() ? "No connection" : "No model" }));
  select.disabled = items.length === 0;
  if (models.selected()) select.value = models.selected().id;
  renderBanner();
  panel.refresh();
}

function renderBanner() {
  const error = models.error();
  const text = error ? (error.status === 401 ? "The server requires an API key." : `${sentence(error.message)}. Retrying.`)
    : models.noneGenerates() ? `No model of this server generates text (${models.all().map((model) => `${models.name(model)}: ${models.abilities(model)}`).join("; ")}). Start it with a model that chats: tabla serve -m model.gguf`
      : null;
  const banner = find("banner");
  banner.hidden = text === null;
  if (text !== null && banner.dataset.text !== text) banner.replaceChildren(icon("alert", 16), el("span", { text }), button("Retry", () => models.load(), { class: "is-small" }));
  banner.dataset.text = text ?? "";
}

// Theme.

function theme() {
  try { return localStorage.getItem("tabla.theme") ?? "system"; } catch { return "system"; }
}

const themeButton = iconButton("system", "Theme", () => {
  const names = Object.keys(THEMES);
  setTheme(names[(names.indexOf(theme()) + 1) % names.length]);
}, { id: "theme-toggle" });

function setTheme(name) {
  try {
    if (name === "system") localStorage.removeItem("tabla.theme");
    else localStorage.setItem("tabla.theme", name);
  } catch {
    // Storage is blocked: the theme lasts until the page is closed.
  }
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  const [glyph, label] = THEMES[name] ?? THEMES.system;
  themeButton.replaceChildren(icon(glyph));
  themeButton.setAttribute("aria-label", label);
  themeButton.title = `${label} (click to change)`;
}

// Dialogs.

/** Asks for the API key. `rejected`: the server refused the current key. */
function askKey(rejected) {
  const dialog = find("key-dialog");
  const input = find("key-input");
  find("key-text").textContent = rejected ? "The server refused this API key. Enter another one." : "This server requires an API key. It is kept until this browser tab is closed.";
  input.value = "";
  return new Promise((resolve) => {
    const done = (value) => { dialog.removeEventListener("close", cancel); dialog.close(); resolve(value); };
    const cancel = () => done(null);
    const accept = () => { if (input.value.trim()) done(input.value.trim()); };
    find("key-buttons").replaceChildren(button("Cancel", cancel, { class: "is-quiet" }), button("Continue", accept, { class: "is-primary" }));
    input.onkeydown = (event) => { if (event.key === "Enter") accept(); };
    dialog.addEventListener("close", cancel);
    dialog.showModal();
    input.focus();
  });
}

function shortcuts(event) {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  const alt = event.altKey && !event.ctrlKey && !event.metaKey;
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    if (document.querySelector(".menu")) return;
    if (!find("scrim").hidden) { if (!panel.element.hidden) setSettings(false, true); else setSidebar(false, true); } else if (view === "chat") chat.stop();
  } else if (alt && /^Digit[1-3]$/.test(event.code)) {
    event.preventDefault();
    go(viewHash(VIEWS[Number(event.code.at(-1)) - 1][0]));
  } else if (alt && event.code === "KeyN") {
    event.preventDefault();
    newChat();
  } else if (alt && event.code === "KeyS") {
    event.preventDefault();
    if (view === "chat") setSettings(panel.element.hidden, true);
  } else if (!typing && event.key === "/" && view === "chat") {
    event.preventDefault();
    chat.composer.focus();
  } else if (!typing && event.key === "?") find("shortcuts").showModal();
}

async function start() {
  buildTabs();
  find("panel-chat").append(chat.element, panel.element);
  find("panel-table").append(pages.table.element);
  find("panel-metrics").append(pages.metrics.element);
  find("conversations").append(list.element);
  find("sidebar-open").append(sidebarOpen);
  find("sidebar-close").append(sidebarClose);
  find("settings-open").append(settingsButton);
  find("new-chat").append(button("New conversation", newChat, { icon: "compose", class: "new-chat", id: "new-conversation" }));
  const more = iconButton("more", "More", () => menu(more, [
    { label: "Import conversations", icon: "upload", run: importFile },
    { label: "Export all conversations", icon: "download", run: exportAll },
    { label: "Keyboard shortcuts", icon: "keyboard", run: () => find("shortcuts").showModal() },
  ]), { "aria-haspopup": "menu", "aria-expanded": "false", id: "more-menu" });
  // An opener keeps the API key of this tab.
  const reference = el("a", { class: "icon-button", id: "reference-link", href: "reference", target: "_blank", rel: "opener", "aria-label": "API reference", title: "API reference" }, icon("code"));
  find("sidebar-foot").append(themeButton, reference, el("span", { class: "grow" }), more);
  find("shortcuts-buttons").append(button("Close", () => find("shortcuts").close(), { class: "is-primary" }));
  setTheme(theme());
  setSidebar(phone.matches ? false : store.preference("sidebar", true));
  if (!narrow.matches && store.preference("settingsOpen", false)) setSettings(true);

  find("scrim").addEventListener("click", () => { if (!panel.element.hidden && narrow.matches) setSettings(false, true); if (phone.matches) setSidebar(false, true); });
  find("skip-link").addEventListener("click", (event) => { event.preventDefault(); if (view === "chat") chat.composer.focus(); else find(`panel-${view}`).querySelector("button, select, [tabindex]")?.focus(); });
  find("model").addEventListener("change", (event) => models.select(event.target.value));
  document.addEventListener("keydown", shortcuts);
  window.addEventListener("hashchange", applyAddress);
  phone.addEventListener("change", () => setSidebar(phone.matches ? false : store.preference("sidebar", true)));
  narrow.addEventListener("change", () => { if (narrow.matches) setSettings(false); updateOverlay(); });
  models.changes.addEventListener("change", renderModels);
  models.changes.addEventListener("replaced", ({ detail: { from, served, to } }) => {
    const reason = served ? `${from} does not generate text` : `The server no longer has ${from}`;
    toast(`${reason}.${to ? ` ${models.name(to)} is selected.` : ""}`, { seconds: 10 });
  });
  store.changes.addEventListener("failure", ({ detail }) => toast(`saving failed: ${detail.message}`, { kind: "error" }));
  onKeyRequired(askKey);

  const stored = await store.open();
  if (!stored) toast("This browser blocks storage: conversations are lost when the page is closed", { kind: "error", seconds: 10 });
  chat.open(readAddress().id);
  applyAddress();
  list.render();
  await models.load();
  applyAddress();
  if (chat.conversation.model && store.get(chat.conversation.id)) models.select(chat.conversation.model, { remember: false });
  if (view === "chat" && !phone.matches && !apiKey()) chat.composer.focus();
}

start();
