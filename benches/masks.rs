//! Benchmark of grammar token masks, in microseconds per token.
//!
//! Arguments: model or vocabulary files (default: the built-in model). Tokens are sampled uniformly
//! from the allowed ones, which visits many grammar states and is the worst case for caches.
#![expect(clippy::print_stdout, reason = "a benchmark that prints results")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tabla::Source;
use tabla::text::{Grammar, GrammarEngine, Tokenizer};

fn schema(text: &str) -> Grammar {
    Grammar::JsonSchema(serde_json::from_str(text).expect("valid JSON"))
}

/// Returns the grammars and their names.
fn grammars() -> [(&'static str, Grammar); 4] {
    let person = r#"{"type": "object", "additionalProperties": false,
        "required": ["name", "age", "tags", "address"], "properties": {
            "name": {"type": "string", "maxLength": 40}, "age": {"type": "integer", "minimum": 0},
            "tags": {"type": "array", "items": {"enum": ["old", "new", "sold"]}, "maxItems": 8},
            "address": {"type": "object", "required": ["street"], "properties": {
                "street": {"type": "string"}, "number": {"type": ["integer", "null"]}}}}}"#;
    let date = r"[0-9]{4}-(0[1-9]|1[0-2])-([0-2][0-9]|3[01])T[0-9]{2}:[0-9]{2}(\.[0-9]{3})?Z( [a-z]+){4,30}";
    let list = "start: \"- \" item (\"\\n- \" item){3,30}\nitem: /[A-Za-z][a-z ,]{3,60}/";
    [
        ("JSON schema", schema(person)),
        ("any JSON", schema("{}")),
        ("regex", Grammar::Regex(date.to_string())),
        ("Lark", Grammar::Lark(list.to_string())),
    ]
}

/// Number of generated texts per grammar.
const TEXTS: u64 = 20;
/// Maximum number of tokens of a text.
const TOKENS: usize = 200;

fn main() {
    let args = std::env::args().skip(1).filter(|a| a != "--bench");
    let mut sources: Vec<Source> = args.map(|a| Source::Path(PathBuf::from(a))).collect();
    if sources.is_empty() {
        sources.push(Source::BuiltIn);
    }
    println!(
        "{:>9}  {:<18}{:>9}{:>8}{:>8}{:>8}{:>9}",
        "tokens", "grammar", "masks", "median", "p90", "p99", "max"
    );
    for source in sources {
        let tokenizer = Arc::new(tabla::tools::load_tokenizer(&source).expect("a vocabulary"));
        let start = Instant::now();
        let engine = GrammarEngine::new(&tokenizer).expect("an engine");
        let created = start.elapsed();
        for (name, grammar) in grammars() {
            let mut times = mask_times(&tokenizer, &engine, &grammar);
            times.sort_by(f64::total_cmp);
            let quantile = |part: f64| {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    clippy::cast_precision_loss,
                    reason = "an index in a list"
                )]
                let index = (part * (times.len() - 1) as f64) as usize;
                times[index]
            };
            println!(
                "{:>9}  {name:<18}{:>9}{:>8.1}{:>8.1}{:>8.1}{:>9.1}",
                tokenizer.vocab_size(),
                times.len(),
                quantile(0.5),
                quantile(0.9),
                quantile(0.99),
                quantile(1.0)
            );
        }
        println!("creating the engine of this vocabulary: {created:.1?}");
    }
}

/// Returns the times of the masks of random texts, in microseconds.
fn mask_times(tokenizer: &Tokenizer, engine: &GrammarEngine, grammar: &Grammar) -> Vec<f64> {
    let compiled = engine.compile(grammar).expect("a valid grammar");
    let mut mask = vec![0_u32; tokenizer.vocab_size().div_ceil(32)];
    let mut times = Vec::new();
    for seed in 0..TEXTS {
        let mut state = seed;
        let mut matcher = compiled.matcher();
        for _ in 0..TOKENS {
            let start = Instant::now();
            matcher.mask(&mut mask).expect("an allowed token");
            times.push(start.elapsed().as_secs_f64() * 1e6);
            // Knuth's linear congruential generator (MMIX).
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let allowed: u64 = mask.iter().map(|bits| u64::from(bits.count_ones())).sum();
            let nth = usize::try_from((state >> 33) % allowed).expect("less than the vocabulary");
            let ids = (0_u32..).zip(
                mask.iter()
                    .flat_map(|bits| (0..32).map(move |b| bits >> b & 1)),
            );
            let (token, _) = ids
                .filter(|(_, allowed)| *allowed == 1)
                .nth(nth)
                .expect("`nth` is less than the number of allowed tokens");
            matcher.commit(token).expect("an allowed token");
            if matcher.is_done() {
                break;
            }
        }
    }
    times
}
