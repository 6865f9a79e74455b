//! Compares embeddings of small random checkpoints with `transformers` and sentence-transformers,
//! for every file format and device. `tests/reference/arch` creates the checkpoints.

use crate::common::{
    devices, devices_for, fast_devices, golden, greedy, picks, print, session, skip, testdata,
    worst,
};
use crate::npy::Npy;
use crate::temp_folder::Folder;
use serde_json::Value;
use std::path::{Path, PathBuf};
use tabla::device::Precision;
use tabla::embed::{EmbedOptions, Pooling};
use tabla::load::LoadOptions;
use tabla::text::EncodeOptions;
use tabla::{ErrorKind, Model, Sampling, Session, Source};

/// Maximum difference of the residual stream: absolute, or relative to the largest value of the
/// layer if that is over 1.
const HIDDEN_TOLERANCE: f32 = 1e-4;
/// Maximum difference of an embedding, relative to its length if that is over 1.
const TOLERANCE: f64 = 1e-5;
const COSINE_MIN: f64 = 0.99999;
const FORMS: [&str; 2] = ["model.gguf", "hf"];

/// Reference output of a checkpoint.
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

    /// Paths of the checkpoint in each file format.
    fn forms(&self) -> [PathBuf; 2] {
        FORMS.map(|form| self.path(form))
    }

    /// Returns the embedded texts and their tokens.
    fn texts(&self) -> Vec<(&str, Vec<u32>)> {
        let texts = self.json["texts"].as_array().expect("texts").iter();
        texts
            .map(|t| (t["text"].as_str().expect("a text"), ids(&t["tokens"])))
            .collect()
    }

    /// Returns row `at` of the reference embeddings.
    fn row(&self, at: usize) -> &[f32] {
        &self.embeddings.data[at * self.embeddings.cols..][..self.embeddings.cols]
    }

    /// Returns the maximum text length in the folder, in tokens.
    fn length(&self) -> usize {
        let length = self.json["max_seq_length"].as_u64().expect("a length");
        usize::try_from(length).expect("small")
    }

    /// Returns the options for GGUF files, which do not contain the normalization setting.
    fn options(&self) -> EmbedOptions<'static> {
        EmbedOptions::default().normalize(self.json["normalize"].as_bool().expect("a flag"))
    }
}

fn options(options: LoadOptions) -> LoadOptions {
    options.max_context(128).chunk_tokens(32).embeddings(true)
}

/// Files that a software GPU reads: an encoder with absolute positions, one with RoPE and windows, and a decoder.
const ON_GPU: &[&str] = &[
    "bert/model.gguf",
    "modernbert/model.gguf",
    "qwen3_embedding/model.gguf",
];

/// Checks every file format of a checkpoint on every device, and prints the largest difference of an
/// embedding. A software GPU reads the GGUF file of some.
fn check(name: &'static str) {
    let golden = Golden::read(name);
    let mut largest: f64 = 0.0;
    for (form, path) in FORMS.into_iter().zip(golden.forms()) {
        let on_gpu = format!("{name}/{form}");
        for (device, with) in devices_for(&on_gpu, ON_GPU, Precision::Exact) {
            let what = format!("{} on {device}", path.display());
            let with = options(with).max_context(256);
            let source = Source::Path(path.clone());
            let model = Model::builder(source)
                .options(with.clone())
                .load()
                .expect("the model loads");
            let texts = if model.is_encoder() {
                &golden.batch[..]
            } else {
                std::slice::from_ref(golden.batch.last().expect("texts"))
            };
            check_layers(&what, &path, &with, texts, &golden);
            let mut s = Session::new(model);
            largest = largest.max(check_batch(&what, &mut s, &golden));
            check_texts(&what, &mut s, &golden);
        }
    }
    print(&format!("{name}: embeddings {largest:.1e}"));
}

/// Compares the residual stream after every layer, to locate errors. For encoders all texts are in
/// one pass, otherwise only the last text.
fn check_layers(
    what: &str,
    path: &Path,
    options: &LoadOptions,
    texts: &[Vec<u32>],
    golden: &Golden,
) {
    let source = Source::Path(path.to_path_buf());
    let found = tabla::tools::hidden_states(&source, options, texts).expect("the model runs");
    let found = found.layers;
    let layers = found.len();
    let expected = golden.hidden.data.chunks(golden.hidden.data.len() / layers);
    for (layer, (found, expected)) in found.iter().zip(expected).enumerate() {
        let expected = &expected[expected.len() - found.len()..];
        let largest = expected.iter().fold(1.0f32, |m, x| m.max(x.abs()));
        let (at, difference) = worst(found, expected);
        let cols = golden.hidden.cols;
        assert!(
            difference <= HIDDEN_TOLERANCE * largest,
            "{what}: layer {layer}: {difference} at row {} number {} of {largest}",
            at / cols,
            at % cols
        );
    }
}

