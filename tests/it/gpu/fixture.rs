//! Test fixture: a small table linked to the device, with access to its inputs and outputs.

use half::{bf16, f16};
use std::ops::Range;
use std::sync::Arc;
use tabla::device::Profile;
use tabla::dtype::DType;
use tabla::exec::gpu::{self, Device};
use tabla::exec::state::{ROWS_OFFSET, sampler_off};
use tabla::exec::{Executor, Program, Tensors};
use tabla::op::list::Op;
use tabla::op::pages::Pages;
use tabla::op::params::{PAGE, Row, Sampler, State};
use tabla::op::table::{BufferId, Table};
use tabla::plan;
use tabla::plan::builder::{Builder, LogitRows, Shape, WeightInfo, Weights};
use tabla::quant::Scales;
use tabla_testkit::fill::{Filling, numbers, shuffled};
use tabla_testkit::rig::{separate, with_needed};

pub(super) struct Fixture {
    pub(super) executor: Box<dyn Executor>,
    pub(super) table: Table,
    pages: Pages,
    /// Page table.
    own_pages: Vec<u32>,
}

#[derive(Clone)]
pub(super) struct Weight {
    pub(super) name: &'static str,
    pub(super) dtype: DType,
    pub(super) rows: u32,
    pub(super) cols: u32,
    pub(super) bytes: Vec<u8>,
    /// Scale of a ternary weight.
    pub(super) scale: Option<f32>,
    /// Source of the scales of types with a separate scale tensor.
    pub(super) filling: Option<Arc<Filling>>,
}

pub(super) struct TestWeights(pub(super) Vec<Weight>);

impl Weights for TestWeights {
    fn find(&self, name: &str) -> Option<WeightInfo> {
        let i = self.0.iter().position(|w| w.name == name)?;
        let w = &self.0[i];
        Some(WeightInfo {
            index: u32::try_from(i).unwrap(),
            dtype: w.dtype,
            rows: w.rows,
            cols: w.cols,
            scale: w.scale,
        })
    }
}

/// The only constant is the weight named `freqs`.
impl Tensors for TestWeights {
    fn weight(&self, index: u32) -> &[u8] {
        &self.0[index as usize].bytes
    }
    fn scales(&self, index: u32) -> Option<Scales<'_>> {
        self.0[index as usize].filling.as_ref()?.scales()
    }
    fn constant(&self, _: u32) -> &[u8] {
        &self
            .0
            .iter()
            .find(|w| w.name == "freqs")
            .expect("a weight named `freqs`")
            .bytes
    }
}

