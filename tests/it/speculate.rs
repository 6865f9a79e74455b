//! DraftStats at tokens change how fast they come, and nothing else.

use crate::common::{golden, has_gpu};
use std::path::Path;
use tabla::text::Encode;
use tabla::{
    DeviceChoice, DraftStats, Flow, GenerateOptions, LoadOptions, Model, Overflow, Sampling,
    Session, Source, SpeculateOptions, StepTables,
};
use tabla_testkit::fill::Random;

fn load(path: &Path, options: &LoadOptions) -> Model {
    let source = Source::Path(path.to_path_buf());
    tabla::load(&source, options, &mut |_| {}).expect("the model loads")
}

/// The tokens and the text of an answer, the logits behind it, and what was guessed.
fn answer(
    model: &Model,
    prompt: &[u32],
    how: &GenerateOptions,
) -> (Vec<u32>, String, Vec<u32>, DraftStats) {
    let mut session = Session::new(model.clone());
    session.prefill(prompt, &mut |_, _| {}).expect("it fits");
    let mut text = String::new();
    let mut each = |piece: tabla::Piece<'_>| {
        text.push_str(piece.text);
        Flow::Continue
    };
    let stats = session.generate(how, &mut each).expect("it generates");
    let tokens = session.tokens().to_vec();
    let mut logits = vec![0.0; session.facts().vocab as usize];
    session.truncate(session.facts().context as usize);
    session.logits(&mut logits).expect("the room is right");
    let bits = logits.iter().map(|logit| logit.to_bits()).collect();
    (tokens, text, bits, stats.guesses)
}

/// Texts in which much comes again, and one in which nothing does.
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

fn ways() -> Vec<GenerateOptions> {
    let plain = GenerateOptions {
        max_tokens: 40,
        ignore_stops: true,
        ..GenerateOptions::default()
    };
    let of = |sampling| GenerateOptions {
        sampling,
        ..plain.clone()
    };
    let seeded = |seed| Sampling {
        seed,
        ..Sampling::default()
    };
    vec![
        of(Sampling::GREEDY),
        of(seeded(3)),
        // What was said is said again.
        of(Sampling {
            repeat_penalty: 0.2,
            repeat_last: 64,
            ..Sampling::GREEDY
        }),
        of(Sampling {
            repeat_penalty: 1.3,
            temperature: 1.5,
            ..seeded(4)
        }),
        GenerateOptions {
            stop_tokens: (0..12).collect(),
            ..of(seeded(5))
        },
        // Until the context is full, and beyond.
        GenerateOptions {
            max_tokens: 0,
            ..of(Sampling::GREEDY)
        },
        GenerateOptions {
            max_tokens: 100,
            overflow: Overflow::Shift { keep: 4 },
            ..of(seeded(6))
        },
        GenerateOptions {
            max_tokens: 2,
            ..of(Sampling::GREEDY)
        },
    ]
}

/// Every way on every prompt, with and without guesses. Returns what was guessed.
fn check(model: &Model, speculate: &SpeculateOptions) -> DraftStats {
    let mut all = DraftStats::default();
    let prompts = prompts(model.facts().vocab);
    for (at, how) in ways().into_iter().enumerate() {
        for prompt in prompts.iter().skip(at % 2).step_by(2) {
            let plain = answer(model, prompt, &how);
            assert_eq!(plain.3, DraftStats::default());
            let guessing = GenerateOptions {
                speculate: speculate.clone(),
                ..how.clone()
            };
            let (tokens, text, logits, guesses) = answer(model, prompt, &guessing);
            assert_eq!(
                (tokens, text),
                (plain.0, plain.1),
                "{prompt:?}, {guessing:?}"
            );
            assert_eq!(logits, plain.2, "{prompt:?}, {guessing:?}");
            assert!(guesses.right <= guesses.made);
            all += guesses;
        }
    }
    all
}

fn options(device: DeviceChoice) -> LoadOptions {
    LoadOptions {
        device,
        threads: 2,
        context: 96,
        chunk_tokens: 32,
        steps: StepTables::MultiRow,
        ..LoadOptions::default()
    }
}

#[test]
fn guesses_change_no_token_on_a_cpu() {
    for (name, sequences) in [
        ("quant_q8_0.gguf", 1),
        ("quant_q4_0.gguf", 9),
        ("arch/gemma2/model.gguf", 1),
    ] {
        let model = load(
            &golden(name),
            &LoadOptions {
                sequences,
                ..options(DeviceChoice::Cpu)
            },
        );
        let found = check(&model, &SpeculateOptions::Lookup);
        assert!(found.made > 0, "{name}: {found:?}");
        // The same model as its draft is always right.
        let draft = load(&golden(name), &options(DeviceChoice::Cpu));
        let found = check(&model, &SpeculateOptions::Draft(draft));
        assert!(found.right > 0, "{found:?}");
        assert_eq!(found.made, found.right);
    }
}

/// A text that has come before is guessed.
#[test]
fn repetition_is_found() {
    let model = tabla::load(&Source::BuiltIn, &options(DeviceChoice::Cpu), &mut |_| {});
    let model = model.expect("the model loads");
    let prompt = model.tokenizer().encode("Once", Encode::PROMPT);
    let how = GenerateOptions {
        // What was said is said again.
        sampling: Sampling::GREEDY,
        logit_bias: vec![(5, 1e4)],
        max_tokens: 60,
        ignore_stops: true,
        speculate: SpeculateOptions::Lookup,
        ..GenerateOptions::default()
    };
    let found = answer(&model, &prompt.expect("it is text"), &how).3;
    assert!(found.right > 0, "{found:?}");
}

