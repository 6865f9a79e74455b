//! Compares cross-encoders with `transformers` and sentence-transformers: tokens of every pair, hidden
//! states, logits and scores, for every file format and device. `tests/reference/arch/cross_encoder.py`
//! creates the checkpoints.

use crate::common::{devices, devices_for, golden, json_file, print, session, worst};
use crate::npy::Npy;
use crate::temp_folder::{Folder, Tensor, safetensors};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tabla::device::Precision;
use tabla::embed::{ClassifyInput, ClassifyOptions, EmbedOptions, RerankOptions, ScoreActivation};
use tabla::load::LoadOptions;
use tabla::text::EncodeOptions;
use tabla::{ErrorKind, Model, Session, Source};

/// Maximum difference of a logit; of a hidden state relative to the largest of its layer if that is over
/// 1.
const TOLERANCE: f32 = 1e-4;

/// Reference output of a checkpoint.
struct Golden {
    name: &'static str,
    json: Value,
    pairs: Vec<Pair>,
}

/// A pair of texts, its tokens and token types.
struct Pair {
    texts: [String; 2],
    tokens: Vec<u32>,
    types: Vec<u32>,
}

impl Golden {
    fn read(name: &'static str) -> Self {
        let json = json_file(&golden("cross_encoder").join(name).join("golden.json"));
        let text = |value: &Value| value.as_str().expect("a text").to_string();
        let ids = |value: &Value| serde_json::from_value(value.clone()).expect("a list of ids");
        let pairs = json["pairs"].as_array().expect("pairs").iter();
        let pairs = pairs.map(|pair| Pair {
            texts: [text(&pair["query"]), text(&pair["document"])],
            tokens: ids(&pair["tokens"]),
            types: ids(&pair["types"]),
        });
        Self {
            name,
            pairs: pairs.collect(),
            json,
        }
    }

    fn path(&self, form: &str) -> PathBuf {
        golden("cross_encoder").join(self.name).join(form)
    }

    fn inputs(&self) -> Vec<ClassifyInput<'_>> {
        let pairs = self.pairs.iter();
        pairs
            .map(|pair| ClassifyInput::Pair(&pair.texts[0], &pair.texts[1]))
            .collect()
    }

    /// Returns the logits or scores of all pairs.
    fn numbers(&self, name: &str) -> Vec<f32> {
        let rows: Vec<Vec<f32>> =
            serde_json::from_value(self.json[name].clone()).expect("rows of numbers");
        rows.concat()
    }

    fn labels(&self) -> Vec<String> {
        serde_json::from_value(self.json["labels"].clone()).expect("labels")
    }

    fn limit(&self) -> u32 {
        serde_json::from_value(self.json["max_length"].clone()).expect("a number")
    }
}

