//! Grammars: output that matches a JSON schema's grammar is valid, also with vocabularies of real
//! models; hostile grammars cannot crash the compiler.

use crate::common::{print, testdata};
use crate::tokenizer::unpacked;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tabla::text::{Grammar, GrammarEngine, Matcher, Tokenizer};
use tabla::{ErrorKind, Source};
use tabla_json_schema::is_valid;
use tabla_testkit::fixed_json;

/// Schemas by keyword, in the groups of the JSON Schema Test Suite.
pub(crate) const SCHEMAS: &str = include_str!("grammar/schemas.json");

/// A pseudorandom number generator.
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

/// Durations of mask computations.
#[derive(Default)]
pub(crate) struct MaskTimes(Vec<Duration>);

impl MaskTimes {
    /// Prints the median, 90th percentile and maximum in microseconds.
    fn report(mut self, name: &str) {
        self.0.sort_unstable();
        let percentile = |tenths: usize| self.0[(self.0.len() - 1) * tenths / 10].as_micros();
        print(&format!(
            "{name}: {} masks, median {} us, p90 {} us, max {} us",
            self.0.len(),
            percentile(5),
            percentile(9),
            percentile(10)
        ));
    }
}

/// Number of tokens after which a walk ends as soon as possible.
const CLOSE_AFTER: usize = 60;
/// Maximum number of tokens of a walk, which includes closing all open brackets.
const TOKENS_MAX: usize = 600;

/// Generates random output that matches a grammar.
pub(crate) struct Walker<'t> {
    tokenizer: &'t Tokenizer,
    random: Random,
    /// Tokens that close a bracket or a string.
    closing: Vec<u32>,
    pub(crate) masks: MaskTimes,
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
            masks: MaskTimes::default(),
        }
    }

    /// Returns the text of a random output, or `None` if it exceeds the maximum length. Prefers closing
    /// and end tokens with probability 1/2, and always in a long output.
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
            let closes = count > CLOSE_AFTER || self.random.below(2) == 0;
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

    /// Picks a random allowed token that does not end the output.
    fn any(&mut self, mask: &mut [u32]) -> u32 {
        for id in self.tokenizer.stops() {
            mask[*id as usize / 32] &= !(1 << (id % 32));
        }
        let count: u32 = mask.iter().map(|word| word.count_ones()).sum();
        let index = self.random.below(count as usize);
        let mut allowed = (0u32..)
            .take(mask.len() * 32)
            .filter(|id| is_allowed(mask, *id));
        allowed.nth(index).expect("the index is in range")
    }
}

/// Generates random outputs for each schema and validates them.
fn check_schemas(name: &str, tokenizer: Tokenizer, walks: usize) {
    let tokenizer = Arc::new(tokenizer);
    let start = Instant::now();
    let engine = GrammarEngine::new(&tokenizer).expect(name);
    let engine_time = start.elapsed();
    let groups: Map<String, Value> = serde_json::from_str(SCHEMAS).expect("schemas");
    let mut walker = Walker::new(&tokenizer);
    let (mut valid, mut unfinished, mut undecided) = (0, 0, 0);
    let (mut compile_times, mut schemas) = (Vec::new(), 0);
    for (group, list) in &groups {
        for schema in list.as_array().expect("a list") {
            let start = Instant::now();
            let compiled = engine.compile(&Grammar::JsonSchema(schema.clone()));
            compile_times.push(start.elapsed());
            let compiled = compiled.unwrap_or_else(|e| panic!("{group} {schema}: {e}"));
            schemas += 1;
            for _ in 0..walks {
                let Some(text) = walker.walk(&mut compiled.matcher()) else {
                    unfinished += 1;
                    continue;
                };
                let text = String::from_utf8(text).expect("UTF-8");
                match is_valid(schema, &text) {
                    Ok(true) => valid += 1,
                    Ok(false) => undecided += 1,
                    Err(e) => panic!("{group} {schema}: {text}: {e}"),
                }
            }
        }
    }
    compile_times.sort_unstable();
    print(&format!(
        "{name}: engine created in {} ms, {schemas} schemas compiled in {} us (median), {} us (max); {valid} valid outputs, {unfinished} unfinished, {undecided} undecided (numbers beyond f64, leap seconds)",
        engine_time.as_millis(),
        compile_times[schemas / 2].as_micros(),
        compile_times[schemas - 1].as_micros(),
    ));
    walker.masks.report(name);
    let others = unfinished + undecided;
    assert!(
        others * 10 <= valid,
        "{name}: only {valid} valid outputs, {others} unfinished or undecided"
    );
}

#[test]
fn output_is_valid_for_schema() {
    let tokenizer = tabla::tools::load_tokenizer(&Source::BuiltIn).expect("built in");
    check_schemas("built in", tokenizer, 12);
}

/// Loads the tokenizer of a file in the directory of real models.
fn real(name: &str) -> Option<Tokenizer> {
    let path = testdata("")?.join(name);
    let file = unpacked(&path)?;
    let tokenizer = if name.ends_with(".json") {
        let text = std::fs::read_to_string(&file).expect(name);
        let config = std::fs::read_to_string(path.with_file_name("tokenizer_config.json"));
        Tokenizer::from_json(&text, config.ok().as_deref())
    } else {
        tabla::tools::load_tokenizer(&Source::Path(file.clone()))
    };
    if file != path {
        std::fs::remove_file(&file).expect("an unpacked file");
    }
    Some(tokenizer.expect(name))
}

