//! Recovery from device loss: a generation goes on after the model is loaded again, with the same tokens and text.

use super::loss::lost;
use crate::common::{exhaustive, greedy, print, replays};
use crate::speech_model::SHAPES;
use tabla::embed::{EmbedOptions, Pooling};
use tabla::exec::gpu::Device;
use tabla::load::{DeviceChoice, DraftingHead, GpuSpeculation, LoadOptions};
use tabla::text::{EncodeOptions, Grammar};
use tabla::{
    ErrorKind, Finish, GenerateOptions, HookSpec, Model, Overflow, Sampling, Session, Source,
    SpeculateOptions, TranscribeOptions, Transcription,
};

const CONTEXT: u32 = 96;

fn load(options: &LoadOptions) -> (Model, Device) {
    let options = options
        .clone()
        .max_context(CONTEXT)
        .gpu_speculation(GpuSpeculation::On);
    let builder = Model::builder(Source::BuiltIn).options(options);
    let model = builder.load().unwrap();
    let gpu = model.gpu().unwrap();
    (model, gpu)
}

pub(super) fn prompted(model: &Model) -> Session {
    let mut session = Session::new(model.clone());
    let tokenizer = session.tokenizer();
    let prompt = tokenizer.encode("Once upon a time", EncodeOptions::PROMPT);
    session.append(&prompt.unwrap()).unwrap();
    session
}

/// What a generation returns.
#[derive(Debug, Default, PartialEq)]
struct Output {
    tokens: Vec<u32>,
    text: String,
    logprobs: Vec<Option<f32>>,
    finish: Option<Finish>,
    sequence: Vec<u32>,
}

/// Generates, and destroys the device after each of these numbers of tokens. Returns the number of losses too.
fn generate(
    load_options: &LoadOptions,
    options: &dyn Fn(&Model) -> GenerateOptions,
    lose_after: &[usize],
) -> (Output, usize) {
    let (model, mut gpu) = load(load_options);
    let mut session = prompted(&model);
    let mut generation = session.generate(&options(&model)).unwrap();
    let (mut output, mut losses) = (Output::default(), 0);
    loop {
        match generation.next_piece() {
            Ok(None) => break,
            Ok(Some(piece)) => {
                output.text.push_str(piece.text);
                if piece.is_flush {
                    continue;
                }
                output.tokens.push(piece.token);
                output.logprobs.push(piece.logprob);
                if lose_after.contains(&output.tokens.len()) {
                    gpu.destroy();
                }
            }
            Err(error) => {
                lost::<()>(Err(error));
                losses += 1;
                let (model, next) = load(load_options);
                generation.resume(&model).unwrap();
                gpu = next;
            }
        }
    }
    output.finish = generation.stats().finish;
    assert_eq!(generation.stats().tokens as usize, output.tokens.len());
    drop(generation);
    output.sequence = session.tokens().to_vec();
    (output, losses)
}

/// Checks that losses do not change the output, with one kind of replay in short runs.
fn check(name: &str, options: &dyn Fn(&Model) -> GenerateOptions) {
    let replays = replays().into_iter();
    for load_options in replays.take(if exhaustive() { usize::MAX } else { 1 }) {
        let (expected, none) = generate(&load_options, options, &[]);
        assert_eq!(none, 0);
        let (output, losses) = generate(&load_options, options, &[1, 12]);
        assert!(losses > 0, "{name}: the generation ended before the loss");
        assert_eq!(output, expected, "{name}, {losses} losses");
    }
}

/// The state of samplers and stop strings continues.
#[test]
fn sampled_generation_continues() {
    let sampling = Sampling::default()
        .seed(7)
        .temperature(1.1)
        .top_k(30)
        .repetition_penalty(1.2)
        .presence_penalty(0.3);
    // Its beginning is held back again and again.
    let stop = vec![" \u{1}".to_string()];
    check("sampled, stop string", &|_| {
        let options = greedy(36).sampling(sampling).logprobs(2);
        options.stop(stop.clone())
    });
}

#[test]
fn grammars_continue() {
    let grammar =
        Grammar::Gbnf("root ::= (\"a\" | \"b\" [0-9] | \" the \" [a-z]+ \".\"){30,40}".into());
    check("grammar", &|model| {
        let grammar = model.compile_grammar(&grammar).unwrap();
        let sampling = Sampling::default().seed(3).temperature(2.0);
        greedy(36).sampling(sampling).grammar(grammar)
    });
}

#[test]
fn each_kind_of_generation_continues() {
    if !exhaustive() {
        return print(
            "SKIPPED: recovery of greedy generation, context shifts and drafts: only with TABLA_EXHAUSTIVE=1",
        );
    }
    check("greedy", &|_| greedy(36));
    check("context shift", &|_| {
        greedy(110).overflow(Overflow::Shift { n_keep: 4 })
    });
    check("lookup", &|_| {
        greedy(36).speculate(SpeculateOptions::Lookup)
    });
}

