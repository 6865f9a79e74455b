//! How long it takes to find which tokens a grammar lets through, in microseconds a token.
//!
//! Arguments: files with vocabularies (the built-in model's). The text is picked at random among the tokens
//! that are let through: ever new states of the grammar, which is the hardest for what it keeps.
#![expect(clippy::print_stdout, reason = "a program that prints figures")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tabla::Source;
use tabla::text::{Grammar, GrammarEngine, Tokenizer};

fn schema(text: &str) -> Grammar {
    Grammar::JsonSchema(serde_json::from_str(text).expect("it is JSON"))
}

/// Names of grammars and what they are.
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
        ("JSON of a schema", schema(person)),
        ("any JSON", schema("{}")),
        ("an expression", Grammar::Regex(date.to_string())),
        ("Lark", Grammar::Lark(list.to_string())),
    ]
}

/// Answers of each grammar, and tokens of each at most.
const ANSWERS: u64 = 20;
const TOKENS: usize = 200;

fn main() {
    let args = std::env::args().skip(1).filter(|a| a != "--bench");
    let mut sources: Vec<Source> = args.map(|a| Source::Path(PathBuf::from(a))).collect();
    if sources.is_empty() {
        sources.push(Source::BuiltIn);
    }
    println!(
        "{:>9}  {:<18}{:>9}{:>8}{:>8}{:>8}{:>9}",
        "tokens", "grammar", "masks", "median", "p90", "p99", "longest"
    );
    for source in sources {
        let tokenizer = Arc::new(tabla::load_tokenizer(&source).expect("a vocabulary"));
        let begun = Instant::now();
        let engine = GrammarEngine::new(&tokenizer).expect("an engine");
        let opened = begun.elapsed();
        for (name, grammar) in grammars() {
            let mut took = walks(&tokenizer, &engine, &grammar);
            took.sort_by(f64::total_cmp);
            let at = |part: f64| {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    clippy::cast_precision_loss,
                    reason = "a place in a list"
                )]
                let place = (part * (took.len() - 1) as f64) as usize;
                took[place]
            };
            println!(
                "{:>9}  {name:<18}{:>9}{:>8.1}{:>8.1}{:>8.1}{:>9.1}",
                tokenizer.vocab_size(),
                took.len(),
                at(0.5),
                at(0.9),
                at(0.99),
                at(1.0)
            );
        }
        println!("the engine of this vocabulary: {opened:.1?}");
    }
}

/// The times of the masks of random answers, in microseconds.
fn walks(tokenizer: &Tokenizer, engine: &GrammarEngine, grammar: &Grammar) -> Vec<f64> {
    let compiled = engine.compile(grammar).expect("it compiles");
    let mut mask = vec![0_u32; tokenizer.vocab_size().div_ceil(32)];
    let mut took = Vec::new();
    for seed in 0..ANSWERS {
        let mut state = seed;
        let mut matcher = compiled.matcher();
        for _ in 0..TOKENS {
            let begun = Instant::now();
            matcher.mask(&mut mask).expect("there is a way on");
            took.push(begun.elapsed().as_secs_f64() * 1e6);
            // Knuth's linear congruential generator (MMIX).
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let open: u64 = mask.iter().map(|bits| u64::from(bits.count_ones())).sum();
            let nth = usize::try_from((state >> 33) % open).expect("a place in a vocabulary");
            let ids = (0_u32..).zip(
                mask.iter()
                    .flat_map(|bits| (0..32).map(move |b| bits >> b & 1)),
            );
            let (token, _) = ids
                .filter(|(_, open)| *open == 1)
                .nth(nth)
                .expect("there are so many");
            matcher.commit(token).expect("it is let through");
            if matcher.is_done() {
                break;
            }
        }
    }
    took
}
