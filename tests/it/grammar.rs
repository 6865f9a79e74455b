//! Grammars: what they let through is what they ask for, in the vocabularies of real models too, and
//! none of those that were made to break their compiler does.

use crate::common::{print, testdata};
use crate::tokenizer::unpacked;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tabla::text::{Grammar, GrammarEngine, Matcher, Tokenizer};
use tabla::{ErrorKind, Source};

/// Schemas by keyword, after the groups of the JSON Schema Test Suite.
pub(crate) const SCHEMAS: &str = include_str!("grammar/schemas.json");

/// A generator of numbers that looks random.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }
}

/// What a walk measures.
#[derive(Default)]
pub(crate) struct Masks(Vec<Duration>);

impl Masks {
    /// Median, nine tenths and largest in microseconds.
    fn report(mut self, name: &str) {
        self.0.sort_unstable();
        let at = |tenths: usize| self.0[(self.0.len() - 1) * tenths / 10].as_micros();
        print(&format!(
            "{name}: {} masks, median {} us, p90 {} us, max {} us",
            self.0.len(),
            at(5),
            at(9),
            at(10)
        ));
    }
}

/// Tokens of a walk after which it ends as soon as it may.
const LONG: usize = 60;
/// Tokens of a walk at most: what closes all that is open takes some more.
const TOKENS_MAX: usize = 600;

/// A model that takes any token that is allowed.
pub(crate) struct Walker<'t> {
    tokenizer: &'t Tokenizer,
    random: Random,
    /// Tokens that close something.
    closing: Vec<u32>,
    pub(crate) masks: Masks,
}

fn is_allowed(mask: &[u32], id: u32) -> bool {
    mask[id as usize / 32] & 1 << (id % 32) != 0
}

impl<'t> Walker<'t> {
    pub(crate) fn new(tokenizer: &'t Tokenizer) -> Self {
        let ids = (0u32..).take(tokenizer.vocab_size());
        let closes = |id: &u32| matches!(tokenizer.token_bytes(*id), b"}" | b"]" | b"\"" | b"null");
        Self {
            tokenizer,
            random: Random(7),
            closing: ids.filter(closes).collect(),
            masks: Masks::default(),
        }
    }

    /// The text of an answer; `None` where it would go on and on. What ends or closes something is
    /// taken as often as all else together, and always once the answer is long.
    pub(crate) fn walk(&mut self, matcher: &mut Matcher) -> Option<Vec<u8>> {
        let mut mask = vec![0; self.tokenizer.vocab_size().div_ceil(32)];
        let mut text = Vec::new();
        for count in 0..TOKENS_MAX {
            let start = Instant::now();
            matcher.mask(&mut mask).expect("a mask");
            self.masks.0.push(start.elapsed());
            let stops = self.tokenizer.stops();
            let end = stops.iter().find(|id| is_allowed(&mask, **id));
            assert_eq!(end.is_some(), matcher.may_end().expect("a state"), "ends");
            let closes = count > LONG || self.random.below(2) == 0;
            if let Some(end) = end.filter(|_| closes || matcher.is_done()) {
                matcher.commit(*end).expect("allowed");
                assert!(matcher.is_done());
                return Some(text);
            }
            let closing = self
                .closing
                .iter()
                .filter(|id| closes && is_allowed(&mask, **id));
            let closing: Vec<u32> = closing.copied().collect();
            let token = match closing.len() {
                0 => self.any(&mut mask),
                count => closing[self.random.below(count)],
            };
            text.extend_from_slice(self.tokenizer.token_bytes(token));
            matcher.commit(token).expect("allowed");
        }
        None
    }

    /// One of the tokens that are allowed and do not end the answer.
    fn any(&mut self, mask: &mut [u32]) -> u32 {
        for id in self.tokenizer.stops() {
            mask[*id as usize / 32] &= !(1 << (id % 32));
        }
        let count: u32 = mask.iter().map(|word| word.count_ones()).sum();
        let place = self.random.below(count as usize);
        let mut allowed = (0u32..)
            .take(mask.len() * 32)
            .filter(|id| is_allowed(mask, *id));
        allowed.nth(place).expect("one of them")
    }
}