/// Compares the direction and the values of two embeddings. Returns the largest difference of a value,
/// relative to the length if that is over 1.
fn check_row(what: &str, found: &[f32], expected: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let pairs = a.iter().zip(b);
        pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    let length = dot(expected, expected).sqrt();
    let cosine = dot(found, expected) / dot(found, found).sqrt() / length;
    assert!(cosine > COSINE_MIN, "{what}: cosine {cosine}");
    let (at, difference) = worst(found, expected);
    let relative = f64::from(difference) / length.max(1.0);
    assert!(relative <= TOLERANCE, "{what}: {difference} at number {at}");
    relative
}

fn embed_tokens(s: &mut Session, texts: &[Vec<u32>], options: &EmbedOptions<'_>) -> Vec<f32> {
    let dim = s.embedding_dim(options).expect("dimensions");
    let mut out = vec![f32::NAN; texts.len() * dim];
    s.embed_tokens(texts, options, &mut out, &mut |_, _| {})
        .expect("embedding succeeds");
    out
}

fn embed(s: &mut Session, text: &str, options: &EmbedOptions<'_>) -> tabla::Result<Vec<f32>> {
    let mut out = vec![f32::NAN; s.embedding_dim(options)?];
    s.embed(&[text], options, &mut out, &mut |_, _| {})?;
    Ok(out)
}

/// Compares batch embeddings with single embeddings bit for bit, and with the reference. Returns the
/// largest difference.
fn check_batch(what: &str, s: &mut Session, golden: &Golden) -> f64 {
    let options = golden.options();
    let mut largest: f64 = 0.0;
    let together = embed_tokens(s, &golden.batch, &options);
    for (at, row) in together.chunks(golden.embeddings.cols).enumerate() {
        let difference = check_row(&format!("{what}: text {at}"), row, golden.row(at));
        largest = largest.max(difference);
        let alone = embed_tokens(s, &golden.batch[at..=at], &options);
        assert!(alone == row, "{what}: text {at} alone has other bits");
    }
    let mut other_way = golden.batch.clone();
    other_way.reverse();
    let reversed = embed_tokens(s, &other_way, &options);
    let rows = together.chunks(golden.embeddings.cols).rev();
    assert!(rows.flatten().eq(&reversed), "{what}: another order");
    check_passes(what, s, golden, &together);
    largest
}

/// Checks that texts of several passes have the embeddings of the texts alone.
fn check_passes(what: &str, s: &mut Session, golden: &Golden, embeddings: &[f32]) {
    let options = golden.options();
    let dim = s.embedding_dim(&options).expect("dimensions");
    let mut copies = 1;
    loop {
        let texts = vec![golden.batch.as_slice(); copies].concat();
        let mut found = vec![f32::NAN; texts.len() * dim];
        let mut passes = 0;
        s.embed_tokens(&texts, &options, &mut found, &mut |_, _| passes += 1)
            .expect("embedding succeeds");
        assert!(
            found == embeddings.repeat(copies),
            "{what}: {passes} passes"
        );
        if passes >= 3 {
            return;
        }
        copies *= 2;
    }
}

/// Checks tokenization, prompts, pooling, dimensions and the length limit.
fn check_texts(what: &str, s: &mut Session, golden: &Golden) {
    let options = golden.options();
    let texts = golden.texts();
    for (at, (text, tokens)) in texts.iter().enumerate() {
        let found = embed(s, text, &options).expect("embedding succeeds");
        let expected = embed_tokens(s, std::slice::from_ref(tokens), &options);
        assert!(found == expected, "{what}: text {at} has other tokens");
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
        let Some(expected) = golden.json["poolings"].get(name) else {
            continue;
        };
        let options = EmbedOptions::default().pooling(pooling).normalize(false);
        let found = embed_tokens(s, &golden.batch, &options);
        for (found, expected) in found.chunks(golden.embeddings.cols).zip(rows(expected)) {
            check_row(&format!("{what}: {name}"), found, &expected);
        }
    }
    if let Some(matryoshka) = golden.json.get("matryoshka") {
        let dim = matryoshka["dim"].as_u64().expect("a number");
        let options = options.dimensions(u32::try_from(dim).expect("small"));
        let found = embed_tokens(s, &golden.batch, &options);
        let expected = rows(&matryoshka["embeddings"]);
        for (found, expected) in found.chunks(expected[0].len()).zip(expected) {
            check_row(&format!("{what}: dimensions"), found, &expected);
        }
    }
    let long = golden.json.get("truncated");
    if let Some(long) = long.filter(|_| s.embedding_max_tokens() as usize == golden.length()) {
        let text = long["text"].as_str().expect("a text");
        let error = embed(s, text, &options).expect_err("error");
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{what}: {error}");
        let cut = options.truncate(true);
        let found = embed(s, text, &cut).expect("embedding succeeds");
        let expected = embed_tokens(s, &[ids(&long["tokens"])], &options);
        assert!(found == expected, "{what}: the long text has other tokens");
    }
    // Only folders define prompts.
    if !s.embedding().prompts.is_empty() {
        for (name, expected) in golden.json["prompted"].as_object().expect("prompts") {
            let options = options.prompt_name(name.as_str());
            let found = embed(s, texts[0].0, &options).expect("embedding succeeds");
            check_row(&format!("{what}: prompt {name}"), &found, &floats(expected));
        }
    }
}

