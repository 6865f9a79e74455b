//! Loading stages: order, progress reports and errors.

use crate::common::golden;
use tabla::{DeviceChoice, ErrorKind, LoadOptions, Progress, STAGES, SamplerKind, Source};

fn on_cpu() -> LoadOptions {
    LoadOptions {
        device: DeviceChoice::Cpu,
        context: 64,
        ..LoadOptions::default()
    }
}

/// Loads a model and returns the progress reports and the stage names of its facts.
fn load(source: &Source) -> (Vec<Progress>, Vec<&'static str>) {
    let mut reports = Vec::new();
    let model = tabla::load(source, &on_cpu(), &mut |progress| reports.push(*progress));
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
    let options = LoadOptions {
        samplers: Some(vec![SamplerKind::TopK, SamplerKind::TopK]),
        ..on_cpu()
    };
    let error =
        tabla::load(&Source::BuiltIn, &options, &mut |_| {}).expect_err("duplicate sampler");
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    let text = error.to_string();
    assert!(text.starts_with("stage 15 step tables: "), "{text}");
}
