//! Embeddings of tiny random checkpoints against `transformers` and sentence-transformers, from
//! every kind of file, on every device. `tests/reference/arch` made them.

use crate::common::{devices, golden, session, skip, testdata, worst};
use crate::npy::Npy;
use serde_json::Value;
use std::path::{Path, PathBuf};
use tabla::{Embed, ErrorKind, Options, Pooling, Precision, Session, Source};

/// Greatest difference of a number in the residual stream: absolute, or relative to the largest
/// of its layer where that is over 1.
const HIDDEN_TOLERANCE: f32 = 1e-4;
/// Greatest difference of a number of an embedding, relative to its length where that is over 1.
const TOLERANCE: f32 = 1e-5;
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
    let list = list.as_array().expect("a list of ids").iter();
    let id = |id: &Value| u32::try_from(id.as_u64().expect("an id")).expect("an id");
    list.map(id).collect()
}

fn floats(list: &Value) -> Vec<f32> {
    let list = list.as_array().expect("a list of numbers").iter();
    list.map(|x| x.as_f64().expect("a number") as f32).collect()
}

fn rows(list: &Value) -> Vec<Vec<f32>> {
    list.as_array().expect("rows").iter().map(floats).collect()
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

    /// What holds for a file: a GGUF file does not say whether embeddings get the length 1.
    fn options(&self) -> Embed<'static> {
        Embed {
            normalize: Some(self.json["normalize"].as_bool().expect("a flag")),
            ..Embed::default()
        }
    }
}

fn options(options: Options) -> Options {
    Options {
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
            check_layers(&what, &path, &with, &golden);
            let mut s = session(&path, &with);
            check_batch(&what, &mut s, &golden);
            check_texts(&what, &mut s, &golden);
        }
    }
}

/// The residual stream behind every layer, so that a fault has a place: of an encoder all texts
/// in one pass, of another model text after text.
fn check_layers(what: &str, path: &Path, options: &Options, golden: &Golden) {
    let source = Source::Path(path.to_path_buf());
    let run = |texts: &[Vec<u32>]| tabla::hidden_states(&source, options, texts);
    let found = match run(&golden.batch) {
        Ok(found) => found.layers,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Argument, "{what}: {error}");
            let mut all = Vec::new();
            for text in &golden.batch {
                let found = run(std::slice::from_ref(text)).expect("the model runs");
                all.resize(found.layers.len(), Vec::new());
                for (all, rows) in all.iter_mut().zip(found.layers) {
                    all.extend(rows);
                }
            }
            all
        }
    };
    let layers = found.len();
    let wanted = golden.hidden.data.chunks(golden.hidden.data.len() / layers);
    for (layer, (found, wanted)) in found.iter().zip(wanted).enumerate() {
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
    let most = TOLERANCE * (length as f32).max(1.0);
    assert!(difference <= most, "{what}: {difference} at number {at}");
}

fn embed_tokens(s: &mut Session, texts: &[Vec<u32>], options: &Embed<'_>) -> Vec<f32> {
    let dim = s.embedding_dim(options).expect("dimensions");
    let mut out = vec![f32::NAN; texts.len() * dim];
    s.embed_tokens(texts, options, &mut out, &mut |_, _| {})
        .expect("it embeds");
    out
}

fn embed(s: &mut Session, text: &str, options: &Embed<'_>) -> tabla::Result<Vec<f32>> {
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
        let options = Embed {
            pooling: Some(pooling),
            normalize: Some(false),
            ..Embed::default()
        };
        let found = embed_tokens(s, &golden.batch, &options);
        for (found, wanted) in found.chunks(golden.embeddings.cols).zip(rows(wanted)) {
            check_row(&format!("{what}: {name}"), found, &wanted);
        }
    }
    if let Some(matryoshka) = golden.json.get("matryoshka") {
        let dim = matryoshka["dim"].as_u64().expect("a number");
        let options = Embed {
            dimensions: u32::try_from(dim).expect("small"),
            ..options
        };
        let found = embed_tokens(s, &golden.batch, &options);
        let wanted = rows(&matryoshka["embeddings"]);
        for (found, wanted) in found.chunks(wanted[0].len()).zip(wanted) {
            check_row(&format!("{what}: dimensions"), found, &wanted);
        }
    }
    // What only folders say.
    if !s.embedding().prompts.is_empty() {
        for (name, wanted) in golden.json["prompted"].as_object().expect("prompts") {
            let options = Embed {
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
