// Generation: builds requests, reads streams and writes answers into the conversation.
// A generation continues while another conversation is shown.

import { ApiError, stream } from "./api.js";
import * as models from "./models.js";
import * as store from "./store.js";
import { readLogprobs } from "./tokens.js";

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

/** Parses the tool list of the settings. Returns an array, or throws with a reason. */
export function parseTools(source) {
  if (!source?.trim()) return [];
  let tools;
  try { tools = JSON.parse(source); } catch (error) { throw new Error(`the tools are not valid JSON: ${error.message}`); }
  if (!Array.isArray(tools)) throw new Error("expected a JSON array of tools");
  return tools.map((tool) => (tool?.type ? tool : { type: "function", function: tool }));
}

function samplerFields(settings, mode) {
  const fields = {};
  for (const name of NUMBERS) if (Number.isFinite(settings[name])) fields[name] = settings[name];
  const stops = (settings.stop ?? "").split("\n").filter((line) => line !== "").map((line) => line.replace(/\\n/g, "\n").replace(/\\t/g, "\t"));
  if (stops.length) fields.stop = stops;
  if (mode === "chat") {
    if (settings.reasoning_effort) fields.reasoning_effort = settings.reasoning_effort;
    const tools = parseTools(settings.tools);
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

/** Text of a completion-mode conversation. A space separates two texts that meet without white space. */
export function completionPrompt(nodes) {
  let text = "";
  for (const node of nodes) {
    if (text && node.role === "user" && node.content && !/\s$/.test(text) && !/^[\s.,;:!?'")\]]/.test(node.content)) text += " ";
    text += node.content;
  }
  return text;
}

function buildRequest(conversation, node, model, mode) {
  const settings = conversation.settings ?? {};
  const earlier = store.path(conversation, node.parent);
  const body = { model, stream: true, stream_options: { include_usage: true }, ...samplerFields(settings, mode) };
  const probabilities = settings.logprobs !== false;
  if (mode === "completion") {
    if (probabilities) body.logprobs = 5;
    body.max_tokens ??= COMPLETION_TOKENS;
    return { path: "v1/completions", body: { ...body, prompt: completionPrompt(earlier) } };
  }
  if (probabilities) Object.assign(body, { logprobs: true, top_logprobs: 5 });
  const messages = earlier.filter((item) => item.role !== "assistant" || item.content || item.toolCalls?.length).map(messageOf);
  if (settings.system?.trim()) messages.unshift({ role: "system", content: settings.system });
  return { path: "v1/chat/completions", body: { ...body, messages } };
}

/** Generates an answer below `parent` and adds it to the conversation. Returns when the stream ends. */
export async function generate(conversation, parent) {
  if (running.has(conversation.id)) return;
  const model = models.selected()?.id ?? conversation.model;
  const node = store.addNode(conversation, parent, { role: "assistant", model, mode: models.mode(model) });
  conversation.model = model;
  const run = { node, controller: new AbortController(), started: performance.now(), first: null, tokens: 0, rate: null };
  running.set(conversation.id, run);
  store.save(conversation, { now: true });
  emit("start", conversation, node);
  try {
    await receive(conversation, node, run);
  } catch (error) {
    if (error.name === "AbortError") node.finish = "stopped";
    else node.error = error.message;
  }
  finishStats(node, run);
  running.delete(conversation.id);
  store.save(conversation, { now: true });
  emit("end", conversation, node);
  // The first message loads a model.
  if (models.find(model)?.status === "unloaded") models.load();
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
  const { path, body } = buildRequest(conversation, node, node.model, node.mode);
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
      if (entries.length && !reasoning && !delta.tool_calls) (node.tokens ??= []).push(...entries);
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
