// Tests of the server with the AI SDK of Vercel: its providers for OpenAI, OpenAI-compatible servers and Anthropic.
//
//     npm install ai @ai-sdk/openai @ai-sdk/openai-compatible @ai-sdk/anthropic zod
//     TABLA_URL=http://127.0.0.1:8080 TABLA_MODEL=gemma node --test ai_sdk.mjs
//
// The server needs a model with a chat template. `TABLA_EMBEDDING_MODEL` is a model with embeddings, if there is one.
// The tests do not depend on the text that the model writes: schemas have enumerations only.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import path from "node:path";
import test from "node:test";
import { pathToFileURL } from "node:url";

// `TABLA_NODE_MODULES` is the folder with the packages, if it is not next to this file.
const { resolve } = createRequire(path.join(process.env.TABLA_NODE_MODULES ?? import.meta.dirname, "index.js"));
const load = (name) => import(pathToFileURL(resolve(name)));
const { embedMany, generateObject, generateText, Output, stepCountIs, streamText, tool } = await load("ai");
const { createAnthropic } = await load("@ai-sdk/anthropic");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { z } = await load("zod");

const server = (process.env.TABLA_URL ?? "http://127.0.0.1:8080").replace(/\/$/, "");
const name = process.env.TABLA_MODEL ?? "gemma";
const connection = { baseURL: `${server}/v1`, apiKey: process.env.TABLA_KEY ?? "none" };
const openai = createOpenAI(connection);
const compatible = createOpenAICompatible({
  ...connection,
  name: "tabla",
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const providers = {
  "openai chat": openai.chat,
  "openai responses": openai.responses,
  "openai-compatible": compatible,
  anthropic: createAnthropic(connection),
};

// One tool call: small models repeat calls until the token limit.
const providerOptions = {
  openai: { parallelToolCalls: false },
  tabla: { parallel_tool_calls: false },
  anthropic: { disableParallelToolUse: true },
};
const cities = ["Paris", "Rome"];
const schema = z.strictObject({ city: z.enum(cities), sunny: z.boolean() });
const weather = tool({
  description: "Get the weather of a city.",
  inputSchema: z.strictObject({ city: z.enum(cities) }),
  execute: async ({ city }) => `It is sunny in ${city}.`,
});

async function collect(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return parts;
}

function checkUsage({ inputTokens, outputTokens, totalTokens }, limit) {
  assert.equal(totalTokens, inputTokens + outputTokens);
  assert.ok(outputTokens > 0 && outputTokens <= limit);
}

for (const [title, provider] of Object.entries(providers)) {
  const model = provider(name);
  const unknown = provider("missing");
  const options = { model, temperature: 0, maxRetries: 0, maxOutputTokens: 256, providerOptions };
  const short = { ...options, maxOutputTokens: 16 };
  const messages = [{ role: "user", content: "What is the weather in Rome?" }];

  test(`${title}: a stream has the text of the whole answer`, async () => {
    const whole = await generateText({ ...short, system: "Be short.", prompt: "Say hello." });
    assert.ok(whole.text);
    checkUsage(whole.usage, 16);

    const streamed = streamText({ ...short, system: "Be short.", prompt: "Say hello." });
    const parts = await collect(streamed.textStream);
    assert.ok(parts.length > 1);
    assert.equal(parts.join(""), whole.text);
    assert.equal(await streamed.finishReason, whole.finishReason);
    checkUsage(await streamed.usage, 16);
  });

  test(`${title}: a required tool is called, and its result is accepted`, async () => {
    const tools = { weather };
    const first = await generateText({ ...options, messages, tools, toolChoice: "required" });
    const { toolCalls, toolResults, response, finishReason } = first;
    assert.equal(toolCalls.length, 1);
    assert.ok(cities.includes(toolCalls[0].input.city));
    assert.equal(toolResults.length, 1);
    assert.equal(finishReason, "tool-calls");

    const history = [...messages, ...response.messages];
    const final = await generateText({ ...short, messages: history, tools, toolChoice: "none" });
    assert.ok(final.text && final.toolCalls.length === 0);
  });

  test(`${title}: a loop of two steps in a stream`, async () => {
    const streamed = streamText({
      ...options,
      messages,
      tools: { weather },
      stopWhen: stepCountIs(2),
      prepareStep: ({ stepNumber: n }) => ({ toolChoice: n === 0 ? { type: "tool", toolName: "weather" } : "none" }),
    });
    const types = [];
    for await (const part of streamed.fullStream) {
      assert.notEqual(part.type, "error", String(part.error));
      types.push(part.type);
    }
    const [first, second] = await streamed.steps;
    assert.ok(first.toolResults.length === 1 && second.text);
    assert.ok(types.indexOf("tool-input-start") < types.indexOf("tool-call"));
    assert.ok(types.indexOf("tool-result") < types.indexOf("text-delta"));
  });

  test(`${title}: an object of a schema`, async () => {
    const { object } = await generateObject({ ...options, schema, prompt: "Rome is sunny." });
    assert.ok(schema.safeParse(object).success);
  });

  test(`${title}: an object of a schema in a stream`, async () => {
    const streamed = streamText({ ...options, output: Output.object({ schema }), prompt: "Rome is sunny." });
    const partial = await collect(streamed.partialOutputStream);
    assert.ok(partial.length > 0);
    assert.ok(schema.safeParse(partial.at(-1)).success);
  });

  test(`${title}: an aborted stream ends`, async () => {
    const abort = new AbortController();
    const long = { ...options, maxOutputTokens: 4096, prompt: "Count.", abortSignal: abort.signal };
    const streamed = streamText({ ...long, onError() {} });
    const types = [];
    for await (const part of streamed.fullStream) {
      types.push(part.type);
      if (part.type === "text-delta") abort.abort();
    }
    assert.ok(types.includes("abort"));
  });

  test(`${title}: an unknown model is an error with its name`, async () => {
    await assert.rejects(generateText({ ...short, model: unknown, prompt: "Hello" }), (error) => {
      assert.equal(error.statusCode, 404);
      assert.match(error.message, /missing/);
      return true;
    });
  });
}

const embeddings = process.env.TABLA_EMBEDDING_MODEL;
for (const [title, provider] of Object.entries({ openai, compatible })) {
  test(`${title}: embeddings`, { skip: !embeddings && "TABLA_EMBEDDING_MODEL is not set" }, async () => {
    const { embeddings: rows, usage } = await embedMany({
      model: provider.textEmbeddingModel(embeddings),
      values: ["The cat sleeps.", "A train arrives."],
    });
    assert.equal(rows.length, 2);
    assert.ok(rows[0].length > 0 && rows[0].length === rows[1].length);
    assert.ok(usage.tokens > 0);
  });
}
