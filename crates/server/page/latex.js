// Converts the common subset of LaTeX formulas to MathML, which browsers render.
// An unknown command is shown as its source, and a formula with an error as its whole source.

import { el, mathml } from "./dom.js";

const SOURCE_LIMIT = 20_000;
const DEPTH_LIMIT = 120;

const table = (list) => new Map(list.trim().split(/\s+/).map((pair) => { const at = pair.indexOf(":"); return [pair.slice(0, at), pair.slice(at + 1)]; }));

const IDENTIFIERS = table(`alpha:α beta:β gamma:γ delta:δ epsilon:ϵ varepsilon:ε zeta:ζ eta:η theta:θ vartheta:ϑ iota:ι kappa:κ
  lambda:λ mu:μ nu:ν xi:ξ pi:π varpi:ϖ rho:ρ varrho:ϱ sigma:σ varsigma:ς tau:τ upsilon:υ phi:ϕ varphi:φ chi:χ psi:ψ omega:ω
  ell:ℓ hbar:ℏ imath:ı jmath:ȷ wp:℘ partial:∂`);
/** Upright identifiers. */
const CONSTANTS = table(`Gamma:Γ Delta:Δ Theta:Θ Lambda:Λ Xi:Ξ Pi:Π Sigma:Σ Upsilon:Υ Phi:Φ Psi:Ψ Omega:Ω infty:∞ emptyset:∅ varnothing:∅
  Re:ℜ Im:ℑ aleph:ℵ nabla:∇ top:⊤ bot:⊥ angle:∠ degree:° dots:… ldots:… dotsc:… cdots:⋯ dotsb:⋯ vdots:⋮ ddots:⋱ square:□ blacksquare:■
  %:% $:$ #:# &:& _:_ checkmark:✓ triangle:△ star:⋆ dagger:† S:§ pounds:£ euro:€`);
const OPERATORS = table(`times:× cdot:⋅ div:÷ pm:± mp:∓ ast:∗ circ:∘ bullet:∙ oplus:⊕ ominus:⊖ otimes:⊗ odot:⊙ cap:∩ cup:∪ setminus:∖ wedge:∧
  vee:∨ land:∧ lor:∨ neg:¬ lnot:¬ forall:∀ exists:∃ nexists:∄ le:≤ leq:≤ leqslant:⩽ ge:≥ geq:≥ geqslant:⩾ lt:< gt:> ne:≠ neq:≠ equiv:≡
  approx:≈ sim:∼ simeq:≃ cong:≅ propto:∝ ll:≪ gg:≫ in:∈ notin:∉ ni:∋ subset:⊂ subseteq:⊆ supset:⊃ supseteq:⊇ subsetneq:⊊ mid:∣ nmid:∤
  parallel:∥ perp:⊥ models:⊨ vdash:⊢ prec:≺ succ:≻ to:→ rightarrow:→ leftarrow:← gets:← leftrightarrow:↔ Rightarrow:⇒ Leftarrow:⇐
  Leftrightarrow:⇔ implies:⟹ impliedby:⟸ iff:⟺ mapsto:↦ longrightarrow:⟶ longleftarrow:⟵ longmapsto:⟼ hookrightarrow:↪ uparrow:↑ downarrow:↓
  updownarrow:↕ nearrow:↗ searrow:↘ rightharpoonup:⇀ rightleftharpoons:⇌ leadsto:⇝ therefore:∴ because:∵ colon:: coloneqq:≔ triangleq:≜ doteq:≐
  prime:′ backslash:\\ And:& amalg:⨿ sqcup:⊔ sqcap:⊓ diamond:⋄ lhd:⊲ rhd:⊳ succeq:⪰ preceq:⪯ asymp:≍ Longrightarrow:⟹ Longleftrightarrow:⟺`);
/** Operators whose limits are below and above in a display formula. */
const SUMS = table(`sum:∑ prod:∏ coprod:∐ bigcup:⋃ bigcap:⋂ bigoplus:⨁ bigotimes:⨂ bigwedge:⋀ bigvee:⋁ bigsqcup:⨆`);
const INTEGRALS = table(`int:∫ iint:∬ iiint:∭ oint:∮`);
const FUNCTIONS = new Set("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth log ln lg exp dim ker deg arg hom".split(" "));
const LIMIT_FUNCTIONS = new Set("lim max min sup inf det gcd Pr limsup liminf argmax argmin".split(" "));
const DELIMITERS = table(`lbrace:{ rbrace:} {:{ }:} langle:⟨ rangle:⟩ lfloor:⌊ rfloor:⌋ lceil:⌈ rceil:⌉ lvert:| rvert:| vert:| |:‖ lVert:‖ rVert:‖ Vert:‖
  lbrack:[ rbrack:] uparrow:↑ downarrow:↓ backslash:\\ lgroup:⟮ rgroup:⟯`);
