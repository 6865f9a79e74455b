//! Hooks: captured and changed values of the forward pass. `archs.rs` compares captured values with
//! transformers.

use crate::common::{devices, golden, greedy};
use std::path::PathBuf;
use tabla::device::Precision;
use tabla::load::LoadOptions;
use tabla::{CapturePositions, Captured, Edit, EditAction, ErrorKind, HookSpec, Model, Session};

const TOKENS: [u32; 11] = [3, 17, 2, 40, 5, 6, 7, 21, 9, 30, 11];

fn checkpoint(name: &str) -> PathBuf {
    golden("arch").join(name).join("model.gguf")
}

fn load(options: &LoadOptions) -> Model {
    let options = options.clone().max_context(96);
    let model = Model::builder(checkpoint("llama")).options(options).load();
    model.expect("it loads")
}

fn captures(points: &[&str]) -> HookSpec {
    HookSpec::default().capture(points.iter().map(ToString::to_string).collect())
}

fn edits(edits: Vec<Edit>) -> HookSpec {
    HookSpec::default().edits(edits)
}

fn session(model: &Model, spec: &HookSpec) -> Session {
    let mut session = Session::new(model.clone());
    let hooks = model.hooks(spec).expect("hooks");
    session.set_hooks(Some(&hooks)).expect("its own hooks");
    session
}

fn capture(model: &Model, spec: &HookSpec) -> Captured {
    let mut session = session(model, spec);
    session.capture(&TOKENS).expect("it captures").clone()
}

/// Returns all values of a point, row after row.
fn values(captured: &Captured, point: &str) -> Vec<f32> {
    let rows = captured.rows(point).expect("the point is captured");
    rows.flatten().copied().collect()
}

fn logits(session: &mut Session) -> Vec<f32> {
    let rows = session.tokens().len();
    let mut logits = vec![0.0; rows * session.facts().vocab as usize];
    session.logits_all(&mut logits).expect("logits");
    logits
}

/// Returns the logits of [`TOKENS`] with these edits.
fn edited(model: &Model, list: Vec<Edit>) -> Vec<f32> {
    let mut session = session(model, &edits(list));
    session.prefill(&TOKENS).expect("the tokens fit");
    logits(&mut session)
}

/// Panics unless two lists of numbers agree within 1e-4 of the largest.
fn check_near(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1.0f32, |max, x| max.max(x.abs()));
    for (at, (x, y)) in found.iter().zip(expected).enumerate() {
        let near = (x - y).abs() <= 1e-4 * largest;
        assert!(near, "{what}[{at}]: {x}, expected {y}");
    }
}

#[test]
fn layers_add_their_parts_to_the_residual_stream() {
    for (device, options) in devices(Precision::Exact) {
        for chunk in [1, 7, 32] {
            let model = load(&options.clone().chunk_tokens(chunk));
            let captured = capture(&model, &captures(&["token_embd", "blk.*", "blk.*.*"]));
            let facts = model.facts();
            let mut before = values(&captured, "token_embd");
            assert_eq!(before.len(), TOKENS.len() * facts.dim as usize);
            for layer in 0..facts.layers {
                let part = |name: &str| values(&captured, &format!("blk.{layer}.{name}"));
                let (attention, ffn) = (part("attn_output"), part("ffn_down"));
                let parts = attention.iter().zip(&ffn);
                let sums = before.iter().zip(parts).map(|(h, (a, f))| h + a + f);
                let sums: Vec<f32> = sums.collect();
                let what = format!("{device}, chunks of {chunk}: layer {layer}");
                check_near(&what, &sums, &values(&captured, &format!("blk.{layer}")));
                before = sums;
            }
            let names = captured.points().iter().map(|point| point.name.as_str());
            let names: Vec<_> = names.collect();
            let first = [
                "token_embd",
                "blk.0.attn_norm",
                "blk.0.attn_q",
                "blk.0.attn_k",
                "blk.0.attn_v",
                "blk.0.attn_k_rope",
                "blk.0.attn_q_rope",
                "blk.0.attn_weights",
                "blk.0.attn",
                "blk.0.attn_output",
                "blk.0.ffn_norm",
                "blk.0.ffn_gate",
                "blk.0.ffn_up",
                "blk.0.ffn",
                "blk.0.ffn_down",
                "blk.0",
            ];
            assert_eq!(names[..first.len()], first);
            assert_eq!(names.len(), 1 + (first.len() - 1) * facts.layers as usize);
        }
    }
}

