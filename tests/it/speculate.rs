//! Speculative decoding does not change the output.

use crate::common::{golden, has_gpu};
use crate::temp_folder::Folder;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tabla::load::{DeviceChoice, DraftingHead, GpuSpeculation, LoadOptions};
use tabla::text::EncodeOptions;
use tabla::{
    DraftStats, GenerateOptions, Model, Overflow, Sampling, Session, Source, SpeculateOptions,
};
use tabla_testkit::fill::Random;

fn load(path: &Path, options: &LoadOptions) -> Model {
    let source = Source::Path(path.to_path_buf());
    Model::builder(source)
        .options(options.clone())
        .load()
        .expect("the model loads")
}

/// Generates; returns tokens, text, logit bits and draft statistics.
fn answer(
    model: &Model,
    prompt: &[u32],
    generation: &GenerateOptions,
) -> (Vec<u32>, String, Vec<u32>, DraftStats) {
    let mut session = Session::new(model.clone());
    session.prefill(prompt).expect("prefill succeeds");
    let mut text = String::new();
    let each = |piece: tabla::Piece<'_>| {
        text.push_str(piece.text);
        ControlFlow::Continue(())
    };
    let stats = session
        .generate_with(generation, each)
        .expect("generation succeeds");
    let tokens = session.tokens().to_vec();
    let mut logits = vec![0.0; session.facts().vocab as usize];
    session.truncate(session.facts().context as usize);
    session.logits(&mut logits).expect("logits are available");
    let bits = logits.iter().map(|logit| logit.to_bits()).collect();
    (tokens, text, bits, stats.draft)
}

/// Prompts with many repetitions, and one without.
fn prompts(vocab: u32) -> Vec<Vec<u32>> {
    let mut random = Random::of("prompts");
    let phrase: Vec<u32> = (0..7).map(|_| random.word() % vocab).collect();
    let with_words = |random: &mut Random| {
        let mut text = Vec::new();
        for _ in 0..5 {
            text.extend(&phrase);
            text.push(random.word() % vocab);
        }
        text
    };
    vec![
        phrase.repeat(6),
        with_words(&mut random),
        (0..40).map(|_| random.word() % vocab).collect(),
        vec![5],
    ]
}

fn option_sets() -> Vec<GenerateOptions> {
    let plain = GenerateOptions::default().max_tokens(40).ignore_eos(true);
    let of = |sampling| plain.clone().sampling(sampling);
    let seeded = |seed| Sampling::default().seed(seed);
    vec![
        of(Sampling::GREEDY),
        of(seeded(3)),
        // Favors repetition.
        of(Sampling::GREEDY.repetition_penalty(0.2).repeat_last_n(64)),
        of(seeded(4).repetition_penalty(1.3).temperature(1.5)),
        of(seeded(5)).stop_token_ids((0..12).collect()),
        // Until the context is full, and past it.
        of(Sampling::GREEDY).max_tokens(u32::MAX),
        of(seeded(6))
            .max_tokens(100)
            .overflow(Overflow::Shift { n_keep: 4 }),
        of(Sampling::GREEDY).max_tokens(2),
    ]
}

/// Compares generation with and without speculation for all options and prompts. Returns the draft
/// statistics.
fn check(model: &Model, speculate: &SpeculateOptions) -> DraftStats {
    let mut all = DraftStats::default();
    let prompts = prompts(model.facts().vocab);
    for (at, mut generation) in option_sets().into_iter().enumerate() {
        if model.facts().state_bytes > 0 {
            // A recurrent state cannot forget tokens.
            generation.overflow = Overflow::Stop;
        }
        for prompt in prompts.iter().skip(at % 2).step_by(2) {
            let plain = answer(model, prompt, &generation);
            assert_eq!(plain.3, DraftStats::default());
            let speculative = generation.clone().speculate(speculate.clone());
            let (tokens, text, logits, drafts) = answer(model, prompt, &speculative);
            assert_eq!(
                (tokens, text),
                (plain.0, plain.1),
                "{prompt:?}, {speculative:?}"
            );
            assert_eq!(logits, plain.2, "{prompt:?}, {speculative:?}");
            assert!(drafts.accepted <= drafts.drafted);
            all += drafts;
        }
    }
    all
}

fn options(device: DeviceChoice) -> LoadOptions {
    LoadOptions::default()
        .device(device)
        .threads(2)
        .max_context(96)
        .chunk_tokens(32)
        .gpu_speculation(GpuSpeculation::On)
}

