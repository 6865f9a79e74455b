//! Pages of the cache: which ones a sequence has shows in no bit, and rings lose nothing.

use crate::common::{devices, golden, session, worst};
use crate::kernels::{cpu, run_case};
use tabla::exec::cpu::{self, Level};
use tabla::op::list::Op;
use tabla::op::pages::PAGE;
use tabla::{Options, Precision, Session};

/// Puts every page of a cache where another one was.
fn moved(bytes: &mut [u8], pool: usize) {
    bytes.rotate_right(bytes.len() / pool);
}

#[test]
fn pages_anywhere_change_no_bit() {
    for level in Level::available() {
        let device = cpu(level, Precision::Exact, 2);
        for op in [Op::RopeKv, Op::Attention, Op::AttendPart] {
            for case in cpu::cases(op) {
                let here = run_case(op, case, &device, &|_, _| {});
                let pool = here.slots["k_cache"].rows / PAGE;
                let there = run_case(op, case, &device, &|name, bytes| match name {
                    "k_cache" | "v_cache" => moved(bytes, pool as usize),
                    "pages" => {
                        let entries = bytemuck::cast_slice_mut::<u8, u32>(bytes);
                        entries
                            .iter_mut()
                            .for_each(|page| *page = (*page + 1) % pool);
                    }
                    _ => {}
                });
                for (name, wanted) in &here.after {
                    let mut wanted = wanted.clone();
                    if name.ends_with("cache") {
                        moved(&mut wanted, pool as usize);
                    }
                    let same = wanted == there.after[name];
                    assert!(same, "{op:?} {} on {}: {name}", case.name, device.name);
                }
            }
        }
    }
}

/// What it answers to these tokens.
fn logits(s: &mut Session, tokens: &[u32]) -> Vec<f32> {
    let held = s.tokens().len();
    s.prefill(&tokens[held..], &mut |_, _| {})
        .expect("they fit");
    let mut out = vec![0.0; s.facts().vocab as usize];
    s.logits(&mut out).expect("there is a sequence");
    out
}

#[test]
fn rings_answer_as_caches_that_keep_every_position() {
    const CONTEXT: u32 = 250;
    let tokens: Vec<u32> = (0..CONTEXT).map(|i| 5 + i * 37 % 200).collect();
    for name in ["gemma2", "gemma3", "gemma4"] {
        for (device, options) in devices(Precision::Exact) {
            let of = |chunk_tokens| {
                let options = Options {
                    context: CONTEXT,
                    chunk_tokens,
                    ..options.clone()
                };
                session(&golden("arch").join(name).join("model.gguf"), &options)
            };
            // No ring that is shorter than the context takes passes as long as that.
            let (mut ring, mut whole) = (of(7), of(CONTEXT));
            let bytes = [&ring, &whole].map(|s| s.facts().cache_bytes);
            assert!(bytes[0] < bytes[1], "{name}: {bytes:?}");
            // Over the end of a page and of the ring, and where the window leaves a page; then back
            // by less than the ring has beyond its window, and by more.
            let on = [0, 60, 64, 65, 79, 80, 81, 128, 129, 192, 193, 250];
            let on = on.windows(2).map(|ends| (ends[0], ends[1]));
            for (keep, end) in on.chain([(210, 230), (120, 200), (3, 249)]) {
                let tokens = &tokens[..end];
                let [found, wanted] = [&mut ring, &mut whole].map(|s| {
                    s.truncate(keep);
                    logits(s, tokens)
                });
                let (at, difference) = worst(&found, &wanted);
                assert!(
                    difference <= 1e-4,
                    "{name} on {device}: {difference} at {at} behind {end}"
                );
            }
        }
    }
}
