//! Tests of samplers over odd rows of logits, of Mirostat state and log-probabilities, and of
//! sampling stages: all stages that support a request sample the same token, alone and in a batch.

use crate::case::Case;
use crate::fill::Random;
use crate::ops::samplers::{keeps, probabilities};
use crate::rig::{Device, Outcome, run_case};
use std::sync::Arc;
use tabla_core::dtype::DType;
use tabla_core::exec::state::{ROWS_OFFSET, sampler_off};
use tabla_core::exec::{Executor, Program, Tensors};
use tabla_core::op::list::Op;
use tabla_core::op::pages::Pages;
use tabla_core::op::params::{Bias, Logprobs, Row, Sampler, State};
use tabla_core::op::sampler::SamplerKind;
use tabla_core::op::table::{BIASES_MAX, BufferId, SamplingStage, Table};
use tabla_plan::builder::{Builder, LogitRows, Shape};

/// Change of sampler parameters.
type Set = fn(&mut Sampler);

/// Returns a case of the full stage.
const fn over(emit: fn(&mut Builder<'_>)) -> Case {
    let case = Case::new("odd logits", 1, 1, emit);
    case.at(3, 16).sampled_rows().tolerance(0.0)
}

/// Rows of one logit, of few, of a prime number, and of a large vocabulary.
const CASES: [Case; 4] = [
    over(|b| b.full_stage(1, SamplerKind::DEFAULT)),
    over(|b| b.full_stage(5, SamplerKind::DEFAULT)),
    over(|b| b.full_stage(1009, SamplerKind::DEFAULT)),
    over(|b| b.full_stage(150_001, SamplerKind::DEFAULT)),
];

/// Returns logits with few large values, some equal, some -inf, some NaN.
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

/// Parameters to test for each filter.
const PARAMETERS: &[(Op, &[Set])] = &[
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
            |s| (s.xtc_probability, s.xtc_threshold) = (1.0, 0.0),
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

/// Checks that each filter keeps the set of its definition over odd rows of logits, with unchanged
/// bits.
pub fn odd_logits(device: &Device) {
    let all = SamplerKind::DEFAULT.iter();
    for op in all.flat_map(|kind| kind.ops(SamplingStage::Full)) {
        let changes = matches!(op, Op::Penalize | Op::Dry | Op::Temper | Op::DynamicTemper);
        let is_tested = changes || PARAMETERS.iter().any(|(tested, _)| tested == op);
        assert!(is_tested, "PARAMETERS lacks the filter {}", op.name());
    }
    for case in &CASES {
        for (op, parameters) in PARAMETERS {
            for (i, set) in parameters.iter().enumerate() {
                let mut sampler = sampler_off();
                set(&mut sampler);
                let outcome = run_case(*op, case, device, &|name, bytes| match name {
                    // The maxima are those of `y`.
                    "x" | "y" => {
                        let x = logits(bytes.len() / size_of::<f32>());
                        bytes.copy_from_slice(bytemuck::cast_slice(&x));
                    }
                    "samplers" => bytes.copy_from_slice(bytemuck::bytes_of(&sampler)),
                    _ => {}
                });
                let (x, y) = (outcome.numbers("y"), outcome.results("y"));
                let kept = keeps(*op, &x, &outcome.rows()[0], &sampler);
                let what = format!("{op:?} {i} of {} on {}", x.len(), device.name);
                for (at, (x, y)) in x.iter().zip(&y).enumerate() {
                    let agree = match x.is_nan() {
                        // NaN is never sampled, so its result does not matter.
                        true => y.is_nan() || *y == f32::NEG_INFINITY,
                        false if kept[at] => x.to_bits() == y.to_bits(),
                        false => *y == f32::NEG_INFINITY,
                    };
                    assert!(agree, "{what}: [{at}]: {x} changed to {y}");
                }
            }
        }
    }
}

/// Returns an operand after the run as an array of `T`.
fn results_as<T: bytemuck::Pod>(outcome: &Outcome, name: &str) -> Vec<T> {
    bytemuck::pod_collect_to_vec(&outcome.after[name])
}

/// Checks the update of Mirostat's mu by the surprise of the token.
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
                    ..sampler_off()
                };
                bytes.copy_from_slice(bytemuck::bytes_of(&sampler));
            }
            "ids" => bytes.copy_from_slice(bytemuck::bytes_of(&17u32)),
            _ => {}
        },
    );
    let (p, _) = probabilities(&outcome.numbers("x"));
    let expected = 6.0 - 0.25 * (-p[17].log2() - 3.0);
    let actual = results_as::<Sampler>(&outcome, "samplers")[0];
    let error = f64::from(actual.mirostat_mu) - expected;
    assert!(
        error.abs() < 1e-5,
        "expected {expected}, got {}",
        actual.mirostat_mu
    );
    let before: Sampler = bytemuck::pod_read_unaligned(&outcome.before["samplers"]);
    let others = Sampler {
        mirostat_mu: before.mirostat_mu,
        ..actual
    };
    assert_eq!(others, before);
}