const ACCENTS = table(`hat:^ widehat:^ check:ˇ tilde:~ widetilde:~ bar:¯ overline:¯ vec:→ overrightarrow:→ overleftarrow:← dot:˙ ddot:¨ breve:˘ mathring:˚
  overbrace:⏞`);
const ACCENTS_BELOW = table(`underline:_ underbrace:⏟ underrightarrow:→`);
const STRETCHED = new Set(["widehat", "widetilde", "overline", "overrightarrow", "overleftarrow", "overbrace", "underline", "underbrace", "underrightarrow"]);
const dictionary = (entries) => Object.assign(Object.create(null), entries);
const SPACES = dictionary({ ",": 0.1667, thinspace: 0.1667, ":": 0.2222, ">": 0.2222, medspace: 0.2222, ";": 0.2778, thickspace: 0.2778, "!": -0.1667, negthinspace: -0.1667, " ": 0.25, quad: 1, qquad: 2, enspace: 0.5 });
const SIZES = { big: 1.2, Big: 1.8, bigg: 2.4, Bigg: 3 };
const ARROWS = { xrightarrow: "→", xleftarrow: "←", xRightarrow: "⇒", xleftrightarrow: "↔" };
/** Fences of environments, and the class of their cells. */
const ENVIRONMENTS = dictionary({
  matrix: ["", "", ""], smallmatrix: ["", "", ""], pmatrix: ["(", ")", ""], bmatrix: ["[", "]", ""], Bmatrix: ["{", "}", ""], vmatrix: ["|", "|", ""], Vmatrix: ["‖", "‖", ""],
  array: ["", "", ""], cases: ["{", "", "math-left"], rcases: ["", "}", "math-left"], dcases: ["{", "", "math-left"], aligned: ["", "", "math-align"], align: ["", "", "math-align"],
  split: ["", "", "math-align"], alignedat: ["", "", "math-align"], alignat: ["", "", "math-align"], eqnarray: ["", "", "math-align"], gathered: ["", "", ""], gather: ["", "", ""], equation: ["", "", ""], multline: ["", "", ""], subarray: ["", "", ""],
});
/** First code points of A, a, 0, Α (upper-case Greek) and α of each alphabet; 0 where it has none. */
const ALPHABETS = dictionary({
  mathbf: [0x1d400, 0x1d41a, 0x1d7ce, 0x1d6a8, 0x1d6c2], boldsymbol: [0x1d468, 0x1d482, 0x1d7ce, 0x1d6a8, 0x1d736], mathcal: [0x1d49c, 0x1d4b6, 0, 0, 0],
  mathfrak: [0x1d504, 0x1d51e, 0, 0, 0], mathbb: [0x1d538, 0x1d552, 0x1d7d8, 0, 0], mathsf: [0x1d5a0, 0x1d5ba, 0x1d7e2, 0, 0], mathtt: [0x1d670, 0x1d68a, 0x1d7f6, 0, 0], mathit: [0, 0, 0, 0, 0],
});
Object.assign(ALPHABETS, { bm: ALPHABETS.boldsymbol, bold: ALPHABETS.mathbf, mathscr: ALPHABETS.mathcal, Bbb: ALPHABETS.mathbb });
/** Letters that Unicode had before the alphabets. */
const EARLIER_LETTERS = {
  mathcal: table("B:ℬ E:ℰ F:ℱ H:ℋ I:ℐ L:ℒ M:ℳ R:ℛ e:ℯ g:ℊ o:ℴ"), mathfrak: table("C:ℭ H:ℌ I:ℑ R:ℜ Z:ℨ"), mathbb: table("C:ℂ H:ℍ N:ℕ P:ℙ Q:ℚ R:ℝ Z:ℤ"),
};
Object.assign(EARLIER_LETTERS, { mathscr: EARLIER_LETTERS.mathcal, Bbb: EARLIER_LETTERS.mathbb });
const TEXTS = new Set(["text", "textrm", "textnormal", "textup", "mbox", "hbox", "textsf", "textbf", "textit", "texttt"]);
const ARGUMENT_IGNORED = new Set(["label", "hspace", "vspace", "mspace", "hspace*", "color"]);
const IGNORED = new Set(["nonumber", "notag", "hline", "allowbreak", "limits", "nolimits"]);

