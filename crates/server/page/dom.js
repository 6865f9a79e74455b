// DOM helpers: element creation, icons, toasts, announcements, menus.
// No function of this page sets innerHTML or a style attribute.

const SVG = "http://www.w3.org/2000/svg";
const MATHML = "http://www.w3.org/1998/Math/MathML";

function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child);
  }
  return parent;
}

/**
 * Creates an HTML element.
 * `props`: `class`, `text`, `on` (event name to listener), `data` (data attributes);
 * every other key is an attribute. `false`, `null` and `undefined` omit the attribute.
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") node.className = value;
    else if (key === "text") node.textContent = value;
    else if (key === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (key === "data") Object.assign(node.dataset, value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  return append(node, children);
}

function elementOf(namespace, tag, attributes, children) {
  const node = document.createElementNS(namespace, tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) node.setAttribute(key, value);
  }
  return append(node, children);
}

/** Creates an SVG element with attributes. */
export const svg = (tag, attributes = {}, ...children) => elementOf(SVG, tag, attributes, children);

/** Creates a MathML element with attributes. */
export const mathml = (tag, attributes = {}, ...children) => elementOf(MATHML, tag, attributes, children);

/** Outline icons on a 24 by 24 grid, one path each. */
const ICONS = {
  menu: "M4 7h16M4 12h16M4 17h16",
  sidebar: "M5 4h14a2 2 0 0 1 2 2v12a2 2 0 0 1-2 2H5a2 2 0 0 1-2-2V6a2 2 0 0 1 2-2zM9.5 4v16",
  compose: "M12 20h8M16.5 4.5a2.1 2.1 0 0 1 3 3L8 19l-4 1 1-4z",
  search: "M11 4a7 7 0 1 1 0 14 7 7 0 0 1 0-14zM20 20l-4-4",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7.5 7.5h9v9h-9z",
  copy: "M9 9h10a1 1 0 0 1 1 1v9a1 1 0 0 1-1 1h-9a1 1 0 0 1-1-1zM15 9V5a1 1 0 0 0-1-1H5a1 1 0 0 0-1 1v9a1 1 0 0 0 1 1h4",
  check: "M5 12.5l4.5 4.5L19 7.5",
  edit: "M16.5 4.5a2.1 2.1 0 0 1 3 3L8 19l-4 1 1-4zM14 7l3 3",
  refresh: "M20 11a8 8 0 1 0-1.6 6M20 5v6h-6",
  down: "M6 9l6 6 6-6",
  left: "M15 6l-6 6 6 6",
  right: "M9 6l6 6-6 6",
  sliders: "M4 8h8M18 8h2M4 16h2M12 16h8M15 5.5a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5zM9 13.5a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5z",
  sun: "M12 8a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM12 3v1.5M12 19.5V21M3 12h1.5M19.5 12H21M5.6 5.6l1.1 1.1M17.3 17.3l1.1 1.1M5.6 18.4l1.1-1.1M17.3 6.7l1.1-1.1",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
  system: "M4 5h16v11H4zM9 20h6M12 16v4",
  trash: "M5 7h14M10 7V5a1 1 0 0 1 1-1h2a1 1 0 0 1 1 1v2M7 7l1 12a1 1 0 0 0 1 1h6a1 1 0 0 0 1-1l1-12M10.5 11v5M13.5 11v5",
  download: "M12 4v11M7.5 11l4.5 4.5 4.5-4.5M5 20h14",
  upload: "M12 16V5M7.5 9L12 4.5 16.5 9M5 20h14",
  more: "M6 12h.01M12 12h.01M18 12h.01",
  chat: "M5 5h14a1 1 0 0 1 1 1v9a1 1 0 0 1-1 1h-7l-4.5 4v-4H5a1 1 0 0 1-1-1V6a1 1 0 0 1 1-1z",
  table: "M5 4h14a1 1 0 0 1 1 1v14a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1V5a1 1 0 0 1 1-1zM4 9.5h16M4 15h16M10 9.5V20",
  chart: "M4 4v16h16M8 15l3.5-4.5 3 2.5L20 7",
  reasoning: "M12 3a6 6 0 0 1 3.5 10.9c-.6.5-.9 1-.9 1.8v.3h-5.2v-.3c0-.8-.3-1.3-.9-1.8A6 6 0 0 1 12 3zM10 20h4",
  tool: "M14.5 6.5a4 4 0 0 1 5.2-1.2l-2.9 2.9 1.9 1.9 2.9-2.9a4 4 0 0 1-5.3 5.2L9.5 19.2a1.9 1.9 0 0 1-2.7-2.7l6.8-6.8a4 4 0 0 1 .9-3.2z",
  close: "M6 6l12 12M18 6L6 18",
  heat: "M4 7h6M14 7h6M4 12h3M11 12h9M4 17h9M17 17h3",
  keyboard: "M4 7h16a1 1 0 0 1 1 1v8a1 1 0 0 1-1 1H4a1 1 0 0 1-1-1V8a1 1 0 0 1 1-1zM7 11h.01M11 11h.01M15 11h.01M8 14h8",
  alert: "M12 4l9 16H3zM12 10v4M12 17h.01",
  gauge: "M4.5 18a9 9 0 1 1 15 0M12 14l4-5",
  pause: "M9 6v12M15 6v12",
  play: "M8 5l11 7-11 7z",
  compress: "M5 12h14M12 3v5.5M9 6l3 3 3-3M12 21v-5.5M9 18l3-3 3 3",
  code: "M8 7l-5 5 5 5M16 7l5 5-5 5",
};

