//! Weights and results that are not finite: errors that name the tensor, never tokens or scores.

use crate::common::{devices, golden, greedy, picks, session};
use crate::temp_folder::Folder;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tabla::device::Precision;
use tabla::embed::{ClassifyInput, ClassifyOptions, EmbedOptions, Pooling, RerankOptions};
use tabla::load::LoadOptions;
use tabla::tools::check_weights;
use tabla::{ErrorKind, GenerateOptions, Sampling, Session, Source};

/// Writes `value` to one number of a float tensor of a model.
fn damage(path: &Path, tensor: &str, index: usize, value: f32) {
    let file = tabla::format::open(path).expect("a model");
    let info = file.tensor(tensor).expect("the tensor exists");
    let shard = file.paths().nth(info.shard).expect("a file").to_path_buf();
    let bytes = value.to_le_bytes();
    let bytes = match info.dtype.name() {
        "f32" => &bytes[..],
        "bf16" => &bytes[2..],
        other => panic!("{tensor} is {other}"),
    };
    let at = usize::try_from(info.offset).expect("small") + index * bytes.len();
    drop(file);
    let mut all = std::fs::read(&shard).expect("readable");
    all[at..][..bytes.len()].copy_from_slice(bytes);
    std::fs::write(shard, all).expect("writable");
}

/// Copies a model file, and damages one number of it.
fn damaged(model: &str, tensor: &str, index: usize, value: f32) -> (Folder, PathBuf) {
    let folder = Folder::new("finite");
    let bytes = std::fs::read(golden(model)).expect("a golden file");
    let path = folder.write("model.gguf", &bytes);
    damage(&path, tensor, index, value);
    (folder, path)
}

const MODEL: &str = "arch/llama/model.gguf";
/// A model whose output projection is not its embedding.
const UNTIED: &str = "arch/mistral/model.gguf";
const PROMPT: [u32; 5] = [1, 9, 4, 17, 3];

fn options(options: &LoadOptions) -> LoadOptions {
    options.clone().max_context(64).embeddings(true)
}

#[track_caller]
fn assert_names<T: std::fmt::Debug>(result: tabla::Result<T>, what: &str, tensor: &str) {
    let error = result.expect_err(what);
    assert_eq!(error.kind(), ErrorKind::Internal, "{what}: {error}");
    assert!(error.message().contains(tensor), "{what}: {error}");
}

/// Generates three tokens.
fn generate(session: &mut Session, options: &GenerateOptions) -> tabla::Result<Vec<u32>> {
    session.reset();
    session.prefill(&PROMPT)?;
    session.generate_with(options, |_| ControlFlow::Continue(()))?;
    Ok(session.tokens()[PROMPT.len()..].to_vec())
}

#[test]
fn generation_names_the_tensor() {
    let warm = Sampling::GREEDY.temperature(0.8);
    let mirostat = warm.mirostat_tau(4.0);
    let stages = [
        ("greedy", greedy(3)),
        ("sampled", greedy(3).sampling(warm)),
        ("full", greedy(3).sampling(mirostat).logprobs(2)),
    ];
    for (tensor, value) in [
        ("blk.1.ffn_down.weight", f32::NAN),
        ("output_norm.weight", f32::INFINITY),
    ] {
        let (_folder, path) = damaged(MODEL, tensor, 7, value);
        for (device, with) in devices(Precision::Exact) {
            let mut session = session(&path, &options(&with));
            for (stage, options) in &stages {
                let what = format!("{tensor}, {stage} on {device}");
                let named = format!("tensor {tensor} is not finite: 1 of its values");
                assert_names(generate(&mut session, options), &what, &named);
                assert_eq!(session.tokens(), PROMPT, "{what}");
            }
            let scores = session.score(&PROMPT, 1, &mut |_, _| {});
            assert_names(scores, &format!("scores on {device}"), tensor);
            let mean = EmbedOptions::default().pooling(Pooling::Mean);
            let mut out = vec![0.0; session.embedding_dim(&mean).expect("dimensions")];
            let embedded = session.embed_tokens(&[PROMPT], &mean, &mut out, &mut |_, _| {});
            assert_names(embedded, &format!("embedding on {device}"), tensor);
        }
    }
}