const TOKEN = /\\(?:(?:operatorname|hspace|tag)\*|[a-zA-Z]+|[^])|\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:\.\d+)?|[^]/gu;

const node = (tag, attributes, ...children) => ({ tag, attributes, children });
const mo = (text, attributes = {}) => node("mo", attributes, text);
const mi = (text, attributes = {}) => node("mi", attributes, text);
const fence = (text, attributes = { stretchy: "false" }) => mo(text, attributes);
const space = (width) => node("mspace", { width: `${width}em` });
const row = (children) => (children.length === 1 ? children[0] : node("mrow", {}, ...children));

const CLOSING = /[)\]}⟩⌋⌉|‖!′]/;
const isSign = (item) => item?.tag === "mo" && "−+±∓".includes(item.children[0]);

/** Replaces the letters and digits of a formula by those of an alphabet. */
function inAlphabet(item, name) {
  if (typeof item === "string") return item;
  if (!["mi", "mn"].includes(item.tag)) return { ...item, children: item.children.map((child) => inAlphabet(child, name)) };
  const [upper, lower, digit, upperGreek, lowerGreek] = ALPHABETS[name];
  const replaced = Array.from(item.children[0], (char) => {
    const code = char.codePointAt(0);
    const range = [[0x41, 26, upper], [0x61, 26, lower], [0x30, 10, digit], [0x391, 25, upperGreek], [0x3b1, 25, lowerGreek]].find(([first, size]) => code >= first && code < first + size);
    return EARLIER_LETTERS[name]?.get(char) ?? (range?.[2] ? String.fromCodePoint(code - range[0] + range[2]) : char);
  });
  return node(item.tag, {}, replaced.join(""));
}

class Parser {
  #tokens;
  #at = 0;
  #depth;

  constructor(source, depth = 0) {
    this.#tokens = source.match(TOKEN) ?? [];
    this.#depth = depth;
  }

  formula() {
    const rows = this.#rows(null);
    return rows.length === 1 && rows[0].length === 1 ? rows[0][0] : this.#table(rows, rows.some((cells) => cells.length > 1) ? "math-align" : "", true);
  }

  #peek() {
    while (/^\s$/.test(this.#tokens[this.#at] ?? "")) this.#at += 1;
    return this.#tokens[this.#at];
  }

  #next() {
    const token = this.#peek();
    if (token === undefined) throw new Error("the formula ends too early");
    this.#at += 1;
    return token;
  }

  #accept(token) {
    if (this.#peek() !== token) return false;
    this.#at += 1;
    return true;
  }