/// Whether a text is JSON that a schema accepts. `false`: nobody can say.
pub(crate) fn is_valid(schema: &Value, text: &str) -> Result<bool, String> {
    let validator = jsonschema::options().should_validate_formats(true);
    let validator = validator.build(schema).expect("a schema");
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        // Of digits there may be any number, for which an f64 has no room.
        Err(e) if e.to_string().starts_with("number out of range") => return Ok(false),
        Err(e) => return Err(e.to_string()),
    };
    match validator.validate(&value) {
        Ok(()) => Ok(true),
        // The library has a leap second in every minute.
        Err(_) if text.contains(":60") => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

/// Walks through every schema; all that comes out is JSON that the schema accepts.
fn check_schemas(name: &str, tokenizer: Tokenizer, walks: usize) {
    let tokenizer = Arc::new(tokenizer);
    let start = Instant::now();
    let engine = GrammarEngine::new(&tokenizer).expect(name);
    let made = start.elapsed();
    let groups: Map<String, Value> = serde_json::from_str(SCHEMAS).expect("schemas");
    let mut walker = Walker::new(&tokenizer);
    let (mut whole, mut endless, mut odd) = (0, 0, 0);
    let (mut compiling, mut schemas) = (Vec::new(), 0);
    for (group, list) in &groups {
        for schema in list.as_array().expect("a list") {
            let start = Instant::now();
            let compiled = engine.compile(&Grammar::JsonSchema(schema.clone()));
            compiling.push(start.elapsed());
            let compiled = compiled.unwrap_or_else(|e| panic!("{group} {schema}: {e}"));
            schemas += 1;
            for _ in 0..walks {
                let Some(text) = walker.walk(&mut compiled.matcher()) else {
                    endless += 1;
                    continue;
                };
                let text = String::from_utf8(text).expect("UTF-8");
                match is_valid(schema, &text) {
                    Ok(true) => whole += 1,
                    Ok(false) => odd += 1,
                    Err(e) => panic!("{group} {schema}: {text}: {e}"),
                }
            }
        }
    }
    compiling.sort_unstable();
    print(&format!(
        "{name}: engine in {} ms, {schemas} schemas compiled in {} us each (median), {} us at most; {whole} answers, {endless} unfinished, {odd} with numbers past f64 or leap seconds",
        made.as_millis(),
        compiling[schemas / 2].as_micros(),
        compiling[schemas - 1].as_micros(),
    ));
    walker.masks.report(name);
    let others = endless + odd;
    assert!(
        others * 10 <= whole,
        "{name}: {others} answers beside {whole} say nothing"
    );
}

#[test]
fn what_schemas_let_through_they_accept() {
    let tokenizer = tabla::load_tokenizer(&Source::BuiltIn).expect("built in");
    check_schemas("built in", tokenizer, 12);
}

/// The tokenizer of a file below the folder of real models.
fn real(place: &str) -> Option<Tokenizer> {
    let path = testdata("")?.join(place);
    let file = unpacked(&path)?;
    let tokenizer = if place.ends_with(".json") {
        let text = std::fs::read_to_string(&file).expect(place);
        let config = std::fs::read_to_string(path.with_file_name("tokenizer_config.json"));
        Tokenizer::from_json(&text, config.ok().as_deref())
    } else {
        tabla::load_tokenizer(&Source::Path(file.clone()))
    };
    if file != path {
        std::fs::remove_file(&file).expect("made here");
    }
    Some(tokenizer.expect(place))
}

#[test]
fn what_schemas_let_through_they_accept_in_real_vocabularies() {
    for place in [
        "vocab/ggml-vocab-llama-bpe.gguf",
        "vocab/ggml-vocab-qwen2.gguf",
        "vocab/ggml-vocab-llama-spm.gguf",
        "hf-tokenizers/gemma3/tokenizer.json",
        "hf-tokenizers/qwen3/tokenizer.json",
    ] {
        if let Some(tokenizer) = real(place) {
            check_schemas(place, tokenizer, 2);
        }
    }
}

/// A grammar that was made to break the compiler, and what is wanted: an error or a grammar.
struct Bomb {
    name: &'static str,
    grammar: Grammar,
    error: Option<ErrorKind>,
}

fn chain(links: usize, link: impl Fn(Value) -> Value) -> Grammar {
    let mut definitions = Map::new();
    for n in 0..links {
        let next = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
        definitions.insert(format!("d{n}"), link(next));
    }
    definitions.insert(format!("d{links}"), json!({ "type": "null" }));
    Grammar::JsonSchema(json!({ "$ref": "#/$defs/d0", "$defs": definitions }))
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(
        json!({ "type": "null" }),
        |value, _| json!({ "items": value }),
    )
}

fn bombs() -> Vec<Bomb> {
    let repeated = |open: &str, n: usize, inside: &str, close: &str| {
        format!("{}{inside}{}", open.repeat(n), close.repeat(n))
    };
    let properties = |next: Value| json!({ "type": "object", "properties": { "x": next } });
    let items = |next: Value| json!({ "type": "array", "items": { "anyOf": [next] } });
    let doubled: Vec<_> = (0..60)
        .map(|n| format!("A{n}: A{} A{}", n + 1, n + 1))
        .collect();
    let doubled = format!("start: A0\n{}\nA60: /x+y?/\n", doubled.join("\n"));
    let in_a_row: Vec<_> = (0..5000).map(|n| format!("r{n}: r{}", n + 1)).collect();
    let in_a_row = format!("start: r0\n{}\nr5000: \"x\" r0\n", in_a_row.join("\n"));
    let refused = Some(ErrorKind::Grammar);
    let large = Some(ErrorKind::TooLarge);
    [
        ("a chain of properties", chain(1000, properties), None),
        ("a long chain of properties", chain(4000, properties), large),
        ("a chain of items", chain(600, items), None),
        ("a long chain of items", chain(3000, items), large),
        ("a chain of references", chain(2000, |next| next), None),
        ("a long chain of references", chain(4000, |next| next), large),
        ("a chain in Lark", match chain(2500, |next| next) {
            Grammar::JsonSchema(schema) => Grammar::Lark(format!("start: %json {schema}")),
            other => other,
        }, large),
        ("a schema that is itself", Grammar::JsonSchema(json!({ "$ref": "#" })), refused),
        ("two that are each other", Grammar::JsonSchema(json!({
            "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } },
        })), refused),
        ("a deep schema", Grammar::JsonSchema(nested(120)), None),
        ("a deeper schema", Grammar::JsonSchema(nested(130)), large),
        ("a large schema", Grammar::JsonSchema(json!({ "enum": ["x".repeat(300_000)] })), large),
        ("many schemas", Grammar::JsonSchema(json!({ "anyOf": vec![true; 30_000] })), large),
        ("a long text", Grammar::JsonSchema(json!({ "type": "string", "maxLength": 2_000_000_000 })), None),
        ("a text that is long", Grammar::JsonSchema(json!({ "type": "string", "minLength": 2_000_000_000 })), None),
        ("many items", Grammar::JsonSchema(json!({ "type": "array", "minItems": 1_000_000_000 })), None),
        ("groups in a pattern", Grammar::JsonSchema(json!({ "type": "string", "pattern": repeated("(", 60_000, "a", ")") })), refused),
        ("groups in an expression", Grammar::Regex(repeated("(", 30_000, "a", ")")), refused),
        ("repetitions", Grammar::Regex("((a{1,1000}){1,1000}){1,1000}".into()), None),
        ("steps back", Grammar::Regex("(.*a){50}.*".into()), None),
        ("groups in Lark", Grammar::Lark(format!("start: {}", repeated("(", 30_000, "\"a\"", ")"))), refused),
        ("templates in Lark", Grammar::Lark(format!("start: {}", repeated("a{", 20_000, "b", "}"))), refused),
        ("repetitions in Lark", Grammar::Lark("start: ((x{1,9999} x){1,9999} x){1,9999}\nx: \"a\" x \"b\" | \"c\"".into()), None),
        ("doubled terminals", Grammar::Lark(doubled), refused),
        ("rules in a row", Grammar::Lark(in_a_row), None),
        ("a large grammar", Grammar::Lark(format!("start: \"{}\"", "a".repeat(70_000))), large),
        ("groups in GBNF", Grammar::Gbnf(format!("root ::= {}", repeated("(", 30_000, "\"a\"", ")"))), refused),
    ]
    .into_iter()
    .map(|(name, grammar, error)| Bomb { name, grammar, error })
    .collect()
}

/// All of them on a thread with a small stack, as servers have them: an overflow would end the
/// process.
#[test]
fn grammars_made_to_break_the_compiler_do_not() {
    let work = || {
        let tokenizer = Arc::new(tabla::load_tokenizer(&Source::BuiltIn).expect("built in"));
        let engine = GrammarEngine::new(&tokenizer).expect("an engine");
        let mut random = Random(1);
        for Bomb {
            name,
            grammar,
            error,
        } in bombs()
        {
            let start = Instant::now();
            let compiled = engine.compile(&grammar);
            assert!(
                start.elapsed() < Duration::from_secs(6),
                "{name} takes too long"
            );
            assert_eq!(
                compiled.as_ref().err().map(|e| e.kind()),
                error,
                "{name}: {compiled:?}"
            );
            let Ok(compiled) = compiled else { continue };
            let mut matcher = compiled.matcher();
            let mut mask = vec![0; tokenizer.vocab_size().div_ceil(32)];
            for _ in 0..40 {
                if matcher.is_done() || matcher.mask(&mut mask).is_err() {
                    break;
                }
                let bits =
                    (0..tokenizer.vocab_size()).filter(|n| mask[n / 32] & 1 << (n % 32) != 0);
                let bits: Vec<usize> = bits.collect();
                let token = bits[random.below(bits.len())];
                let token = u32::try_from(token).expect("an id");
                if let Err(error) = matcher.commit(token) {
                    assert_eq!(error.kind(), ErrorKind::Grammar, "{name}: {error}");
                    break;
                }
            }
        }
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(work);
    thread.expect("a thread").join().expect("no panic");
}
