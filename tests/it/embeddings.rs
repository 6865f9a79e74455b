//! Embeddings of tiny random checkpoints against `transformers` and sentence-transformers, from
//! every kind of file, on every device. `tests/reference/arch` made them.

use crate::common::{devices, golden, greedy, picks, session, skip, testdata, worst};
use crate::npy::Npy;
use serde_json::Value;
use std::path::{Path, PathBuf};
use tabla::text::EncodeOptions;
use tabla::{EmbedOptions, ErrorKind, LoadOptions, Pooling, Precision, Sampling, Session, Source};

/// Greatest difference of a number in the residual stream: absolute, or relative to the largest
/// of its layer where that is over 1.
const HIDDEN_TOLERANCE: f32 = 1e-4;
/// Greatest difference of a number of an embedding, relative to its length where that is over 1.
const TOLERANCE: f64 = 1e-5;
const COSINE_MIN: f64 = 0.99999;

/// What a reference says of a checkpoint.
struct Golden {
    name: &'static str,
    json: Value,
    batch: Vec<Vec<u32>>,
    embeddings: Npy,
    hidden: Npy,
}

fn ids(list: &Value) -> Vec<u32> {
    serde_json::from_value(list.clone()).expect("a list of ids")
}

fn floats(list: &Value) -> Vec<f32> {
    serde_json::from_value(list.clone()).expect("a list of numbers")
}

fn rows(list: &Value) -> Vec<Vec<f32>> {
    serde_json::from_value(list.clone()).expect("rows")
}

impl Golden {
    fn read(name: &'static str) -> Self {
        let file = |file: &str| golden("arch").join(name).join(file);
        let text = std::fs::read_to_string(file("golden.json")).expect("a golden file");
        let json: Value = serde_json::from_str(&text).expect("JSON");
        let batch = json["batch"].as_array().expect("a batch");
        Self {
            name,
            batch: batch.iter().map(ids).collect(),
            embeddings: Npy::read(&file("embeddings.npy")),
            hidden: Npy::read(&file("hidden.npy")),
            json,
        }
    }

    fn path(&self, form: &str) -> PathBuf {
        golden("arch").join(self.name).join(form)
    }

    /// The checkpoint in each form.
    fn forms(&self) -> [PathBuf; 2] {
        ["model.gguf", "hf"].map(|form| self.path(form))
    }

    /// The texts that the reference embedded, and their tokens.
    fn texts(&self) -> Vec<(&str, Vec<u32>)> {
        let texts = self.json["texts"].as_array().expect("texts").iter();
        texts
            .map(|t| (t["text"].as_str().expect("a text"), ids(&t["tokens"])))
            .collect()
    }

    /// Row `at` of the batch's embeddings.
    fn row(&self, at: usize) -> &[f32] {
        &self.embeddings.data[at * self.embeddings.cols..][..self.embeddings.cols]
    }

    /// Tokens of a text at most, as the folder says.
    fn length(&self) -> usize {
        let length = self.json["max_seq_length"].as_u64().expect("a length");
        usize::try_from(length).expect("small")
    }

    /// What holds for a file: a GGUF file does not say whether embeddings get the length 1.
    fn options(&self) -> EmbedOptions<'static> {
        EmbedOptions {
            normalize: Some(self.json["normalize"].as_bool().expect("a flag")),
            ..EmbedOptions::default()
        }
    }
}

fn options(options: LoadOptions) -> LoadOptions {
    LoadOptions {
        context: 128,
        chunk_tokens: 32,
        embeddings: true,
        ..options
    }
}

/// Every form of a checkpoint on every device.
fn check(name: &'static str) {
    let golden = Golden::read(name);
    for path in golden.forms() {
        for (device, with) in devices(Precision::Exact) {
            let what = format!("{} on {device}", path.display());
            let with = options(with);
            let source = Source::Path(path.clone());
            let model = tabla::load(&source, &with, &mut |_| {}).expect("the model loads");
            let texts = if model.is_encoder() {
                &golden.batch[..]
            } else {
                std::slice::from_ref(golden.batch.last().expect("texts"))
            };
            check_layers(&what, &path, &with, texts, &golden);
            let mut s = Session::new(model);
            check_batch(&what, &mut s, &golden);
            check_texts(&what, &mut s, &golden);
        }
    }
}

