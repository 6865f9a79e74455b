// Markdown renderer. Builds DOM nodes and text nodes only, so model output cannot become markup.
// Images become links: loading an image would send data to the host that the model names.

import { el, copyButton } from "./dom.js";
import { highlight } from "./highlight.js";
import { formula } from "./latex.js";

const MAX_DEPTH = 12;
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])([ \t]+|$)(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const TABLE_RULE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const MATH_OPEN = /^ {0,3}(?:\$\$|\\\[|\\begin\{((?:equation|align|gather|multline|eqnarray)\*?)\})/;

const startsBlock = (line) => FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line) || MATH_OPEN.test(line);
const indentOf = (line) => line.length - line.trimStart().length;

/** Splits Markdown into top-level blocks. Each has the source lines it came from. */
export function parse(source) {
  const lines = source.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n");
  const blocks = [];
  let at = 0;
  const push = (type, end, fields = {}) => {
    blocks.push({ type, raw: lines.slice(at, end).join("\n"), ...fields });
    at = end;
  };
  while (at < lines.length) {
    const line = lines[at];
    if (line.trim() === "") { at += 1; continue; }
    const fence = FENCE.exec(line);
    if (fence) {
      const closes = new RegExp(`^ {0,3}${fence[1][0] === "`" ? "`" : "~"}{${fence[1].length},}[ \t]*$`);
      let end = at + 1;
      while (end < lines.length && !closes.test(lines[end])) end += 1;
      const indent = indentOf(line);
      const code = lines.slice(at + 1, end).map((text) => text.slice(Math.min(indent, indentOf(text)))).join("\n");
      push("code", Math.min(end + 1, lines.length), { code, language: fence[2].trim().split(/\s/)[0] ?? "" });
      continue;
    }
    const math = mathBlock(at);
    if (math) { push(math.formula === null ? "source" : "math", math.end, math); continue; }
    const heading = HEADING.exec(line);
    if (heading) { push("heading", at + 1, { level: heading[1].length, text: heading[2].replace(/[ \t]+#+[ \t]*$/, "") }); continue; }
    if (RULE.test(line)) { push("rule", at + 1); continue; }
    if (QUOTE.test(line)) {
      let end = at;
      const inner = [];
      while (end < lines.length && lines[end].trim() !== "" && (QUOTE.test(lines[end]) || !startsBlock(lines[end]))) {
        inner.push(QUOTE.exec(lines[end])?.[1] ?? lines[end]);
        end += 1;
      }
      push("quote", end, { text: inner.join("\n") });
      continue;
    }
    if (ITEM.test(line)) { list(); continue; }
    if (startsTable(at)) {
      let end = at + 2;
      while (end < lines.length && lines[end].includes("|") && lines[end].trim() !== "") end += 1;
      push("table", end, { rows: [line, ...lines.slice(at + 2, end)].map(cells), align: cells(lines[at + 1]) });
      continue;
    }
    let end = at + 1;
    while (end < lines.length && lines[end].trim() !== "" && !startsBlock(lines[end]) && !startsTable(end)) end += 1;
    push("paragraph", end, { text: lines.slice(at, end).join("\n") });
  }
  return blocks;

  /**
   * A formula with lines of its own: `formula` and the line after it. While its end is missing at the end of the
   * text, `formula` is null. Null for lines that begin no such formula.
   */
  function mathBlock(index) {
    const open = MATH_OPEN.exec(lines[index]);
    if (!open) return null;
    const [start, environment] = open;
    const close = environment ? `\\end{${environment}}` : start.endsWith("$$") ? "$$" : "\\]";
    let from = start.length;
    for (let end = index; ; end += 1, from = 0) {
      if (end === lines.length) return { formula: null, end };
      const line = lines[end];
      if (line.trim() === "" || FENCE.test(line)) return close === "$$" ? null : { formula: null, end };
      const found = line.indexOf(close, from);
      if (found < 0) continue;
      const rest = line.slice(found + close.length);
      if (!/^[\s.,;]*$/.test(rest)) return null;
      const text = [...lines.slice(index, end), line.slice(0, found)].join("\n").slice(start.length);
      return { formula: (environment ? start + text + close : text) + rest.trim(), end: end + 1 };
    }
  }

  function startsTable(index) {
    const rule = lines[index + 1];
    return lines[index].includes("|") && rule !== undefined && rule.includes("-") && TABLE_RULE.test(rule)
      && cells(lines[index]).length === cells(rule).length;
  }

  function list() {
    const first = ITEM.exec(lines[at]);
    const ordered = /\d/.test(first[2]);
    const marker = first[2].at(-1);
    const items = [];
    let loose = false;
    let end = at;
    while (end < lines.length) {
      const item = ITEM.exec(lines[end]);
      if (!item || item[2].at(-1) !== marker || RULE.test(lines[end])) break;
      const width = item[1].length + item[2].length + Math.min(Math.max(item[3].length, 1), 4);
      const body = [item[4]];
      end += 1;
      while (end < lines.length) {
        const next = lines[end];
        if (next.trim() === "") {
          const after = lines[end + 1];
          if (after === undefined || after.trim() === "" || indentOf(after) < Math.min(width, item[1].length + 2)) break;
          body.push("");
          loose = true;
        } else if (indentOf(next) >= Math.min(width, item[1].length + 2)) {
          body.push(next.slice(Math.min(width, indentOf(next))));
        } else if (startsBlock(next)) break;
        else body.push(next);
        end += 1;
      }
      items.push(body.join("\n"));
      if (lines[end]?.trim() === "" && lines[end + 1] && ITEM.exec(lines[end + 1])?.[2].at(-1) === marker) { end += 1; loose = true; }
    }
    push("list", end, { ordered, start: ordered ? Number.parseInt(first[2], 10) : 1, items, loose });
  }
}

/** Cells of a table row; `\|` and pipes in code spans and formulas do not separate. */
function cells(line) {
  const row = line.trim().replace(/^\|/, "");
  const result = [];
  let cell = "";
  let code = false;
  for (let i = 0; i < row.length; i += 1) {
    if (row[i] === "\\" && row[i + 1] === "|") { cell += "|"; i += 1; continue; }
    const end = !code && row.startsWith("\\(", i) ? row.indexOf("\\)", i) : -1;
    if (end > 0) { cell += row.slice(i, end + 2); i = end + 1; continue; }
    if (row[i] === "`") code = !code;
    if (row[i] === "|" && !code) { result.push(cell.trim()); cell = ""; } else cell += row[i];
  }
  if (cell.trim() !== "") result.push(cell.trim());
  return result;
}

/** Direction of a block that contains other blocks, by its first letter; `dir="auto"` disregards those. */
const direction = (text) => (/^[^\p{L}]*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/u.test(text) ? "rtl" : "ltr");

function build(block, depth) {
  switch (block.type) {
    case "code": return codeBlock(block.code, block.language);
    case "math": return el("div", { class: "math-scroll" }, formula(block.formula, true, block.raw.trim()));
    case "source": return el("p", { class: "math-source", text: block.raw.trim() });
    case "heading": return el(`h${Math.min(block.level + 2, 6)}`, { class: `md-h${block.level}`, dir: "auto" }, inline(block.text));
    case "rule": return el("hr");
    case "quote": return el("blockquote", { dir: direction(block.text) }, nested(block.text, depth));
    case "list": {
      const items = block.items.map((text) => {
        const task = /^\[([ xX])\] +/.exec(text);
        const item = el("li", { class: task ? "task" : null });
        if (task) item.append(el("input", { type: "checkbox", disabled: true, checked: task[1] !== " ", "aria-label": task[1] === " " ? "open" : "done" }), " ");
        const content = nested(task ? text.slice(task[0].length) : text, depth);
        // A tight list has no paragraphs inside its items.
        for (const node of content) {
          if (!block.loose && node.tagName === "P") item.append(...node.childNodes);
          else item.append(node);
        }
        return item;
      });
      return el(block.ordered ? "ol" : "ul", { dir: direction(block.items[0]), start: block.ordered && block.start !== 1 ? block.start : null }, items);
    }
    case "table": {
      const align = block.align.map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : cell.startsWith(":") ? "left" : null));
      const row = (tag, texts) => el("tr", {}, block.align.map((_, i) => el(tag, { class: align[i] ? `align-${align[i]}` : null, scope: tag === "th" ? "col" : null }, inline(texts[i] ?? ""))));
      return el("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Table" },
        el("table", { dir: direction(block.rows[0].join(" ")) }, el("thead", {}, row("th", block.rows[0])), el("tbody", {}, block.rows.slice(1).map((texts) => row("td", texts)))));
    }
    default: return el("p", { dir: "auto" }, inline(block.text));
  }
}

const nested = (text, depth) => (depth >= MAX_DEPTH ? [el("p", { dir: "auto", text })] : parse(text).map((block) => build(block, depth + 1)));

/** Creates a code block with its language and a copy button. */
export function codeBlock(code, language = "") {
  return el("div", { class: "code-block", dir: "ltr" },
    el("div", { class: "code-head" }, el("span", { class: "code-language", text: language || "text" }), copyButton("Copy code", () => code, { size: 15 })),
    el("pre", { tabindex: "0", "aria-label": `Code${language ? `, ${language}` : ""}` }, el("code", {}, highlight(code, language))));
}

/** Returns `url` if it is an http or https URL, otherwise null. */
export function safeUrl(url) {
  try {
    const parsed = new URL(url);
    return parsed.protocol === "https:" || parsed.protocol === "http:" ? parsed.href : null;
  } catch {
    return null;
  }
}

function link(url, content) {
  const href = safeUrl(url);
  return href ? el("a", { href, target: "_blank", rel: "noopener noreferrer", title: href }, content) : el("span", {}, content);
}

/** Reads `[text](url "title")` at `at`. Returns the text, the URL and the end, or null. */
function readLink(text, at) {
  let depth = 0;
  const limit = Math.min(text.length, at + 2000);
  for (let i = at; i < limit; i += 1) {
    if (text[i] === "\\") { i += 1; continue; }
    if (text[i] === "[") depth += 1;
    else if (text[i] === "]" && (depth -= 1) === 0) {
      if (text[i + 1] !== "(") return null;
      let parens = 1;
      for (let j = i + 2; j < limit; j += 1) {
        if (text[j] === "\n") return null;
        if (text[j] === "(") parens += 1;
        else if (text[j] === ")" && (parens -= 1) === 0) {
          const target = text.slice(i + 2, j).trim();
          const url = target.startsWith("<") ? target.slice(1, target.indexOf(">")) : target.split(/\s/)[0];
          return { label: text.slice(at + 1, i), url, end: j + 1 };
        }
      }
      return null;
    }
  }
  return null;
}

/**
 * Reads a formula at `at`: `latex`, `display`, and the end. Without its end, the rest of the line is text, which
 * has no `latex`, so that a formula does not change its look before it is complete. Null if there is none.
 */
function readFormula(text, at) {
  const open = text.slice(at, at + 2);
  if (open === "$$" || text[at] === "\\") {
    const display = open !== "\\(";
    const end = text.indexOf({ $$: "$$", "\\(": "\\)", "\\[": "\\]" }[open], at + 2);
    if (end > at + 2) return { latex: text.slice(at + 2, end), display, end: end + 2 };
    if (open === "$$" || end >= 0) return { end: at + 2 };
    const line = text.indexOf("\n", at);
    return { end: line < 0 ? text.length : line };
  }
  const end = text.indexOf("$", at + 1);
  const latex = text.slice(at + 1, Math.max(end, 0));
  const isAlone = !isWord(text[at - 1]) && !isWord(text[end + 1]) && latex === latex.trim() && !latex.includes("\n");
  return end > 0 && isAlone && looksLikeFormula(latex) ? { latex, display: false, end: end + 1 } : null;
}

/** Whether a text between single dollar signs is a formula, and not amounts of money or names of variables. */
const looksLikeFormula = (text) => /^\p{L}$/u.test(text) || (/^\d/.test(text) ? /[\\^_]/ : /[\\^_=<>+*/()|-]/).test(text);

const isWord = (char) => char !== undefined && /[\p{L}\p{N}]/u.test(char);

/** Renders inline Markdown to nodes. */
export function inline(text, depth = 0) {
  if (depth > MAX_DEPTH) return [text];
  const nodes = [];
  const unmatched = new Set();
  let plain = "";
  let i = 0;
  const put = (node, end) => {
    if (plain) nodes.push(plain);
    plain = "";
    nodes.push(node);
    i = end;
  };
  while (i < text.length) {
    const char = text[i];
    if (char === "$" || (char === "\\" && "([".includes(text[i + 1] ?? " "))) {
      const found = readFormula(text, i);
      if (found?.latex !== undefined) { put(formula(found.latex, found.display, text.slice(i, found.end)), found.end); continue; }
      if (found) { plain += text.slice(i, found.end); i = found.end; continue; }
    }
    if (char === "\\" && i + 1 < text.length) {
      if (text[i + 1] === "\n") { put(el("br"), i + 2); continue; }
      if (/[!-/:-@[-`{-~]/.test(text[i + 1])) { plain += text[i + 1]; i += 2; continue; }
    }
    if (char === "`") {
      let run = 1;
      while (text[i + run] === "`") run += 1;
      const ticks = "`".repeat(run);
      let close = unmatched.has(ticks) ? -1 : text.indexOf(ticks, i + run);
      while (close >= 0 && text[close + run] === "`") {
        let skip = close;
        while (text[skip] === "`") skip += 1;
        close = text.indexOf(ticks, skip);
      }
      if (close >= 0) {
        let code = text.slice(i + run, close).replace(/\n/g, " ");
        if (code.startsWith(" ") && code.endsWith(" ") && code.trim()) code = code.slice(1, -1);
        put(el("code", { text: code }), close + run);
      } else {
        unmatched.add(ticks);
        plain += ticks;
        i += run;
      }
      continue;
    }
    if (char === "!" && text[i + 1] === "[") {
      const image = readLink(text, i + 1);
      if (image) { put(link(image.url, ["Image: ", image.label || image.url]), image.end); continue; }
    }
    if (char === "[") {
      const found = readLink(text, i);
      if (found) { put(link(found.url, inline(found.label, depth + 1)), found.end); continue; }
    }
    if (char === "<") {
      const auto = /^<(https?:\/\/[^\s<>]{1,1000})>/.exec(text.slice(i, i + 1010));
      if (auto) { put(link(auto[1], auto[1]), i + auto[0].length); continue; }
      const line = /^<br ?\/?>/i.exec(text.slice(i, i + 6));
      if (line) { put(el("br"), i + line[0].length); continue; }
    }
    if (char === "h" && !isWord(text[i - 1]) && /^https?:\/\//.test(text.slice(i, i + 8))) {
      let url = /^[^\s<>"`]+/.exec(text.slice(i, i + 2000))[0].replace(/[.,;:!?'*_~]+$/, "");
      if (url.endsWith(")") && !url.includes("(")) url = url.slice(0, -1);
      put(link(url, url), i + url.length);
      continue;
    }
    if (char === "*" || char === "_" || (char === "~" && text[i + 1] === "~")) {
      let run = 1;
      while (run < 3 && text[i + run] === char) run += 1;
      const found = emphasis(i, char, run);
      if (found) { put(found.node, found.end); continue; }
      plain += char.repeat(run);
      i += run;
      continue;
    }
    if (char === "\n") {
      plain = plain.replace(/ +$/, "");
      put(el("br"), i + 1);
      continue;
    }
    plain += char;
    i += 1;
  }
  if (plain) nodes.push(plain);
  return nodes;

  function emphasis(start, char, run) {
    if (/\s/.test(text[start + run] ?? " ") || (char === "_" && isWord(text[start - 1]))) return null;
    const mark = char.repeat(run);
    if (unmatched.has(mark)) return null;
    for (let close = start + run; (close = text.indexOf(mark, close)) >= 0; close += 1) {
      if (/\s/.test(text[close - 1]) || text[close - 1] === "\\" || close === start + run) continue;
      let length = run;
      while (text[close + length] === char) length += 1;
      // A run of three closes an inner and an outer emphasis. Other longer runs belong to an inner one.
      if (length === 3) close += 3 - run;
      else if (length !== run) { close += length - 1; continue; }
      if (char === "_" && isWord(text[close + run])) continue;
      const content = inline(text.slice(start + run, close), depth + 1);
      const node = char === "~" ? el("del", {}, content)
        : run === 1 ? el("em", {}, content)
          : run === 2 ? el("strong", {}, content) : el("em", {}, el("strong", {}, content));
      return { node, end: close + run };
    }
    unmatched.add(mark);
    return null;
  }
}

/** Renders Markdown into `container`. Keeps the nodes of blocks that did not change since the last call. */
export function render(container, source) {
  const blocks = parse(source);
  const previous = container.markdownBlocks ?? [];
  let same = 0;
  while (same < blocks.length && same < previous.length && blocks[same].raw === previous[same]) same += 1;
  while (container.children.length > same) container.lastElementChild.remove();
  for (const block of blocks.slice(same)) container.append(build(block, 0));
  container.markdownBlocks = blocks.map((block) => block.raw);
}