/// Checks the log-probabilities of the sampled token and of the most likely tokens, in order.
pub fn logprobs(device: &Device) {
    let few = over(|b| b.full_stage(7, SamplerKind::DEFAULT));
    for (case, id) in [
        (&CASES[0], 0u32),
        (&few, 6),
        (&CASES[2], 500),
        (&CASES[3], 149_999),
    ] {
        let outcome = run_case(Op::Logprobs, case, device, &|name, bytes| match name {
            "x" => {
                let x = logits(bytes.len() / size_of::<f32>());
                bytes.copy_from_slice(bytemuck::cast_slice(&x));
            }
            "samplers" => {
                let sampler = Sampler {
                    logprobs: 1,
                    ..sampler_off()
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
        let actual = results_as::<Logprobs>(&outcome, "logprobs")[0];
        let what = format!("{} logits on {}", x.len(), device.name);
        let close = |actual: f32, i: usize| {
            let expected = p[i].ln();
            let error = (f64::from(actual) - expected).abs();
            assert!(
                f64::from(actual) == expected || error < 1e-5,
                "{what}: expected {expected}, got {actual}"
            );
        };
        assert_eq!(actual.token, id, "{what}");
        close(actual.logprob, id as usize);
        let count = order.len().min(actual.tokens.len());
        assert_eq!(actual.count as usize, count, "{what}");
        for (at, i) in order.into_iter().enumerate().take(count) {
            assert_eq!(actual.tokens[at] as usize, i, "{what}: {at}");
            close(actual.logprobs[at], i);
        }
    }
}

/// No tensors.
struct NoTensors;

impl Tensors for NoTensors {
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

/// A table with only sampling stages, on a device.
struct Stages {
    table: Table,
    executor: Box<dyn Executor>,
}

impl Stages {
    fn new(device: &Device, tokens: u32, samplers: &[SamplerKind]) -> Self {
        let shape = Shape {
            name: "stages",
            tokens,
            logits: LogitRows::All,
            sequences: SEQUENCES,
            context: CONTEXT,
            pages: Pages::new(SEQUENCES, CONTEXT, &[], tokens),
            cache: DType::F32,
            part: 0,
        };
        let mut b = Builder::new(&CASES[0], shape);
        b.sampling_stages(VOCAB, samplers);
        let graph = b.finish().expect("the graph needs no tensors");
        let table = tabla_plan::compile(graph, &device.profile).expect("the kernels exist");
        tabla_plan::verify::check(&table, &device.profile).expect("the table is valid");
        let program = Program {
            tables: Arc::from([table.clone()]),
            tensors: Arc::new(NoTensors),
        };
        let mut executor = (device.link)(program).expect("the table links");
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
        for (buffer, bytes) in [
            (BufferId::History, bytemuck::cast_slice(&history)),
            (BufferId::Biases, bytemuck::cast_slice(&biases)),
            (BufferId::Breakers, bytemuck::cast_slice(&breakers)),
        ] {
            if table.slots.iter().any(|slot| slot.buffer == buffer) {
                executor
                    .write(buffer, 0, bytes)
                    .expect("the range is in bounds");
            }
        }
        Self { table, executor }
    }

    /// Returns the tokens that a stage samples for these rows, with one row of logits each.
    fn sample(
        &mut self,
        stage: SamplingStage,
        rows: &[Row],
        samplers: &[Sampler],
        logits: &[f32],
    ) -> Vec<u32> {
        let state = State {
            active_rows: u32::try_from(rows.len()).expect("few rows"),
            context: CONTEXT,
            ..State::default()
        };
        let mut bytes = bytemuck::bytes_of(&state).to_vec();
        bytes.extend_from_slice(bytemuck::cast_slice(rows));
        for (buffer, bytes) in [
            (BufferId::State, &bytes[..]),
            (BufferId::Samplers, bytemuck::cast_slice(samplers)),
            (BufferId::Scores, bytemuck::cast_slice(logits)),
        ] {
            self.executor
                .write(buffer, 0, bytes)
                .expect("the range is in bounds");
        }
        let stage = self.table.stages[stage as usize].clone();
        self.executor
            .run(0, stage.into(), 1)
            .expect("the stage runs");
        self.executor
            .read(BufferId::State, 0, &mut bytes)
            .expect("the range is in bounds");
        let after: Vec<Row> = bytemuck::pod_collect_to_vec(&bytes[ROWS_OFFSET..]);
        let token = |row: &Row| {
            after
                .iter()
                .find(|r| r.sequence == row.sequence)
                .expect("the row exists")
                .token
        };
        rows.iter().map(token).collect()
    }
}

/// Returns a sampler and the first stage that supports it.
fn sampler(sequence: u32) -> (Sampler, SamplingStage) {
    let plain = Sampler {
        seed_lo: 5 * sequence,
        temperature: 1.0 + sequence as f32 / 8.0,
        ..sampler_off()
    };
    match sequence {
        0 => (sampler_off(), SamplingStage::Greedy),
        1 => (plain, SamplingStage::Sampled),
        2 => {
            let penalized = Sampler {
                repetition_penalty: 1.3,
                frequency_penalty: 0.2,
                presence_penalty: -0.1,
                repeat_last_n: 20,
                ..plain
            };
            (penalized, SamplingStage::Sampled)
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
            let mirostat = Sampler {
                mirostat_tau: 3.0,
                mirostat_mu: 6.0,
                bias_count: 30,
                logprobs: 1,
                ..plain
            };
            (mirostat, SamplingStage::Full)
        }
        5 => {
            let dry = Sampler {
                dry_multiplier: 2.0,
                dry_allowed: 1,
                dry_penalty_last_n: CONTEXT,
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

/// Checks that all stages that support a sampler sample the same tokens, alone and in a batch, at
/// several positions.
pub fn stages(device: &Device) {
    let samplers: Vec<Sampler> = (0..SEQUENCES).map(|s| sampler(s).0).collect();
    let mut all = Stages::new(device, SEQUENCES, SamplerKind::DEFAULT);
    let mut one = Stages::new(device, 1, SamplerKind::DEFAULT);
    let mut distinct = std::collections::BTreeSet::new();
    for position in [0, 1, 7, 20, 40, 62] {
        let row = |t: u32| Row {
            token: 1,
            position,
            sequence: (3 * t + 2) % SEQUENCES,
            ..Row::default()
        };
        let rows: Vec<Row> = (0..SEQUENCES).map(row).collect();
        let mut random = Random::of("scores");
        let count = rows.len() * VOCAB as usize;
        let logits: Vec<f32> = (0..count).map(|_| 3.0 * random.number()).collect();
        let together = all.sample(SamplingStage::Full, &rows, &samplers, &logits);
        for (t, row) in rows.iter().enumerate() {
            let (_, least) = sampler(row.sequence);
            let own = &logits[t * VOCAB as usize..][..VOCAB as usize];
            for stage in SamplingStage::ALL
                .into_iter()
                .filter(|stage| *stage >= least)
            {
                let actual = one.sample(stage, std::slice::from_ref(row), &samplers, own);
                let what = format!("{}: sequence {} at {position}", device.name, row.sequence);
                assert_eq!(actual, together[t..=t], "{what}, {} alone", stage.name());
            }
        }
        // The sampled stage for the rows that it supports.
        let few: Vec<usize> = (0..rows.len())
            .filter(|t| sampler(rows[*t].sequence).1 < SamplingStage::Full)
            .collect();
        let some: Vec<Row> = few.iter().map(|t| rows[*t]).collect();
        let theirs = few
            .iter()
            .flat_map(|t| &logits[t * VOCAB as usize..][..VOCAB as usize]);
        let theirs: Vec<f32> = theirs.copied().collect();
        let actual = all.sample(SamplingStage::Sampled, &some, &samplers, &theirs);
        let expected: Vec<u32> = few.iter().map(|t| together[*t]).collect();
        assert_eq!(actual, expected, "{}: at {position}", device.name);
        distinct.extend(together);
    }
    assert!(distinct.len() > 20, "{distinct:?}");
}

/// Checks that samplers run in the order of the chain, and that samplers outside of the chain have
/// no effect.
pub fn orders(device: &Device) {
    use SamplerKind::{MinP, TopK, Xtc};
    let set = Sampler {
        temperature: 1.0,
        top_k: 1,
        xtc_probability: 1.0,
        xtc_threshold: 0.1,
        ..sampler_off()
    };
    let samplers = [set; SEQUENCES as usize];
    // Two tokens with nearly all of the probability.
    let mut logits = vec![0.0; VOCAB as usize];
    (logits[300], logits[700]) = (30.0, 29.5);
    let row = [Row {
        position: 3,
        ..Row::default()
    }];
    let sample = |chain: &[SamplerKind]| {
        Stages::new(device, 1, chain).sample(SamplingStage::Full, &row, &samplers, &logits)[0]
    };
    assert_eq!(sample(&[TopK, Xtc]), 300);
    assert_eq!(sample(&[Xtc, TopK]), 700);
    assert_eq!(sample(&[Xtc]), 700);
    assert_eq!(sample(&[MinP, TopK]), 300);
}