fn classify(
    s: &mut Session,
    inputs: &[ClassifyInput<'_>],
    options: ClassifyOptions,
) -> tabla::Result<Vec<f32>> {
    s.classify(inputs, &options.truncate(true), &mut |_, _| {})
}

/// Checks file formats of a checkpoint on every device, and prints the largest difference of a logit. A software GPU
/// reads the first format of one checkpoint, with which the others share tables and storage types.
fn check(name: &'static str, forms: &[&str]) {
    let golden = Golden::read(name);
    let on_gpu = if name == "bert" { &forms[..1] } else { &[] };
    let differences = forms.iter().map(|form| check_form(&golden, form, on_gpu));
    let largest = differences.fold(0.0, f32::max);
    print(&format!("{name}: logits {largest:.1e}"));
}

/// Returns the largest difference of a logit.
fn check_form(golden: &Golden, form: &str, on_gpu: &[&str]) -> f32 {
    let path = golden.path(form);
    let mut largest: f32 = 0.0;
    for (device, with) in devices_for(form, on_gpu, Precision::Exact) {
        let what = format!("{} on {device}", path.display());
        // GGUF files have the context length, but not the length limit of the tokenizer.
        let options = match form {
            "hf" => with,
            _ => with.max_context(golden.limit()),
        };
        check_layers(&what, &path, &options, golden);
        let mut s = session(&path, &options);
        assert_eq!(s.embedding_max_tokens(), golden.limit(), "{what}");
        let head = s.model().classifier().expect("a head").clone();
        assert_eq!(head.labels, golden.labels(), "{what}");
        check_tokens(&what, &s, golden);
        largest = largest.max(check_logits(&what, &mut s, golden));
        let scores = classify(&mut s, &golden.inputs(), ClassifyOptions::default());
        let scores = scores.expect("classification succeeds");
        let expected = golden.numbers("logits");
        let expected = match (form, head.labels.len()) {
            (_, 3) => softmax(&expected, 3),
            // sentence-transformers applies the function of the folder.
            ("hf", _) => golden.numbers("scores"),
            _ => sigmoid(&expected),
        };
        let (at, difference) = worst(&scores, &expected);
        assert!(difference <= TOLERANCE, "{what}: score {at}: {difference}");
        check_rerank(&what, &mut s, golden, &scores);
    }
    largest
}

fn sigmoid(logits: &[f32]) -> Vec<f32> {
    logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect()
}

fn softmax(logits: &[f32], labels: usize) -> Vec<f32> {
    let rows = logits.chunks(labels).map(|row| {
        let sum: f32 = row.iter().map(|x| x.exp()).sum();
        row.iter().map(move |x| x.exp() / sum)
    });
    rows.flatten().collect()
}

/// Compares the residual stream after every layer, to locate errors. All tokens have type 0 here.
fn check_layers(what: &str, path: &Path, options: &LoadOptions, golden: &Golden) {
    if golden.pairs.iter().any(|pair| pair.types.contains(&1)) {
        return;
    }
    let texts: Vec<_> = golden
        .pairs
        .iter()
        .map(|pair| pair.tokens.clone())
        .collect();
    let source = Source::Path(path.to_path_buf());
    let found = tabla::tools::hidden_states(&source, options, &texts).expect("the model runs");
    let expected = Npy::read(&golden.path("hidden.npy"));
    let differences = found.against(&expected.data).expect("the same size");
    for (layer, difference) in differences.iter().enumerate() {
        assert!(difference.agrees(), "{what}: layer {layer}: {difference:?}");
    }
}

fn check_tokens(what: &str, s: &Session, golden: &Golden) {
    for (at, pair) in golden.pairs.iter().enumerate() {
        let [first, second] = &pair.texts;
        let limit = Some(golden.limit() as usize);
        let found = s.tokenizer().encode_pair([first, second], limit);
        let found = found.expect("the pair is encoded");
        assert_eq!(found.ids, pair.tokens, "{what}: pair {at}");
        assert_eq!(found.types, pair.types, "{what}: pair {at}");
    }
}

/// Compares logits with the reference, and those of a batch with those of each pair bit for bit. Returns
/// the largest difference.
fn check_logits(what: &str, s: &mut Session, golden: &Golden) -> f32 {
    let options = ClassifyOptions::default().logits(true);
    let labels = golden.labels().len();
    let mut inputs = golden.inputs();
    let logits = classify(s, &inputs, options).expect("classification succeeds");
    let (at, difference) = worst(&logits, &golden.numbers("logits"));
    assert!(difference <= TOLERANCE, "{what}: logit {at}: {difference}");
    for (at, (input, row)) in inputs.iter().zip(logits.chunks(labels)).enumerate() {
        let alone = classify(s, &[*input], options).expect("classification succeeds");
        assert!(alone == row, "{what}: pair {at} alone has other bits");
    }
    inputs.reverse();
    let reversed = classify(s, &inputs, options).expect("classification succeeds");
    let rows = logits.chunks(labels).rev().flatten();
    assert!(rows.eq(&reversed), "{what}: another order");
    check_passes(what, s, golden, &logits);
    difference
}

/// Checks that inputs of several passes have the logits of the inputs alone.
fn check_passes(what: &str, s: &mut Session, golden: &Golden, logits: &[f32]) {
    let options = ClassifyOptions::default().logits(true).truncate(true);
    let mut copies = 1;
    loop {
        let inputs = golden.inputs().repeat(copies);
        let mut passes = 0;
        let found = s.classify(&inputs, &options, &mut |_, _| passes += 1);
        let found = found.expect("classification succeeds");
        assert!(found == logits.repeat(copies), "{what}: {passes} passes");
        if passes >= 3 {
            return;
        }
        copies *= 2;
    }
}

/// Checks that the scores of documents are those of the pairs; `scores` are those of all pairs.
fn check_rerank(what: &str, s: &mut Session, golden: &Golden, scores: &[f32]) {
    let query = &golden.pairs[0].texts[0];
    let same = |at: &usize| golden.pairs[*at].texts[0] == *query;
    let chosen: Vec<usize> = (0..golden.pairs.len()).filter(same).collect();
    assert!(chosen.len() > 2, "{what}");
    let documents = chosen.iter().map(|at| &golden.pairs[*at].texts[1]);
    let documents: Vec<_> = documents.collect();
    let options = RerankOptions::default().query(query);
    let ranked = s.rerank(&options, &documents, &mut |_, _| {});
    if golden.labels().len() > 1 {
        let error = ranked.expect_err("several labels");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{what}");
        assert!(error.message().contains("3 labels"), "{error}");
        return;
    }
    let expected: Vec<f32> = chosen.iter().map(|at| scores[*at]).collect();
    assert!(ranked.expect("reranking succeeds") == expected, "{what}");
    let logits = s.rerank(&options.logits(true), &documents, &mut |_, _| {});
    let expected = golden.numbers("logits");
    let expected: Vec<f32> = chosen.iter().map(|at| expected[*at]).collect();
    let (at, difference) = worst(&logits.expect("reranking succeeds"), &expected);
    assert!(difference <= TOLERANCE, "{what}: logit {at}: {difference}");
}

#[test]
fn bert_matches_reference() {
    check("bert", &["hf"]);
}

#[test]
fn xlm_roberta_matches_reference() {
    check("xlm_roberta", &["hf", "model.gguf"]);
}

#[test]
fn several_labels_match_reference() {
    check("xlm_roberta_labels", &["hf", "model.gguf"]);
}

#[test]
fn modernbert_with_mean_matches_reference() {
    check("modernbert_mean", &["hf", "model.gguf"]);
}

#[test]
fn modernbert_with_first_token_matches_reference() {
    check("modernbert_cls", &["hf", "model.gguf"]);
}

/// Loads a file on the CPU.
fn open(path: &Path) -> tabla::Result<Session> {
    let (_, options) = devices(Precision::Exact).remove(0);
    let model = Model::builder(path).options(options).load()?;
    Ok(Session::new(model))
}

#[test]
fn gguf_without_pooler_is_refused() {
    let error = open(&Golden::read("bert").path("model.gguf")).expect_err("error");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    for part in ["cls.weight", "pooler", "safetensors"] {
        assert!(error.message().contains(part), "{error}");
    }
}

#[test]
fn texts_over_the_limit_are_truncated_or_refused() {
    let golden = Golden::read("bert");
    let mut s = open(&golden.path("hf")).expect("the model loads");
    let classify = |s: &mut Session, input, truncate| {
        let options = ClassifyOptions::default().truncate(truncate);
        s.classify(&[input], &options, &mut |_, _| {})
    };
    let long = golden.inputs().pop().expect("pairs");
    let error = classify(&mut s, long, false).expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.message().contains("expected at most 72"), "{error}");
    let text = "the river ".repeat(40);
    let swapped = ClassifyInput::Pair(&text, "the sun");
    let error = classify(&mut s, swapped, true).expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let part = "only the second text is truncated";
    assert!(error.message().contains(part), "{error}");
    let one = classify(&mut s, ClassifyInput::Text(&text), true).expect("truncated");
    let tokens = s.tokenizer().encode(&text, EncodeOptions::PROMPT);
    let mut tokens = tokens.expect("the text is encoded");
    tokens.drain(71..tokens.len() - 1);
    let same = classify(&mut s, ClassifyInput::Tokens(&tokens), false).expect("72 tokens");
    assert!(one == same);
    let documents = [text.as_str()];
    let options = RerankOptions::default().query("the sun");
    let error = s.rerank(&options, &documents, &mut |_, _| {});
    let error = error.expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.message().contains("document 0 has"), "{error}");
    let scores = s.rerank(&options.truncate(true), &documents, &mut |_, _| {});
    assert_eq!(scores.expect("truncated").len(), 1);
    let options = options.query(&text).truncate(true);
    let error = s.rerank(&options, &["the sun"], &mut |_, _| {});
    let error = error.expect_err("too long");
    assert!(error.message().contains("the query has"), "{error}");
}

