//! The samplers over odd rows of logits, what the device learns and tells, and the tails of tables: what one
//! picks, the larger ones pick too, alone and in company.

use crate::case::Case;
use crate::fill::Random;
use crate::formulas::samplers::{keeps, probabilities};
use crate::rig::{Device, Outcome, run_case};
use std::sync::Arc;
use tabla_core::dtype::DType;
use tabla_core::exec::state::{Bias, LogProbs, ROWS_OFFSET, Row, SAMPLER_OFF, Sampler, State};
use tabla_core::exec::{Executor, Program, Tensors};
use tabla_core::op::builder::{Builder, LogitRows, Shape};
use tabla_core::op::list::Op;
use tabla_core::op::pages::Pages;
use tabla_core::op::sampler::SamplerKind;
use tabla_core::op::table::{BIASES_MAX, BufferId, SamplingStage, Table};

/// Changes of a sampler.
type Set = fn(&mut Sampler);

/// The largest tail over a row of this many logits.
const fn over(emit: fn(&mut Builder<'_>)) -> Case {
    Case {
        name: "odd logits",
        tokens: 1,
        live: 1,
        position: 3,
        sequence: 1,
        context: 16,
        window: 0,
        cache: DType::F32,
        logits: LogitRows::All,
        weights: &[],
        scale: None,
        emit,
        sampler: |_| {},
        tolerance: 0.0,
    }
}

/// Rows of one logit, of few, of a prime number, and as a large vocabulary has them.
const CASES: [Case; 4] = [
    over(|b| b.pick_full(1, SamplerKind::DEFAULT)),
    over(|b| b.pick_full(5, SamplerKind::DEFAULT)),
    over(|b| b.pick_full(1009, SamplerKind::DEFAULT)),
    over(|b| b.pick_full(150_001, SamplerKind::DEFAULT)),
];

/// Logits with a few large ones, some equal, some -inf, some no number.
fn logits(vocab: usize) -> Vec<f32> {
    let mut random = Random::of("logits");
    let mut x: Vec<f32> = (0..vocab).map(|_| random.number().powi(5) / 3.0).collect();
    if vocab > 4 {
        (x[1], x[2], x[3], x[4]) = (x[0], f32::NAN, f32::NEG_INFINITY, -0.0);
    }
    if vocab > 99 {
        (x[70], x[80], x[90]) = (f32::NAN, f32::NEG_INFINITY, x[60]);
    }
    x
}

/// What each filter is asked for.
const ASKED: &[(Op, &[Set])] = &[
    (
        Op::TopNSigma,
        &[
            |_| {},
            |s| s.top_n_sigma = 0.02,
            |s| s.top_n_sigma = 1.0,
            |s| s.top_n_sigma = 4.0,
        ],
    ),
    (
        Op::TopK,
        &[
            |_| {},
            |s| s.top_k = 1,
            |s| s.top_k = 40,
            |s| s.top_k = 1000,
        ],
    ),
    (
        Op::Typical,
        &[
            |_| {},
            |s| s.typical_p = 0.0,
            |s| s.typical_p = 0.2,
            |s| s.typical_p = 0.9,
        ],
    ),
    (
        Op::TopP,
        &[
            |_| {},
            |s| s.top_p = 0.0,
            |s| s.top_p = 0.5,
            |s| s.top_p = 0.9,
        ],
    ),
    (
        Op::MinP,
        &[
            |_| {},
            |s| s.min_p = 0.01,
            |s| s.min_p = 0.4,
            |s| s.min_p = 1.0,
        ],
    ),
    (
        Op::Xtc,
        &[
            |_| {},
            |s| (s.xtc_probability, s.xtc_threshold) = (1.0, 0.001),
            |s| (s.xtc_probability, s.xtc_threshold) = (1.0, 0.1),
            |s| (s.xtc_probability, s.xtc_threshold) = (1.0, 0.6),
            |s| (s.xtc_probability, s.xtc_threshold, s.seed_lo) = (0.5, 0.002, 1),
            |s| (s.xtc_probability, s.xtc_threshold, s.seed_lo) = (0.5, 0.002, 4),
        ],
    ),
    (
        Op::Mirostat,
        &[
            |_| {},
            |s| (s.mirostat_tau, s.mirostat_mu) = (5.0, 0.1),
            |s| (s.mirostat_tau, s.mirostat_mu) = (5.0, 6.0),
            |s| (s.mirostat_tau, s.mirostat_mu) = (5.0, 30.0),
        ],
    ),
];

/// Every filter over odd rows of logits leaves the sets of its definition, and every bit of what stays.
pub fn odd_logits(device: &Device) {
    for case in &CASES {
        for (op, asked) in ASKED {
            for (i, set) in asked.iter().enumerate() {
                let mut sampler = SAMPLER_OFF;
                set(&mut sampler);
                let outcome = run_case(*op, case, device, &|name, bytes| match name {
                    "y" => {
                        let x = logits(bytes.len() / size_of::<f32>());
                        bytes.copy_from_slice(bytemuck::cast_slice(&x));
                    }
                    "samplers" => bytes.copy_from_slice(bytemuck::bytes_of(&sampler)),
                    _ => {}
                });
                let (x, y) = (outcome.numbers("y"), outcome.results("y"));
                let stays = keeps(*op, &x, &outcome.rows()[0], &sampler);
                let what = format!("{op:?} {i} of {} on {}", x.len(), device.name);
                for (at, (x, y)) in x.iter().zip(&y).enumerate() {
                    let agree = match x.is_nan() {
                        // Nothing ever picks it, whatever becomes of it.
                        true => y.is_nan() || *y == f32::NEG_INFINITY,
                        false if stays[at] => x.to_bits() == y.to_bits(),
                        false => *y == f32::NEG_INFINITY,
                    };
                    assert!(agree, "{what}: [{at}] {x} became {y}");
                }
            }
        }
    }
}

/// What the command leaves in a place of whole numbers, read as what it is.
fn left<T: bytemuck::Pod>(outcome: &Outcome, name: &str) -> Vec<T> {
    bytemuck::pod_collect_to_vec(&outcome.after[name])
}

/// Mirostat's mu moves by how surprising the token was.
pub fn mirostat_mu(device: &Device) {
    let outcome = run_case(
        Op::MirostatMu,
        &CASES[2],
        device,
        &|name, bytes| match name {
            "x" => bytes.copy_from_slice(bytemuck::cast_slice(&logits(1009))),
            "samplers" => {
                let sampler = Sampler {
                    mirostat_tau: 3.0,
                    mirostat_eta: 0.25,
                    mirostat_mu: 6.0,
                    ..SAMPLER_OFF
                };
                bytes.copy_from_slice(bytemuck::bytes_of(&sampler));
            }
            "ids" => bytes.copy_from_slice(bytemuck::bytes_of(&17u32)),
            _ => {}
        },
    );
    let (p, _) = probabilities(&outcome.numbers("x"));
    let wanted = 6.0 - 0.25 * (-p[17].log2() - 3.0);
    let found = left::<Sampler>(&outcome, "samplers")[0];
    let error = f64::from(found.mirostat_mu) - wanted;
    assert!(error.abs() < 1e-5, "{} and {wanted}", found.mirostat_mu);
    let before: Sampler = bytemuck::pod_read_unaligned(&outcome.before["samplers"]);
    let others = Sampler {
        mirostat_mu: before.mirostat_mu,
        ..found
    };
    assert_eq!(others, before);
}

/// The logarithms of the picked token's probability and of the largest ones, in their order.
pub fn log_probs(device: &Device) {
    let few = over(|b| b.pick_full(7, SamplerKind::DEFAULT));
    for (case, id) in [
        (&CASES[0], 0u32),
        (&few, 6),
        (&CASES[2], 500),
        (&CASES[3], 149_999),
    ] {
        let outcome = run_case(Op::LogProbs, case, device, &|name, bytes| match name {
            "x" => {
                let x = logits(bytes.len() / size_of::<f32>());
                bytes.copy_from_slice(bytemuck::cast_slice(&x));
            }
            "samplers" => {
                let sampler = Sampler {
                    log_probs: 1,
                    ..SAMPLER_OFF
                };
                bytes.copy_from_slice(bytemuck::bytes_of(&sampler));
            }
            "ids" => bytes.copy_from_slice(bytemuck::bytes_of(&id)),
            _ => {}
        });
        let x = outcome.numbers("x");
        let (p, _) = probabilities(&x);
        let mut order: Vec<usize> = (0..x.len()).filter(|i| !x[*i].is_nan()).collect();
        order.sort_by(|a, b| x[*b].total_cmp(&x[*a]).then(a.cmp(b)));
        let found = left::<LogProbs>(&outcome, "log_probs")[0];
        let what = format!("{} logits on {}", x.len(), device.name);
        let close = |found: f32, i: usize| {
            let wanted = p[i].ln();
            let error = (f64::from(found) - wanted).abs();
            assert!(
                f64::from(found) == wanted || error < 1e-5,
                "{what}: {found} and {wanted}"
            );
        };
        assert_eq!(found.token, id, "{what}");
        close(found.log_prob, id as usize);
        let count = order.len().min(found.tokens.len());
        assert_eq!(found.count as usize, count, "{what}");
        for (at, i) in order.into_iter().enumerate().take(count) {
            assert_eq!(found.tokens[at] as usize, i, "{what}: {at}");
            close(found.log_probs[at], i);
        }
    }
}

/// No tensors.
struct Nothing;

impl Tensors for Nothing {
    fn weight(&self, _: u32) -> &[u8] {
        &[]
    }
    fn scales(&self, _: u32) -> Option<tabla_quant::Scales<'_>> {
        None
    }
    fn constant(&self, _: u32) -> &[u8] {
        &[]
    }
}