/// The residual stream behind every layer, so that a fault has a place: of an encoder all texts
/// in one pass, of another model the last.
fn check_layers(
    what: &str,
    path: &Path,
    options: &LoadOptions,
    texts: &[Vec<u32>],
    golden: &Golden,
) {
    let source = Source::Path(path.to_path_buf());
    let found = tabla::hidden_states(&source, options, texts).expect("the model runs");
    let found = found.layers;
    let layers = found.len();
    let wanted = golden.hidden.data.chunks(golden.hidden.data.len() / layers);
    for (layer, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let wanted = &wanted[wanted.len() - found.len()..];
        let largest = wanted.iter().fold(1.0f32, |m, x| m.max(x.abs()));
        let (at, difference) = worst(found, wanted);
        let cols = golden.hidden.cols;
        assert!(
            difference <= HIDDEN_TOLERANCE * largest,
            "{what}: layer {layer}: {difference} at row {} number {} of {largest}",
            at / cols,
            at % cols
        );
    }
}

/// Panics unless two embeddings point the same way and have the same numbers.
fn check_row(what: &str, found: &[f32], wanted: &[f32]) {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let pairs = a.iter().zip(b);
        pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    let length = dot(wanted, wanted).sqrt();
    let cosine = dot(found, wanted) / dot(found, found).sqrt() / length;
    assert!(cosine > COSINE_MIN, "{what}: cosine {cosine}");
    let (at, difference) = worst(found, wanted);
    let most = TOLERANCE * length.max(1.0);
    assert!(
        f64::from(difference) <= most,
        "{what}: {difference} at number {at}"
    );
}

fn embed_tokens(s: &mut Session, texts: &[Vec<u32>], options: &EmbedOptions<'_>) -> Vec<f32> {
    let dim = s.embedding_dim(options).expect("dimensions");
    let mut out = vec![f32::NAN; texts.len() * dim];
    s.embed_tokens(texts, options, &mut out, &mut |_, _| {})
        .expect("it embeds");
    out
}

fn embed(s: &mut Session, text: &str, options: &EmbedOptions<'_>) -> tabla::Result<Vec<f32>> {
    let mut out = vec![f32::NAN; s.embedding_dim(options)?];
    s.embed(&[text], options, &mut out, &mut |_, _| {})?;
    Ok(out)
}

/// The batch together, and each text alone: bit for bit the same, and the reference's.
fn check_batch(what: &str, s: &mut Session, golden: &Golden) {
    let options = golden.options();
    let together = embed_tokens(s, &golden.batch, &options);
    for (at, row) in together.chunks(golden.embeddings.cols).enumerate() {
        check_row(&format!("{what}: text {at}"), row, golden.row(at));
        let alone = embed_tokens(s, &golden.batch[at..=at], &options);
        assert!(alone == row, "{what}: text {at} alone has other bits");
    }
    let mut other_way = golden.batch.clone();
    other_way.reverse();
    let reversed = embed_tokens(s, &other_way, &options);
    let rows = together.chunks(golden.embeddings.cols).rev();
    assert!(rows.flatten().eq(&reversed), "{what}: another order");
}

/// Text to embedding: tokens, prompts, poolings, dimensions, the limit.
fn check_texts(what: &str, s: &mut Session, golden: &Golden) {
    let options = golden.options();
    let texts = golden.texts();
    for (at, (text, tokens)) in texts.iter().enumerate() {
        let found = embed(s, text, &options).expect("it embeds");
        let wanted = embed_tokens(s, std::slice::from_ref(tokens), &options);
        assert!(found == wanted, "{what}: text {at} has other tokens");
        if let Some(in_batch) = golden.batch.get(at + 1) {
            assert_eq!(in_batch, tokens);
        }
    }
    for (name, pooling) in [
        ("mean", Pooling::Mean),
        ("cls", Pooling::Cls),
        ("last", Pooling::Last),
        ("max", Pooling::Max),
    ] {
        let Some(wanted) = golden.json["poolings"].get(name) else {
            continue;
        };
        let options = EmbedOptions {
            pooling: Some(pooling),
            normalize: Some(false),
            ..EmbedOptions::default()
        };
        let found = embed_tokens(s, &golden.batch, &options);
        for (found, wanted) in found.chunks(golden.embeddings.cols).zip(rows(wanted)) {
            check_row(&format!("{what}: {name}"), found, &wanted);
        }
    }
    if let Some(matryoshka) = golden.json.get("matryoshka") {
        let dim = matryoshka["dim"].as_u64().expect("a number");
        let options = EmbedOptions {
            dimensions: u32::try_from(dim).expect("small"),
            ..options
        };
        let found = embed_tokens(s, &golden.batch, &options);
        let wanted = rows(&matryoshka["embeddings"]);
        for (found, wanted) in found.chunks(wanted[0].len()).zip(wanted) {
            check_row(&format!("{what}: dimensions"), found, &wanted);
        }
    }
    let long = golden.json.get("truncated");
    if let Some(long) = long.filter(|_| s.embedding_length() == golden.length()) {
        let text = long["text"].as_str().expect("a text");
        let error = embed(s, text, &options).expect_err("it is too long");
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{what}: {error}");
        let cut = EmbedOptions {
            truncate: true,
            ..options
        };
        let found = embed(s, text, &cut).expect("it embeds");
        let wanted = embed_tokens(s, &[ids(&long["tokens"])], &options);
        assert!(found == wanted, "{what}: the long text has other tokens");
    }
    // What only folders say.
    if !s.embedding().prompts.is_empty() {
        for (name, wanted) in golden.json["prompted"].as_object().expect("prompts") {
            let options = EmbedOptions {
                prompt: Some(name),
                ..options
            };
            let found = embed(s, texts[0].0, &options).expect("it embeds");
            check_row(&format!("{what}: prompt {name}"), &found, &floats(wanted));
        }
    }
}