/// A session continues after a lost prompt, also on the CPU, and only with its model.
#[test]
fn sessions_move_to_another_load() {
    for options in replays() {
        let options = options.chunk_tokens(16);
        let (model, gpu) = load(&options);
        let mut session = prompted(&model);
        let prompt = session.tokens().to_vec();
        let more = [5; 80];
        lost(session.prefill_with(&more, |_, _| gpu.destroy()));
        lost::<()>(model.check_device());
        assert_eq!(session.tokens(), prompt, "the tokens before the lost ones");
        let (again, _) = load(&options);
        session.move_to(&again).unwrap();
        let mut logits = [(); 2].map(|()| vec![0.0; session.facts().vocab as usize]);
        session.prefill(&more).unwrap();
        session.logits(&mut logits[0]).unwrap();
        let mut other = prompted(&again);
        other.disable_prefix_caching();
        other.prefill(&more).unwrap();
        other.logits(&mut logits[1]).unwrap();
        assert_eq!(logits[0], logits[1]);

        let on_cpu = options.clone().device(DeviceChoice::Cpu);
        let on_cpu = Model::builder(Source::BuiltIn).options(on_cpu).load();
        session.move_to(&on_cpu.unwrap()).unwrap();
        session.step(&Sampling::GREEDY).unwrap();
        let short = Model::builder(Source::BuiltIn).max_context(64).load();
        let error = session.move_to(&short.unwrap()).expect_err("is too long");
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        let path = crate::common::golden("arch/llama_bias/model.gguf");
        let another = Model::builder(path).load().unwrap();
        let error = session.move_to(&another).expect_err("another model");
        assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
        let hooks = session.model().hooks(&HookSpec::default()).unwrap();
        session.set_hooks(Some(&hooks)).unwrap();
        let error = session.move_to(&again).expect_err("has hooks");
        assert_eq!(error.kind(), ErrorKind::State, "{error}");
        let mut generation = other.generate(&greedy(2)).unwrap();
        let error = generation.resume(&again).expect_err("it runs");
        assert_eq!(error.kind(), ErrorKind::State, "{error}");
    }
}

/// Steps, embeddings and transcriptions report the loss of an idle device. That the memory is freed cannot be shown with a
/// destroyed device, whose driver frees it.
#[test]
fn every_kind_of_call_reports_a_loss_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let speech = folder.path().join("speech.bin");
    std::fs::write(&speech, SHAPES[0].ggml()).unwrap();
    type Call<'a> = &'a dyn Fn(&Model);
    let calls: [(Source, Call<'_>); 3] = [
        (Source::BuiltIn, &|model| {
            lost(prompted(model).step(&Sampling::GREEDY));
        }),
        (Source::BuiltIn, &|model| {
            let mut row = vec![0.0; model.embedding_dim()];
            let mean = EmbedOptions::default().pooling(Pooling::Mean);
            let mut session = Session::new(model.clone());
            lost(session.embed(&["once"], &mean, &mut row, &mut |_, _| {}));
        }),
        (Source::from(&speech), &|model| {
            let mut transcription =
                Transcription::new(model, &TranscribeOptions::default()).unwrap();
            transcription.push(&[0.1; 16_000]).unwrap();
            transcription.finish();
            lost(transcription.next_segment());
        }),
    ];
    for options in replays() {
        for (source, call) in &calls {
            let options = options.clone().max_context(CONTEXT).embeddings(true);
            let model = Model::builder(source.clone()).options(options).load();
            let model = model.unwrap();
            let gpu = model.gpu().unwrap();
            gpu.destroy();
            call(&model);
        }
    }
}

/// A load without the drafting head of the generation cannot continue it.
#[test]
fn resume_needs_the_drafting_head() {
    let path = crate::common::golden("drafting/qwen3_5_mtp/hf");
    let load = |head: DraftingHead| {
        let options = LoadOptions::default()
            .device(DeviceChoice::Gpu)
            .max_context(CONTEXT)
            .drafting_head(head);
        Model::builder(path.clone()).options(options).load()
    };
    let model = load(DraftingHead::Mtp).unwrap();
    let mut session = Session::new(model.clone());
    session.append(&[5, 6, 7]).unwrap();
    let options = greedy(24).speculate(SpeculateOptions::Head);
    let mut generation = session.generate(&options).unwrap();
    model.gpu().unwrap().destroy();
    let error = loop {
        match generation.next_piece() {
            Ok(piece) => assert!(piece.is_some(), "it ended before the loss"),
            Err(error) => break error,
        }
    };
    lost::<()>(Err(error));
    let without = load(DraftingHead::None).unwrap();
    let error = generation.resume(&without).expect_err("no drafting head");
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    generation
        .resume(&load(DraftingHead::Mtp).unwrap())
        .unwrap();
    while generation.next_piece().unwrap().is_some() {}
}