/** Creates a decorative icon, hidden from assistive technology. */
export function icon(name, size = 18) {
  return svg("svg", { viewBox: "0 0 24 24", width: size, height: size, class: `icon icon-${name}`, "aria-hidden": "true", focusable: "false" },
    svg("path", { d: ICONS[name] }));
}

/** Creates a button with an icon and no visible text. `label` is its name and tooltip. */
export function iconButton(name, label, onClick, extra = {}) {
  const { class: className, size, ...rest } = extra;
  return el("button", {
    type: "button",
    class: `icon-button ${className ?? ""}`.trim(),
    "aria-label": label,
    title: label,
    on: { click: onClick },
    ...rest,
  }, icon(name, size ?? 18));
}

/** Creates a button with text and an optional icon. */
export function button(text, onClick, { icon: name, class: className, ...rest } = {}) {
  return el("button", { type: "button", class: `button ${className ?? ""}`.trim(), on: { click: onClick }, ...rest },
    name ? icon(name, 16) : null, el("span", { text }));
}

/** Announces a text to screen readers without moving the focus. */
export function announce(text) {
  const live = document.getElementById("live");
  live.textContent = "";
  setTimeout(() => { live.textContent = text; }, 60);
}

/** Shows a message at the bottom of the window. `action` adds one button. */
export function toast(text, { action, onAction, seconds = 5, kind = "info" } = {}) {
  const host = document.getElementById("toasts");
  const close = () => item.remove();
  const item = el("div", { class: `toast toast-${kind}` },
    el("span", { class: "toast-text", text }),
    action ? el("button", { type: "button", class: "toast-action", text: action, on: { click: () => { close(); onAction(); } } }) : null,
    iconButton("close", "Dismiss", close, { size: 14 }));
  while (host.children.length >= 3) host.firstChild.remove();
  host.append(item);
  announce(text);
  let timer = setTimeout(close, seconds * 1000);
  const hold = () => clearTimeout(timer);
  const release = () => { clearTimeout(timer); timer = setTimeout(close, seconds * 1000); };
  item.addEventListener("pointerenter", hold);
  item.addEventListener("pointerleave", release);
  item.addEventListener("focusin", hold);
  item.addEventListener("focusout", release);
  return close;
}

/** Copies text to the clipboard; falls back to a selection where the clipboard API is absent (plain HTTP). */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el("textarea", { class: "visually-hidden", readonly: true });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** Creates a copy button that shows a check mark for a moment after copying. */
export function copyButton(label, read, extra = {}) {
  const control = iconButton("copy", label, async () => {
    const done = await copyText(read());
    if (!done) return toast("copying failed: the browser denied access to the clipboard", { kind: "error" });
    control.replaceChildren(icon("check", extra.size ?? 16));
    control.classList.add("is-done");
    announce("Copied");
    setTimeout(() => {
      control.replaceChildren(icon("copy", extra.size ?? 16));
      control.classList.remove("is-done");
    }, 1400);
  }, { size: 16, ...extra });
  return control;
}

let openMenu = null;

/** Opens a menu next to `anchor`. `items`: `{label, icon, danger, run}`. */
export function menu(anchor, items) {
  openMenu?.();
  const list = el("div", { class: "menu", role: "menu" });
  const close = (refocus = false) => {
    list.remove();
    anchor.setAttribute("aria-expanded", "false");
    document.removeEventListener("pointerdown", outside, true);
    window.removeEventListener("resize", dismiss);
    openMenu = null;
    if (refocus) anchor.focus();
  };
  const dismiss = () => close();
  const outside = (event) => { if (!list.contains(event.target)) close(); };
  for (const item of items) {
    list.append(el("button", {
      type: "button", role: "menuitem", tabindex: "-1",
      class: `menu-item${item.danger ? " is-danger" : ""}`,
      on: { click: () => { close(true); item.run(); } },
    }, item.icon ? icon(item.icon, 16) : null, el("span", { text: item.label })));
  }
  list.addEventListener("keydown", (event) => {
    const entries = [...list.children];
    const at = entries.indexOf(document.activeElement);
    const moves = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: entries.length - 1 };
    if (event.key in moves) {
      event.preventDefault();
      entries[(moves[event.key] + entries.length) % entries.length].focus();
    } else if (event.key === "Escape" || event.key === "Tab") {
      event.preventDefault();
      event.stopPropagation();
      close(true);
    }
  });
  document.body.append(list);
  const box = anchor.getBoundingClientRect();
  const size = list.getBoundingClientRect();
  const left = Math.min(Math.max(8, box.right - size.width), window.innerWidth - size.width - 8);
  const below = box.bottom + 4 + size.height < window.innerHeight;
  list.style.left = `${left}px`;
  list.style.top = `${below ? box.bottom + 4 : Math.max(8, box.top - size.height - 4)}px`;
  anchor.setAttribute("aria-expanded", "true");
  document.addEventListener("pointerdown", outside, true);
  window.addEventListener("resize", dismiss);
  openMenu = close;
  list.firstElementChild?.focus();
}

/** Offers a text as a file download. */
export function download(name, text, type = "application/json") {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Random identifier; `crypto.randomUUID` needs a secure context, `getRandomValues` does not. */
export function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  return Array.from(bytes, (b) => b.toString(36).padStart(2, "0")).join("");
}