#[test]
fn a_draft_model_guesses_for_another() {
    let model = load(&golden("quant_q8_0.gguf"), &options(DeviceChoice::Cpu));
    let draft = load(&golden("quant_q4_0.gguf"), &options(DeviceChoice::Cpu));
    let found = check(&model, &SpeculateOptions::Draft(draft));
    assert!(found.made > 0, "{found:?}");
}

/// A prompt of several chunks is read between steps, one after the other.
#[test]
fn a_draft_model_catches_up_with_a_long_prompt() {
    let model = load(&golden("quant_q8_0.gguf"), &options(DeviceChoice::Cpu));
    let slow = LoadOptions {
        chunk_tokens: 16,
        ..options(DeviceChoice::Cpu)
    };
    let draft = load(&golden("quant_q8_0.gguf"), &slow);
    let prompt: Vec<u32> = (0..70).map(|i| 5 + i * 37 % 200).collect();
    let how = GenerateOptions {
        speculate: SpeculateOptions::Draft(draft),
        max_tokens: 12,
        ignore_stops: true,
        ..GenerateOptions::default()
    };
    let found = answer(&model, &prompt, &how).3;
    assert!(found.made > 0, "{found:?}");
}

/// A model's thread waits for nobody else's: what it drafts for may be what that one waits for.
#[test]
fn a_draft_model_that_others_have_guesses_nothing() {
    let model = load(&golden("quant_q8_0.gguf"), &options(DeviceChoice::Cpu));
    let draft = load(&golden("quant_q4_0.gguf"), &options(DeviceChoice::Cpu));
    let mut other = Session::new(draft.clone());
    other.prefill(&[5], &mut |_, _| {}).expect("it fits");
    // What Mirostat has learned is in a seat, which it keeps though nobody reads on.
    let endless = GenerateOptions {
        sampling: Sampling {
            mirostat_tau: 5.0,
            ..Sampling::default()
        },
        max_tokens: 100,
        ignore_stops: true,
        ..GenerateOptions::default()
    };
    let mut unread = other.answer(&endless).expect("it generates");
    unread.next().expect("it goes on").expect("a token");
    let how = GenerateOptions {
        speculate: SpeculateOptions::Draft(draft),
        max_tokens: 20,
        ignore_stops: true,
        ..GenerateOptions::default()
    };
    let (tokens, _, _, found) = answer(&model, &[5], &how);
    assert_eq!((tokens.len(), found), (21, DraftStats::default()));
    unread.stop().expect("it ends");
    drop(unread);
    let (again, _, _, found) = answer(&model, &[5], &how);
    assert_eq!(again, tokens);
    assert!(found.made > 0, "{found:?}");
}

#[test]
fn guesses_change_no_token_on_a_gpu() {
    if !has_gpu() {
        return;
    }
    let model = load(&golden("quant_q8_0.gguf"), &options(DeviceChoice::Gpu));
    let found = check(&model, &SpeculateOptions::Lookup);
    assert!(found.made > 0, "{found:?}");
    // Where the tables cannot check them there are none.
    let plain = LoadOptions {
        steps: StepTables::SingleRow,
        ..options(DeviceChoice::Gpu)
    };
    let model = load(&golden("quant_q8_0.gguf"), &plain);
    let how = GenerateOptions {
        speculate: SpeculateOptions::Lookup,
        max_tokens: 20,
        ..GenerateOptions::default()
    };
    let prompt = prompts(model.facts().vocab).remove(0);
    assert_eq!(answer(&model, &prompt, &how).3, DraftStats::default());
}

#[test]
fn a_draft_model_has_the_same_vocabulary() {
    let model = load(&golden("quant_q8_0.gguf"), &options(DeviceChoice::Cpu));
    let built_in = tabla::load(&Source::BuiltIn, &options(DeviceChoice::Cpu), &mut |_| {});
    let mut session = Session::new(model);
    session.prefill(&[5], &mut |_, _| {}).expect("it fits");
    let how = GenerateOptions {
        speculate: SpeculateOptions::Draft(built_in.expect("the model loads")),
        ..GenerateOptions::default()
    };
    let error = session.answer(&how).expect_err("another vocabulary");
    let words = "the draft model has another vocabulary: ";
    assert!(error.message().starts_with(words), "{error}");
    assert_eq!(session.tokens(), [5]);
}

/// Two threads that wait for each other would wait for ever.
#[test]
fn no_model_drafts_and_has_a_draft() {
    let [one, two] = [(); 2].map(|()| {
        let path = golden("quant_q8_0.gguf");
        load(&path, &options(DeviceChoice::Cpu))
    });
    let with = |model: &Model, draft: &Model| {
        let mut session = Session::new(model.clone());
        session.prefill(&[5], &mut |_, _| {}).expect("it fits");
        let how = GenerateOptions {
            speculate: SpeculateOptions::Draft(draft.clone()),
            max_tokens: 3,
            ..GenerateOptions::default()
        };
        session.generate(&how, &mut |_| Flow::Continue).map(drop)
    };
    let refused = |result: tabla::Result<()>| {
        let error = result.expect_err("it would wait for itself");
        let words = "a model cannot draft and have a draft model";
        assert!(error.message().starts_with(words), "{error}");
    };
    refused(with(&one, &one));
    with(&one, &two).expect("that is as it should be");
    refused(with(&two, &one));
    with(&one, &two).expect("nothing has changed");
}