#[test]
fn speculation_does_not_change_tokens_on_cpu() {
    for (name, sequences, repeats) in [
        ("quant_q8_0.gguf", 1, true),
        ("quant_q4_0.gguf", 9, true),
        ("arch/gemma2/model.gguf", 1, true),
        // A recurrent state, and a text without repetitions.
        ("arch/qwen3_5/model.gguf", 2, false),
        ("arch/granite_hybrid_moe/model.gguf", 1, true),
    ] {
        let model = load(
            &golden(name),
            &options(DeviceChoice::Cpu).sequences(sequences),
        );
        let drafts = check(&model, &SpeculateOptions::Lookup);
        assert_eq!(drafts.drafted > 0, repeats, "{name}: {drafts:?}");
        // Drafts of the same model are always accepted.
        let draft = load(&golden(name), &options(DeviceChoice::Cpu));
        let drafts = check(&model, &SpeculateOptions::Draft(draft));
        assert!(drafts.accepted > 0, "{drafts:?}");
        assert_eq!(drafts.drafted, drafts.accepted);
    }
}

/// Repeated text is drafted.
#[test]
fn lookup_drafts_repetitions() {
    let model = Model::builder(Source::BuiltIn)
        .options(options(DeviceChoice::Cpu))
        .load();
    let model = model.expect("the model loads");
    let prompt = model.tokenizer().encode("Once", EncodeOptions::PROMPT);
    let generation = GenerateOptions::default()
        // Favors repetition.
        .sampling(Sampling::GREEDY)
        .logit_bias(vec![(5, 1e4)])
        .max_tokens(60)
        .ignore_eos(true)
        .speculate(SpeculateOptions::Lookup);
    let drafts = answer(&model, &prompt.expect("valid text"), &generation).3;
    assert!(drafts.accepted > 0, "{drafts:?}");
}

#[test]
fn draft_model_with_other_weights_keeps_output() {
    let model = load(&golden("quant_q8_0.gguf"), &options(DeviceChoice::Cpu));
    let draft = load(&golden("quant_q4_0.gguf"), &options(DeviceChoice::Cpu));
    let drafts = check(&model, &SpeculateOptions::Draft(draft));
    assert!(drafts.drafted > 0, "{drafts:?}");
}

/// The draft model prefills a long prompt chunk by chunk between steps.
#[test]
fn draft_model_prefills_long_prompt() {
    let model = load(&golden("quant_q8_0.gguf"), &options(DeviceChoice::Cpu));
    let slow = options(DeviceChoice::Cpu).chunk_tokens(16);
    let draft = load(&golden("quant_q8_0.gguf"), &slow);
    let prompt: Vec<u32> = (0..70).map(|i| 5 + i * 37 % 200).collect();
    let generation = GenerateOptions::default()
        .speculate(SpeculateOptions::Draft(draft))
        .max_tokens(12)
        .ignore_eos(true);
    let drafts = answer(&model, &prompt, &generation).3;
    assert!(drafts.drafted > 0, "{drafts:?}");
}

/// A target model must not wait for a busy draft model, to avoid a deadlock.
#[test]
fn busy_draft_model_drafts_nothing() {
    let model = load(&golden("quant_q8_0.gguf"), &options(DeviceChoice::Cpu));
    let draft = load(&golden("quant_q4_0.gguf"), &options(DeviceChoice::Cpu));
    let mut other = Session::new(draft.clone());
    other.prefill(&[5]).expect("prefill succeeds");
    // The unread request keeps its slot.
    let endless = GenerateOptions::default()
        .sampling(Sampling::default().mirostat_tau(5.0))
        .max_tokens(100)
        .ignore_eos(true);
    let mut unread = other.generate(&endless).expect("generation succeeds");
    unread
        .next()
        .expect("generation continues")
        .expect("a token");
    let generation = GenerateOptions::default()
        .speculate(SpeculateOptions::Draft(draft))
        .max_tokens(20)
        .ignore_eos(true);
    let (tokens, _, _, drafts) = answer(&model, &[5], &generation);
    assert_eq!((tokens.len(), drafts), (21, DraftStats::default()));
    unread.stop().expect("thread ends");
    drop(unread);
    let (again, _, _, drafts) = answer(&model, &[5], &generation);
    assert_eq!(again, tokens);
    assert!(drafts.drafted > 0, "{drafts:?}");
}

