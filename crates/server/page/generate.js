// Generation: builds requests, reads streams and writes answers into the conversation.
// A generation continues while another conversation is shown.

import { ApiError, stream } from "./api.js";
import * as models from "./models.js";
import { sent } from "./context.js";
import * as store from "./store.js";
import { readLogprobs } from "./tokens.js";
import { parseTools } from "./tools.js";

/** Default `max_tokens` of a completion request; the API default of 16 is too short for a page. */
const COMPLETION_TOKENS = 512;
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty", "seed", "max_tokens"];

const running = new Map();

/** Emits `update` (a node changed), `start` and `end`; `detail` has `conversation` and `node`. */
export const events = new EventTarget();
const emit = (type, conversation, node) => events.dispatchEvent(new CustomEvent(type, { detail: { conversation, node } }));

export const isRunning = (id) => running.has(id);

/** State of the running generation of a conversation: `node`, `started`, `rate`. Null where none runs. */
export const state = (id) => running.get(id) ?? null;

export function stop(id) {
  running.get(id)?.controller.abort();
}

function toolsOf(settings) {
  try {
    return parseTools(settings.tools);
  } catch (error) {
    throw new Error(`the tools in the settings are not valid: ${error.message}`);
  }
}

function samplerFields(settings, mode) {
  const fields = {};
  for (const name of NUMBERS) if (Number.isFinite(settings[name])) fields[name] = settings[name];
  const stops = (settings.stop ?? "").split("\n").filter((line) => line !== "").map((line) => line.replace(/\\n/g, "\n").replace(/\\t/g, "\t"));
  if (stops.length) fields.stop = stops;
  if (mode === "chat") {
    if (settings.reasoning_effort) fields.reasoning_effort = settings.reasoning_effort;
    const tools = toolsOf(settings);
    if (tools.length) fields.tools = tools;
  }
  return fields;
}

function messageOf(node) {
  if (node.role === "tool") return { role: "tool", tool_call_id: node.toolCallId, content: node.content };
  if (node.role !== "assistant") return { role: "user", content: node.content };
  const message = { role: "assistant", content: node.content || (node.toolCalls?.length ? null : "") };
  if (node.reasoning) message.reasoning_content = node.reasoning;
  if (node.toolCalls?.length) {
    message.tool_calls = node.toolCalls.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } }));
  }
  return message;
}

/**
 * Messages of a request. Adjacent texts of one role become one message, because many chat templates require that
 * the roles alternate; they occur after an error or a deleted message.
 */
function messagesOf(nodes) {
  const messages = [];
  for (const message of nodes.map(messageOf)) {
    const last = messages.at(-1);
    const joins = last?.role === message.role && message.role !== "tool" && !last.tool_calls && !message.tool_calls;
    if (joins) last.content = [last.content, message.content].filter(Boolean).join("\n\n");
    else messages.push(message);
  }
  return messages;
}