#[test]
fn rejects_invalid_requests() {
    let mut s = open(&Golden::read("bert").path("hf")).expect("the model loads");
    let input = [ClassifyInput::Text("the sun")];
    for tokens in [&[][..], &[4000]] {
        let inputs = [ClassifyInput::Tokens(tokens)];
        let error = classify(&mut s, &inputs, ClassifyOptions::default());
        assert_eq!(error.expect_err("error").kind(), ErrorKind::Argument);
    }
    let options = RerankOptions::default()
        .query("the sun")
        .instruction("find");
    let error = s.rerank(&options, &["the sea"], &mut |_, _| {});
    assert_eq!(error.expect_err("error").kind(), ErrorKind::Argument);
    let mut out = [0.0];
    let error = s.embed(&["x"], &EmbedOptions::default(), &mut out, &mut |_, _| {});
    let error = error.expect_err("no embeddings");
    assert_eq!(error.kind(), ErrorKind::State);
    assert!(error.message().contains("classifier"), "{error}");
    s.canceller().cancel();
    let error = classify(&mut s, &input, ClassifyOptions::default());
    assert_eq!(error.expect_err("error").kind(), ErrorKind::Cancelled);
    let none = classify(&mut s, &[], ClassifyOptions::default());
    assert!(none.expect("no inputs").is_empty());

    let mut s = open(&golden("arch/bert/hf")).expect("the model loads");
    let error = classify(&mut s, &input, ClassifyOptions::default()).expect_err("no head");
    assert_eq!(error.kind(), ErrorKind::State);
    let error = s.rerank(&RerankOptions::default(), &["a"], &mut |_, _| {});
    let error = error.expect_err("no head");
    assert_eq!(error.kind(), ErrorKind::State);
    assert!(error.message().contains("cannot rerank"), "{error}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one list of cases")]
