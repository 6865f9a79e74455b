// HTTP client of the server: JSON requests, server-sent events, API key.

/** Base URL of the API. Relative to this module, so that the page works below a path prefix. */
const BASE = new URL("../", import.meta.url);
const KEY = "tabla.key";

/** Error answer of the server, or a failed connection (`status` 0). `fields`: other fields of the error object. */
export class ApiError extends Error {
  constructor(status, message, fields = {}) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = fields.code ?? null;
    this.fields = fields;
  }
}

/** API key of this browser session, or an empty string. */
export function apiKey() {
  try { return sessionStorage.getItem(KEY) ?? ""; } catch { return ""; }
}

function setApiKey(value) {
  try { sessionStorage.setItem(KEY, value); } catch { /* storage is blocked: the key is asked again */ }
}

let keyPrompt = null;
let keyRequest = null;

/** Sets the function that asks for an API key. It returns a promise of the key, or of null where the user cancels. */
export function onKeyRequired(ask) {
  keyPrompt = ask;
}

/** Asks for the key once, even when several requests fail at the same time. */
function requestKey(rejected) {
  keyRequest ??= Promise.resolve(keyPrompt?.(rejected)).then((value) => {
    if (value) setApiKey(value);
    return value;
  }).finally(() => { keyRequest = null; });
  return keyRequest;
}

async function send(path, { method = "GET", body, signal } = {}) {
  for (;;) {
    const key = apiKey();
    const headers = {};
    if (key) headers.authorization = `Bearer ${key}`;
    if (body !== undefined) headers["content-type"] = "application/json";
    let response;
    try {
      response = await fetch(new URL(path, BASE), {
        method, headers, signal, cache: "no-store", credentials: "same-origin", redirect: "error",
        body: body === undefined ? undefined : JSON.stringify(body),
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(0, "the server is not reachable");
    }
    if (response.ok) return response;
    if (response.status === 401 && keyPrompt) {
      // Another request may have set a new key while this one was in flight.
      if (apiKey() !== key || await requestKey(key !== "")) continue;
    }
    throw await readError(response);
  }
}

async function readError(response) {
  let message = `the server answered with status ${response.status}`;
  let fields = {};
  try {
    const { error } = await response.json();
    if (typeof error?.message === "string") message = error.message;
    else if (typeof error === "string") message = error;
    if (error && typeof error === "object") fields = error;
  } catch {
    // The body is not JSON: keep the status.
  }
  return new ApiError(response.status, message, fields);
}

export async function getJson(path, signal) {
  const response = await send(path, { signal });
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(response.status, `the answer to ${path} is not JSON`);
  }
}

export async function getText(path, signal) {
  return (await send(path, { signal })).text();
}

/** Incremental parser of a server-sent event stream. `push` returns the data of every complete event. */
export class EventParser {
  #rest = "";
  #data = [];

  push(text) {
    const events = [];
    this.#rest += text;
    let start = 0;
    for (;;) {
      const end = this.#rest.indexOf("\n", start);
      if (end < 0) break;
      const line = this.#rest.slice(start, this.#rest[end - 1] === "\r" ? end - 1 : end);
      start = end + 1;
      if (line === "") {
        if (this.#data.length) events.push(this.#data.join("\n"));
        this.#data = [];
      } else if (line.startsWith("data:")) {
        this.#data.push(line.slice(line[5] === " " ? 6 : 5));
      }
      // Comments (keep-alive) and other fields are ignored.
    }
    this.#rest = this.#rest.slice(start);
    return events;
  }
}

/**
 * Posts a streaming request and yields each event as parsed JSON until `[DONE]`.
 * Throws `ApiError` for an error event and `AbortError` when `signal` aborts.
 */
export async function* stream(path, body, signal) {
  const response = await send(path, { method: "POST", body, signal });
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const parser = new EventParser();
  let finished = false;
  try {
    for (;;) {
      let part;
      try {
        part = await reader.read();
      } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new ApiError(0, "the connection to the server was lost");
      }
      const text = part.done ? `${decoder.decode()}\n\n` : decoder.decode(part.value, { stream: true });
      for (const data of parser.push(text)) {
        if (data === "[DONE]") { finished = true; return; }
        const event = JSON.parse(data);
        if (event.error) throw new ApiError(response.status, event.error.message ?? "the server reported an error", event.error);
        yield event;
      }
      if (part.done) { finished = true; return; }
    }
  } finally {
    if (!finished) reader.cancel().catch(() => {});
  }
}