#[test]
fn attention_weights_are_those_of_the_heads() {
    for (device, options) in devices(Precision::Exact) {
        let model = load(&options.clone().chunk_tokens(7));
        let points = [
            "blk.1.attn_q_rope",
            "blk.1.attn_k_rope",
            "blk.1.attn_v",
            "blk.1.attn",
        ];
        let all = [&points[..], &["blk.1.attn_weights"]].concat();
        let spec = captures(&all).attention_positions(16);
        let captured = capture(&model, &spec);
        let get = |name: &str| values(&captured, name);
        let [q, k, v, a] = points.map(get);
        let weights = get("blk.1.attn_weights");
        let facts = model.facts();
        let [heads, kv_heads, size] =
            [facts.heads, facts.kv_heads, facts.head_dim].map(|n| n as usize);
        for token in 0..TOKENS.len() {
            for head in 0..heads {
                let of = |x: &[f32], token: usize, head: usize, heads: usize| -> Vec<f64> {
                    let at = (token * heads + head) * size;
                    x[at..at + size].iter().map(|x| f64::from(*x)).collect()
                };
                let kv = head * kv_heads / heads;
                let query = of(&q, token, head, heads);
                let score = |at: usize| -> f64 {
                    let key = of(&k, at, kv, kv_heads);
                    let dot: f64 = query.iter().zip(key).map(|(x, y)| x * y).sum();
                    (dot / (size as f64).sqrt()).exp()
                };
                let scores: Vec<f64> = (0..=token).map(score).collect();
                let sum: f64 = scores.iter().sum();
                let row = &weights[(token * heads + head) * 16..][..16];
                let what = format!("{device}: token {token}, head {head}");
                for (at, weight) in row.iter().enumerate() {
                    let expected = scores.get(at).map_or(0.0, |score| score / sum);
                    let near = (f64::from(*weight) - expected).abs() < 1e-3;
                    assert!(near, "{what}: {weight} at {at}, expected {expected}");
                }
                let mut output = vec![0.0; size];
                for (at, weight) in row[..=token].iter().enumerate() {
                    for (sum, x) in output.iter_mut().zip(of(&v, at, kv, kv_heads)) {
                        *sum += f64::from(*weight) * x;
                    }
                }
                for (found, expected) in of(&a, token, head, heads).iter().zip(&output) {
                    assert!(
                        (found - expected).abs() < 2e-3,
                        "{what}: {found}, {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn hooks_without_edits_change_no_logit() {
    for (device, options) in devices(Precision::Fast) {
        let model = load(&options);
        let mut plain = Session::new(model.clone());
        plain.prefill(&TOKENS).expect("the tokens fit");
        let mut probed = session(&model, &captures(&["token_embd", "blk.*"]));
        probed.prefill(&TOKENS).expect("the tokens fit");
        assert_eq!(logits(&mut plain), logits(&mut probed), "{device}");
    }
}

#[test]
fn generated_tokens_have_the_values_of_their_step() {
    for (device, options) in devices(Precision::Exact) {
        let model = load(&options.clone().sequences(3));
        let spec = captures(&["blk.*", "blk.0.attn_q"]);
        let mut session = session(&model, &spec);
        session.prefill(&TOKENS).expect("the tokens fit");
        let generation = session.generate(&greedy(8)).expect("it generates");
        generation.for_each(|piece| _ = piece.expect("it generates"));
        let tokens = session.tokens().to_vec();
        let found = session.captured().expect("captured").clone();
        assert_eq!(found.positions().len(), tokens.len());
        let mut other = self::session(&model, &spec);
        let expected = other.capture(&tokens).expect("captured");
        for point in expected.points() {
            let (x, y) = (values(&found, &point.name), values(expected, &point.name));
            check_near(&format!("{device}: {}", point.name), &x, &y);
        }
        // The tokens are those of a session without hooks.
        let mut plain = Session::new(model.clone());
        plain.prefill(&TOKENS).expect("the tokens fit");
        let generation = plain.generate(&greedy(8)).expect("it generates");
        generation.for_each(|piece| _ = piece.expect("it generates"));
        assert_eq!(plain.tokens(), tokens, "{device}");
    }
}

#[test]
fn a_full_context_has_the_values_of_its_positions() {
    let options = LoadOptions::default().device(tabla::load::DeviceChoice::Cpu);
    let model = load(&options);
    let context = model.facts().context as usize;
    for positions in [CapturePositions::All, CapturePositions::Last] {
        let spec = captures(&["blk.1"]).positions(positions.clone());
        let mut session = session(&model, &spec);
        session.prefill(&TOKENS).expect("the tokens fit");
        let generation = session.generate(&greedy(200)).expect("it generates");
        generation.for_each(|piece| _ = piece.expect("it generates"));
        assert_eq!(session.tokens().len(), context + 1);
        let captured = session.captured().expect("captured");
        let last = captured.positions().last().copied();
        assert_eq!(last, u32::try_from(context - 1).ok(), "{positions:?}");
    }
}

#[test]
fn positions_select_rows() {
    let model = load(
        &LoadOptions::default()
            .device(tabla::load::DeviceChoice::Cpu)
            .chunk_tokens(4),
    );
    let all = capture(&model, &captures(&["blk.1"]));
    let dim = model.facts().dim as usize;
    for (positions, expected) in [
        (CapturePositions::Last, vec![10]),
        (CapturePositions::List(vec![0, 3, 4, 90]), vec![0, 3, 4]),
    ] {
        let found = capture(&model, &captures(&["blk.1"]).positions(positions));
        assert_eq!(found.positions(), expected);
        let rows = expected
            .iter()
            .flat_map(|p| &all.values()[*p as usize * dim..][..dim]);
        assert_eq!(found.values(), rows.copied().collect::<Vec<_>>());
    }
}

/// Returns a row after an edit.
fn edit_row(action: &EditAction, y: &[f32]) -> Vec<f32> {
    match action {
        EditAction::Set(v) => v.clone(),
        EditAction::Add { vector, scale } => {
            y.iter().zip(vector).map(|(y, v)| y + scale * v).collect()
        }
        EditAction::Scale(factor) => y.iter().map(|y| y * factor).collect(),
        EditAction::ProjectOut { vector, strength } => {
            let dot = |a: &[f32], b: &[f32]| -> f32 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
            let factor = strength * dot(y, vector) / dot(vector, vector);
            y.iter().zip(vector).map(|(y, v)| y - factor * v).collect()
        }
    }
}

#[test]
fn edits_change_values() {
    for (device, options) in devices(Precision::Exact) {
        let model = load(&options.clone().chunk_tokens(4));
        let vector: Vec<f32> = (0..model.facts().dim).map(|i| (i as f32).sin()).collect();
        let before = capture(&model, &captures(&["blk.0"]));
        for action in [
            EditAction::Set(vector.clone()),
            EditAction::Add {
                vector: vector.clone(),
                scale: -2.0,
            },
            EditAction::Scale(0.5),
            EditAction::ProjectOut {
                vector,
                strength: 1.0,
            },
        ] {
            let edit = Edit::new("blk.0", action.clone()).positions(2..5);
            let spec = captures(&["blk.0", "blk.1"]).edits(vec![edit]);
            // An edited value is what is captured.
            let found = capture(&model, &spec);
            let rows = before.rows("blk.0").expect("the point");
            let rows = rows.enumerate().flat_map(|(position, row)| match position {
                2..5 => edit_row(&action, row),
                _ => row.to_vec(),
            });
            let expected: Vec<f32> = rows.collect();
            let what = format!("{device}: {action:?}");
            check_near(&what, &values(&found, "blk.0"), &expected);
            let again = capture(&model, &spec);
            assert_eq!(found.values(), again.values(), "{what}: the same bits");
        }
        // Setting the values that are there changes nothing.
        let embeddings = values(&capture(&model, &captures(&["token_embd"])), "token_embd");
        let patch = Edit::new("token_embd", EditAction::Set(embeddings));
        let patch = patch.positions(0..u32::try_from(TOKENS.len()).expect("few"));
        let plain = edited(&model, Vec::new());
        assert_eq!(edited(&model, vec![patch]), plain, "{device}");
    }
}

#[test]
fn parts_and_heads_are_removed() {
    for (device, options) in devices(Precision::Exact) {
        let model = load(&options);
        let zero = |point: &str| Edit::new(point, EditAction::Scale(0.0));
        // Without its attention and feed-forward layer, a layer adds nothing.
        let zeros = vec![zero("blk.1.attn_output"), zero("blk.1.ffn_down")];
        let found = capture(&model, &captures(&["blk.0", "blk.1"]).edits(zeros));
        assert_eq!(values(&found, "blk.0"), values(&found, "blk.1"), "{device}");
        // A head without output is one whose columns are zero.
        let size = model.facts().head_dim;
        let head = zero("blk.1.attn").columns(size..2 * size);
        let before = captures(&["blk.1.attn"]);
        let found = capture(&model, &before.clone().edits(vec![head]));
        let before = capture(&model, &before);
        let [found, before] = [&found, &before].map(|x| x.rows("blk.1.attn").expect("the point"));
        let size = size as usize;
        for (row, plain) in found.zip(before) {
            assert_eq!(row[..size], plain[..size]);
            assert!(row[size..2 * size].iter().all(|x| *x == 0.0));
            assert_eq!(row[2 * size..], plain[2 * size..]);
        }
    }
}

#[test]
fn edits_apply_to_decoding_and_batches() {
    for (device, options) in devices(Precision::Exact) {
        let model = load(&options.clone().sequences(4));
        let dim = model.facts().dim as usize;
        let steer = |scale: f32| {
            let vector: Vec<f32> = (0..dim).map(|i| (i as f32 * 0.7).cos()).collect();
            model
                .hooks(&edits(vec![Edit::new(
                    "blk.0",
                    EditAction::Add { vector, scale },
                )]))
                .expect("hooks")
        };
        let hooks = [None, Some(steer(3.0)), Some(steer(-3.0))];
        let generate = |session: &mut Session| {
            session.prefill(&TOKENS).expect("the tokens fit");
            let generation = session.generate(&greedy(12)).expect("it generates");
            generation.for_each(|piece| _ = piece.expect("it generates"));
            session.tokens().to_vec()
        };
        let new = |hooks: &Option<tabla::Hooks>| {
            let mut session = Session::new(model.clone());
            session.set_hooks(hooks.as_ref()).expect("its own hooks");
            session
        };
        let alone: Vec<_> = hooks
            .iter()
            .map(|hooks| generate(&mut new(hooks)))
            .collect();
        assert!(
            alone[0] != alone[1] && alone[1] != alone[2],
            "{device}: {alone:?}"
        );
        // Sessions with other hooks at the same time do not change a token.
        let together: Vec<_> = std::thread::scope(|scope| {
            let threads = hooks
                .iter()
                .map(|hooks| scope.spawn(|| generate(&mut new(hooks))));
            let threads: Vec<_> = threads.collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("it runs"))
                .collect()
        });
        assert_eq!(together, alone, "{device}");
        // A session continues without its hooks.
        let mut session = new(&hooks[1]);
        generate(&mut session);
        session.set_hooks(None).expect("no hooks");
        session.reset();
        assert_eq!(generate(&mut session), alone[0], "{device}");
    }
}

#[test]
fn logit_lens_of_the_last_layer_is_the_output() {
    for (device, options) in devices(Precision::Exact) {
        let model = load(&options);
        let hooks = model.hooks(&captures(&["blk.*"])).expect("hooks");
        let mut session = Session::new(model.clone());
        session.set_hooks(Some(&hooks)).expect("its own hooks");
        let captured = session.capture(&TOKENS).expect("it captures");
        let last = format!("blk.{}", model.facts().layers - 1);
        let residual = values(captured, &last);
        let expected = logits(&mut session);
        let mut found = vec![0.0; expected.len()];
        model.lens(&hooks, &residual, &mut found).expect("logits");
        check_near(&device, &found, &expected);
        let error = model
            .lens(&hooks, &residual[1..], &mut found)
            .expect_err("lengths");
        assert_eq!(error.kind(), ErrorKind::Argument);
    }
}

#[test]
fn bad_hooks_are_errors() {
    let options = LoadOptions::default().device(tabla::load::DeviceChoice::Cpu);
    let model = load(&options);
    let dim = model.facts().dim as usize;
    let set = |point: &str, len: usize| Edit::new(point, EditAction::Set(vec![0.5; len]));
    for (spec, words) in [
        (
            captures(&["blk.0", "blk.9.attn_q"]),
            "no point matches \"blk.9.attn_q\"",
        ),
        (captures(&["blk.?"]), "blk.N.attn_output"),
        (captures(&["blk.?"]), "where N is 0 to 1"),
        (edits(vec![set("blk.7", dim)]), "no point matches \"blk.7\""),
        (
            edits(vec![set("blk.0", dim - 1)]),
            "edit of blk.0: expected a vector of",
        ),
        (edits(vec![set("blk.0", 2 * dim)]), "numbers, got"),
        (
            edits(vec![set("blk.0", 4).columns(0..1 << 20)]),
            "columns 0..1048576 are out of range",
        ),
        (
            edits(vec![set("blk.0.attn_weights", 4)]),
            "blk.0.attn_weights can only be captured",
        ),
        (
            edits(vec![Edit::new("blk.0", EditAction::Scale(f32::NAN))]),
            "got NaN",
        ),
    ] {
        let error = model.hooks(&spec).expect_err(words);
        assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
        assert!(error.message().contains(words), "{error}");
    }
    let mut session = Session::new(model.clone());
    session.prefill(&TOKENS).expect("the tokens fit");
    let error = session.captured().expect_err("no hooks");
    assert_eq!(error.kind(), ErrorKind::State);
    let other = load(&options).hooks(&captures(&["blk.0"])).expect("hooks");
    let error = session.set_hooks(Some(&other)).expect_err("another model");
    assert_eq!(error.kind(), ErrorKind::Argument);
}