const VOCAB: u32 = 1009;
const SEQUENCES: u32 = 7;
const CONTEXT: u32 = 64;

/// A table of nothing but tails, on a device.
struct Tails {
    table: Table,
    executor: Box<dyn Executor>,
}

impl Tails {
    fn new(device: &Device, tokens: u32, samplers: &[SamplerKind]) -> Self {
        let shape = Shape {
            name: "tails",
            tokens,
            logits: LogitRows::All,
            sequences: SEQUENCES,
            context: CONTEXT,
            pages: Pages::new(SEQUENCES, CONTEXT, &[], tokens),
            cache: DType::F32,
            part: 0,
        };
        let mut b = Builder::new(&CASES[0], shape);
        b.pick(VOCAB, samplers);
        let draft = b.finish().expect("it needs no tensor");
        let table = tabla_core::plan::compile(draft, &device.profile).expect("it has kernels");
        tabla_core::op::verify::check(&table, &device.profile).expect("it is sound");
        let program = Program {
            tables: Arc::from([table.clone()]),
            tensors: Arc::new(Nothing),
        };
        let mut executor = (device.link)(program).expect("it links");
        let mut random = Random::of("history");
        let words = SEQUENCES * CONTEXT;
        let history: Vec<u32> = (0..words).map(|_| random.word() % 9).collect();
        let bias = |i: u32| Bias {
            token: i * 5,
            bias: if i.is_multiple_of(3) {
                f32::NEG_INFINITY
            } else {
                2.0
            },
        };
        let rows = (0..SEQUENCES).flat_map(|_| 0..BIASES_MAX);
        let biases: Vec<Bias> = rows.map(bias).collect();
        let breakers = vec![1u32; (SEQUENCES * VOCAB.div_ceil(32)) as usize];
        for (place, bytes) in [
            (BufferId::History, bytemuck::cast_slice(&history)),
            (BufferId::Biases, bytemuck::cast_slice(&biases)),
            (BufferId::Breakers, bytemuck::cast_slice(&breakers)),
        ] {
            if table.slots.iter().any(|slot| slot.place == place) {
                executor.write(place, 0, bytes).expect("it fits");
            }
        }
        Self { table, executor }
    }

