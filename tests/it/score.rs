//! Compares scores with the log-softmax of all logits in f64.

use crate::batching::passes_of;
use crate::common::{devices, fast_devices, golden, picks, session, story};
use tabla::device::Precision;
use tabla::load::LoadOptions;
use tabla::text::EncodeOptions;
use tabla::{ErrorKind, GenerateOptions, Model, Session, Source};

const TEXT: &str = "Once upon a time, there was a little fox who wished for a red kite. One day, the \
                    fox met an old owl in the forest and asked for help. The owl said that kites \
                    grow on no tree, and the fox laughed and ran home to its mother.";

fn tokens(s: &Session) -> Vec<u32> {
    s.tokenizer()
        .encode(TEXT, EncodeOptions::PROMPT)
        .expect("text")
}

/// Computes the log-probability of every token but the first from all logits.
fn plain(s: &mut Session, tokens: &[u32]) -> Vec<f64> {
    let vocab = s.facts().vocab as usize;
    s.reset();
    s.prefill(tokens).expect("prefill succeeds");
    let mut logits = vec![0.0; tokens.len() * vocab];
    s.logits_all(&mut logits).expect("logits are available");
    let rows = logits.chunks_exact(vocab).zip(&tokens[1..]);
    rows.map(|(row, token)| {
        let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
        f64::from(row[*token as usize]) - sum.ln()
    })
    .collect()
}

#[test]
fn scores_equal_log_softmax() {
    for (name, options) in fast_devices(Precision::Exact) {
        let model = Model::builder(Source::BuiltIn).options(options).load();
        let mut s = Session::new(model.expect("model loads"));
        let tokens = tokens(&s);
        let expected = plain(&mut s, &tokens);
        for from in [1, 9, tokens.len() - 1] {
            let found = s
                .score(&tokens, from, &mut |_, _| {})
                .expect("prefill succeeds");
            assert_eq!(found.len(), tokens.len() - from, "{name}");
            for (at, (found, expected)) in found.iter().zip(&expected[from - 1..]).enumerate() {
                let off = (f64::from(*found) - expected).abs();
                assert!(off < 2e-5, "{name}: {from} + {at}: {found} for {expected}");
            }
        }
        assert_eq!(s.tokens(), tokens, "{name}: the sequence changed");
    }
}

#[test]
fn alternatives_have_the_bits_of_scores() {
    for (name, options) in devices(Precision::Exact) {
        let model = Model::builder(Source::BuiltIn).options(options).load();
        let mut s = Session::new(model.expect("model loads"));
        let vocab = s.facts().vocab as usize;
        let tokens = tokens(&s);
        let scores = s.score(&tokens, 1, &mut |_, _| {}).expect("scores");
        s.prefill(&tokens).expect("prefill succeeds");
        let mut logits = vec![0.0; tokens.len() * vocab];
        s.logits_all(&mut logits).expect("logits are available");
        for top in [0, 1, 20] {
            let found = s.score_with_alternatives(&tokens, 1, top, &mut |_, _| {});
            let found = found.expect("scores");
            assert_eq!(found.len(), scores.len(), "{name}");
            for (at, (found, score)) in found.iter().zip(&scores).enumerate() {
                assert_eq!(found.logprob.to_bits(), score.to_bits(), "{name}: {at}");
                assert_eq!(found.top.len(), top as usize, "{name}: {at}");
                let sorted = found.top.is_sorted_by(|a, b| a.logprob >= b.logprob);
                assert!(sorted, "{name}: {at}");
                let own = found.top.iter().find(|slot| slot.token == tokens[at + 1]);
                let is_same = own.is_none_or(|own| own.logprob.to_bits() == score.to_bits());
                assert!(is_same, "{name}: {at}");
                let row = &logits[at * vocab..][..vocab];
                let mut best: Vec<usize> = (0..vocab).collect();
                best.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
                let ids = found.top.iter().map(|slot| slot.token as usize);
                assert!(ids.eq(best[..top as usize].iter().copied()), "{name}: {at}");
            }
        }
        let error = s.score_with_alternatives(&tokens, 1, 21, &mut |_, _| {});
        let error = error.expect_err("too many");
        assert_eq!(error.kind(), ErrorKind::Argument);
    }
}

