// Tests of the functions of the page under Node.js: formulas, Markdown, tools, context, deleted messages.
//
//   node unit.mjs
//
// Prints a line for each failure and exits with status 1, or prints the number of checks.

import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

// The files of the page are modules, which older versions of Node.js only recognize from a package.json.
const folder = mkdtempSync(join(tmpdir(), "tabla-unit-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
cpSync(fileURLToPath(new URL("../../page", import.meta.url)), folder, { recursive: true });
writeFileSync(join(folder, "package.json"), '{"type": "module"}');
const load = (name) => import(pathToFileURL(join(folder, name)).href);

/** The part of a DOM that the modules use, with the XML of an element as its text. */
class Node {
  constructor(tag) { this.tagName = tag; this.attributes = {}; this.childNodes = []; this.dataset = {}; }
  append(...children) { for (const child of children) { this.childNodes.push(child); } }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  addEventListener() {}
  set className(value) { this.attributes.class = value; }
  set textContent(value) { this.childNodes = [String(value)]; }
  get xml() {
    const attributes = Object.entries(this.attributes).map(([name, value]) => ` ${name}="${escape(value)}"`).join("");
    return `<${this.tagName}${attributes}>${this.childNodes.map(xmlOf).join("")}</${this.tagName}>`;
  }
}
const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
const xmlOf = (node) => (node instanceof Node ? node.xml : escape(String(node)));
globalThis.document = { createElement: (tag) => new Node(tag), createElementNS: (_, tag) => new Node(tag), addEventListener() {}, getElementById: () => null };
globalThis.window = globalThis;

const { parseLatex } = await load("latex.js");
const { parse, inline } = await load("markdown.js");
const { parseTools } = await load("tools.js");
const context = await load("context.js");
const store = await load("store.js");

let checks = 0;
function equal(found, expected, what) {
  checks += 1;
  const [a, b] = [found, expected].map((value) => (typeof value === "string" ? value : JSON.stringify(value)));
  if (a === b) return;
  process.exitCode = 1;
  console.error(`FAIL ${what}\n  expected ${b}\n  got      ${a}`);
}
function reason(run) {
  try { run(); } catch (error) { return error.message; }
  return "no error";
}

/** Tree of a formula as XML, without attributes of layout. */
function mathml(source, attributes = []) {
  const write = (item) => (typeof item === "string" ? escape(item)
    : `<${item.tag}${attributes.filter((name) => item.attributes[name] !== undefined).map((name) => ` ${name}="${item.attributes[name]}"`).join("")}>${item.children.map(write).join("")}</${item.tag}>`);
  return write(parseLatex(source));
}

// Expected trees are those that the MathML specification gives for these notations.
const FORMULAS = [
  ["x^2", "<msup><mi>x</mi><mn>2</mn></msup>"],
  ["x_1^2", "<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>"],
  ["x^2_1", "<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>"],
  ["x^{10}", "<msup><mi>x</mi><mn>10</mn></msup>"],
  ["x^10", "<mrow><msup><mi>x</mi><mn>1</mn></msup><mn>0</mn></mrow>"],
  ["1,234.5", "<mrow><mn>1,234</mn><mo>.</mo><mn>5</mn></mrow>"],
  ["a-b", "<mrow><mi>a</mi><mo>−</mo><mi>b</mi></mrow>"],
  ["\\frac{a+1}{b}", "<mfrac><mrow><mi>a</mi><mo>+</mo><mn>1</mn></mrow><mi>b</mi></mfrac>"],
  ["\\frac12", "<mfrac><mn>1</mn><mn>2</mn></mfrac>"],
  ["{a \\over b}", "<mfrac><mi>a</mi><mi>b</mi></mfrac>"],
  ["\\sqrt{x}", "<msqrt><mi>x</mi></msqrt>"],
  ["\\sqrt[3]{x}", "<mroot><mi>x</mi><mn>3</mn></mroot>"],
  ["\\alpha \\le \\Omega", "<mrow><mi>α</mi><mo>≤</mo><mi>Ω</mi></mrow>"],
  ["\\sum_{i=1}^n i", "<mrow><munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><mi>i</mi></mrow>"],
  ["\\int_0^1 x", "<mrow><msubsup><mo>∫</mo><mn>0</mn><mn>1</mn></msubsup><mi>x</mi></mrow>"],
  ["\\int\\limits_0^1 x", "<mrow><munderover><mo>∫</mo><mn>0</mn><mn>1</mn></munderover><mi>x</mi></mrow>"],
  ["\\lim_{x\\to0} x", "<mrow><munder><mo>lim</mo><mrow><mi>x</mi><mo>→</mo><mn>0</mn></mrow></munder><mi>x</mi></mrow>"],
  ["\\sin(x)", "<mrow><mi>sin</mi><mo>(</mo><mi>x</mi><mo>)</mo></mrow>"],
  ["\\left( x \\right]", "<mrow><mo>(</mo><mi>x</mi><mo>]</mo></mrow>"],
  ["\\left. x \\right|", "<mrow><mi>x</mi><mo>|</mo></mrow>"],
  ["\\mathbb{R}\\mathcal{L}\\mathbf{x}\\mathfrak{C}", "<mrow><mi>ℝ</mi><mi>ℒ</mi><mi>𝐱</mi><mi>ℭ</mi></mrow>"],
  ["\\boldsymbol{\\alpha}", "<mi>𝜶</mi>"],
  ["\\mathrm{rank}", "<mi>rank</mi>"],
  ["x \\text{ if } y", "<mrow><mi>x</mi><mtext>\u00a0if\u00a0</mtext><mi>y</mi></mrow>"],
  ["\\text{for $n$}", "<mrow><mtext>for\u00a0</mtext><mi>n</mi><mtext></mtext></mrow>"],
  ["\\hat{x}", "<mover><mi>x</mi><mo>^</mo></mover>"],
  ["\\underbrace{x}_{n}", "<munder><munder><mi>x</mi><mo>⏟</mo></munder><mi>n</mi></munder>"],
  ["f''", "<msup><mi>f</mi><mo>′′</mo></msup>"],
  ["\\not=", "<mo>=\u0338</mo>"],
  ["\\{x\\}", "<mrow><mo>{</mo><mi>x</mi><mo>}</mo></mrow>"],
  ["\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "<mrow><mo>(</mo><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr><mtr><mtd><mn>3</mn></mtd><mtd><mn>4</mn></mtd></mtr></mtable><mo>)</mo></mrow>"],
  ["\\begin{cases}x & y\\\\[2pt] z\\end{cases}", "<mrow><mo>{</mo><mtable><mtr><mtd><mi>x</mi></mtd><mtd><mi>y</mi></mtd></mtr><mtr><mtd><mi>z</mi></mtd></mtr></mtable></mrow>"],
  ["\\begin{align*}a&=b\\\\\\end{align*}", "<mtable><mtr><mtd><mi>a</mi></mtd><mtd><mrow><mo>=</mo><mi>b</mi></mrow></mtd></mtr></mtable>"],
  ["\\foo{x}", "<mrow><mtext>\\foo</mtext><mi>x</mi></mrow>"],
  ["\\color{red}{x}", "<mi>x</mi>"],
  ["\\constructor", "<mtext>\\constructor</mtext>"],
  ["", "<mrow></mrow>"],
];
for (const [source, expected] of FORMULAS) equal(mathml(source), expected, source);
equal(mathml("\\left( x \\right) (", ["stretchy"]).match(/stretchy="\w+"/g).join(), 'stretchy="true",stretchy="true",stretchy="false"', "only delimiters of \\left and \\right grow");
equal(mathml("a = -b - (-c) - d", ["form"]).match(/<mo[^>]*>−/g).join(), '<mo form="prefix">−,<mo>−,<mo form="prefix">−,<mo>−', "signs and operators");
equal(mathml("\\sin x", []), "<mrow><mi>sin</mi><mspace></mspace><mi>x</mi></mrow>", "a space after a function");

for (const [source, message] of [
  ["\\frac{a}{b", "the formula ends too early"],
  ["a}", "unexpected }"],
  ["\\left( a", "the formula ends too early"],
  ["a \\right)", "unexpected \\right"],
  ["a^b^c", "two scripts at one place"],
  ["\\begin{foo}\\end{foo}", "unknown environment foo"],
  ["\\begin{constructor}\\end{constructor}", "unknown environment constructor"],
  ["\\begin{matrix}a\\end{cases}", "\\begin{matrix} is closed by \\end{cases}"],
  ["\\left x y \\right)", "x is not a delimiter"],
  ["{".repeat(200), "the formula is nested too deeply"],
  ["\\frac".repeat(3000), "the formula is nested too deeply"],
  [`${"\\substack{".repeat(900)}${"}".repeat(900)}`, "the formula is nested too deeply"],
  ["x".repeat(20_001), "the formula has more than 20000 characters"],
]) equal(reason(() => parseLatex(source)), message, source.slice(0, 40));

const markdown = (text) => inline(text).map(xmlOf).join("").replace(/<math[^>]*alttext="([^"]*)"[^>]*>.*?<\/math>/g, "[$1]");
for (const [source, expected] of [
  ["so \\(a_1\\) and \\(b_2\\)", "so [a_1] and [b_2]"],
  ["a $$x$$ b", "a [x] b"],
  ["$x^2$, $n$ and $f(x)$", "[x^2], [n] and [f(x)]"],
  ["$5 and $6", "$5 and $6"],
  ["between $5 and 6$", "between $5 and 6$"],
  ["US$5/day, A$6", "US$5/day, A$6"],
  ["$PATH:$HOME and $a and b$", "$PATH:$HOME and $a and b$"],
  ["\\$5 and \\$6", "$5 and $6"],
  ["`\\(x\\)` and `$x^2$`", "<code>\\(x\\)</code> and <code>$x^2$</code>"],
  ["open \\(a_b and *c*", "open \\(a_b and *c*"],
  ["open $$a", "open $$a"],
  ["\\(\\frac{a}\\)", '<code class="math-source" dir="ltr">\\(\\frac{a}\\)</code>'],
  ["**bold \\(x\\)**", "<strong>bold [x]</strong>"],
  ["\\(<img src=x>\\)", "[&lt;img src=x&gt;]"],
]) equal(markdown(source), expected, source);
equal(xmlOf(inline("\\(<img>\\)")[0]).includes("<img"), false, "markup in a formula stays text");

equal(parse("| a | b |\n|---|---|\n| \\(|x|\\) | y |")[0].rows[1], ["\\(|x|\\)", "y"], "a pipe in a formula does not separate cells");

equal(parse("\\begin{align}a\\end{align}.")[0].formula, "\\begin{align}a\\end{align}.", "an environment without delimiters is a formula");
const types = (text) => parse(text).map((block) => block.type).join();
for (const [source, expected] of [
  ["\\[\nx\n\\]\nafter", "math,paragraph"],
  ["$$x$$", "math"],
  ["$$x$$ and text", "paragraph"],
  ["before\n\\[ x \\].", "paragraph,math"],
  ["\\[\nx", "source"],
  ["\\[\nx\n\nafter", "source,paragraph"],
  ["\\begin{align*}\na &= b\n\\end{align*}", "math"],
  ["\\begin{align*}\na &= b", "source"],
  ["\\begin{document}\ntext", "paragraph"],
  ["$$ is the process\n\nafter", "paragraph,paragraph"],
  ["```\n\\[ x \\]\n```", "code"],
]) equal(types(source), expected, source);

// Streaming: with every further character, a block is text until it is complete, then a formula.
const streamed = "\\[ \\frac{a}{b} \\]";
const looks = Array.from(streamed, (_, i) => types(streamed.slice(0, i + 1))).slice(1);
equal(looks.slice(0, -1).every((look) => look === "source") && looks.at(-1) === "math", true, "a formula is text until it is closed");

for (const [source, message] of [
  ['[{"name": "f"},]', 'line 1, column 16: expected a value, got "]"'],
  ['[{"name": "f"\n "x": 1}]', 'line 2, column 2: expected "," or "}", got a quote'],
  ['[{name: "f"}]', 'line 1, column 3: expected a name in quotes, got "n"'],
  ['[{"name" "f"}]', 'line 1, column 10: expected ":", got a quote'],
  ['[{"name": "f}]', 'line 1, column 15: expected a quote at the end of the text, got the end'],
  ['["\\x"]', 'line 1, column 3: expected a valid escape sequence, got "\\"'],
  ['[01]', 'line 1, column 3: expected "," or "]", got "1"'],
  ['[] []', 'line 1, column 4: expected the end, got "["'],
  ['{"name": "f"}', "expected a JSON array of tools, got an object"],
  ['[{"name": "f"}, 5]', "tools[1]: expected an object, got a number"],
  ['[{"type": "function", "function": {}}]', "tools[0].function.name: expected the name of the function, got nothing"],
  ['[{"name": "f", "parameters": "x"}]', "tools[0].parameters: expected a JSON schema, got a string"],
]) equal(reason(() => parseTools(source)), message, source);
for (const valid of ['{"a": [1, -2.5e3, true, null, "\\u00e9\\n"], "b": {}}', "[]", ' "x" ', "0", "-0.5"]) {
  equal(reason(() => parseTools(valid)).includes("line"), false, `valid JSON: ${valid}`);
}
equal(parseTools('[{"name": "f"}]'), [{ type: "function", function: { name: "f" } }], "a tool without its type");
equal(parseTools("  "), [], "no tools");

const turn = (id, role, length) => ({ id, role, content: "x".repeat(length) });
const turns = [turn("q1", "user", 100), turn("a1", "assistant", 300), turn("q2", "user", 100), turn("a2", "assistant", 300), turn("q3", "user", 100)];
equal(context.nextStart(turns, 1000, 1000), "q3", "about half of the context becomes free");
equal(context.nextStart(turns, 1000, 1300), "q2", "no more messages are left out than needed");
equal(context.nextStart(turns.slice(0, 2), 1000, 1000), null, "one message of the user cannot be left out");
equal(context.sent(turns, "q2").map((node) => node.id), ["q2", "a2", "q3"], "messages from the start");
equal(context.sent(turns, "other").length, 5, "an unknown start leaves out nothing");
equal(context.isFull({ errorCode: "context_length_exceeded" }, null), true, "the server refused the prompt");
equal(context.isFull({ finish: "length", stats: { promptTokens: 1000, completionTokens: 1048 } }, 2048), true, "the answer reached the end of the context");
equal(context.isFull({ finish: "length", stats: { promptTokens: 1000, completionTokens: 48 } }, 2048), false, "the answer reached max_tokens");

function conversation() {
  const made = store.create();
  const nodes = {};
  for (const [name, parent, role, extra] of [["q1", null, "user"], ["a1", "q1", "assistant"], ["a1b", "q1", "assistant"], ["q2", "a1b", "user"],
    ["a2", "q2", "assistant", { toolCalls: [{ id: "c1", name: "f", arguments: "" }] }], ["t2", "a2", "tool", { toolCallId: "c1" }], ["a3", "t2", "assistant"]]) {
    nodes[name] = store.addNode(made, parent && nodes[parent].id, { role, content: name, ...extra });
  }
  const shown = () => store.path(made).map((node) => node.content).join(" ");
  return { made, nodes, shown };
}
for (const [removed, left] of [
  ["q1", "a1b q2 a2 t2 a3"],
  ["a1b", "q1 a1"],
  ["q2", "q1 a1b a2 t2 a3"],
  ["a2", "q1 a1b q2 a3"],
  ["a3", "q1 a1b q2 a2 t2"],
]) {
  const { made, nodes, shown } = conversation();
  const before = JSON.stringify([made.nodes, made.leaf]);
  const { undo } = store.removeMessage(made, nodes[removed]);
  equal(shown(), left, `delete ${removed}`);
  undo();
  equal(shown(), "q1 a1b q2 a2 t2 a3", `delete ${removed}, undo`);
  const sorted = ([items, leaf]) => JSON.stringify([Object.values(items).sort((a, b) => (a.id < b.id ? -1 : 1)), leaf]);
  equal(sorted(JSON.parse(JSON.stringify([made.nodes, made.leaf]))), sorted(JSON.parse(before)), `delete ${removed}, undo restores every field`);
}

console.log(`${checks} checks`);
process.exit();