    /// What a tail picks for these rows, a row of logits for each.
    fn pick(
        &mut self,
        tail: SamplingStage,
        rows: &[Row],
        samplers: &[Sampler],
        logits: &[f32],
    ) -> Vec<u32> {
        let state = State {
            live: u32::try_from(rows.len()).expect("a few"),
            context: CONTEXT,
            ..State::default()
        };
        let mut bytes = bytemuck::bytes_of(&state).to_vec();
        bytes.extend_from_slice(bytemuck::cast_slice(rows));
        for (place, bytes) in [
            (BufferId::State, &bytes[..]),
            (BufferId::Samplers, bytemuck::cast_slice(samplers)),
            (BufferId::Scores, bytemuck::cast_slice(logits)),
        ] {
            self.executor.write(place, 0, bytes).expect("it fits");
        }
        let tail = self.table.tails[tail as usize].clone();
        self.executor.run(0, tail.into(), 1).expect("it runs");
        self.executor
            .read(BufferId::State, 0, &mut bytes)
            .expect("it fits");
        let after: Vec<Row> = bytemuck::pod_collect_to_vec(&bytes[ROWS_OFFSET..]);
        let token = |row: &Row| {
            after
                .iter()
                .find(|r| r.sequence == row.sequence)
                .expect("it is there")
                .token
        };
        rows.iter().map(token).collect()
    }
}