#[test]
fn scores_past_sliding_windows() {
    let path = golden("arch/gemma3/model.gguf");
    let options = LoadOptions::default()
        .device(tabla::load::DeviceChoice::Cpu)
        .precision(Precision::Exact);
    let mut s = session(&path, &options);
    let tokens: Vec<u32> = (0..150).map(|i| 3 + i * 7 % 50).collect();
    let expected = plain(&mut s, &tokens);
    let found = s
        .score(&tokens, 100, &mut |_, _| {})
        .expect("prefill succeeds");
    for (found, expected) in found.iter().zip(&expected[99..]) {
        assert!(
            (f64::from(*found) - expected).abs() < 2e-5,
            "{found} for {expected}"
        );
    }
}

#[test]
fn shared_prefix_is_computed_once() {
    let mut s = story(LoadOptions::default().chunk_tokens(8));
    let mut tokens = tokens(&s);
    let from = tokens.len() - 4;
    let score = |s: &mut Session, tokens: &[u32]| {
        let mut scores = Vec::new();
        let passes = passes_of(s, |s| {
            let mut seen = Vec::new();
            let found = s.score(tokens, from, &mut |done, of| seen.push((done, of)));
            scores = found.expect("prefill succeeds");
            assert_eq!(seen.last(), Some(&(tokens.len() - 1, tokens.len() - 1)));
        });
        (scores, passes)
    };
    let (first, all) = score(&mut s, &tokens);
    let chunks = u32::try_from(tokens.len() / 8).expect("few");
    assert!(all >= chunks, "nothing is cached yet: {all} of {chunks}");
    tokens[from + 2] += 1;
    let (second, few) = score(&mut s, &tokens);
    assert!(few <= 4, "{few} passes for 4 tokens");
    assert_eq!(
        first[..2],
        second[..2],
        "scores before the change are equal"
    );
    assert_ne!(first[2..], second[2..]);
}

#[test]
fn scoring_does_not_change_the_sequence() {
    let mut s = story(LoadOptions::default());
    let tokens = tokens(&s);
    let generate = GenerateOptions::default().max_tokens(12);
    let expected = picks(&mut s, &tokens[..20], &generate);
    s.reset();
    s.prefill(&tokens[..20]).expect("prefill succeeds");
    s.score(&tokens, 10, &mut |_, _| {})
        .expect("prefill succeeds");
    s.generate_with(&generate, |_| std::ops::ControlFlow::Continue(()))
        .expect("generation succeeds");
    assert_eq!(s.tokens()[20..], expected);
}

#[test]
fn rejects_invalid_arguments() {
    let mut s = story(LoadOptions::default().max_context(64));
    let vocab = s.facts().vocab;
    let mut kind = |tokens: &[u32], from| {
        let scores = s.score(tokens, from, &mut |_, _| {});
        scores.map(drop).map_err(|error| error.kind())
    };
    let most = vec![5; 65];
    assert_eq!(kind(&most, 1), Ok(()), "the last token needs no position");
    for (tokens, from, expected) in [
        (&[][..], 0, ErrorKind::Argument),
        (&[][..], 1, ErrorKind::Argument),
        (&[5], 1, ErrorKind::Argument),
        (&[5, 6], 0, ErrorKind::Argument),
        (&[5, 6], 2, ErrorKind::Argument),
        (&[5, vocab], 1, ErrorKind::Argument),
        (&[vocab, 5], 1, ErrorKind::Argument),
        (&vec![5; 66], 1, ErrorKind::TooLarge),
    ] {
        assert_eq!(kind(tokens, from), Err(expected), "{tokens:?} {from}");
    }
    s.canceller().cancel();
    let cancelled = s.score(&most, 1, &mut |_, _| {});
    assert_eq!(cancelled.map_err(|e| e.kind()), Err(ErrorKind::Cancelled));
}