  /** Rows of cells up to `\end{name}`, or to the end of the formula for null. */
  #rows(name) {
    const rows = [[]];
    for (;;) {
      rows.at(-1).push(row(this.#items(["&", "\\\\", "\\cr", "\\end"])));
      const token = this.#peek();
      if (token === undefined && name === null) break;
      this.#next();
      if (token === "\\end") {
        const found = this.#rawGroup();
        if (found !== name) throw new Error(`\\begin{${name}} is closed by \\end{${found}}`);
        break;
      }
      if (token !== "&") {
        if (this.#peek() === "[" && token === "\\\\") this.#optional();
        rows.push([]);
      }
    }
    const last = rows.at(-1);
    if (rows.length > 1 && last.length === 1 && last[0].tag === "mrow" && last[0].children.length === 0) rows.pop();
    return rows;
  }

  #table(rows, cellClass, display, columns = []) {
    return node("mtable", display ? { displaystyle: "true" } : {}, ...rows.map((cells) => node("mtr", {}, ...cells.map((cell, i) => {
      const kind = columns[i] ?? cellClass;
      return node("mtd", kind ? { class: kind } : {}, cell);
    }))));
  }

  #enter() {
    if ((this.#depth += 1) > DEPTH_LIMIT) throw new Error("the formula is nested too deeply");
  }

  /** Items with their scripts, up to one of the tokens of `ends` or the end of the formula. */
  #items(ends) {
    this.#enter();
    const items = [];
    for (;;) {
      const token = this.#peek();
      if (token === undefined || ends.includes(token)) break;
      if (token === "}" || token === "\\right" || token === "&") throw new Error(`unexpected ${token}`);
      if (token === "\\displaystyle" || token === "\\textstyle") {
        this.#at += 1;
        items.push(node("mstyle", { displaystyle: String(token === "\\displaystyle") }, ...this.#items(ends)));
        break;
      }
      if (token === "\\over") {
        this.#at += 1;
        items.splice(0, items.length, node("mfrac", {}, row([...items]), row(this.#items(ends))));
        break;
      }
      const [item, ...spaces] = this.#item();
      // A sign after an operator has no space on both sides.
      if (isSign(item) && items.at(-1)?.tag === "mo" && !CLOSING.test(items.at(-1).children[0])) item.attributes.form = "prefix";
      if (item) items.push(item, ...spaces);
    }
    this.#depth -= 1;
    return items;
  }

  /** An item with its scripts, and the space after a function. */
  #item() {
    const token = this.#peek();
    const name = token.startsWith("\\") ? token.slice(1) : "";
    const base = token === "^" || token === "_" || token === "'" ? row([]) : this.#atom();
    if (base === null) return [];
    let limits = SUMS.has(name) || LIMIT_FUNCTIONS.has(name) || ["operatorname*", "mathop", "underbrace", "overbrace"].includes(name);
    let below = null;
    let above = null;
    for (;;) {
      if (this.#accept("\\limits")) limits = true;
      else if (this.#accept("\\nolimits")) limits = false;
      else if (below === null && this.#accept("_")) below = this.#argument();
      else if (this.#peek() === "'" && !above) {
        let primes = "";
        while (this.#accept("'")) primes += "′";
        above = mo(primes);
        if (this.#accept("^")) above = row([above, this.#argument()]);
      } else if (above === null && this.#accept("^")) above = this.#argument();
      else break;
    }
    if (this.#peek() === "^" || this.#peek() === "_") throw new Error("two scripts at one place");
    const [both, sub, sup] = limits ? ["munderover", "munder", "mover"] : ["msubsup", "msub", "msup"];
    const item = below && above ? node(both, {}, base, below, above) : below ? node(sub, {}, base, below) : above ? node(sup, {}, base, above) : base;
    const isFunction = FUNCTIONS.has(name) || name === "operatorname";
    const next = this.#peek();
    const needsSpace = isFunction && next !== undefined && !/^(?:[()[\]{},.;:!=+\-|/&^_}]|\\(?:left|right|end|\\|,|;|:|!|quad|qquad|big.*|Big.*|cdot|times|le|ge|\}|\|))$/.test(next);
    return needsSpace ? [item, space(0.1667)] : [item];
  }

  /** A group in braces, or one item without scripts. */
  #argument() {
    if (this.#accept("{")) {
      const items = this.#items(["}"]);
      this.#next();
      return row(items);
    }
    const token = this.#peek();
    if (/^\d/.test(token ?? "") && token.length > 1) {
      // Without braces, an argument is one digit.
      this.#tokens[this.#at] = token.slice(1);
      return node("mn", {}, token[0]);
    }
    return this.#atom() ?? row([]);
  }

  /** Source of a group in braces. */
  #rawGroup() {
    if (!this.#accept("{")) throw new Error("expected {");
    let text = "";
    for (let depth = 1; ; ) {
      const token = this.#tokens[this.#at];
      if (token === undefined) throw new Error("expected }");
      this.#at += 1;
      if (token === "{") depth += 1;
      else if (token === "}" && (depth -= 1) === 0) return text;
      text += token;
    }
  }

  /** Source of an optional argument in brackets, or null. */
  #optional() {
    if (!this.#accept("[")) return null;
    const from = this.#at;
    while (this.#next() !== "]");
    return this.#tokens.slice(from, this.#at - 1).join("");
  }

  #delimiter() {
    const token = this.#next();
    const name = token.slice(1);
    if (token === ".") return "";
    if (token.startsWith("\\") && DELIMITERS.has(name)) return DELIMITERS.get(name);
    if (/^[()[\]|/<>]$/.test(token)) return { "<": "⟨", ">": "⟩" }[token] ?? token;
    throw new Error(`${token} is not a delimiter`);
  }

  #atom() {
    const token = this.#next();
    if (token === "{") {
      const items = this.#items(["}"]);
      this.#next();
      return row(items);
    }
    if (token.startsWith("\\")) {
      this.#enter();
      const item = this.#command(token.slice(1), token);
      this.#depth -= 1;
      return item;
    }
    if (/^\d/.test(token)) return node("mn", {}, token);
    if (token === "~") return space(0.25);
    if (/^[()[\]|]$/.test(token)) return fence(token);
    if (token === "/") return mo("/", { lspace: "0", rspace: "0" });
    if (/^[-+=<>*,;:!?.%"@]$/.test(token)) return mo({ "-": "−", "*": "∗" }[token] ?? token, token === "." ? { lspace: "0", rspace: "0" } : {});
    return /^\p{L}$/u.test(token) ? mi(token) : mo(token);
  }

  #command(name, token) {
    if (IDENTIFIERS.has(name)) return mi(IDENTIFIERS.get(name));
    if (CONSTANTS.has(name)) return mi(CONSTANTS.get(name), { mathvariant: "normal" });
    if (DELIMITERS.has(name) && !OPERATORS.has(name)) return fence(DELIMITERS.get(name));
    if (OPERATORS.has(name)) return mo(OPERATORS.get(name), name.endsWith("arrow") ? { stretchy: "false" } : {});
    if (SUMS.has(name)) return mo(SUMS.get(name), { movablelimits: "true" });
    if (INTEGRALS.has(name)) return mo(INTEGRALS.get(name));
    if (FUNCTIONS.has(name)) return mi(name);
    if (LIMIT_FUNCTIONS.has(name)) return mo(name.replace(/^(lim|arg)(?=sup|inf|max|min)/, "$1 "), { movablelimits: "true", lspace: "0", rspace: "0.1667em" });
    if (name in SPACES) return space(SPACES[name]);
    if (name in ALPHABETS) return inAlphabet(this.#argument(), name);
    if (ACCENTS.has(name) || ACCENTS_BELOW.has(name)) return this.#accent(name);
    if (TEXTS.has(name)) return this.#text(name);
    if (ARGUMENT_IGNORED.has(name)) { this.#rawGroup(); return null; }
    if (IGNORED.has(name)) return null;
    const size = /^([bB]igg?)[lrm]?$/.exec(name);
    if (size) { const em = `${SIZES[size[1]]}em`; return fence(this.#delimiter(), { stretchy: "true", symmetric: "true", minsize: em, maxsize: em }); }
    return this.#structure(name) ?? node("mtext", { class: "math-unknown" }, token);
  }

  /** A text, which may have formulas between dollar signs. */
  #text(name) {
    const kind = { textbf: { class: "math-bold" }, textit: { class: "math-italic" } }[name] ?? {};
    const parts = this.#rawGroup().split(/(?<!\\)\$/);
    return row(parts.map((part, i) => (i % 2 ? new Parser(part, this.#depth).formula() : node("mtext", kind, part.replace(/\\([%$#&_{} ])/g, "$1").replace(/^ | $/g, "\u00a0")))));
  }

  /** An upright name. */
  #name() {
    if (this.#peek() !== "{") return this.#argument();
    const source = this.#rawGroup();
    return /\\[a-zA-Z]/.test(source) ? new Parser(source, this.#depth).formula() : mi(source.replace(/\\[,;:! ]/g, "\u2009"), { mathvariant: "normal" });
  }

  #accent(name) {
    const base = this.#argument();
    const mark = mo(ACCENTS.get(name) ?? ACCENTS_BELOW.get(name), { stretchy: String(STRETCHED.has(name)) });
    return ACCENTS.has(name) ? node("mover", { accent: "true" }, base, mark) : node("munder", { accentunder: "true" }, base, mark);
  }

  /** Commands with arguments of their own. Null for an unknown command. */
  #structure(name) {
    switch (name) {
      case "frac": case "dfrac": case "tfrac": case "cfrac": {
        const fraction = node("mfrac", {}, this.#argument(), this.#argument());
        return name === "frac" ? fraction : node("mstyle", { displaystyle: String(name !== "tfrac") }, fraction);
      }
      case "binom": case "dbinom": case "tbinom":
        return node("mrow", {}, mo("("), node("mfrac", { linethickness: "0" }, this.#argument(), this.#argument()), mo(")"));
      case "sqrt": {
        const index = this.#optional();
        const base = this.#argument();
        return index === null ? node("msqrt", {}, base) : node("mroot", {}, base, new Parser(index, this.#depth).formula());
      }
      case "overset": case "stackrel": { const above = this.#argument(); return node("mover", {}, this.#argument(), above); }
      case "underset": { const below = this.#argument(); return node("munder", {}, this.#argument(), below); }
      case "mathrm": case "operatorname": return this.#name();
      case "operatorname*": return node("mo", { movablelimits: "true", lspace: "0", rspace: "0.1667em" }, ...this.#name().children);
      case "left": return this.#fenced();
      case "begin": return this.#environment();
      case "bmod": case "mod": return mo("mod", { lspace: "0.2222em", rspace: "0.2222em" });
      case "pmod": return node("mrow", {}, space(0.5), fence("("), mi("mod"), space(0.3333), this.#argument(), fence(")"));
      case "not": { const base = this.#atom(); return typeof base?.children[0] === "string" ? { ...base, children: [`${base.children[0]}\u0338`] } : base; }
      case "boxed": case "fbox": return node("mrow", { class: "math-box" }, this.#argument());
      case "phantom": return node("mphantom", {}, this.#argument());
      case "mathop": case "mathbin": case "mathrel": case "mathord": case "mathstrut": return this.#argument();
      case "textcolor": this.#rawGroup(); return this.#argument();
      case "tag": return node("mtext", {}, `\u2003(${this.#rawGroup()})`);
      case "substack": { const rows = new Parser(this.#rawGroup(), this.#depth).#rows(null); return this.#table(rows, "", false); }
      case "xrightarrow": case "xleftarrow": case "xRightarrow": case "xleftrightarrow": {
        const below = this.#optional();
        const arrow = mo(ARROWS[name], { stretchy: "true" });
        const above = node("mpadded", { lspace: "0.5em", width: "+1em" }, this.#argument());
        return below === null ? node("mover", {}, arrow, above) : node("munderover", {}, arrow, new Parser(below, this.#depth).formula(), above);
      }
      default: return null;
    }
  }

  #fenced() {
    const items = [fence(this.#delimiter(), { stretchy: "true" })];
    for (;;) {
      items.push(...this.#items(["\\right", "\\middle"]));
      const token = this.#next();
      items.push(fence(this.#delimiter(), { stretchy: "true" }));
      if (token === "\\right") return node("mrow", {}, ...items.filter((item) => item.children[0] !== ""));
    }
  }

  #environment() {
    const full = this.#rawGroup();
    const environment = ENVIRONMENTS[full.replace(/\*$/, "")];
    if (!environment) throw new Error(`unknown environment ${full}`);
    const name = full.replace(/\*$/, "");
    const columns = ["array", "alignedat", "alignat", "subarray"].includes(name) ? this.#rawGroup().match(/[lcr]/g) ?? [] : [];
    const kinds = name === "array" ? columns.map((letter) => ({ l: "math-left", r: "math-right" })[letter]) : [];
    const [open, close, cellClass] = environment;
    const content = this.#table(this.#rows(full), cellClass, cellClass === "math-align" || name === "dcases" || name.startsWith("gather"), kinds);
    if (!open && !close) return content;
    return node("mrow", {}, ...[open && fence(open, { stretchy: "true" }), content, close && fence(close, { stretchy: "true" })].filter(Boolean));
  }
}

/** Parses a formula to a tree. Throws an error for a formula that is not complete. */
export function parseLatex(source) {
  if (source.length > SOURCE_LIMIT) throw new Error(`the formula has more than ${SOURCE_LIMIT} characters`);
  return new Parser(source.trim()).formula();
}

const build = (item) => (typeof item === "string" ? item : mathml(item.tag, item.attributes, item.children.map(build)));

/** Creates the element of a formula. `display`: it has a line of its own. `source`: text to show if it has an error. */
export function formula(latex, display, source) {
  try {
    const content = build(parseLatex(latex));
    return mathml("math", { dir: "ltr", display: display ? "block" : null, class: display ? "math-block" : null, alttext: latex.trim() }, content);
  } catch {
    return el("code", { class: "math-source", dir: "ltr", text: source });
  }
}