#[test]
fn output_is_valid_for_schema_in_real_vocabularies() {
    for name in [
        "vocab/ggml-vocab-llama-bpe.gguf",
        "vocab/ggml-vocab-qwen2.gguf",
        "vocab/ggml-vocab-llama-spm.gguf",
        "hf-tokenizers/gemma3/tokenizer.json",
        "hf-tokenizers/qwen3/tokenizer.json",
    ] {
        if let Some(tokenizer) = real(name) {
            check_schemas(name, tokenizer, 2);
        }
    }
}

/// A hostile grammar and the expected error, `None` if it must compile.
struct HostileGrammar {
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
    definitions.insert(format!("d{links}"), fixed_json!({ "type": "null" }));
    Grammar::JsonSchema(json!({ "$ref": "#/$defs/d0", "$defs": definitions }))
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(
        fixed_json!({ "type": "null" }),
        |value, _| json!({ "items": value }),
    )
}

fn hostile_grammars() -> Vec<HostileGrammar> {
    let repeated = |open: &str, n: usize, inside: &str, close: &str| {
        format!("{}{inside}{}", open.repeat(n), close.repeat(n))
    };
    let properties = |next: Value| json!({ "type": "object", "properties": { "x": next } });
    let items = |next: Value| json!({ "type": "array", "items": { "anyOf": [next] } });
    let doubled: Vec<_> = (0..60)
        .map(|n| format!("A{n}: A{} A{}", n + 1, n + 1))
        .collect();
    let doubled = format!("start: A0\n{}\nA60: /x+y?/\n", doubled.join("\n"));
    let rule_chain: Vec<_> = (0..5000).map(|n| format!("r{n}: r{}", n + 1)).collect();
    let rule_chain = format!("start: r0\n{}\nr5000: \"x\" r0\n", rule_chain.join("\n"));
    let invalid = Some(ErrorKind::Grammar);
    let too_large = Some(ErrorKind::TooLarge);
    [
        ("a chain of properties", chain(1000, properties), None),
        ("a long chain of properties", chain(4000, properties), too_large),
        ("a chain of items", chain(600, items), None),
        ("a long chain of items", chain(3000, items), too_large),
        ("a chain of references", chain(2000, |next| next), None),
        ("a long chain of references", chain(4000, |next| next), too_large),
        ("a chain in Lark", match chain(2500, |next| next) {
            Grammar::JsonSchema(schema) => Grammar::Lark(format!("start: %json {schema}")),
            other => other,
        }, too_large),
        ("a self-referencing schema", Grammar::JsonSchema(fixed_json!({ "$ref": "#" })), invalid),
        ("two mutually referencing schemas", Grammar::JsonSchema(fixed_json!({
            "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } },
        })), invalid),
        ("a deep schema", Grammar::JsonSchema(nested(120)), None),
        ("a deeper schema", Grammar::JsonSchema(nested(130)), too_large),
        ("a large schema", Grammar::JsonSchema(json!({ "enum": ["x".repeat(300_000)] })), too_large),
        ("many schemas", Grammar::JsonSchema(json!({ "anyOf": vec![true; 30_000] })), too_large),
        ("a long maximum length", Grammar::JsonSchema(json!({ "type": "string", "maxLength": 2_000_000_000 })), None),
        ("a long minimum length", Grammar::JsonSchema(json!({ "type": "string", "minLength": 2_000_000_000 })), None),
        ("many items", Grammar::JsonSchema(json!({ "type": "array", "minItems": 1_000_000_000 })), None),
        ("groups in a pattern", Grammar::JsonSchema(json!({ "type": "string", "pattern": repeated("(", 60_000, "a", ")") })), invalid),
        ("groups in a regex", Grammar::Regex(repeated("(", 30_000, "a", ")")), invalid),
        ("repetitions", Grammar::Regex("((a{1,1000}){1,1000}){1,1000}".into()), None),
        ("backtracking", Grammar::Regex("(.*a){50}.*".into()), None),
        ("groups in Lark", Grammar::Lark(format!("start: {}", repeated("(", 30_000, "\"a\"", ")"))), invalid),
        ("templates in Lark", Grammar::Lark(format!("start: {}", repeated("a{", 20_000, "b", "}"))), invalid),
        ("repetitions in Lark", Grammar::Lark("start: ((x{1,9999} x){1,9999} x){1,9999}\nx: \"a\" x \"b\" | \"c\"".into()), None),
        ("doubled terminals", Grammar::Lark(doubled), invalid),
        ("a chain of rules", Grammar::Lark(rule_chain), None),
        ("a large grammar", Grammar::Lark(format!("start: \"{}\"", "a".repeat(70_000))), too_large),
        ("groups in GBNF", Grammar::Gbnf(format!("root ::= {}", repeated("(", 30_000, "\"a\"", ")"))), invalid),
    ]
    .into_iter()
    .map(|(name, grammar, error)| HostileGrammar { name, grammar, error })
    .collect()
}

/// Compiles them on a thread with a small stack, as in servers: an overflow would abort the process.
#[test]
fn hostile_grammars_do_not_crash_compiler() {
    let work = || {
        let tokenizer = Arc::new(tabla::tools::load_tokenizer(&Source::BuiltIn).expect("built in"));
        let engine = GrammarEngine::new(&tokenizer).expect("an engine");
        let mut random = Random(1);
        for HostileGrammar {
            name,
            grammar,
            error,
        } in hostile_grammars()
        {
            let start = Instant::now();
            let compiled = engine.compile(&grammar);
            assert!(
                start.elapsed() < Duration::from_secs(60),
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