#[test]
fn tokens_without_a_finite_logit_do_not_matter() {
    let (_, with) = devices(Precision::Exact).remove(0);
    let prompt = &PROMPT[..];
    let mut whole = session(&golden(UNTIED), &options(&with));
    let expected = picks(&mut whole, prompt, &greedy(4));
    let unused = (0..).find(|id| !expected.contains(id) && !prompt.contains(id));
    let unused = unused.expect("most tokens are unused") as usize;
    let cols = whole.facts().dim as usize;
    let (_folder, path) = damaged(UNTIED, "output.weight", unused * cols, f32::NAN);
    let mut session = session(&path, &options(&with));
    assert_eq!(picks(&mut session, prompt, &greedy(4)), expected);
}

#[test]
fn scores_of_encoders_and_rerankers_name_the_tensor() {
    let (_, with) = devices(Precision::Exact).remove(0);
    let folder = Folder::new("finite");
    folder.copy(&golden("cross_encoder/bert/hf"));
    let tensor = "bert.encoder.layer.0.output.dense.weight";
    damage(&folder.0, tensor, 3, f32::NAN);
    let mut encoder = session(&folder.0, &with);
    let by = RerankOptions::default().query("a");
    let ranked = encoder.rerank(&by, &["b"], &mut |_, _| {});
    assert_names(ranked, "cross-encoder", tensor);
    let input = [ClassifyInput::Text("a")];
    let classified = encoder.classify(&input, &ClassifyOptions::default(), &mut |_, _| {});
    assert_names(classified, "classifier", tensor);

    let tensor = "blk.0.ffn_up.weight";
    let (_folder, path) = damaged("reranker/model.gguf", tensor, 0, f32::NAN);
    let ranked = session(&path, &with).rerank(&by, &["b"], &mut |_, _| {});
    assert_names(ranked, "reranker", tensor);
}

#[test]
fn checking_weights_finds_values_of_every_storage_type() {
    let check = |path: &Path| check_weights(&Source::from(path)).expect("a model");
    assert_eq!(check(&golden(MODEL)), []);
    let (_folder, path) = damaged(MODEL, "blk.0.attn_q.weight", 5, f32::NEG_INFINITY);
    damage(&path, "blk.0.attn_q.weight", 9, f32::NAN);
    let [found] = &check(&path)[..] else {
        panic!("one tensor was damaged");
    };
    assert_eq!((&*found.tensor, found.count), ("blk.0.attn_q.weight", 2));
    assert_eq!((found.first, found.value), ([0, 5], f32::NEG_INFINITY));
    let quantized = ["q4_0", "q4_1", "q8_0", "f16", "bf16"];
    for model in quantized.map(|name| golden(&format!("quant_{name}.gguf"))) {
        assert_eq!(check(&model), [], "{}", model.display());
        let file = tabla::format::open(&model).expect("a model");
        let matrix = file.tensors.iter().find(|t| t.name.contains("ffn_down"));
        let matrix = matrix.expect("a matrix");
        let facts = matrix.dtype.known().expect("a known type").facts();
        let mut bytes = std::fs::read(&model).expect("readable");
        let offset = usize::try_from(matrix.offset).expect("small");
        // All bits of a scale: NaN in f16, bf16 and f32.
        bytes[offset..][..facts.bytes].fill(0xff);
        let folder = Folder::new("finite");
        let found = check(&folder.write("model.gguf", &bytes));
        let what = format!("{}: {found:?}", model.display());
        assert_eq!(found.len(), 1, "{what}");
        assert_eq!(
            (&*found[0].tensor, found[0].first[0]),
            (&*matrix.name, 0),
            "{what}"
        );
    }
}
