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