#[test]
fn speculation_does_not_change_tokens_on_gpu() {
    if !has_gpu() {
        return;
    }
    let model = load(&golden("quant_q8_0.gguf"), &options(DeviceChoice::Gpu));
    let drafts = check(&model, &SpeculateOptions::Lookup);
    assert!(drafts.drafted > 0, "{drafts:?}");
    // Without multi-row tables there are no drafts.
    let plain = options(DeviceChoice::Gpu).gpu_speculation(GpuSpeculation::Off);
    let model = load(&golden("quant_q8_0.gguf"), &plain);
    let generation = GenerateOptions::default()
        .speculate(SpeculateOptions::Lookup)
        .max_tokens(20);
    let prompt = prompts(model.facts().vocab).remove(0);
    assert_eq!(
        answer(&model, &prompt, &generation).3,
        DraftStats::default()
    );
}

/// Models with a drafting head: the files and the head.
fn heads() -> Vec<(PathBuf, DraftingHead)> {
    let file = |name: &str| golden("drafting").join(name);
    let eagle = DraftingHead::Eagle3(file("eagle3/drafter/drafter.gguf"));
    vec![
        (file("qwen3_5_mtp/hf"), DraftingHead::Mtp),
        (file("glm4_moe_lite_mtp/model.gguf"), DraftingHead::Mtp),
        (file("eagle3/model.gguf"), eagle),
    ]
}

#[test]
fn drafting_heads_do_not_change_tokens_on_cpu() {
    for ((path, head), sequences) in heads().into_iter().zip([1, 2, 9].into_iter().cycle()) {
        let options = options(DeviceChoice::Cpu).sequences(sequences);
        let without = load(&path, &options);
        let model = load(&path, &options.drafting_head(head));
        let drafts = check(&model, &SpeculateOptions::Head);
        assert!(drafts.drafted > drafts.accepted, "{drafts:?}");
        // What the head stores does not change the model.
        let generation = GenerateOptions::default().max_tokens(30).ignore_eos(true);
        for prompt in prompts(model.facts().vocab) {
            let [one, two] = [&without, &model].map(|model| answer(model, &prompt, &generation));
            assert_eq!((one.0, one.2), (two.0, two.2), "{}", path.display());
        }
    }
}

/// The rows of a head need pages of all positions also if all layers have a sliding window.
#[test]
fn drafting_head_of_a_model_with_windows() {
    let folder = Folder::new("windows");
    folder.copy(&golden("drafting/eagle3/hf"));
    folder.edit(
        "config.json",
        "\"model_type\": \"llama\"",
        "\"model_type\": \"mistral\", \"sliding_window\": 16",
    );
    let head = DraftingHead::Eagle3(golden("drafting/eagle3/drafter/hf"));
    let options = options(DeviceChoice::Cpu).drafting_head(head);
    let drafts = check(&load(&folder.0, &options), &SpeculateOptions::Head);
    assert!(drafts.drafted > drafts.accepted, "{drafts:?}");
}

#[test]
fn drafting_heads_do_not_change_tokens_on_gpu() {
    if !has_gpu() {
        return;
    }
    // A recurrent model. The devices agree on every command of the others.
    for (path, head) in heads().into_iter().take(1) {
        let model = load(&path, &options(DeviceChoice::Gpu).drafting_head(head));
        let generation = GenerateOptions::default().max_tokens(24).ignore_eos(true);
        for prompt in prompts(model.facts().vocab).into_iter().take(2) {
            let plain = answer(&model, &prompt, &generation);
            let generation = generation.clone().speculate(SpeculateOptions::Head);
            let (tokens, text, logits, drafts) = answer(&model, &prompt, &generation);
            assert_eq!((tokens, text, logits), (plain.0, plain.1, plain.2));
            assert!(drafts.drafted > 0, "{drafts:?}");
        }
    }
}

/// Every command of the tables, also of the head, gives the same results on a CPU and on a GPU.
#[test]
fn drafting_heads_agree_on_cpu_and_gpu() {
    if !has_gpu() {
        return;
    }
    for (path, head) in heads() {
        let options = LoadOptions::default().drafting_head(head);
        let comparison = tabla::tools::compare(&Source::Path(path), &options);
        let comparison = comparison.expect("both devices run the tables");
        assert_eq!(comparison.first.map(|first| first.command), None);
    }
}