macro_rules! checkpoints {
    ($($name:ident),+ $(,)?) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })+
    };
}
checkpoints! { bert, bert_cls, roberta, nomic, modernbert, qwen3_embedding, bitnet_embedding }

/// A model that generates text, and embeds as well.
fn decoder(name: &str) -> Session {
    let (_, with) = devices(Precision::Exact).remove(0);
    session(
        &golden("arch").join(name).join("model.gguf"),
        &options(with),
    )
}

#[test]
fn embedding_leaves_the_sequence_alone() {
    // Llama's layers see all, Gemma 3's have windows.
    for name in ["llama", "gemma3"] {
        let mut s = decoder(name);
        let prompt: Vec<u32> = (1..41).collect();
        let wanted = picks(&mut s, &prompt, &greedy(12));
        let options = EmbedOptions {
            pooling: Some(Pooling::Mean),
            ..EmbedOptions::default()
        };
        s.reset();
        s.prefill(&prompt, &mut |_, _| {}).expect("it fits");
        for at in 0..12 {
            let embedding = embed_tokens(&mut s, &[vec![7; 60], vec![3, 4]], &options);
            assert!(embedding.iter().all(|x| x.is_finite()), "{name}");
            s.step(&Sampling::GREEDY).expect("there is room");
            assert_eq!(s.tokens()[prompt.len()..], wanted[..=at], "{name}");
        }
    }
}

#[test]
fn chunks_of_a_text_make_no_difference() {
    let golden = Golden::read("qwen3_embedding");
    let texts = &golden.batch;
    for (device, with) in devices(Precision::Exact) {
        for pooling in Pooling::ALL {
            let embed = |chunk| {
                let with = LoadOptions {
                    chunk_tokens: chunk,
                    ..options(with.clone())
                };
                let with_pooling = EmbedOptions {
                    pooling: Some(*pooling),
                    ..golden.options()
                };
                let mut s = session(&golden.path("model.gguf"), &with);
                embed_tokens(&mut s, texts, &with_pooling)
            };
            let wanted = embed(128);
            for chunk in [2, 7] {
                let found = embed(chunk);
                assert!(
                    found == wanted,
                    "{device}: {pooling:?} in chunks of {chunk}"
                );
            }
        }
    }
}

