//! Compares embeddings of a checkpoint with modules of every kind with sentence-transformers.
//! `tests/reference/arch/pooling.py` creates the modules and the embeddings.

use crate::common::golden;
use crate::temp_folder::Folder;
use serde_json::Value;
use std::path::Path;
use tabla::device::Precision;
use tabla::embed::EmbedOptions;
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::{Model, Session, Source};

/// Maximum difference of a number, relative to the length of the embedding if that is over 1.
const TOLERANCE: f32 = 1e-5;

fn golden_json(name: &str) -> Value {
    let path = golden("arch/bert").join(name);
    let text = std::fs::read_to_string(path).expect("a golden file");
    serde_json::from_str(&text).expect("JSON")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn floats(list: &Value) -> Vec<f32> {
    serde_json::from_value(list.clone()).expect("a list of numbers")
}

/// Returns a safetensors file of a Dense module.
fn dense(weights: &Value) -> Vec<u8> {
    let (rows, bias) = (list(&weights["matrix"]), floats(&weights["bias"]));
    let matrix: Vec<f32> = rows.iter().flat_map(floats).collect();
    let (out, cols) = (bias.len() as u64, matrix.len() as u64 / bias.len() as u64);
    let tensors = [
        (
            "linear.weight".to_string(),
            "F32",
            &[cols, out][..],
            4 * cols * out,
        ),
        ("linear.bias".to_string(), "F32", &[out][..], 4 * out),
    ];
    let mut file = tabla::format::safetensors_header(&tensors).expect("a header");
    file.extend(matrix.iter().chain(&bias).flat_map(|x| x.to_le_bytes()));
    file
}

/// Creates the folder of a case.
fn folder(case: &Value) -> Folder {
    let folder = Folder::new("pooling");
    let inner = case["inner"].as_str().expect("a path");
    folder.copy_to(inner, &golden("arch/bert/hf"));
    for of_other_modules in ["modules.json", "1_Pooling/config.json"] {
        folder.remove(
            Path::new(inner)
                .join(of_other_modules)
                .to_str()
                .expect("UTF-8"),
        );
    }
    let create = |path: &Path| std::fs::create_dir_all(path).expect("folder can be created");
    for (path, value) in case["files"].as_object().expect("files") {
        create(folder.0.join(path).parent().expect("a folder"));
        folder.write(path, value.to_string().as_bytes());
    }
    for (at, weights) in list(&case["weights"]).iter().enumerate() {
        folder.write(
            &format!("{}_Dense/model.safetensors", at + 2),
            &dense(weights),
        );
    }
    folder
}

fn open(path: &Path) -> tabla::Result<Session> {
    let options = LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .precision(Precision::Exact)
        .threads(1)
        .max_context(96)
        .chunk_tokens(32)
        .embeddings(true);
    let model = Model::builder(Source::from(path)).options(options).load()?;
    Ok(Session::new(model))
}

#[test]
fn modules_give_the_embeddings_of_sentence_transformers() {
    let (record, texts) = (golden_json("pooling.json"), golden_json("golden.json"));
    let texts = list(&texts["texts"]).iter();
    let texts: Vec<_> = texts
        .map(|text| text["text"].as_str().expect("a text"))
        .collect();
    for case in list(&record["cases"]) {
        let (name, folder) = (&case["name"], folder(case));
        let mut session = open(&folder.0).expect("the model loads");
        let expected = list(&case["embeddings"]);
        let texts = &texts[..expected.len()];
        let options = EmbedOptions::default();
        let dim = session.embedding_dim(&options).expect("dimensions");
        let mut found = vec![f32::NAN; texts.len() * dim];
        let embedded = session.embed(texts, &options, &mut found, &mut |_, _| {});
        embedded.expect("embedding succeeds");
        for (found, expected) in found.chunks(dim).zip(expected.iter().map(floats)) {
            assert_eq!(dim, expected.len(), "{name}");
            let length = expected.iter().map(|x| x * x).sum::<f32>().sqrt().max(1.0);
            for (a, b) in found.iter().zip(&expected) {
                assert!((a - b).abs() <= TOLERANCE * length, "{name}: {a} and {b}");
            }
        }
    }
}

#[test]
fn refuses_models_that_begin_with_another_module() {
    let record = golden_json("pooling.json");
    let folder = folder(&list(&record["cases"])[0]);
    let first = "sentence_transformers.models.Transformer";
    for other in ["WordEmbeddings", "BoW"] {
        let modules = list(&record["cases"])[0]["files"]["modules.json"].to_string();
        let modules = modules.replace(first, &format!("sentence_transformers.models.{other}"));
        folder.write("modules.json", modules.as_bytes());
        let error = open(&folder.0).expect_err("an error").to_string();
        assert!(
            error.contains("the first module must be a transformer"),
            "{error}"
        );
    }
}
