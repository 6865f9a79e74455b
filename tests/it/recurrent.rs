//! Models with recurrent layers: what is kept of their state, and what it cannot do.

use crate::common::{golden, greedy};
use std::ops::ControlFlow;
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::{ErrorKind, Model, Overflow, Session};

fn load(context: u32) -> Model {
    let options = LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .sequences(2)
        .max_context(context);
    Model::builder(golden("arch/qwen3_5/model.gguf"))
        .options(options)
        .load()
        .expect("the model loads")
}

fn text(count: u32) -> Vec<u32> {
    (0..count).map(|i| 3 + i * 37 % 200).collect()
}

/// Returns the number of tokens that were computed for a new session with this prompt.
fn computed(model: &Model, prompt: &[u32]) -> u64 {
    let mut session = Session::new(model.clone());
    session.prefill(prompt).expect("prefill succeeds");
    session.computed_tokens()
}

/// The second turn of a long conversation computes only its own tokens, whether the session continues
/// or the whole conversation is a new prompt.
#[test]
fn second_turn_computes_only_new_tokens() {
    let model = load(4500);
    let mut session = Session::new(model.clone());
    session.prefill(&text(4096)).expect("prefill succeeds");
    let ignore_eos = greedy(50).ignore_eos(true);
    session
        .generate_with(&ignore_eos, |_| ControlFlow::Continue(()))
        .expect("generation succeeds");
    // The last token was sampled, but not computed.
    let first = session.computed_tokens();
    assert_eq!(first, 4096 + 49);
    let turn = [7, 8, 9, 10, 11];
    session.prefill(&turn).expect("prefill succeeds");
    assert_eq!(session.computed_tokens() - first, 1 + 5);
    let mut whole = session.tokens().to_vec();
    assert_eq!(computed(&model, &whole), 0);
    whole.extend([1, 2, 3]);
    assert_eq!(computed(&model, &whole), 3);
    // Without the end of the prompt and the answer, the last kept page of the prompt ends at 4032; at its end,
    // the sequence can continue within the last block.
    for (len, cached) in [(4096, 4096), (4085, 4085), (4070, 4032)] {
        let mut other = text(len);
        other.extend([250, 251, 252]);
        assert_eq!(computed(&model, &other), u64::from(len) + 3 - cached);
    }
}

/// A conversation can return to earlier turns.
#[test]
fn earlier_turns_are_kept() {
    let model = load(1000);
    let mut session = Session::new(model.clone());
    for turn in 0..4 {
        session
            .prefill(&text(100 + turn))
            .expect("prefill succeeds");
    }
    // The third turn ended after 303 tokens; the last page of its prompt ends at 256.
    for (keep, cached) in [(305, 303), (290, 290), (280, 256)] {
        session.truncate(keep);
        let before = session.computed_tokens();
        session.prefill(&[1, 2, 3]).expect("prefill succeeds");
        let new = session.computed_tokens() - before;
        assert_eq!(new, 3 + keep as u64 - cached, "{keep}");
    }
}

#[test]
fn context_shift_is_refused() {
    let model = load(100);
    let shifts = greedy(10).overflow(Overflow::Shift { n_keep: 4 });
    let error = shifts.check(&model).expect_err("the state cannot forget");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().starts_with("context shift: "), "{error}");
    let mut session = Session::new(model);
    session.prefill(&text(20)).expect("prefill succeeds");
    let result = session.generate_with(&shifts, |_| ControlFlow::Continue(()));
    assert_eq!(result.err().map(|e| e.kind()), Some(ErrorKind::Unsupported));
    assert_eq!(session.tokens().len(), 20);
}

/// Generates after a prompt of `prompt` tokens. Before and after each of several generations, `failing` generations exclude all
/// tokens. Returns the tokens of the session and the bits of the next logits.
fn generate_with_failures(prompt: u32, failing: usize) -> (Vec<u32>, Vec<u32>) {
    // Another model has other cached prefixes.
    let mut session = Session::new(load(120));
    let vocab = session.facts().vocab;
    let excluded = (0..vocab).map(|id| (id, f32::NEG_INFINITY)).collect();
    let excluded = greedy(5).logit_bias(excluded);
    session.prefill(&text(prompt)).expect("prefill succeeds");
    for count in [0, 1, 1, 15, 17] {
        let options = greedy(count).ignore_eos(true);
        if count > 0 {
            session
                .generate_with(&options, |_| ControlFlow::Continue(()))
                .expect("generation succeeds");
        }
        for _ in 0..failing {
            let error = session
                .generate_with(&excluded, |_| ControlFlow::Continue(()))
                .expect_err("no token is allowed");
            assert!(error.message().contains("finite"), "{error}");
        }
    }
    let mut logits = vec![0.0; vocab as usize];
    session.logits(&mut logits).expect("logits are available");
    let bits = logits.into_iter().map(f32::to_bits).collect();
    (session.tokens().to_vec(), bits)
}

/// A pass that samples no token has changed the state. If its position begins a block of the state, the sequence cannot
/// return to the position before it.
#[test]
fn session_continues_after_passes_without_a_token() {
    for prompt in [14, 15, 16, 17, 31, 48, 64, 80] {
        let (tokens, bits) = generate_with_failures(prompt, 0);
        assert_eq!(tokens.len(), prompt as usize + 34);
        for failing in [1, 2] {
            let (found, found_bits) = generate_with_failures(prompt, failing);
            assert_eq!(found, tokens, "prompt of {prompt} tokens, {failing}");
            let same = found_bits == bits;
            assert!(same, "logits after a prompt of {prompt} tokens, {failing}");
        }
    }
}
