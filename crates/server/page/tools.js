// Tools of the settings: reads their JSON and names the place of an error.

const LITERALS = ["true", "false", "null"];

/** Finds the first error of a JSON text. The messages of browsers differ, and some name no place. */
function findError(source) {
  let at = 0;
  const fail = (expected) => {
    const lines = source.slice(0, at).split("\n");
    const char = String.fromCodePoint(source.codePointAt(at) ?? 0);
    const found = at >= source.length ? "the end" : char === '"' ? "a quote" : char < " " ? JSON.stringify(char) : `"${char}"`;
    throw new Error(`line ${lines.length}, column ${lines.at(-1).length + 1}: expected ${expected}, got ${found}`);
  };
  const space = () => { while (/[ \t\r\n]/.test(source[at] ?? "")) at += 1; };
  const token = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(source)?.[0];
    at += found?.length ?? 0;
    return found !== undefined;
  };
  const string = () => {
    at += 1;
    token(/(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[\da-fA-F]{4})*/y);
    if (source[at] === "\\") fail("a valid escape sequence");
    if (source[at] !== '"') fail("a quote at the end of the text");
    at += 1;
  };
  const members = (end, member) => {
    at += 1;
    space();
    if (source[at] === end) { at += 1; return; }
    for (;;) {
      member();
      space();
      if (source[at] === end) { at += 1; return; }
      if (source[at] !== ",") fail(`"," or "${end}"`);
      at += 1;
      space();
    }
  };
  const value = () => {
    space();
    if (source[at] === '"') return string();
    if (source[at] === "[") return members("]", value);
    if (source[at] === "{") {
      return members("}", () => {
        if (source[at] !== '"') fail("a name in quotes");
        string();
        space();
        if (source[at] !== ":") fail('":"');
        at += 1;
        value();
      });
    }
    const literal = LITERALS.find((word) => source.startsWith(word, at));
    if (literal) at += literal.length;
    else if (!token(/-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y)) fail("a value");
  };
  value();
  space();
  if (at < source.length) fail("the end");
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const kindOf = (value) => (value === undefined ? "nothing" : value === null ? "null" : Array.isArray(value) ? "an array" : isObject(value) ? "an object" : `a ${typeof value}`);

/** Adds the type to a function that is written without one, and checks the fields that every tool needs. */
function readTool(raw, i) {
  const expect = (valid, path, expected, value) => {
    if (!valid) throw new Error(`tools[${i}]${path}: expected ${expected}, got ${kindOf(value)}`);
  };
  expect(isObject(raw), "", "an object", raw);
  if (raw.type !== undefined && raw.type !== "function") return raw;
  const tool = raw.type ? raw : { type: "function", function: raw };
  const path = raw.type ? ".function" : "";
  const { function: called } = tool;
  expect(isObject(called), path, "an object", called);
  expect(typeof called.name === "string" && called.name !== "", `${path}.name`, "the name of the function", called.name);
  expect(called.parameters === undefined || isObject(called.parameters), `${path}.parameters`, "a JSON schema", called.parameters);
  return tool;
}

/** Parses the tools of the settings. Returns an array, or throws an error with the place. */
export function parseTools(source) {
  if (!source?.trim()) return [];
  let tools;
  try {
    tools = JSON.parse(source);
  } catch (error) {
    findError(source);
    throw error;
  }
  if (!Array.isArray(tools)) throw new Error(`expected a JSON array of tools, got ${kindOf(tools)}`);
  return tools.map(readTool);
}
