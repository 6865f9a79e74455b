//! Loading stages: order, progress reports and errors.

use crate::common::golden;
use tabla::load::{DeviceChoice, LoadOptions, Progress, STAGES};
use tabla::op::sampler::SamplerKind;
use tabla::{ErrorKind, Model, Source};

fn on_cpu() -> LoadOptions {
    LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .max_context(64)
}

/// Loads a model and returns the progress reports and the stage names of its facts.
fn load(source: &Source) -> (Vec<Progress>, Vec<&'static str>) {
    let mut reports = Vec::new();
    let model = Model::builder(source.clone())
        .options(on_cpu())
        .on_progress(|progress| reports.push(*progress))
        .load();
    let model = model.expect("the model loads");
    let names = model.facts().stages.iter().map(|(name, _)| *name);
    (reports, names.collect())
}

/// The built-in decoder, GGUF files of a decoder and an encoder, and a safetensors folder.
#[test]
fn stages_run_in_order() {
    let files = ["quant_q4_0.gguf", "arch/bert/model.gguf", "hf/bf16"];
    let files = files.map(|name| Source::Path(golden(name)));
    for source in [Source::BuiltIn].into_iter().chain(files) {
        let (reports, names) = load(&source);
        let numbers: Vec<u32> = reports.iter().map(|r| r.stage as u32).collect();
        let all: Vec<u32> = (1..=STAGES).collect();
        assert_eq!(numbers, all, "{source:?}");
        let ended: Vec<u32> = reports.iter().map(|r| r.ended).collect();
        assert_eq!(ended, all, "{source:?}");
        let reported: Vec<&str> = reports.iter().map(|r| r.stage.name()).collect();
        assert_eq!(reported, names, "{source:?}");
    }
}

#[test]
fn sampler_errors_name_their_stage() {
    let options = on_cpu().samplers(vec![SamplerKind::TopK, SamplerKind::TopK]);
    let error = Model::builder(Source::BuiltIn)
        .options(options)
        .load()
        .expect_err("duplicate sampler");
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    let text = error.to_string();
    assert!(text.starts_with("stage 15 step tables: "), "{text}");
}