fn compile(
    weights: &TestWeights,
    profile: &Profile,
    shape: Shape,
    emit: impl Fn(&mut Builder<'_>),
) -> Table {
    let mut builder = Builder::new(weights, shape);
    emit(&mut builder);
    plan::compile(builder.finish().unwrap(), profile).unwrap()
}

pub(super) fn shape(tokens: u32) -> Shape {
    Shape {
        name: "test",
        tokens,
        logits: LogitRows::Last,
        sequences: 1,
        context: 512,
        pages: Pages::new(1, 512, &[], tokens),
        cache: DType::F32,
        part: 0,
    }
}

impl Fixture {
    pub(super) fn new(
        device: &Device,
        shape: Shape,
        w: Vec<Weight>,
        emit: impl Fn(&mut Builder<'_>),
    ) -> Self {
        Self::with(device, device.profile(), shape, w, emit)
    }

    pub(super) fn with(
        device: &Device,
        profile: &Profile,
        shape: Shape,
        weights: Vec<Weight>,
        emit: impl Fn(&mut Builder<'_>),
    ) -> Self {
        let tensors = Arc::new(TestWeights(weights));
        let mut table = compile(&tensors, profile, shape, emit);
        separate(&mut table);
        Self::link(device, shape, tensors, table)
    }

    /// As `new`, with the planned memory, which operands of several commands share.
    pub(super) fn sharing(
        device: &Device,
        shape: Shape,
        weights: Vec<Weight>,
        emit: impl Fn(&mut Builder<'_>),
    ) -> Self {
        let tensors = Arc::new(TestWeights(weights));
        let table = compile(&tensors, device.profile(), shape, emit);
        Self::link(device, shape, tensors, table)
    }

    fn link(device: &Device, shape: Shape, tensors: Arc<TestWeights>, table: Table) -> Self {
        let program = Program {
            tables: Arc::new([table.clone()]),
            tensors,
        };
        let executor = gpu::link(device.clone(), program).unwrap();
        let own_pages = shuffled(&shape.pages, shape.sequences, "pages");
        let mut fixture = Self {
            executor,
            table,
            pages: shape.pages,
            own_pages,
        };
        if fixture
            .table
            .slots
            .iter()
            .any(|s| s.buffer == BufferId::Pages)
        {
            let bytes = bytemuck::cast_slice(&fixture.own_pages);
            fixture.executor.write(BufferId::Pages, 0, bytes).unwrap();
        }
        fixture.state(
            active_rows(shape.tokens),
            &vec![(0, 0); shape.tokens as usize],
        );
        if fixture
            .table
            .slots
            .iter()
            .any(|s| s.buffer == BufferId::Samplers)
        {
            (0..shape.sequences).for_each(|sequence| fixture.sampler(sequence, &sampler_off()));
        }
        fixture
    }

    pub(super) fn buffer(&self, name: &str) -> (BufferId, usize) {
        let slot = self.table.slots.iter().find(|s| s.name == name);
        let slot = slot.unwrap_or_else(|| panic!("{name} in {:?}", self.table.slots));
        (slot.buffer, usize::try_from(slot.bytes()).unwrap())
    }

    /// Returns the cache row of a position of the first sequence in a layer with this window.
    pub(super) fn row(&self, window: u32, position: u32) -> usize {
        let own = self.pages.of(window);
        let page = self.own_pages[(own.first + position / PAGE % own.ring) as usize];
        (page * PAGE + position % PAGE) as usize
    }

    pub(super) fn put(&mut self, name: &str, values: &[f32]) {
        let (buffer, _) = self.buffer(name);
        let bytes = bytemuck::cast_slice(values);
        self.executor.write(buffer, 0, bytes).unwrap();
    }

    pub(super) fn bytes(&mut self, name: &str) -> Vec<u8> {
        let (buffer, bytes) = self.buffer(name);
        let mut out = vec![0; bytes];
        self.executor.read(buffer, 0, &mut out).unwrap();
        out
    }

    pub(super) fn get(&mut self, name: &str) -> Vec<f32> {
        bytemuck::pod_collect_to_vec(&self.bytes(name))
    }

    /// Returns the decoded numbers of a cache.
    pub(super) fn cached(&mut self, name: &str) -> Vec<f64> {
        let bytes = self.bytes(name);
        let slot = self.table.slots.iter().find(|s| s.name == name);
        wide(&numbers(slot.expect("`bytes` checks the name"), &bytes))
    }

    /// Sets the sampler of a sequence.
    pub(super) fn sampler(&mut self, sequence: u32, sampler: &Sampler) {
        let at = sequence as usize * size_of::<Sampler>();
        let bytes = bytemuck::bytes_of(sampler);
        self.executor.write(BufferId::Samplers, at, bytes).unwrap();
    }

    /// Writes the step state and the (token, position) of its rows.
    pub(super) fn state(&mut self, state: State, rows: &[(u32, u32)]) {
        let rows = rows.iter().map(|&(token, position)| Row {
            token,
            position,
            ..Row::default()
        });
        self.rows(state, &rows.collect::<Vec<_>>());
    }

    /// Writes the step state and its rows.
    pub(super) fn rows(&mut self, state: State, rows: &[Row]) {
        let write =
            |e: &mut Box<dyn Executor>, at, bytes: &[u8]| e.write(BufferId::State, at, bytes);
        write(&mut self.executor, 0, bytemuck::bytes_of(&state)).unwrap();
        write(&mut self.executor, ROWS_OFFSET, bytemuck::cast_slice(rows)).unwrap();
    }

    pub(super) fn state_now(&mut self) -> (State, Row) {
        let bytes = self.bytes("state");
        let row = &bytes[ROWS_OFFSET..ROWS_OFFSET + size_of::<Row>()];
        let head = &bytes[..ROWS_OFFSET];
        (
            bytemuck::pod_read_unaligned(head),
            bytemuck::pod_read_unaligned(row),
        )
    }

    pub(super) fn run(&mut self) {
        let all = 0..self.table.cmds.len();
        self.executor.run(0, all.into(), 1).unwrap();
    }

    /// Returns the range of the n-th command and of the conversion of its activations, if there is one.
    pub(super) fn range(&self, n: usize) -> Range<usize> {
        let is_conversion = |at: usize| self.table.cmds[at].kernel.op == Op::Convert;
        let mut others = (0..self.table.cmds.len()).filter(|at| !is_conversion(*at));
        let at = others.nth(n).expect("a command");
        at - usize::from(at > 0 && is_conversion(at - 1))..at + 1
    }

    /// Runs the n-th command, not counting conversions of activations, which it runs too.
    pub(super) fn run_nth(&mut self, n: usize) {
        let range = self.range(n);
        self.executor.run(0, range.into(), 1).unwrap();
    }

    pub(super) fn run_op(&mut self, op: Op) {
        let mut cmds = self.table.cmds.iter();
        let at = cmds.position(|cmd| cmd.kernel.op == op).unwrap();
        for cmd in with_needed(&self.table, at) {
            self.executor.run(0, (cmd..cmd + 1).into(), 1).unwrap();
        }
    }
}

pub(super) fn active_rows(active_rows: u32) -> State {
    State {
        active_rows,
        context: 512,
        ..State::default()
    }
}

/// Value of inactive rows, which must not change.
pub(super) const UNTOUCHED: f32 = 7.25;

/// Splitmix64.
pub(super) fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut s = seed;
    move || {
        s = s.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (s ^ (s >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Returns random numbers in -1..1.
pub(super) fn floats(seed: u64, n: usize) -> Vec<f32> {
    let mut next = random(seed);
    let unit = |r: u64| f64::from(u32::try_from(r >> 40).unwrap()) / f64::from(1 << 23) - 1.0;
    #[expect(clippy::cast_possible_truncation, reason = "24 bits")]
    (0..n).map(|_| unit(next()) as f32).collect()
}

/// Returns rows of integers up to 127, divided by 64. One in 32 is the maximum, so that int8
/// quantization is exact.
pub(super) fn integers(seed: u64, cols: usize, rows: usize) -> Vec<f32> {
    let mut next = random(seed);
    let mut integer = |i: usize| {
        let small = u8::try_from(next() % 255).expect("less than 255");
        let any = f32::from(small) - 127.0;
        if (i % cols).is_multiple_of(32) {
            127.0
        } else {
            any
        }
    };
    (0..rows * cols).map(|i| integer(i) / 64.0).collect()
}

/// Returns a random weight of a storage type.
pub(super) fn weight(name: &'static str, dtype: DType, rows: u32, cols: u32) -> Weight {
    let n = rows as usize * cols as usize;
    let seed = u64::from(rows) << 32 | u64::from(cols);
    let values = floats(seed, n);
    let half = |v: f32| f16::from_f32(v).to_le_bytes();
    let facts = dtype.facts();
    let mut next = random(seed ^ 1);
    let mut block = |header: &[f32]| {
        let mut bytes: Vec<u8> = header.iter().flat_map(|&v| half(v)).collect();
        while bytes.len() < facts.bytes {
            bytes.push(next().to_le_bytes()[3]);
        }
        bytes
    };
    let bytes = match dtype {
        DType::F16 => values.iter().flat_map(|&v| half(v)).collect(),
        DType::Bf16 => values
            .iter()
            .flat_map(|&v| bf16::from_f32(v).to_le_bytes())
            .collect(),
        DType::Q4_1 => (0..n / 32).flat_map(|b| block(&values[b..b + 2])).collect(),
        DType::Q4_0 | DType::Q8_0 => (0..n / 32).flat_map(|b| block(&values[b..=b])).collect(),
        _ => bytemuck::cast_slice(&values).to_vec(),
    };
    Weight {
        name,
        dtype,
        rows,
        cols,
        bytes,
        scale: None,
        filling: None,
    }
}

/// Decodes numbers of a storage type.
pub(super) fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let facts = dtype.facts();
    let half = |b: &[u8]| f16::from_le_bytes([b[0], b[1]]).to_f64();
    let nibbles = |b: &[u8]| {
        let (low, high) = (b.iter().map(|n| n & 15), b.iter().map(|n| n >> 4));
        low.chain(high).map(f64::from).collect::<Vec<_>>()
    };
    let block = |b: &[u8]| match dtype {
        DType::F16 => vec![half(b)],
        DType::Bf16 => vec![bf16::from_le_bytes([b[0], b[1]]).to_f64()],
        DType::Q8_0 => b[2..]
            .iter()
            .map(|&q| half(b) * f64::from(q.cast_signed()))
            .collect(),
        DType::Q4_0 => nibbles(&b[2..])
            .iter()
            .map(|q| half(b) * (q - 8.0))
            .collect(),
        DType::Q4_1 => nibbles(&b[4..])
            .iter()
            .map(|q| half(b) * q + half(&b[2..]))
            .collect(),
        _ => vec![f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))],
    };
    bytes.chunks_exact(facts.bytes).flat_map(block).collect()
}

/// Checks `actual` against `expected`; returns the maximum relative error.
pub(super) fn assert_close(what: &str, actual: &[f32], expected: &[f64], tolerance: f64) -> f64 {
    assert_eq!(actual.len(), expected.len(), "{what}");
    let size = expected
        .iter()
        .filter(|w| w.is_finite())
        .fold(1e-30, |m, w| w.abs().max(m));
    let mut worst = 0.0;
    for (i, (&f, &w)) in actual.iter().zip(expected).enumerate() {
        let error = if f64::from(f) == w {
            0.0
        } else {
            (f64::from(f) - w).abs() / size
        };
        assert!(
            error <= tolerance,
            "{what}: [{i}]: expected {w}, got {f}; error {error:.1e}"
        );
        worst = error.max(worst);
    }
    worst
}

pub(super) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

/// Extends `expected` to `len` with the value of inactive rows.
pub(super) fn with_untouched(mut expected: Vec<f64>, len: usize) -> Vec<f64> {
    expected.resize(len, f64::from(UNTOUCHED));
    expected
}