/** Text of a completion-mode conversation. A space separates two texts that meet without white space. */
export function completionPrompt(nodes) {
  let text = "";
  for (const node of nodes) {
    if (text && node.role === "user" && node.content && !/\s$/.test(text) && !/^[\s.,;:!?'")\]]/.test(node.content)) text += " ";
    text += node.content;
  }
  return text;
}

/** Request of an answer. A text of the assistant at the end is continued by the server. */
function buildRequest(conversation, { node, extends: extended }) {
  const { model, mode } = node;
  const settings = conversation.settings ?? {};
  const earlier = sent(store.path(conversation, extended ? node.id : node.parent), conversation.start);
  const body = { model, stream: true, stream_options: { include_usage: true }, ...samplerFields(settings, mode) };
  const probabilities = settings.logprobs !== false;
  if (mode === "completion") {
    if (probabilities) body.logprobs = 5;
    body.max_tokens ??= COMPLETION_TOKENS;
    return { path: "v1/completions", body: { ...body, prompt: completionPrompt(earlier) } };
  }
  if (probabilities) Object.assign(body, { logprobs: true, top_logprobs: 5 });
  const messages = messagesOf(earlier.filter((item) => item.role !== "assistant" || item.content || item.toolCalls?.length));
  if (settings.system?.trim()) messages.unshift({ role: "system", content: settings.system });
  return { path: "v1/chat/completions", body: { ...body, messages } };
}

/** Generates an answer below `parent` and adds it to the conversation. Returns when the stream ends. */
export async function generate(conversation, parent) {
  if (running.has(conversation.id) || !models.selected()) return;
  await answer(conversation, store.addNode(conversation, parent, { role: "assistant" }), false);
}

/** Extends an answer that ended before it was complete. Returns when the stream ends. */
export async function extend(conversation, node) {
  if (running.has(conversation.id) || !models.selected()) return;
  node.earlierTokens = (node.earlierTokens ?? 0) + (node.stats?.completionTokens ?? 0);
  for (const key of ["finish", "error", "errorCode", "stats"]) delete node[key];
  await answer(conversation, node, true);
}

async function answer(conversation, node, extended) {
  const model = models.selected().id;
  Object.assign(node, { model, mode: models.mode(model) });
  conversation.model = model;
  const run = {
    node, extends: extended, controller: new AbortController(), started: performance.now(), first: null, tokens: 0, rate: null,
    // Probabilities of a part of the text would be shown as the whole text.
    keepsTokens: !node.content || node.tokens?.length > 0,
  };
  running.set(conversation.id, run);
  store.save(conversation, { now: true });
  emit("start", conversation, node);
  try {
    await receive(conversation, node, run);
  } catch (error) {
    if (error.name === "AbortError") node.finish = "stopped";
    else setError(node, error);
  }
  finishStats(node, run);
  running.delete(conversation.id);
  store.save(conversation, { now: true });
  emit("end", conversation, node);
  // The first message loads a model. After an error the server may have other models than the page shows.
  if (node.error || models.find(model)?.status === "unloaded") models.load();
}

function setError(node, error) {
  node.error = error.message;
  if (!(error instanceof ApiError)) return;
  if (error.code) node.errorCode = String(error.code);
  if (Number.isFinite(error.fields.n_prompt_tokens)) node.stats = { promptTokens: error.fields.n_prompt_tokens, completionTokens: 0 };
}

async function receive(conversation, node, run) {
  try {
    await receiveStream(conversation, node, run);
  } catch (error) {
    const noTemplate = error instanceof ApiError && error.status === 400 && node.mode === "chat" && /chat[ _-]?template/i.test(`${error.code} ${error.message}`);
    if (!noTemplate) throw error;
    models.setCompletionMode(node.model);
    for (const item of store.path(conversation, node.id)) item.mode = "completion";
    run.started = performance.now();
    await receiveStream(conversation, node, run);
  }
}

async function receiveStream(conversation, node, run) {
  const { path, body } = buildRequest(conversation, run);
  let reasoningStart = null;
  for await (const event of stream(path, body, run.controller.signal)) {
    const choice = event.choices?.[0];
    if (choice) {
      const delta = choice.delta ?? {};
      const content = node.mode === "completion" ? choice.text : delta.content;
      const reasoning = delta.reasoning_content ?? delta.reasoning;
      const entries = readLogprobs(choice.logprobs);
      if (content || reasoning || delta.tool_calls) {
        run.first ??= performance.now();
        run.tokens += Math.max(entries.length, 1);
      }
      if (reasoning) {
        reasoningStart ??= performance.now();
        node.reasoning = (node.reasoning ?? "") + reasoning;
        node.reasoningSeconds = (performance.now() - reasoningStart) / 1000;
      }
      if (content) node.content += content;
      // Only tokens of the visible answer are coloured.
      if (entries.length && run.keepsTokens && !reasoning && !delta.tool_calls) (node.tokens ??= []).push(...entries);
      for (const call of delta.tool_calls ?? []) addToolCall(node, call);
      if (choice.finish_reason) node.finish = choice.finish_reason;
    }
    if (event.usage) readUsage(node, event);
    const elapsed = (performance.now() - (run.first ?? Infinity)) / 1000;
    if (elapsed > 0.25 && run.tokens > 1) run.rate = (run.tokens - 1) / elapsed;
    store.save(conversation);
    emit("update", conversation, node);
  }
}

function addToolCall(node, delta) {
  node.toolCalls ??= [];
  const call = (node.toolCalls[delta.index ?? 0] ??= { id: "", name: "", arguments: "" });
  if (delta.id) call.id = delta.id;
  if (delta.function?.name) call.name += delta.function.name;
  if (delta.function?.arguments) call.arguments += delta.function.arguments;
}

function readUsage(node, { usage, timings }) {
  node.stats = {
    promptTokens: usage.prompt_tokens,
    completionTokens: usage.completion_tokens,
    cachedTokens: usage.prompt_tokens_details?.cached_tokens ?? timings?.cache_n ?? 0,
    ...(Number.isFinite(timings?.predicted_per_second) ? { tokensPerSecond: timings.predicted_per_second } : {}),
    ...(timings?.prompt_ms > 0 && timings.prompt_n > 0 ? { promptPerSecond: (timings.prompt_n / timings.prompt_ms) * 1000 } : {}),
  };
}

/** Fills figures that the server did not report with measurements of the page. */
function finishStats(node, run) {
  if (node.toolCalls) node.toolCalls = node.toolCalls.filter(Boolean);
  if (run.first === null) return;
  node.stats = { completionTokens: run.tokens, ...node.stats, firstTokenSeconds: (run.first - run.started) / 1000 };
  const elapsed = (performance.now() - run.first) / 1000;
  if (node.stats.tokensPerSecond === undefined && elapsed > 0 && run.tokens > 1) node.stats.tokensPerSecond = (run.tokens - 1) / elapsed;
}
