// Syntax highlighting for code blocks: comments, strings, numbers, keywords and calls.
// Each pattern is linear in the length of the code, because the code is model output.

import { el } from "./dom.js";

const words = (list) => new Set(list.split(" "));
const C_COMMENT = "\\/\\/[^\\n]*|\\/\\*[^]*?(?:\\*\\/|$)";
const HASH_COMMENT = "#[^\\n]*";
const STRINGS = "\"(?:[^\"\\\\\\n]|\\\\[^])*\"?|'(?:[^'\\\\\\n]|\\\\[^])*'?";
const TEMPLATE = "`(?:[^`\\\\]|\\\\[^])*`?";

const C_KEYWORDS = "auto bool break case char class const constexpr continue default delete do double else enum explicit extern false float for friend goto if inline int long namespace new nullptr operator override private protected public return short signed sizeof static struct switch template this throw true try typedef typename union unsigned using virtual void volatile while catch NULL include define ifdef ifndef endif";

/** Patterns and keywords of each language family. */
const LANGUAGES = {
  js: { comment: C_COMMENT, string: `${TEMPLATE}|${STRINGS}`, keywords: words("abstract any as async await boolean break case catch class const continue debugger declare default delete do else enum export extends false finally for from function get if implements import in instanceof interface let new null number of private protected public readonly return set static string super switch this throw true try type typeof undefined unknown var void while yield") },
  python: { comment: HASH_COMMENT, string: `"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|${STRINGS}`, keywords: words("and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield") },
  rust: { comment: C_COMMENT, string: "\"(?:[^\"\\\\]|\\\\[^])*\"?|'(?:[^'\\\\\\n]|\\\\[^]{1,8}?)'", keywords: words("as async await bool break char const continue crate dyn else enum extern f32 f64 false fn for i8 i16 i32 i64 i128 if impl in isize let loop match mod move mut pub ref return self Self static str String struct super trait true type u8 u16 u32 u64 u128 unsafe use usize where while") },
  c: { comment: C_COMMENT, string: STRINGS, keywords: words(C_KEYWORDS) },
  java: { comment: C_COMMENT, string: STRINGS, keywords: words("abstract boolean break byte case catch char class const continue default do double else enum extends false final finally float for fun if implements import instanceof int interface internal let long new null object open override package private protected public return short static super switch synchronized this throw throws true try val var void volatile when while string namespace using foreach in out ref async await readonly record sealed") },
  go: { comment: C_COMMENT, string: `${TEMPLATE}|${STRINGS}`, keywords: words("any bool break byte case chan const continue default defer else error fallthrough false float32 float64 for func go goto if import int int32 int64 interface make map nil package range return rune select string struct switch true type uint8 uint32 uint64 var") },
  shell: { comment: "(?:^|(?<=\\s))#[^\\n]*", string: "\"(?:[^\"\\\\]|\\\\[^])*\"?|'[^']*'?", keywords: words("case cd do done echo elif else esac exit export fi for function if in local return set then until while sudo apt pip npm cargo git curl docker") },
  sql: { comment: "--[^\\n]*|\\/\\*[^]*?(?:\\*\\/|$)", string: "'(?:[^']|'')*'?|\"[^\"]*\"?", insensitive: true, keywords: words("add all alter and as asc between by case create cross default delete desc distinct drop else end exists false foreign from full group having if in index inner insert int integer into is join key left like limit not null offset on or order outer primary references returning right select set table text then true union unique update using values varchar view when where with") },
  data: { comment: HASH_COMMENT, string: STRINGS, keywords: words("true false null yes no on off") },
  css: { comment: "\\/\\*[^]*?(?:\\*\\/|$)", string: STRINGS, keywords: words("import media supports keyframes font-face important var calc") },
  html: { comment: "<!--[^]*?(?:-->|$)", string: STRINGS, keywords: words("html head body div span script style link meta title a p ul ol li table tr td th button input form img section main header footer nav svg path h1 h2 h3 h4") },
};
const ALIASES = {
  javascript: "js", jsx: "js", ts: "js", tsx: "js", typescript: "js", mjs: "js", py: "python", python3: "python", rs: "rust", wgsl: "rust", swift: "java",
  cpp: "c", "c++": "c", h: "c", hpp: "c", cuda: "c", glsl: "c", metal: "c", cs: "java", csharp: "java", kotlin: "java", kt: "java", scala: "java", php: "java", dart: "java",
  golang: "go", bash: "shell", sh: "shell", zsh: "shell", console: "shell", json: "data", jsonc: "js", yaml: "data", yml: "data", toml: "data", ini: "data", scss: "css", xml: "html", svg: "html", ruby: "python", rb: "python", lua: "sql",
};
const LIMIT = 60_000;
const compiled = new Map();

function pattern(name) {
  if (!compiled.has(name)) {
    const { comment, string } = LANGUAGES[name];
    compiled.set(name, new RegExp(`(${comment})|(${string})|(\\b(?:0[xXbB][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)[a-zA-Z\\d]*\\b)|([A-Za-z_$][\\w$-]*)`, "gm"));
  }
  return compiled.get(name);
}

function diff(code) {
  return code.split(/(?<=\n)/).map((line) => {
    const kind = line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : line.startsWith("@@") ? "kw" : null;
    return kind ? el("span", { class: `hl-${kind}`, text: line }) : line;
  });
}

/** Returns text and spans for `code`; plain text for an unknown language or very long code. */
export function highlight(code, language) {
  const id = language.toLowerCase();
  if (id === "diff" || id === "patch") return diff(code);
  const name = LANGUAGES[id] ? id : ALIASES[id];
  if (!name || code.length > LIMIT) return [code];
  const { keywords, insensitive } = LANGUAGES[name];
  const nodes = [];
  let at = 0;
  const emit = (kind, from, to) => {
    if (from > at) nodes.push(code.slice(at, from));
    nodes.push(el("span", { class: `hl-${kind}`, text: code.slice(from, to) }));
    at = to;
  };
  for (const match of code.matchAll(pattern(name))) {
    const end = match.index + match[0].length;
    if (match[1] !== undefined) emit("com", match.index, end);
    else if (match[2] !== undefined) emit(name === "data" && /^\s*:/.test(code.slice(end, end + 8)) ? "key" : "str", match.index, end);
    else if (match[3] !== undefined) emit("num", match.index, end);
    else if (keywords.has(insensitive ? match[0].toLowerCase() : match[0])) emit("kw", match.index, end);
    else if (code[end] === "(" && name !== "html") emit("fn", match.index, end);
  }
  if (at < code.length) nodes.push(code.slice(at));
  return nodes;
}