#[test]
fn errors_say_what_is_wrong_and_what_would_do() {
    let mut s = decoder("llama");
    let mean = EmbedOptions {
        pooling: Some(Pooling::Mean),
        ..EmbedOptions::default()
    };
    let mut refused = |texts: &[Vec<u32>], options: &EmbedOptions<'_>, floats: usize| {
        let mut out = vec![0.0; floats];
        let error = s.embed_tokens(texts, options, &mut out, &mut |_, _| {});
        error.expect_err("refused")
    };
    let one = [vec![1, 2, 3]];
    let dim = 48;
    for (error, kind, says) in [
        (
            refused(&one, &EmbedOptions::default(), dim),
            ErrorKind::Argument,
            "mean, cls, last, max",
        ),
        (
            refused(&one, &mean, dim + 1),
            ErrorKind::Argument,
            "48 numbers each, the room has 49",
        ),
        (
            refused(&[vec![1], vec![]], &mean, 2 * dim),
            ErrorKind::Argument,
            "text 1 has no tokens",
        ),
        (
            refused(&[vec![1; 129]], &mean, dim),
            ErrorKind::TooLarge,
            "text 0 has 129 tokens, the limit is 128",
        ),
        (
            refused(&[vec![1, 4000]], &mean, dim),
            ErrorKind::Argument,
            "text 0: token 4000",
        ),
        (
            refused(
                &one,
                &EmbedOptions {
                    dimensions: 49,
                    ..mean
                },
                dim,
            ),
            ErrorKind::Argument,
            "49 dimensions",
        ),
    ] {
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(says), "{error}");
    }
    let unknown = EmbedOptions {
        prompt: Some("query"),
        ..mean
    };
    let error = embed(&mut s, "x", &unknown).expect_err("refused");
    assert!(error.message().contains("name none"), "{error}");
    assert!(embed(&mut s, "x", &mean).is_ok());

    s.canceller().cancel();
    let error = embed(&mut s, "x", &mean).expect_err("cancelled");
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(embed(&mut s, "x", &mean).is_ok());
}

#[test]
fn prompts_go_by_name() {
    let (_, with) = devices(Precision::Exact).remove(0);
    let mut s = session(&Golden::read("nomic").path("hf"), &options(with));
    let unknown = EmbedOptions {
        prompt: Some("question"),
        ..EmbedOptions::default()
    };
    let error = embed(&mut s, "the sun", &unknown).expect_err("refused");
    for name in ["\"question\"", "search_query", "search_document"] {
        assert!(error.message().contains(name), "{error}");
    }
    let none = EmbedOptions {
        prompt: Some(""),
        ..EmbedOptions::default()
    };
    let without = embed(&mut s, "the sun", &EmbedOptions::default()).expect("it embeds");
    assert_eq!(embed(&mut s, "the sun", &none).expect("it embeds"), without);
}

#[test]
fn a_model_of_text_embeds_where_it_was_asked_to() {
    let mut s = crate::common::story(LoadOptions::default());
    let mut out = vec![0.0; s.facts().dim as usize];
    let mean = EmbedOptions {
        pooling: Some(Pooling::Mean),
        ..EmbedOptions::default()
    };
    let error = s.embed(&["x"], &mean, &mut out, &mut |_, _| {});
    assert_eq!(error.expect_err("refused").kind(), ErrorKind::State);
}

#[test]
fn an_encoder_generates_nothing() {
    let (_, with) = devices(Precision::Exact).remove(0);
    let mut s = session(&Golden::read("bert").path("model.gguf"), &with);
    let error = s.prefill(&[1, 2], &mut |_, _| {}).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::State);
    assert!(error.message().contains("encoder"), "{error}");
}

/// sentence-transformers/all-MiniLM-L6-v2, whose folder `TABLA_MINILM` names.
#[test]
fn minilm_says_what_sentence_transformers_says() {
    let Some(folder) = std::env::var_os("TABLA_MINILM") else {
        return skip("MiniLM: TABLA_MINILM names no folder of it");
    };
    let Some(recorded) = testdata("golden/minilm_golden.json") else {
        return;
    };
    let text = std::fs::read_to_string(recorded).expect("a golden file");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let sentences = json["sentences"].as_array().expect("texts").iter();
    let sentences: Vec<_> = sentences.map(|t| t.as_str().expect("a text")).collect();
    for (device, with) in devices(Precision::Exact) {
        let mut s = session(Path::new(&folder), &with);
        for (text, wanted) in sentences.iter().zip(json["ids"].as_array().expect("ids")) {
            let found = s
                .tokenizer()
                .encode(text, EncodeOptions::PROMPT)
                .expect("ids");
            assert_eq!(found, ids(wanted), "{text}");
        }
        let dim = s.facts().dim as usize;
        let mut out = vec![0.0; sentences.len() * dim];
        s.embed(
            &sentences,
            &EmbedOptions::default(),
            &mut out,
            &mut |_, _| {},
        )
        .expect("it embeds");
        for ((text, found), wanted) in sentences
            .iter()
            .zip(out.chunks(dim))
            .zip(rows(&json["embeddings"]))
        {
            check_row(&format!("{device}: {text:?}"), found, &wanted);
        }
    }
}
