// Browser test of the page of `tabla serve`.
//
//   npm install puppeteer-core
//   node page.mjs http://127.0.0.1:8080/
//
// CHROMIUM: path of the browser, default /usr/bin/chromium. TABLA_KEY: API key, if the server requires one.
// PUPPETEER: path of the puppeteer-core module, default puppeteer-core from node_modules.
// SHOTS: folder for screenshots, default none.
// Prints every check and exits with status 1 at the first failure.

import { mkdtempSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const base = process.argv[2];
if (!base) {
  console.error("usage: node page.mjs BASE_URL");
  process.exit(2);
}
// Resolution starts in the current folder, because the repository has no node_modules.
const require = createRequire(join(process.cwd(), "page.mjs"));
const { default: puppeteer } = await import(process.env.PUPPETEER ?? pathToFileURL(require.resolve("puppeteer-core")).href);

const origin = new URL(base).origin;
const LOAD_TIMEOUT = 180_000;
const folder = mkdtempSync(join(tmpdir(), "tabla-page-"));
const problems = [];
let checks = 0;

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
function check(condition, text) {
  if (!condition) throw new Error(text);
  checks += 1;
  console.log(`ok   ${text}`);
}
const note = (text) => console.log(`note ${text}`);

const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--lang=en-US"] });
const page = await browser.newPage();
page.setDefaultTimeout(30_000);
// The browser logs the 401 that makes the page ask for the key.
page.on("console", (message) => { if (message.type() === "error" && !(process.env.TABLA_KEY && message.text().includes("401"))) problems.push(`console: ${message.text()}`); });
page.on("pageerror", (error) => problems.push(`exception: ${error.stack ?? error}`));
page.on("request", (request) => {
  const url = request.url();
  if (!url.startsWith("data:") && !url.startsWith("blob:") && new URL(url).origin !== origin) problems.push(`request to another host: ${url}`);
});

const shot = async (name) => { if (process.env.SHOTS) await page.screenshot({ path: join(process.env.SHOTS, `${name}.png`) }); };
const text = (selector) => page.$eval(selector, (node) => node.textContent);
const all = (selector) => page.$$eval(selector, (nodes) => nodes.length);
const until = (read, ...args) => page.waitForFunction(read, {}, ...args);
const running = () => page.$eval("#composer-send", (node) => node.getAttribute("aria-label") === "Stop");
const idle = () => page.waitForFunction(() => document.querySelector("#composer-send").getAttribute("aria-label") === "Send" && !document.querySelector(".message.is-running"), { timeout: LOAD_TIMEOUT });
const chord = async (modifier, key) => { await page.keyboard.down(modifier); await page.keyboard.press(key); await page.keyboard.up(modifier); };
const answers = () => page.$$eval(".message-assistant", (nodes) => nodes.map((node) => (node.querySelector(".token-view:not([hidden]) .token-text") ?? node.querySelector(".message-text")).textContent));

async function open() {
  await page.goto(base, { waitUntil: "load" });
  if (process.env.TABLA_KEY) {
    await page.waitForSelector("#key-dialog[open]");
    await page.type("#key-input", process.env.TABLA_KEY);
    await page.keyboard.press("Enter");
    await until(() => !document.querySelector("#key-dialog").open);
    check(true, "the page asks for the API key");
  }
  await until(() => { const select = document.querySelector("#model"); return !select.disabled && select.value !== "" && !select.value.startsWith("Loading"); });
}

async function setField(selector, value) {
  if (await page.$eval("#settings", (node) => node.hidden)) await page.click("#settings-toggle");
  await page.waitForSelector(selector);
  await page.$eval(selector, (node, next) => { node.value = next; node.dispatchEvent(new Event("input", { bubbles: true })); }, value);
  await page.click("#settings-toggle");
}

async function newConversation() {
  await chord("Alt", "n");
  await page.waitForSelector(".example");
}

async function send(message) {
  await page.focus("#composer-input");
  await page.keyboard.type(message);
  await page.keyboard.press("Enter");
  await page.waitForSelector(".message-assistant");
}

async function checkHeaders() {
  const response = await page.goto(base);
  const policy = response.headers()["content-security-policy"] ?? "";
  check(/default-src 'none'/.test(policy) && /script-src 'self'/.test(policy) && /style-src 'self'/.test(policy), "the server sends the content security policy");
  check(!/unsafe/.test(policy), "the content security policy allows no inline code");
}

/** Chat or completion with one model: stream, probabilities, regenerate, edit, reload, stop. */
async function conversation(model, mode) {
  console.log(`---- ${model.id} (${mode})`);
  await newConversation();
  await page.select("#model", model.id);
  await wait(300);
  check(await page.$eval("#model", (select) => select.value) === model.id, "the model is selected");
  await setField("#setting-max_tokens", "48");
  await send(mode === "chat" ? "Say hello in one short sentence." : "Once upon a time, there was a");
  await idle();
  check(await all(".message-note.is-error") === 0, `no error: ${(await page.$$eval(".message-note.is-error", (nodes) => nodes.map((node) => node.textContent))).join()}`);
  const reasoned = await all(".reasoning") > 0;
  const [first] = await answers();
  check(first.length > 0 || reasoned, `an answer arrived (${first.length} characters)`);
  check(/tok\/s|token/.test(await text(".message-assistant .message-figures")), `figures: ${await text(".message-assistant .message-figures")}`);
  check(/\d/.test(await text(".meter-text")), `context fill: ${await text(".meter-text")}`);
  await until(() => /complete/.test(document.querySelector("#live").textContent));
  check(true, "the end of the answer is announced");
  check(await page.evaluate(() => location.hash.startsWith("#/chat/")), "the conversation has an address");
  if (reasoned) check(await page.$eval(".reasoning", (node) => !node.open), "reasoning is folded");

  if (first.length > 0) await probabilities();

  await page.focus(".message-assistant");
  await page.$eval('.message-assistant [aria-label="Regenerate"]', (node) => node.click());
  await until(() => document.querySelector(".versions")?.textContent.includes("2/2"));
  await idle();
  check((await answers()).length === 1, "regenerate replaces the answer and keeps a version");
  const second = (await answers())[0];
  await page.$eval('[aria-label="Previous version"]', (node) => node.click());
  await until(() => document.querySelector(".versions")?.textContent.includes("1/2"));
  check((await answers())[0] === first, "the previous version is shown again");
  await page.$eval('[aria-label="Next version"]', (node) => node.click());
  check((await answers())[0] === second, "the next version is shown again");

  await page.$eval('.message-user [aria-label="Edit"]', (node) => node.click());
  await page.waitForSelector(".edit-input");
  await page.keyboard.type(" and then");
  await page.keyboard.press("Enter");
  await until(() => document.querySelector(".message-user .versions")?.textContent.includes("2/2"));
  await idle();
  check((await text(".message-user .message-text")).endsWith("and then"), "an edited message is sent as a new version");

  const before = { answers: await answers(), hash: await page.evaluate(() => location.hash) };
  await wait(300);
  await page.reload({ waitUntil: "load" });
  await page.waitForSelector(".message-assistant");
  check(JSON.stringify(await answers()) === JSON.stringify(before.answers) && before.hash === await page.evaluate(() => location.hash), "the conversation survives a reload");
  await until((id) => document.querySelector("#model").value === id, model.id);
  check(true, "the reloaded conversation selects its model");

  await setField("#setting-max_tokens", "");
  await send(mode === "chat" ? "Write a very long story about the sea." : " The sea was");
  await until(() => document.querySelectorAll(".message-assistant").length === 2);
  await page.waitForFunction(() => document.querySelector("#composer-send").getAttribute("aria-label") === "Send" || [...document.querySelectorAll(".message-assistant")].at(-1).textContent.length > 80, { timeout: LOAD_TIMEOUT });
  const active = await running();
  await page.focus("#composer-input");
  await page.keyboard.press("Escape");
  await idle();
  const stopped = await page.$$eval(".message-assistant", (nodes) => /Stopped/.test(nodes.at(-1).textContent));
  if (active && stopped) check(true, "Escape stops the generation and keeps the text");
  else note("the generation ended before it was stopped");
  check(await all(".message-note.is-error") === 0, "no error after the stop");
  if (stopped) {
    const earlier = (await answers()).at(-1);
    await setField("#setting-max_tokens", "16");
    await page.$$eval(".message-note button", (nodes) => nodes.find((node) => node.textContent === "Continue").click());
    await until((length) => [...document.querySelectorAll(".message-assistant .message-text")].at(-1).textContent.trim().length > length, earlier.trim().length);
    await idle();
    const later = (await answers()).at(-1);
    check(later.startsWith(earlier.trimEnd()) && later.length > earlier.length, "Continue extends the stopped answer");
  }
}

async function probabilities() {
  await page.$eval('.message-assistant [aria-label="Token probabilities"]', (node) => node.click());
  await page.waitForSelector(".token");
  const shown = await page.$$eval(".token", (nodes) => nodes.map((node) => node.textContent).join(""));
  check(shown.length > 0, `${await all(".token")} tokens are coloured`);
  await page.hover(".token");
  await page.waitForSelector("#token-tooltip:not([hidden])");
  check(await all("#token-tooltip .alternative") >= 1 && /%/.test(await text("#token-tooltip")), `alternatives on hover: ${await all("#token-tooltip .alternative")}`);
  await page.mouse.move(1, 1);
  await page.focus('.token[tabindex="0"]');
  await page.waitForSelector("#token-tooltip:not([hidden])");
  check(await page.evaluate(() => document.activeElement.getAttribute("aria-describedby") === "token-tooltip"), "alternatives on keyboard focus");
  if (await all(".token") > 1) {
    const from = await page.evaluate(() => Number(document.activeElement.dataset.token));
    await page.keyboard.press(from === 0 ? "ArrowRight" : "ArrowLeft");
    check(await page.evaluate(() => Number(document.activeElement.dataset.token)) !== from, "arrow keys move between tokens");
  }
  await page.keyboard.press("Escape");
  await page.$eval('.message-assistant [aria-label="Token probabilities"]', (node) => node.click());
  await page.waitForSelector(".token-view", { hidden: true });
}

/** Import of hostile text, export, rename, search, delete with undo. */
async function conversations() {
  console.log("---- conversations");
  const hostile = "![x](https://example.com/x.png) <img src=https://example.com/y.png onerror=alert(1)> [a](javascript:alert(1)) [b](https://example.com/)\n\n<script>alert(1)</script>\n\n```html\n<b>code</b>\n```\n\n| a | b |\n|---|---|\n| 1 | **2** |";
  const node = (id, parent, role, content) => ({ id, parent, role, content, created: 1 });
  const file = join(folder, "import.json");
  writeFileSync(file, JSON.stringify({ format: "tabla-conversations", version: 1, conversations: [{ title: "Imported text", created: 1, updated: Date.now(), leaf: "2", settings: {}, nodes: { 1: node("1", null, "user", "<b>markup</b>"), 2: node("2", "1", "assistant", hostile) } }] }));
  await page.click("#more-menu");
  const [chooser] = await Promise.all([page.waitForFileChooser(), page.$$eval(".menu-item", (items) => items[0].click())]);
  await chooser.accept([file]);
  await until(() => [...document.querySelectorAll(".conversation-title")].some((item) => item.textContent === "Imported text"));
  await page.$$eval(".conversation-open", (links) => links.find((link) => link.textContent === "Imported text").click());
  await page.waitForSelector(".message-assistant .code-block");
  check(await all(".thread img, .thread script, .thread b, .thread iframe") === 0, "markup in messages stays text");
  const links = await page.$$eval(".thread a", (items) => items.map((item) => [item.protocol, item.rel]));
  check(links.length >= 2 && links.every(([protocol, rel]) => protocol === "https:" && rel.includes("noopener")), "only http and https links, with rel=noopener");
  check(await all(".thread table") === 1, "a Markdown table is rendered");

  const client = await page.createCDPSession();
  await client.send("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: folder });
  await page.click("#more-menu");
  await page.$$eval(".menu-item", (items) => items[1].click());
  for (let i = 0; i < 50 && !readdirSync(folder).some((name) => /^tabla-.*\.json$/.test(name)); i += 1) await wait(100);
  const exported = JSON.parse(readFileSync(join(folder, readdirSync(folder).find((name) => /^tabla-.*\.json$/.test(name))), "utf8"));
  check(exported.conversations.some((item) => item.title === "Imported text"), `export contains ${exported.conversations.length} conversations`);

  await page.focus(".is-current .conversation-open");
  await page.keyboard.press("F2");
  await page.waitForSelector(".rename-input");
  await page.keyboard.type("Renamed text");
  await page.keyboard.press("Enter");
  await until(() => document.querySelector(".is-current .conversation-title")?.textContent === "Renamed text");
  check(true, "a conversation is renamed");
  const total = await all(".conversation");
  await page.type("#conversation-search", "renamed");
  check(await all(".conversation") === 1, "search finds it");
  await page.$eval("#conversation-search", (input) => { input.value = ""; input.dispatchEvent(new Event("input")); });
  await page.focus(".is-current .conversation-open");
  await page.keyboard.press("Delete");
  await page.waitForSelector(".toast-action");
  check(await all(".conversation") === total - 1, "a conversation is deleted");
  await page.click(".toast-action");
  await until((number) => document.querySelectorAll(".conversation").length === number, total);
  check(await page.waitForSelector(".message-assistant .code-block") !== null, "the deletion is undone");
}

const MODEL = { object: "model", status: "loaded", context_length: 1000 };
const CHAT = { ...MODEL, capabilities: ["completion", "chat"] };
const EMBEDDER = { ...MODEL, id: "embedder", capabilities: ["embeddings"] };

/**
 * Opens the page with prepared answers of the API: `models`, and `chat`, a function of the request.
 * It returns `text` of an answer with its `finish` and `usage`, or `error` with its `status`.
 */
async function openPrepared(state) {
  const context = await browser.createBrowserContext();
  const tab = await context.newPage();
  await tab.setViewport({ width: 1280, height: 800 });
  tab.setDefaultTimeout(30_000);
  tab.on("pageerror", (error) => problems.push(`exception: ${error.stack ?? error}`));
  await tab.setRequestInterception(true);
  tab.on("request", (request) => {
    const { pathname } = new URL(request.url());
    const json = (body, status = 200) => request.respond({ status, contentType: "application/json", body: JSON.stringify(body) });
    if (pathname.endsWith("/v1/models")) return state.offline ? request.abort() : json({ object: "list", data: state.models });
    if (pathname.endsWith("/props")) return json({ default_generation_settings: { n_ctx: 1000, params: {} } });
    if (!pathname.endsWith("/v1/chat/completions")) return request.continue();
    const body = JSON.parse(request.postData());
    state.requests.push(body);
    const { text, finish = "stop", usage = [10, 5], error, status } = state.chat(body);
    if (error) return json({ error }, status);
    const events = [...text].map((content) => ({ choices: [{ delta: { content } }] }));
    events.push({ choices: [{ delta: {}, finish_reason: finish }] }, { choices: [], usage: { prompt_tokens: usage[0], completion_tokens: usage[1] } });
    request.respond({ status: 200, contentType: "text/event-stream", body: `${events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("")}data: [DONE]\n\n` });
  });
  state.requests = [];
  await tab.goto(base, { waitUntil: "load" });
  await tab.waitForFunction(() => !document.querySelector("#model").textContent.startsWith("Loading"));
  const press = (name) => tab.evaluate((text) => [...document.querySelectorAll("#panel-chat button, .toast button")].findLast((node) => node.textContent === text || node.getAttribute("aria-label") === text).click(), name);
  return {
    tab, press,
    close: () => context.close(),
    say: async (message) => {
      await tab.focus("#composer-input");
      await tab.keyboard.type(message);
      await tab.keyboard.press("Enter");
    },
    ended: (number) => tab.waitForFunction((expected) => document.querySelectorAll(".message").length === expected && !document.querySelector(".message.is-running"), {}, number),
    texts: () => tab.$$eval(".message .message-text", (nodes) => nodes.map((node) => node.textContent)),
    model: () => tab.$eval("#model", (node) => node.value),
    shows: (text) => tab.waitForFunction((part) => document.body.innerText.includes(part), {}, text),
  };
}

const lastMessage = (state) => state.requests.at(-1).messages.at(-1);

async function modelSelector() {
  console.log("---- model selector");
  const state = { models: [EMBEDDER, { ...CHAT, id: "writer" }, { id: "lazy", object: "model", status: "unloaded" }] };
  state.chat = ({ model }) => {
    if (model !== "lazy") return { text: "Fine." };
    state.models = [...state.models.slice(0, 2), { ...EMBEDDER, id: "lazy" }];
    return { status: 400, error: { message: "the model lazy is an encoder: it computes embeddings and does not generate text" } };
  };
  const { tab, press, say, ended, texts, model, shows, close } = await openPrepared(state);
  check(await tab.$$eval("#model option", (nodes) => nodes.map((node) => node.value).join()) === "writer,lazy", "only models that may generate text are offered");
  check(await model() === "writer", "the first of them is selected");
  await tab.select("#model", "lazy");
  await say("Hi");
  await ended(2);
  await shows("lazy does not generate text. writer is selected.");
  check(await model() === "writer", "after the error of an encoder, another model is selected");
  await press("Retry");
  await ended(2);
  check(state.requests.at(-1).model === "writer" && (await texts()).at(-1) === "Fine.", "the next request has the model that the selector shows");
  check(await tab.$(".versions") === null, "an answer that failed before its first token is no version");
  state.models = [{ ...CHAT, id: "other" }];
  state.chat = ({ model: name }) => (name === "other" ? { text: "Other." } : { status: 404, error: { message: "the model writer does not exist", code: "model_not_found" } });
  await say("Again");
  await ended(4);
  await shows("The server no longer has writer. other is selected.");
  check(await model() === "other", "after a restart with other models, one of them is selected");
  await close();

  const none = { models: [EMBEDDER, { ...MODEL, id: "whisper", capabilities: ["transcription"] }], chat: () => ({ text: "" }) };
  const empty = await openPrepared(none);
  await empty.shows("No model of this server generates text (embedder: embeddings; whisper: transcription)");
  check(await empty.tab.$eval("#composer-input", (node) => node.disabled) && await empty.tab.$eval("#model", (node) => node.disabled && node.textContent === "No model"), "without a model that generates text, the page says so");
  const table = empty.tab.waitForRequest((request) => request.url().includes("table?model=embedder"));
  await empty.tab.click("#tab-table");
  check(await table !== null, "the dispatch table is that of the first model");
  await empty.close();
}

async function continuation() {
  console.log("---- continued, deleted and left out messages");
  const state = { models: [{ ...CHAT, id: "writer" }] };
  const answers = [{ text: "One, two", finish: "length", usage: [10, 2] }, { text: ", three.", usage: [12, 3] }];
  state.chat = () => answers.shift();
  const { tab, press, say, ended, texts, shows, close } = await openPrepared(state);
  await say("Count");
  await ended(2);
  await shows("The answer reached the maximum number of tokens.");
  await press("Continue");
  await shows("three");
  await ended(2);
  const sent = lastMessage(state);
  check(sent.role === "assistant" && sent.content === "One, two" && state.requests.at(-1).messages.length === 2, "Continue sends the answer as the last message");
  check((await texts()).at(-1) === "One, two, three.", "the text continues the answer");
  check(/5 tokens/.test(await tab.$eval(".message-assistant .message-figures", (node) => node.textContent)), "both parts are counted");
  check(await tab.$eval(".message-assistant .message-note", (node) => node.hidden), "a complete answer has no button");

  answers.push({ text: "B." }, { text: "C." });
  await say("Second");
  await ended(4);
  await tab.$$eval('.message-user [aria-label="Delete"]', (nodes) => nodes[1].click());
  check((await texts()).join("|") === "Count|One, two, three.|B.", "one message is deleted");
  await press("Undo");
  check((await texts()).join("|") === "Count|One, two, three.|Second|B.", "the deletion is undone");
  await tab.$$eval('.message-assistant [aria-label="Delete"]', (nodes) => nodes[1].click());
  await press("Generate an answer");
  await ended(4);
  check((await texts()).at(-1) === "C.", "a question whose answer was deleted is answered again");
  await tab.$$eval('.message-assistant [aria-label="Delete"]', (nodes) => nodes[0].click());
  answers.push({ text: "D." });
  await say("Third");
  await ended(5);
  check(JSON.stringify(state.requests.at(-1).messages.map(({ role, content }) => [role, content])) === '[["user","Count\\n\\nSecond"],["assistant","C."],["user","Third"]]', "the roles of a request alternate after a deletion");

  const full = { status: 400, error: { message: "prompt is too long", code: "context_length_exceeded", n_prompt_tokens: 1200, n_ctx: 1000 } };
  answers.push(full, { text: "E.", finish: "length", usage: [900, 100] }, { text: " F." });
  await say("Fourth");
  await ended(7);
  await shows("The context of 1,000 tokens is full.");
  await press("Drop the oldest messages and retry");
  await shows("The model no longer receives the messages above.");
  await ended(7);
  check(state.requests.at(-1).messages[0].content !== "Count\n\nSecond" && lastMessage(state).content === "Fourth", "the oldest messages are left out");
  check(await tab.$$eval(".message", (nodes) => nodes.length) === 7, "they stay in the thread");
  await press("Include them again");
  check(await tab.$(".context-divider") === null, "they can be included again");
  await press("Drop the oldest messages and continue");
  await shows("E. F.");
  check(lastMessage(state).content === "E.", "an answer that ended at the end of the context is continued");
  await close();
}

async function formulas() {
  console.log("---- formulas, tools, reference");
  const state = { models: [{ ...CHAT, id: "writer" }] };
  state.chat = () => ({ text: "It costs $5 and $6, and \\(x^2\\) is\n\n\\[ \\frac{a}{b} = \\foo \\]\n\n`\\(y\\)` \\(\\text{<img src=x onerror=alert(1)>}\\) $$\\frac{a}$$" });
  const { tab, say, ended, texts, shows, close } = await openPrepared(state);
  await say("Formulas");
  await ended(2);
  const seen = await tab.evaluate(() => {
    const box = (selector) => document.querySelector(selector).getBoundingClientRect();
    const size = (selector) => Number.parseFloat(getComputedStyle(document.querySelector(selector)).fontSize);
    const [power, fraction] = document.querySelectorAll(".message-assistant math");
    return {
      raised: box("msup > :nth-child(2)").bottom < box("msup > :first-child").bottom && size("msup > :nth-child(2)") < size("msup > :first-child"),
      above: box("mfrac > :first-child").bottom <= box("mfrac > :nth-child(2)").top,
      centred: Math.abs(box(".math-scroll").left + box(".math-scroll").width / 2 - box("mfrac").left) < 60,
      namespace: power.namespaceURI, display: fraction.getAttribute("display"),
      unknown: document.querySelector(".math-unknown").textContent,
      code: document.querySelector(".message-assistant p > code").textContent,
      broken: document.querySelector("code.math-source").textContent,
      text: document.querySelector(".message-assistant p").textContent,
      images: document.querySelectorAll(".thread img").length,
    };
  });
  check(seen.raised && seen.namespace.endsWith("MathML"), "an exponent is smaller and raised");
  check(seen.above && seen.centred && seen.display === "block", "a fraction has its numerator above its denominator, in a line of its own");
  check(seen.unknown === "\\foo" && seen.broken === "$$\\frac{a}$$", "unknown commands and broken formulas are shown as their source");
  check(seen.code === "\\(y\\)" && seen.text.includes("$5 and $6") && seen.images === 0, "code, amounts of money and markup are no formulas");

  state.chat = () => ({ text: "| a | b |\n|---|---|\n| sequential | x |\n\nשלום\n\n> שלום\n\n1. שלום\n\n```\ncode\n```" });
  await say("Tables");
  await ended(4);
  await tab.setViewport({ width: 390, height: 800 });
  const layout = await tab.evaluate(() => {
    const message = [...document.querySelectorAll(".message-assistant")].at(-1);
    const side = (selector) => getComputedStyle(message.querySelector(selector)).direction;
    return {
      sides: [".markdown > p", "blockquote", "ol", "pre"].map(side).join(),
      lines: message.querySelector("td").getBoundingClientRect().height < 45,
    };
  });
  check(layout.sides === "rtl,rtl,rtl,ltr" && layout.lines, "text from right to left has its direction, code has not, words in tables are not broken");
  await tab.setViewport({ width: 1280, height: 800 });

  await tab.click("#settings-toggle");
  await tab.focus("#setting-tools");
  await tab.keyboard.type('[{"name": "f"');
  check(await tab.$eval("#setting-tools-error", (node) => node.textContent) === 'line 1, column 14: expected "," or "}", got the end', "the place of an error in the tools is named");
  await say("Tools");
  await shows("The tools in the settings are not valid: line 1, column 14");
  check((await texts()).length === 6 && state.requests.length === 2, "a request with invalid tools is not sent");
  await tab.focus("#setting-tools");
  await tab.keyboard.press("End");
  await tab.keyboard.type("}]");
  check(await tab.$eval("#setting-tools-error", (node) => node.hidden), "valid tools have no error");

  await tab.evaluate(() => sessionStorage.setItem("tabla.key", "secret"));
  const [opened] = await Promise.all([new Promise((resolve) => tab.once("popup", resolve)), tab.click("#reference-link")]);
  await opened.waitForFunction(() => document.querySelectorAll("details, [role=alert]").length > 0);
  check(await opened.evaluate(() => sessionStorage.getItem("tabla.key")) === "secret" && opened.url().endsWith("/reference"), "the link to the API reference keeps the key");
  await close();
}

async function dispatchTable() {
  console.log("---- dispatch table");
  await page.click("#tab-table");
  await page.waitForSelector(".dispatch tbody tr", { timeout: LOAD_TIMEOUT });
  check(await all(".dispatch tbody tr") > 0, `${await all(".dispatch tbody tr")} rows`);
  if (await all(".group-toggle") > 0) {
    const rows = await all(".command-row");
    await page.click(".group-toggle");
    check(await all(".command-row") > rows, "a layer unfolds");
  }
  await page.click("#table-measure");
  await page.waitForFunction(() => !document.querySelector("#table-measure").disabled, { timeout: LOAD_TIMEOUT });
  check(await page.$eval(".dispatch", (table) => table.classList.contains("is-measured")), "a measurement fills the times");
  await page.waitForSelector(".roofline .dot");
  check(await all(".roofline .dot") >= 1, `${await all(".roofline .dot")} operations in the roofline`);
  if (await all(".roofline .roof") === 0) note("the server reports no memory bandwidth");
  await page.$eval(".roofline .dot", (dot) => dot.focus());
  check(await page.$eval(".roofline-tip", (tip) => !tip.hidden), "a dot of the roofline explains itself on focus");
  await shot("table");
}

async function metrics() {
  console.log("---- metrics");
  await page.click("#tab-metrics");
  await page.waitForFunction(() => [...document.querySelectorAll("#panel-metrics .tile-value")][2].textContent !== "–");
  await wait(4500);
  check(await all("#panel-metrics .line") >= 3, `${await all("#panel-metrics .line")} lines are drawn`);
  check(await all("#panel-metrics .bar") >= 1, `${await all("#panel-metrics .bar")} histogram bars are drawn`);
  check(/p50.*p99/.test(await text(".chart-quantiles")), `quantiles: ${await text(".chart-quantiles")}`);
  check(await all("#panel-metrics .feed-status.is-error") === 0, "the feed has no error");
  await page.focus("#panel-metrics .chart-plot[tabindex]");
  await page.keyboard.press("ArrowLeft");
  check(await page.$eval("#panel-metrics .chart-tip", (tip) => !tip.hidden), "arrow keys read a chart");
  await shot("metrics");
}

async function appearance() {
  console.log("---- appearance and accessibility");
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
  const light = await background();
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
  const dark = await background();
  check(light !== dark, `the page follows the system theme (${light}, ${dark})`);
  await page.click("#theme-toggle");
  check(await background() === light, "the toggle selects the light theme");
  await page.click("#theme-toggle");
  check(await page.evaluate(() => document.documentElement.dataset.theme) === "dark", "the toggle selects the dark theme");
  await shot("dark");
  await page.click("#theme-toggle");
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
  const unnamed = await page.$$eval("button, input, select, textarea, a[href]", (nodes) => nodes.filter((node) => !(node.getAttribute("aria-label") || node.getAttribute("aria-labelledby") || node.textContent.trim() || node.labels?.length)).map((node) => node.outerHTML.slice(0, 120)));
  check(unnamed.length === 0, `every control has a name ${unnamed.join(" ")}`);
  const duplicates = await page.evaluate(() => { const ids = [...document.querySelectorAll("[id]")].map((node) => node.id); return ids.filter((id, i) => ids.indexOf(id) !== i); });
  check(duplicates.length === 0, `identifiers are unique ${duplicates.join(" ")}`);
  await page.click("#tab-chat");
  await page.waitForSelector("#panel-chat", { visible: true });
  await page.focus("#tab-chat");
  await page.keyboard.press("ArrowRight");
  await page.waitForSelector("#panel-table", { visible: true });
  check(true, "arrow keys change the tab");
  await page.click("#tab-chat");
  await page.waitForSelector("#panel-chat", { visible: true });
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("Tab");
  await page.$eval("#skip-link", (link) => link.focus());
  await page.keyboard.press("Enter");
  check(await page.evaluate(() => document.activeElement.id === "composer-input"), "the skip link leads to the message box");
}

async function phone() {
  console.log("---- phone");
  await page.setViewport({ width: 390, height: 844, deviceScaleFactor: 2, isMobile: true, hasTouch: true });
  await page.reload({ waitUntil: "load" });
  await until(() => !document.querySelector("#model").disabled);
  for (const name of ["chat", "table", "metrics"]) {
    await page.click(`#tab-${name}`);
    await wait(600);
    const width = await page.evaluate(() => [document.documentElement.scrollWidth, ...[...document.querySelectorAll(".panel:not([hidden]), .thread-scroll, .page")].filter((node) => node.clientWidth).map((node) => node.scrollWidth)]);
    check(width.every((value) => value <= 390), `${name}: no horizontal overflow (${width.join(", ")})`);
    await shot(`phone-${name}`);
  }
  await page.click("#tab-chat");
  check(await page.$eval("#composer-send", (node) => { const box = node.getBoundingClientRect(); return box.bottom <= innerHeight && box.right <= innerWidth; }), "the send button is in view");
  await page.click("#sidebar-toggle");
  await wait(400);
  check(await page.$eval("#sidebar", (node) => node.getBoundingClientRect().left >= 0 && !node.inert), "the conversations open");
  check(await page.$eval("#main", (node) => node.inert), "the rest is inert");
  await page.keyboard.press("Escape");
  await wait(400);
  check(await page.$eval("#sidebar", (node) => node.getBoundingClientRect().right <= 0 && node.inert), "Escape closes the conversations");
  await page.click("#settings-toggle");
  check(await page.$eval("#settings", (node) => !node.hidden && node.getBoundingClientRect().right <= innerWidth), "the settings open");
  await page.keyboard.press("Escape");
}

async function run() {
  await page.setViewport({ width: 1360, height: 860 });
  await checkHeaders();
  await open();
  await page.waitForSelector(".example");
  check(await all(".example") === 4, "the empty state offers examples");
  const models = await page.evaluate(async () => {
    const api = await import("./page/api.js");
    return (await api.getJson("v1/models")).data;
  });
  const able = (model, name) => !Array.isArray(model.capabilities) || model.capabilities.includes(name);
  const chat = models.find((model) => able(model, "chat"));
  const completion = models.find((model) => Array.isArray(model.capabilities) && model.capabilities.includes("completion") && !model.capabilities.includes("chat"));
  check(chat || completion, `models: ${models.map((model) => model.id).join(", ")}`);
  if (completion) await conversation(completion, "completion");
  if (chat) await conversation(chat, "chat");
  await shot("chat");
  await conversations();
  await modelSelector();
  await continuation();
  await formulas();
  await dispatchTable();
  await metrics();
  await appearance();
  await phone();
  check(problems.length === 0, `no console error and no request to another host ${problems.join("\n")}`);
}

try {
  await run();
  console.log(`${checks} checks passed`);
} catch (error) {
  console.error(`FAIL ${error.message}`);
  for (const problem of problems) console.error(`     ${problem}`);
  await shot("failure");
  process.exitCode = 1;
} finally {
  await browser.close();
}
