//! The stages of a load: their order, their reports and their errors.

use crate::common::golden;
use tabla::{DeviceChoice, ErrorKind, LoadOptions, Progress, STAGES, SamplerKind, Source};

fn on_cpu() -> LoadOptions {
    LoadOptions {
        device: DeviceChoice::Cpu,
        context: 64,
        ..LoadOptions::default()
    }
}

/// Loads a model. Returns what was reported, and the names of the stages in its facts.
fn load(source: &Source) -> (Vec<Progress>, Vec<&'static str>) {
    let mut reports = Vec::new();
    let model = tabla::load(source, &on_cpu(), &mut |progress| reports.push(*progress));
    let model = model.expect("the model is sound");
    let names = model.facts().stages.iter().map(|(name, _)| *name);
    (reports, names.collect())
}

/// A decoder that is built in, GGUF files of a decoder and an encoder, and a folder of safetensors.
#[test]
fn stages_end_in_the_order_of_their_numbers() {
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

/// LoadOptions that no stage reads from a file have a stage in their error, too.
#[test]
fn an_error_of_the_samplers_names_its_stage() {
    let options = LoadOptions {
        samplers: Some(vec![SamplerKind::TopK, SamplerKind::TopK]),
        ..on_cpu()
    };
    let error = tabla::load(&Source::BuiltIn, &options, &mut |_| {}).expect_err("twice the same");
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    let text = error.to_string();
    assert!(text.starts_with("stage 15 step tables: "), "{text}");
}
