// Served models: list, selection, defaults of the sampler.

import { ApiError, getJson } from "./api.js";
import { preference, setPreference } from "./store.js";

let models = [];
let selectedId = null;
let lastError = null;
let timer = null;
const properties = new Map();
/** Models that refused a chat request because they have no chat template. */
const withoutTemplate = new Set();

/** Emits `change` when the list or the selection changed. */
export const changes = new EventTarget();
const changed = () => changes.dispatchEvent(new Event("change"));

export const all = () => models;
export const error = () => lastError;
export const find = (id) => models.find((model) => model.id === id) ?? null;
export const selected = () => find(selectedId);

/** Models that generate text; an embedding or speech model cannot chat. */
export const generators = () => models.filter((model) => {
  const able = model.capabilities;
  return !Array.isArray(able) || able.length === 0 || able.includes("chat") || able.includes("completion");
});

/** Loads the model list. Repeats after 3 seconds while a model loads and after 5 seconds without a connection. */
export async function load() {
  clearTimeout(timer);
  try {
    const answer = await getJson("v1/models");
    models = Array.isArray(answer?.data) ? answer.data.filter((model) => typeof model?.id === "string") : [];
    lastError = null;
    if (!selected()) {
      const saved = preference("model");
      selectedId = (find(saved) ?? generators()[0] ?? models[0])?.id ?? null;
    }
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
  if (!find(id) || id === selectedId) return;
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
  const able = find(id)?.capabilities;
  return Array.isArray(able) && able.length > 0 && !able.includes("chat") && able.includes("completion") ? "completion" : "chat";
}

/** Records that a model has no chat template. */
export function setCompletionMode(id) {
  withoutTemplate.add(id);
  changed();
}

export const name = (model) => model?.display_name || model?.id || "";
