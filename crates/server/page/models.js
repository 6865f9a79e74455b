// Served models: list, selection, defaults of the sampler.

import { ApiError, getJson } from "./api.js";
import { preference, setPreference } from "./store.js";

let models = [];
let selectedId = null;
let lastError = null;
let timer = null;
const properties = new Map();
/** What models can do, by name. The server reports it only while a model is loaded. */
const capabilities = new Map();
/** Models that refused a chat request because they have no chat template. */
const withoutTemplate = new Set();

/**
 * Emits `change` when the list or the selection changed, and `replaced` when the selected model cannot be used any
 * longer: `detail` has `from`, the name, `served`, whether the server still has it, and `to`, the model selected instead.
 */
export const changes = new EventTarget();
const changed = () => changes.dispatchEvent(new Event("change"));

export const all = () => models;
export const error = () => lastError;
export const find = (id) => models.find((model) => model.id === id) ?? null;
export const selected = () => find(selectedId);

/** Whether a model generates text. A model that was never loaded may. */
function generates(model) {
  const able = capabilities.get(model.id);
  return !able || able.includes("chat") || able.includes("completion");
}

/** Model whose dispatch table is shown: the selected one, or the first if none generates text. */
export const inspected = () => selected() ?? models[0] ?? null;

/** Models that generate text; an embedding or speech model cannot chat. */
export const generators = () => models.filter(generates);

/** Whether the server has models, and none of them generates text. */
export const noneGenerates = () => models.length > 0 && generators().length === 0;

/** Capabilities of a model as text, for example `embeddings`. */
export const abilities = (model) => capabilities.get(model.id)?.join(", ") || "nothing";

function readList(answer) {
  // After a lost connection, another server may answer.
  if (lastError) for (const known of [capabilities, properties, withoutTemplate]) known.clear();
  lastError = null;
  models = Array.isArray(answer?.data) ? answer.data.filter((model) => typeof model?.id === "string") : [];
  for (const model of models) if (Array.isArray(model.capabilities)) capabilities.set(model.id, model.capabilities);
  const current = selected();
  if (current && generates(current)) return;
  const from = selectedId;
  selectedId = [find(preference("model")), ...models].find((model) => model && generates(model))?.id ?? null;
  if (from) changes.dispatchEvent(new CustomEvent("replaced", { detail: { from, served: Boolean(current), to: selected() } }));
}

/** Loads the model list. Repeats after 3 seconds while a model loads and after 5 seconds without a connection. */
export async function load() {
  clearTimeout(timer);
  try {
    readList(await getJson("v1/models"));
    if (models.some((model) => model.status === "loading")) timer = setTimeout(load, 3000);
  } catch (failure) {
    lastError = failure;
    if (failure instanceof ApiError && failure.status !== 401) timer = setTimeout(load, 5000);
  }
  changed();
  if (selected()) loadProperties(selectedId);
}

/** Selects a model. `remember` makes it the default for new conversations. */
export function select(id, { remember = true } = {}) {
  if (!find(id) || !generates(find(id)) || id === selectedId) return;
  selectedId = id;
  if (remember) setPreference("model", id);
  changed();
  loadProperties(id);
}

async function loadProperties(id) {
  // A model that was not loaded had no context size yet.
  if (properties.has(id) && !properties.get(id).is_sleeping) return;
  if (!properties.has(id)) properties.set(id, {});
  try {
    properties.set(id, await getJson(`props?model=${encodeURIComponent(id)}`));
    changed();
  } catch {
    properties.delete(id);
  }
}

/** Sampler defaults of a model, as the server reports them. */
export const defaults = (id = selectedId) => properties.get(id)?.default_generation_settings?.params ?? {};

/** Context size in tokens, or null. */
export function contextSize(id = selectedId) {
  const model = find(id);
  return properties.get(id)?.default_generation_settings?.n_ctx || model?.context_length || model?.max_model_len || model?.meta?.n_ctx || null;
}

/** Request mode of a model: `chat`, or `completion` where it has no chat template. */
export function mode(id = selectedId) {
  if (withoutTemplate.has(id)) return "completion";
  const able = capabilities.get(id) ?? [];
  return able.includes("completion") && !able.includes("chat") ? "completion" : "chat";
}

/** Records that a model has no chat template. */
export function setCompletionMode(id) {
  withoutTemplate.add(id);
  changed();
}

export const name = (model) => model?.display_name || model?.id || "";