macro_rules! checkpoints {
    ($($name:ident),+ $(,)?) => {
        pub(crate) const CHECKED: &[&str] = &[$(stringify!($name)),+];

        $(#[test]
        fn $name() {
            check(stringify!($name));
        })+
    };
}
checkpoints! {
    bert, bert_cls, roberta, nomic, modernbert, qwen3_embedding, bitnet_embedding, embedding_gemma,
}

/// Returns a session of a GGUF file on the CPU.
fn open(path: &Path) -> Session {
    let (_, with) = devices(Precision::Exact).remove(0);
    session(path, &options(with).max_context(256))
}

#[test]
fn files_without_dense_modules_give_the_rows_before_them() {
    let golden = Golden::read("embedding_gemma");
    let mut s = open(&golden.path("model_plain.gguf"));
    let found = embed_tokens(&mut s, &golden.batch, &golden.options());
    let expected = rows(&golden.json["plain"]);
    for (found, expected) in found.chunks(expected[0].len()).zip(&expected) {
        check_row("plain", found, expected);
    }
}

#[test]
fn dense_modules_have_two_names() {
    let golden = Golden::read("embedding_gemma");
    let path = golden.path("model.gguf");
    let file = tabla::format::open(&path).expect("a GGUF file");
    let mut w = tabla::format::write::Writer::new();
    // Files with the other names lack the keys of the modules.
    for (key, value) in file
        .metadata
        .iter()
        .filter(|(key, _)| !key.contains(".dense_"))
    {
        w.copy(key, value);
    }
    for t in &file.tensors {
        let name = t
            .name
            .replace("dense_2.", "dense.0.")
            .replace("dense_3.", "dense.1.");
        w.tensor(&name, t.dtype, &t.dims, file.bytes(t).to_vec());
    }
    let folder = Folder::new("dense");
    let renamed = folder.write("model.gguf", &w.finish().expect("encodes the file"));
    let [expected, found] = [path, renamed]
        .map(|path| embed_tokens(&mut open(&path), &golden.batch, &golden.options()));
    assert!(found == expected);
}

/// Loads a decoder with embeddings.
fn decoder(name: &str) -> Session {
    let (_, with) = devices(Precision::Exact).remove(0);
    session(
        &golden("arch").join(name).join("model.gguf"),
        &options(with),
    )
}

#[test]
fn embedding_does_not_change_the_sequence() {
    // Llama has full attention, Gemma 3 has sliding windows.
    for name in ["llama", "gemma3"] {
        let mut s = decoder(name);
        let prompt: Vec<u32> = (1..41).collect();
        let expected = picks(&mut s, &prompt, &greedy(12));
        let options = EmbedOptions::default().pooling(Pooling::Mean);
        s.reset();
        s.prefill(&prompt).expect("prefill succeeds");
        for at in 0..12 {
            let embedding = embed_tokens(&mut s, &[vec![7; 60], vec![3, 4]], &options);
            assert!(embedding.iter().all(|x| x.is_finite()), "{name}");
            s.step(&Sampling::GREEDY).expect("step succeeds");
            assert_eq!(s.tokens()[prompt.len()..], expected[..=at], "{name}");
        }
    }
}

#[test]
fn chunk_size_does_not_change_embeddings() {
    let golden = Golden::read("qwen3_embedding");
    let texts = &golden.batch;
    for (device, with) in fast_devices(Precision::Exact) {
        for pooling in Pooling::ALL {
            let embed = |chunk| {
                let with = options(with.clone()).chunk_tokens(chunk);
                let with_pooling = golden.options().pooling(*pooling);
                let mut s = session(&golden.path("model.gguf"), &with);
                embed_tokens(&mut s, texts, &with_pooling)
            };
            let expected = embed(128);
            for chunk in [2, 7] {
                let found = embed(chunk);
                assert!(
                    found == expected,
                    "{device}: {pooling:?} in chunks of {chunk}"
                );
            }
        }
    }
}