/// Samplers that need the second tail at most, and those that need the third.
fn sampler(sequence: u32) -> (Sampler, SamplingStage) {
    let plain = Sampler {
        seed_lo: 5 * sequence,
        temperature: 1.0 + sequence as f32 / 8.0,
        ..SAMPLER_OFF
    };
    match sequence {
        0 => (SAMPLER_OFF, SamplingStage::Greedy),
        1 => (plain, SamplingStage::Sampled),
        2 => {
            let penalised = Sampler {
                repeat_penalty: 1.3,
                frequency_penalty: 0.2,
                presence_penalty: -0.1,
                repeat_last: 20,
                ..plain
            };
            (penalised, SamplingStage::Sampled)
        }
        3 => {
            let filtered = Sampler {
                top_k: 50,
                top_p: 0.9,
                min_p: 0.02,
                ..plain
            };
            (filtered, SamplingStage::Sampled)
        }
        4 => {
            let held = Sampler {
                mirostat_tau: 3.0,
                mirostat_mu: 6.0,
                bias_count: 30,
                log_probs: 1,
                ..plain
            };
            (held, SamplingStage::Full)
        }
        5 => {
            let dry = Sampler {
                dry_multiplier: 2.0,
                dry_allowed: 1,
                dry_last: CONTEXT,
                dynatemp_range: 0.7,
                ..plain
            };
            (dry, SamplingStage::Full)
        }
        _ => {
            let others = Sampler {
                top_n_sigma: 2.0,
                typical_p: 0.9,
                xtc_probability: 0.5,
                xtc_threshold: 0.01,
                ..plain
            };
            (others, SamplingStage::Full)
        }
    }
}

/// Every tail from the smallest that does on picks the same, alone and in company, at many positions.
pub fn tails(device: &Device) {
    let samplers: Vec<Sampler> = (0..SEQUENCES).map(|s| sampler(s).0).collect();
    let mut all = Tails::new(device, SEQUENCES, SamplerKind::DEFAULT);
    let mut one = Tails::new(device, 1, SamplerKind::DEFAULT);
    let mut distinct = std::collections::BTreeSet::new();
    for position in [0, 1, 7, 20, 40, 62] {
        let row = |t: u32| Row {
            token: 1,
            position,
            sequence: (3 * t + 2) % SEQUENCES,
            done: 0,
        };
        let rows: Vec<Row> = (0..SEQUENCES).map(row).collect();
        let mut random = Random::of("scores");
        let numbers = rows.len() * VOCAB as usize;
        let logits: Vec<f32> = (0..numbers).map(|_| 3.0 * random.number()).collect();
        let together = all.pick(SamplingStage::Full, &rows, &samplers, &logits);
        for (t, row) in rows.iter().enumerate() {
            let (_, least) = sampler(row.sequence);
            let own = &logits[t * VOCAB as usize..][..VOCAB as usize];
            for tail in SamplingStage::ALL.into_iter().filter(|tail| *tail >= least) {
                let found = one.pick(tail, std::slice::from_ref(row), &samplers, own);
                let what = format!("{}: sequence {} at {position}", device.name, row.sequence);
                assert_eq!(found, together[t..=t], "{what}, {} alone", tail.name());
            }
        }
        // What none of its own rows needs more of.
        let few: Vec<usize> = (0..rows.len())
            .filter(|t| sampler(rows[*t].sequence).1 < SamplingStage::Full)
            .collect();
        let some: Vec<Row> = few.iter().map(|t| rows[*t]).collect();
        let theirs = few
            .iter()
            .flat_map(|t| &logits[t * VOCAB as usize..][..VOCAB as usize]);
        let theirs: Vec<f32> = theirs.copied().collect();
        let found = all.pick(SamplingStage::Sampled, &some, &samplers, &theirs);
        let wanted: Vec<u32> = few.iter().map(|t| together[*t]).collect();
        assert_eq!(found, wanted, "{}: at {position}", device.name);
        distinct.extend(together);
    }
    assert!(distinct.len() > 20, "{distinct:?}");
}

/// The order is that of the list: what is left of the likeliest depends on it, and what is not in the
/// list has no say.
pub fn orders(device: &Device) {
    use SamplerKind::{MinP, TopK, Xtc};
    let set = Sampler {
        temperature: 1.0,
        top_k: 1,
        xtc_probability: 1.0,
        xtc_threshold: 0.1,
        ..SAMPLER_OFF
    };
    let samplers = [set; SEQUENCES as usize];
    // Two tokens that share nearly everything.
    let mut logits = vec![0.0; VOCAB as usize];
    (logits[300], logits[700]) = (30.0, 29.5);
    let row = [Row {
        position: 3,
        ..Row::default()
    }];
    let picked = |chain: &[SamplerKind]| {
        Tails::new(device, 1, chain).pick(SamplingStage::Full, &row, &samplers, &logits)[0]
    };
    assert_eq!(picked(&[TopK, Xtc]), 300);
    assert_eq!(picked(&[Xtc, TopK]), 700);
    assert_eq!(picked(&[Xtc]), 700);
    assert_eq!(picked(&[MinP, TopK]), 300);
}
