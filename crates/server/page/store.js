// Conversations: a tree of messages for each, kept in IndexedDB.
// Editing or regenerating a message adds a sibling, so earlier versions stay reachable.

import { randomId } from "./dom.js";

const DATABASE = "tabla";
const STORE = "conversations";
const SAVE_DELAY = 800;
const FORMAT = "tabla-conversations";

let database = null;
const conversations = new Map();
const pending = new Map();

/** Emits `change` after a conversation was added, changed or removed. */
export const changes = new EventTarget();
const changed = () => changes.dispatchEvent(new Event("change"));

// Other windows of the same origin show the same conversations.
const channel = "BroadcastChannel" in window ? new BroadcastChannel("tabla.conversations") : null;

function promised(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function objects(mode) {
  return database.transaction(STORE, mode).objectStore(STORE);
}

/** Opens the database and reads all conversations. Returns false where the browser blocks storage. */
export async function open() {
  try {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    database = await promised(request);
    for (const item of await promised(objects("readonly").getAll())) conversations.set(item.id, item);
  } catch {
    database = null;
  }
  channel?.addEventListener("message", async ({ data }) => {
    if (!database || typeof data?.id !== "string") return;
    const item = await promised(objects("readonly").get(data.id)).catch(() => undefined);
    if (item) conversations.set(item.id, item);
    else conversations.delete(data.id);
    changed();
  });
  window.addEventListener("pagehide", flush);
  document.addEventListener("visibilitychange", () => { if (document.hidden) flush(); });
  return database !== null;
}

async function write(conversation) {
  pending.delete(conversation.id);
  if (!database || !conversations.has(conversation.id)) return;
  try {
    await promised(objects("readwrite").put(structuredClone(conversation)));
    channel?.postMessage({ id: conversation.id });
  } catch (error) {
    changes.dispatchEvent(new CustomEvent("failure", { detail: error }));
  }
}

/** Saves a conversation, at most once per `SAVE_DELAY` milliseconds unless `now` is set. */
export function save(conversation, { now = false, touch = true } = {}) {
  if (touch) conversation.updated = Date.now();
  if (now) {
    clearTimeout(pending.get(conversation.id));
    write(conversation);
    changed();
  } else if (!pending.has(conversation.id)) {
    pending.set(conversation.id, setTimeout(() => write(conversation), SAVE_DELAY));
  }
}

function flush() {
  for (const [id, timer] of pending) {
    clearTimeout(timer);
    const conversation = conversations.get(id);
    if (conversation) write(conversation);
  }
}

/** All conversations, last changed first. */
export function list() {
  return [...conversations.values()].sort((a, b) => b.updated - a.updated);
}

export const get = (id) => conversations.get(id) ?? null;

/** Creates an empty conversation in memory. It is stored by its first `save`. */
export function create(settings = {}) {
  const now = Date.now();
  return { id: randomId(), title: "", created: now, updated: now, model: null, settings: structuredClone(settings), nodes: {}, leaf: null };
}

/** Adds a conversation to the list and stores it. */
export function add(conversation) {
  conversations.set(conversation.id, conversation);
  save(conversation, { now: true, touch: false });
}

/** Removes a conversation and returns it, so that `add` can restore it. */
export function remove(id) {
  const conversation = conversations.get(id) ?? null;
  clearTimeout(pending.get(id));
  pending.delete(id);
  conversations.delete(id);
  if (database) promised(objects("readwrite").delete(id)).then(() => channel?.postMessage({ id }), () => {});
  changed();
  return conversation;
}

/** Messages from the root to the selected leaf. */
export function path(conversation, leaf = conversation.leaf) {
  const nodes = [];
  const seen = new Set();
  for (let id = leaf; id && conversation.nodes[id] && !seen.has(id); id = conversation.nodes[id].parent) {
    seen.add(id);
    nodes.push(conversation.nodes[id]);
  }
  return nodes.reverse();
}

function children(conversation, parent) {
  return Object.values(conversation.nodes).filter((node) => node.parent === parent).sort((a, b) => a.created - b.created);
}

/** Follows the newest messages from a message, or from the beginning for null. */
function newestLeaf(conversation, id) {
  const child = children(conversation, id).at(-1);
  return child ? newestLeaf(conversation, child.id) : id;
}

/** Versions of a message: all messages with the same parent, oldest first. */
export const siblings = (conversation, node) => children(conversation, node.parent);

/** Adds a message below `parent` and selects it. */
export function addNode(conversation, parent, fields) {
  // Creation times order the versions of a message, so two messages never share one.
  const created = Math.max(Date.now(), ...children(conversation, parent).map((node) => node.created + 1));
  const node = { id: randomId(), parent, created, role: "user", content: "", ...fields };
  conversation.nodes[node.id] = node;
  conversation.leaf = node.id;
  return node;
}

/** Selects another version of a message and the newest messages after it. */
export function selectVersion(conversation, node, offset) {
  const versions = siblings(conversation, node);
  const chosen = versions[versions.indexOf(node) + offset];
  if (!chosen) return;
  conversation.leaf = newestLeaf(conversation, chosen.id);
  save(conversation, { now: true, touch: false });
  return chosen;
}

/**
 * Removes a message with the results of its tool calls. The messages after it move up. A message with other
 * versions is removed with the messages after it, because the other versions have their own.
 * Returns `number`, the number of removed messages, and `undo`.
 */
export function removeMessage(conversation, node) {
  const { nodes, leaf } = conversation;
  const below = (id) => children(conversation, id).flatMap((child) => [child, ...below(child.id)]);
  const versions = siblings(conversation, node);
  const removed = versions.length > 1 ? [node, ...below(node.id)]
    : [node, ...below(node.id).filter((item) => item.role === "tool" && node.toolCalls?.some((call) => call.id === item.toolCallId))];
  const ids = new Set(removed.map((item) => item.id));
  const moved = Object.values(nodes).filter((item) => ids.has(item.parent) && !ids.has(item.id)).map((item) => [item, item.parent]);
  for (const item of removed) delete nodes[item.id];
  for (const [item] of moved) item.parent = node.parent;
  if (ids.has(leaf)) conversation.leaf = newestLeaf(conversation, versions.findLast((item) => item !== node)?.id ?? node.parent);
  const after = conversation.leaf;
  save(conversation, { now: true });
  const undo = () => {
    for (const item of removed) nodes[item.id] = item;
    for (const [item, parent] of moved) item.parent = parent;
    if (conversation.leaf === after) conversation.leaf = leaf;
    save(conversation, { now: true });
  };
  return { number: removed.length, undo };
}

/** Serializes conversations for export. */
export function exportJson(items) {
  return JSON.stringify({ format: FORMAT, version: 1, exported: new Date().toISOString(), conversations: items }, null, 1);
}

const text = (value) => (typeof value === "string" ? value : "");
const number = (value, fallback) => (Number.isFinite(value) ? value : fallback);
const array = (value) => (Array.isArray(value) ? value : []);

/** Copies numbers, strings and booleans of an object; drops everything else. */
function scalars(value) {
  const copy = {};
  if (value && typeof value === "object" && !Array.isArray(value)) {
    for (const [key, item] of Object.entries(value)) {
      if (key !== "__proto__" && ["number", "string", "boolean"].includes(typeof item)) copy[key] = item;
    }
  }
  return copy;
}

function cleanNode(raw, ids) {
  const role = ["user", "assistant", "tool"].includes(raw.role) ? raw.role : "user";
  const node = { id: ids.get(raw.id), parent: ids.get(raw.parent) ?? null, created: number(raw.created, Date.now()), role, content: text(raw.content) };
  for (const key of ["reasoning", "model", "mode", "finish", "error", "errorCode", "name", "toolCallId"]) if (raw[key]) node[key] = text(raw[key]);
  for (const key of ["reasoningSeconds", "earlierTokens"]) if (Number.isFinite(raw[key])) node[key] = raw[key];
  if (raw.stats) node.stats = scalars(raw.stats);
  if (Array.isArray(raw.toolCalls)) {
    node.toolCalls = raw.toolCalls.filter((call) => call && typeof call === "object")
      .map((call) => ({ id: text(call.id), name: text(call.name), arguments: text(call.arguments) }));
  }
  if (Array.isArray(raw.tokens)) {
    node.tokens = raw.tokens.filter((token) => token && typeof token === "object").map((token) => ({
      text: text(token.text), logprob: number(token.logprob, 0),
      top: array(token.top).filter(Array.isArray).slice(0, 20).map(([t, p]) => [text(t), number(p, 0)]),
      ...(Array.isArray(token.bytes) ? { bytes: token.bytes.filter((b) => Number.isInteger(b) && b >= 0 && b < 256) } : {}),
    }));
  }
  return node;
}

/** Reads an export, assigns new identifiers and stores its conversations. Returns their number. */
export function importJson(source) {
  let data;
  try {
    data = JSON.parse(source);
  } catch (error) {
    throw new Error(`the file is not JSON: ${error.message}`);
  }
  if (data?.format !== FORMAT || !Array.isArray(data.conversations)) throw new Error(`expected a file with format "${FORMAT}"`);
  let imported = 0;
  for (const raw of data.conversations) {
    if (!raw || typeof raw !== "object" || !raw.nodes || typeof raw.nodes !== "object") continue;
    const rawNodes = Object.values(raw.nodes).filter((node) => node && typeof node === "object" && typeof node.id === "string");
    const ids = new Map(rawNodes.map((node) => [node.id, randomId()]));
    const conversation = create(scalars(raw.settings));
    conversation.title = text(raw.title).slice(0, 200);
    conversation.model = text(raw.model) || null;
    conversation.created = number(raw.created, conversation.created);
    conversation.updated = number(raw.updated, conversation.updated);
    for (const rawNode of rawNodes) {
      const node = cleanNode(rawNode, ids);
      conversation.nodes[node.id] = node;
    }
    conversation.leaf = ids.get(raw.leaf) ?? null;
    if (ids.has(raw.start)) conversation.start = ids.get(raw.start);
    // A leaf inside a parent cycle has no root: select the last root instead.
    if (path(conversation)[0]?.parent !== null) conversation.leaf = children(conversation, null).at(-1)?.id ?? null;
    add(conversation);
    imported += 1;
  }
  return imported;
}

/** Reads a preference; `fallback` where none is saved or storage is blocked. */
export function preference(name, fallback = null) {
  try {
    const value = localStorage.getItem(`tabla.${name}`);
    return value === null ? fallback : JSON.parse(value);
  } catch {
    return fallback;
  }
}

export function setPreference(name, value) {
  try {
    localStorage.setItem(`tabla.${name}`, JSON.stringify(value));
  } catch {
    // Storage is blocked: the preference lasts until the page is closed.
  }
}