/// Sessions that continue a prefix, a copy or a file generate the same tokens. A file has the rows of the head, so
/// only a model with the head loads it.
#[test]
fn drafting_heads_continue_sessions() {
    for (path, head) in heads() {
        let options = options(DeviceChoice::Cpu).sequences(3);
        let with_head = options.clone().drafting_head(head);
        let model = load(&path, &with_head);
        let prompt: Vec<u32> = (0..70).map(|i| 5 + i * 37 % 200).collect();
        let generation = GenerateOptions::default()
            .sampling(Sampling::GREEDY)
            .max_tokens(20)
            .ignore_eos(true)
            .speculate(SpeculateOptions::Head);
        let answer_of = |mut session: Session| {
            let stats = session.generate_with(&generation, |_| ControlFlow::Continue(()));
            assert!(stats.expect("generation succeeds").draft.drafted > 0);
            session.tokens().to_vec()
        };
        let mut first = Session::new(model.clone());
        first.prefill(&prompt).expect("prefill succeeds");
        let folder = Folder::new("drafting_heads");
        let file = folder.0.join("session");
        first.save(&file).expect("it is saved");
        let copy = first.fork().expect("it is copied");
        let expected = answer_of(first);
        assert_eq!(answer_of(copy), expected);
        let mut again = Session::new(model);
        again.prefill(&prompt).expect("prefill succeeds");
        assert_eq!(answer_of(again), expected, "after a cached prefix");
        let loaded = Session::load(load(&path, &with_head), &file).expect("it is loaded");
        assert_eq!(answer_of(loaded), expected, "from a file");
        let error = Session::load(load(&path, &options), &file).expect_err("no head");
        // The files of a drafter are part of the model.
        let known = ["drafting heads differ", "model mismatch"];
        assert!(
            known.iter().any(|text| error.message().contains(text)),
            "{error}"
        );
    }
}

#[test]
fn rejects_missing_drafting_head() {
    let model = load(&golden("quant_q8_0.gguf"), &options(DeviceChoice::Cpu));
    let mut session = Session::new(model);
    session.prefill(&[5]).expect("prefill succeeds");
    let generation = GenerateOptions::default().speculate(SpeculateOptions::Head);
    let error = session.generate(&generation).expect_err("no head");
    let expected = "the model was loaded without a drafting head (MTP or EAGLE-3)";
    assert_eq!(error.message(), expected);
    for (file, head, expected) in [
        (
            "arch/qwen3_5/hf",
            DraftingHead::Mtp,
            "the model has no MTP head: its files have no block after layer 3 (of which GGUF files have the key \
             qwen35.nextn_predict_layers)",
        ),
        (
            "arch/llama/hf",
            DraftingHead::Mtp,
            "MTP heads of the architecture \"llama\" are not supported",
        ),
    ] {
        let source = Source::Path(golden(file));
        let model = Model::builder(source).options(options(DeviceChoice::Cpu).drafting_head(head));
        let error = model.load().expect_err("no head");
        assert!(error.message().ends_with(expected), "{error}");
    }
}

#[test]
fn rejects_draft_model_with_other_vocabulary() {
    let model = load(&golden("quant_q8_0.gguf"), &options(DeviceChoice::Cpu));
    let built_in = Model::builder(Source::BuiltIn)
        .options(options(DeviceChoice::Cpu))
        .load();
    let mut session = Session::new(model);
    session.prefill(&[5]).expect("prefill succeeds");
    let generation = GenerateOptions::default()
        .speculate(SpeculateOptions::Draft(built_in.expect("the model loads")));
    let error = session
        .generate(&generation)
        .expect_err("vocabulary mismatch");
    let expected = "vocabulary mismatch: ";
    assert!(error.message().starts_with(expected), "{error}");
    assert_eq!(session.tokens(), [5]);
}

/// Two threads that wait for each other would deadlock.
#[test]
fn rejects_model_that_is_both_draft_and_target() {
    let [one, two] = [(); 2].map(|()| {
        let path = golden("quant_q8_0.gguf");
        load(&path, &options(DeviceChoice::Cpu))
    });
    let with = |model: &Model, draft: &Model| {
        let mut session = Session::new(model.clone());
        session.prefill(&[5]).expect("prefill succeeds");
        let generation = GenerateOptions::default()
            .speculate(SpeculateOptions::Draft(draft.clone()))
            .max_tokens(3);
        session
            .generate_with(&generation, |_| ControlFlow::Continue(()))
            .map(drop)
    };
    let check_error = |result: tabla::Result<()>| {
        let error = result.expect_err("error");
        let expected = "a model cannot be both a draft model and a target model";
        assert!(error.message().starts_with(expected), "{error}");
    };
    check_error(with(&one, &one));
    with(&one, &two).expect("generation succeeds");
    check_error(with(&two, &one));
    with(&one, &two).expect("generation succeeds");
}