#[test]
fn rejects_invalid_arguments() {
    let mut s = decoder("llama");
    let mean = EmbedOptions::default().pooling(Pooling::Mean);
    let mut refused = |texts: &[Vec<u32>], options: &EmbedOptions<'_>, floats: usize| {
        let mut out = vec![0.0; floats];
        let error = s.embed_tokens(texts, options, &mut out, &mut |_, _| {});
        error.expect_err("error")
    };
    let one = [vec![1, 2, 3]];
    let dim = 48;
    for (error, kind, text) in [
        (
            refused(&one, &EmbedOptions::default(), dim),
            ErrorKind::Argument,
            "mean, cls, last, max",
        ),
        (
            refused(&one, &mean, dim + 1),
            ErrorKind::Argument,
            "48 numbers each, got 49",
        ),
        (
            refused(&[vec![1], vec![]], &mean, 2 * dim),
            ErrorKind::Argument,
            "text 1 is empty",
        ),
        (
            refused(&[vec![1; 129]], &mean, dim),
            ErrorKind::TooLarge,
            "text 0 has 129 tokens, expected at most 128",
        ),
        (
            refused(&[vec![1, 4000]], &mean, dim),
            ErrorKind::Argument,
            "text 0 has token 4000",
        ),
        (
            refused(&one, &mean.dimensions(49), dim),
            ErrorKind::Argument,
            "got 49",
        ),
    ] {
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(text), "{error}");
    }
    let unknown = mean.prompt_name("query");
    let error = embed(&mut s, "x", &unknown).expect_err("error");
    assert!(error.message().contains("define no prompts"), "{error}");
    assert!(embed(&mut s, "x", &mean).is_ok());

    s.canceller().cancel();
    let error = embed(&mut s, "x", &mean).expect_err("cancelled");
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(embed(&mut s, "x", &mean).is_ok());
}

#[test]
fn selects_prompt_by_name() {
    let (_, with) = devices(Precision::Exact).remove(0);
    let mut s = session(&Golden::read("nomic").path("hf"), &options(with));
    let unknown = EmbedOptions::default().prompt_name("question");
    let error = embed(&mut s, "the sun", &unknown).expect_err("error");
    for name in ["\"question\"", "search_query", "search_document"] {
        assert!(error.message().contains(name), "{error}");
    }
    let none = EmbedOptions::default().prompt_name("");
    let without = embed(&mut s, "the sun", &EmbedOptions::default()).expect("embedding succeeds");
    assert_eq!(
        embed(&mut s, "the sun", &none).expect("embedding succeeds"),
        without
    );
}

#[test]
fn embedding_requires_embedding_table() {
    let mut s = crate::common::story(LoadOptions::default());
    let mut out = vec![0.0; s.facts().dim as usize];
    let mean = EmbedOptions::default().pooling(Pooling::Mean);
    let error = s.embed(&["x"], &mean, &mut out, &mut |_, _| {});
    assert_eq!(error.expect_err("error").kind(), ErrorKind::State);
}

#[test]
fn encoder_rejects_prefill() {
    let (_, with) = devices(Precision::Exact).remove(0);
    let mut s = session(&Golden::read("bert").path("model.gguf"), &with);
    let error = s.prefill(&[1, 2]).expect_err("error");
    assert_eq!(error.kind(), ErrorKind::State);
    assert!(error.message().contains("encoder"), "{error}");
}

/// Compares sentence-transformers/all-MiniLM-L6-v2 in the folder `TABLA_MINILM` with the reference.
#[test]
fn minilm_matches_sentence_transformers() {
    let Some(folder) = std::env::var_os("TABLA_MINILM") else {
        return skip("MiniLM: TABLA_MINILM is not set");
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
        for (text, expected) in sentences.iter().zip(json["ids"].as_array().expect("ids")) {
            let found = s
                .tokenizer()
                .encode(text, EncodeOptions::PROMPT)
                .expect("ids");
            assert_eq!(found, ids(expected), "{text}");
        }
        let dim = s.facts().dim as usize;
        let mut out = vec![0.0; sentences.len() * dim];
        s.embed(
            &sentences,
            &EmbedOptions::default(),
            &mut out,
            &mut |_, _| {},
        )
        .expect("embedding succeeds");
        for ((text, found), expected) in sentences
            .iter()
            .zip(out.chunks(dim))
            .zip(rows(&json["embeddings"]))
        {
            check_row(&format!("{device}: {text:?}"), found, &expected);
        }
    }
}