fn reads_activation_functions_and_labels() {
    let of = |name: &'static str, edits: &[(&str, &str)]| {
        let folder = Folder::new("head");
        folder.copy(&Golden::read(name).path("hf"));
        for (from, to) in edits {
            folder.edit("config.json", from, to);
        }
        let s = open(&folder.0)?;
        let head = s.model().classifier().expect("a head");
        Ok::<_, tabla::Error>((head.activation, head.labels.clone()))
    };
    let several = "xlm_roberta_labels";
    let key = "\"sbert_ce_default_activation_function\": null";
    for (name, edits, expected) in [
        ("bert", &[][..], ScoreActivation::Identity),
        ("xlm_roberta", &[], ScoreActivation::Sigmoid),
        (several, &[], ScoreActivation::Softmax),
        (
            several,
            &[(key, "\"problem_type\": \"multi_label_classification\"")],
            ScoreActivation::Sigmoid,
        ),
        (
            several,
            &[(key, "\"problem_type\": \"single_label_classification\"")],
            ScoreActivation::Softmax,
        ),
        ("modernbert_cls", &[], ScoreActivation::Identity),
        (
            "modernbert_cls",
            &[("linear.Identity", "activation.Sigmoid")],
            ScoreActivation::Sigmoid,
        ),
    ] {
        assert_eq!(
            of(name, edits).expect("the model loads").0,
            expected,
            "{name}: {edits:?}"
        );
    }
    for (name, edit, part) in [
        (
            "modernbert_cls",
            ("linear.Identity", "activation.Tanh"),
            "activation.Tanh",
        ),
        (
            "modernbert_cls",
            (
                "\"classifier_pooling\": \"cls\"",
                "\"classifier_pooling\": \"max\"",
            ),
            "\"max\"",
        ),
        (
            "modernbert_cls",
            (
                "\"classifier_activation\": \"gelu\"",
                "\"classifier_activation\": \"relu\"",
            ),
            "classifier_activation: \"relu\"",
        ),
        (
            "bert",
            ("ForSequenceClassification", "ForTokenClassification"),
            "BertForTokenClassification",
        ),
        (
            several,
            ("\"2\": \"neutral\"", "\"3\": \"neutral\""),
            "id2label",
        ),
        (
            several,
            (",\n  \"2\": \"neutral\"", ""),
            "2 labels, but tensor classifier.out_proj.weight has 3 rows",
        ),
    ] {
        let error = of(name, &[edit]).expect_err(part);
        assert!(error.message().contains(part), "{name}: {error}");
    }
}

/// Older checkpoints also have a pooler, which the head of RoBERTa does not read. The names of the
/// missing tensors of a head are those of the folder.
#[test]
fn unused_pooler_is_ignored_and_missing_tensors_are_named() {
    let golden = Golden::read("xlm_roberta");
    let changed = |change: &dyn Fn(&mut Vec<Tensor>)| {
        let folder = Folder::new("pooler");
        folder.copy(&golden.path("hf"));
        let file = tabla::format::open(&golden.path("hf")).expect("a file");
        let mut tensors: Vec<Tensor> = file
            .tensors
            .iter()
            .map(|t| {
                let dims = t.dims.iter().rev().copied().collect();
                (t.name.clone(), "BF16", dims, file.bytes(t).to_vec())
            })
            .collect();
        change(&mut tensors);
        folder.write("model.safetensors", &safetensors(&tensors));
        open(&folder.0)
    };
    let mut s = changed(&|tensors| {
        for part in ["weight", "bias"] {
            let mut tensor = tensors
                .iter()
                .find(|t| t.0 == format!("classifier.dense.{part}"))
                .expect("a head")
                .clone();
            tensor.0 = format!("roberta.pooler.dense.{part}");
            tensor.3.fill(0);
            tensors.push(tensor);
        }
    })
    .expect("the model loads");
    let found = classify(&mut s, &golden.inputs(), ClassifyOptions::default());
    let (_, difference) = worst(
        &found.expect("classification succeeds"),
        &golden.numbers("scores"),
    );
    assert!(difference <= TOLERANCE, "{difference}");
    for name in ["classifier.out_proj.bias", "classifier.dense.bias"] {
        let without = changed(&|tensors| tensors.retain(|t| t.0 != name));
        let error = without.expect_err(name);
        assert!(error.message().contains("bias is missing"), "{error}");
    }
}
