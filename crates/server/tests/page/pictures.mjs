// Makes the pictures of the page in docs/images: a short conversation in both themes and on a phone, and the dispatch table.
//
//   npm install puppeteer-core
//   node pictures.mjs http://127.0.0.1:8080/ docs/images
//
// The server has a small instruction model. CHROMIUM and PUPPETEER as in page.mjs.

import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [, , base, folder] = process.argv;
if (!folder) {
  console.error("usage: node pictures.mjs BASE_URL FOLDER");
  process.exit(2);
}
const require = createRequire(join(process.cwd(), "pictures.mjs"));
const { default: puppeteer } = await import(process.env.PUPPETEER ?? pathToFileURL(require.resolve("puppeteer-core")).href);

const MESSAGES = ["What is gravity?", "Write a Python function that adds two numbers."];
const DESKTOP = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844, deviceScaleFactor: 2, isMobile: true, hasTouch: true };

const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--lang=en-US"] });
const page = await browser.newPage();
page.setDefaultTimeout(180_000);

async function picture(name, viewport, theme, end = true) {
  await page.setViewport(viewport);
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
  await page.evaluate((top) => { document.activeElement?.blur(); document.querySelector(".thread-scroll").scrollTop = top; }, end ? 1e6 : 0);
  await page.mouse.move(0, 0);
  // Transitions of the layout end.
  await new Promise((done) => setTimeout(done, 600));
  await page.screenshot({ path: join(resolve(folder), `${name}.png`) });
}

await page.setViewport(DESKTOP);
await page.goto(base, { waitUntil: "load" });
await page.waitForFunction(() => !document.querySelector("#model").disabled);
await page.evaluate(() => localStorage.setItem("tabla.settings", JSON.stringify({ temperature: 0 })));
await page.reload({ waitUntil: "load" });
await page.waitForFunction(() => !document.querySelector("#model").disabled);
for (const [i, message] of MESSAGES.entries()) {
  await page.focus("#composer-input");
  await page.keyboard.type(message);
  await page.keyboard.press("Enter");
  await page.waitForFunction((number) => document.querySelectorAll(".message").length === number && !document.querySelector(".message.is-running"), {}, 2 * i + 2);
}
await picture("serve-chat", DESKTOP, "light");
await picture("serve-chat-dark", DESKTOP, "dark");
await picture("serve-phone", PHONE, "light", false);

await page.setViewport(DESKTOP);
await page.click("#tab-table");
await page.waitForSelector(".dispatch tbody tr");
await page.click("#table-measure");
await page.waitForFunction(() => !document.querySelector("#table-measure").disabled && document.querySelector(".roofline .dot"));
await picture("serve-table", { ...DESKTOP, height: 860 }, "light");
// Other work on the machine lowers the measured bandwidth.
console.log(await page.$$eval(".tile", (tiles) => tiles[4].textContent));
await browser.close();
