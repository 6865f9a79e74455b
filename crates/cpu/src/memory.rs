//! Memory of linked tables and how the threads of a command share it.
//!
//! The work of a command is divided into units, and each thread owns the units of its [`Part`].
//! Every thread may read all inputs; it may write only the units that it owns. This is sound
//! because of three facts, which are checked: link rejects a command whose output overlaps another
//! operand; the parts of a command are disjoint by construction ([`Part::contiguous`]); and an
//! operand is opened at most once per part ([`Args::open`]). The barrier of the pool separates
//! commands that access the same memory.
#![expect(
    unsafe_code,
    reason = "threads of a command write disjoint parts of one buffer"
)]

use super::descriptors::{MatmulShape, QuantizedMatmul, WeightReader};
use super::simd::{Decode, Unpack};
use super::work::{Part, RunOn};
use bytemuck::Pod;
#[cfg(not(target_family = "wasm"))]
use memmap2::MmapMut;
use std::marker::PhantomData;
use std::ops::Range;
use tabla_core::dtype::DType;
use tabla_core::error::{Error, ErrorKind, Result, bail};
use tabla_core::exec::state::ROWS_OFFSET;
use tabla_core::op::operands::WEIGHT;
use tabla_core::op::params::{Row, Sampler, State};
use tabla_core::op::table::{PARAMS_BYTES_MAX, SLOTS_MAX};
use tabla_quant::{Matrix, Scales};

/// Maximum number of operands of a step: those of its command, its working memory, and parts that are joined.
pub(super) const OPERANDS_MAX: usize = SLOTS_MAX + 2;

/// A cache line, which aligns memory that is not mapped.
#[cfg(target_family = "wasm")]
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(align(64))]
#[expect(dead_code, reason = "its bytes are accessed by address")]
struct Line([u8; 64]);

/// All memory owned by linked tables, initially zero.
#[derive(Debug)]
pub(super) struct Arena {
    #[cfg(not(target_family = "wasm"))]
    map: MmapMut,
    #[cfg(target_family = "wasm")]
    map: Vec<Line>,
    all: Operand,
}

impl Arena {
    /// Allocates `bytes` bytes.
    pub(super) fn new(bytes: usize) -> Result<Self> {
        let message = format_args!("cannot allocate {bytes} bytes of working memory");
        if isize::try_from(bytes).is_err() {
            bail!(Memory, "{message}");
        }
        let bytes = bytes.max(1);
        #[cfg(not(target_family = "wasm"))]
        let mut map = MmapMut::map_anon(bytes)
            .map_err(|e| Error::new(ErrorKind::Memory, message).caused_by(e))?;
        #[cfg(target_family = "wasm")]
        let mut map: Vec<Line> =
            bytemuck::allocation::try_zeroed_vec(bytes.div_ceil(size_of::<Line>()))
                .map_err(|()| Error::new(ErrorKind::Memory, message))?;
        let all = Operand {
            at: map.as_mut_ptr().cast(),
            bytes,
            stride: 0,
        };
        Ok(Self { map, all })
    }

    /// Asks the system for huge pages in the first `bytes` bytes, which are read faster. The first use of each zeroes
    /// it whole.
    pub(super) fn use_huge_pages(&self, bytes: usize) {
        // Only a hint, which Miri lacks: without them kernels run more slowly.
        #[cfg(all(target_os = "linux", not(miri)))]
        let _ = self
            .map
            .advise_range(memmap2::Advice::HugePage, 0, bytes.min(self.map.len()));
        #[cfg(not(all(target_os = "linux", not(miri))))]
        let _ = (&self.map, bytes);
    }

    /// Bytes `range`, which must lie inside the arena.
    pub(super) fn operand(&self, range: Range<usize>) -> Operand {
        assert!(
            range.start <= range.end && range.end <= self.all.bytes,
            "range is outside the arena"
        );
        Operand {
            at: self.all.at.wrapping_add(range.start),
            bytes: range.len(),
            stride: 0,
        }
    }

    /// All bytes, before any step refers to them.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the whole map, which `&mut self` borrows exclusively. A reference from the map would invalidate the
        // addresses of operands, which are those of `all`.
        unsafe { self.all.exclusive() }
    }

    /// Copies the first bytes into `range`, before any step refers to it.
    pub(super) fn fill(&mut self, range: &Range<usize>, bytes: &[u8]) {
        let operand = self.operand(range.clone());
        // SAFETY: inside the map, which `&mut self` borrows exclusively: steps are created later.
        let to = unsafe { std::slice::from_raw_parts_mut(operand.at, operand.bytes) };
        to.copy_from_slice(&bytes[..operand.bytes]);
    }
}

/// Memory of one operand of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    at: *mut u8,
    bytes: usize,
    /// Distance between the copies of the threads; 0 if all threads share one.
    stride: usize,
}

// SAFETY: an operand is an address; memory is only accessed through `Args` and
// `Operand::exclusive`.
unsafe impl Send for Operand {}
// SAFETY: as above.
unsafe impl Sync for Operand {}

impl Operand {
    /// Memory that commands only read. It must outlive the step that uses it, which holds for
    /// tensors: link stores them in the same object as its steps, and never removes the first program,
    /// whose memory added tables share.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self {
            at: bytes.as_ptr().cast_mut(),
            bytes: bytes.len(),
            stride: 0,
        }
    }

    /// The same memory divided into a copy of `bytes` bytes for each thread.
    pub(super) fn per_thread(self, bytes: usize) -> Self {
        Self {
            bytes,
            stride: bytes,
            ..self
        }
    }

    /// Number of bytes; of one copy if each thread has its own.
    pub(super) fn size(self) -> usize {
        self.bytes
    }

    /// Whether the two operands share a byte.
    pub(super) fn overlaps(self, other: Self) -> bool {
        let (a, b) = (self.at.addr(), other.at.addr());
        a < b + other.bytes && b < a + self.bytes
            // Copies with different strides: those of different threads overlap.
            || a == b && self.stride != other.stride
    }

    /// Whether the address is aligned for f32.
    pub(super) fn is_f32_aligned(self) -> bool {
        self.at.addr().is_multiple_of(align_of::<f32>())
    }

    /// Whether both divide the same memory into the same per-thread copies.
    pub(super) fn same_copies(self, other: Self) -> bool {
        self.stride != 0 && (self.at, self.stride) == (other.at, other.stride)
    }

    /// Returns all of its memory for writing.
    ///
    /// # Safety
    ///
    /// The operand must be in an arena that outlives `'a`, and nothing else may access this memory.
    pub(super) unsafe fn exclusive<'a>(self) -> &'a mut [u8] {
        // SAFETY: the caller guarantees valid memory and exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.bytes) }
    }

    /// Returns the number of active rows in the step state, which this operand must be.
    ///
    /// # Safety
    ///
    /// The operand must be the step state, and no other thread may write it.
    pub(super) unsafe fn active_rows(self) -> usize {
        assert!(
            self.bytes >= ROWS_OFFSET,
            "operand is smaller than the step state"
        );
        // SAFETY: it is the state by the contract, `ALIGN`ed by link, and no thread writes it.
        let state = unsafe { &*self.at.cast::<State>() };
        state.active_rows as usize
    }
}

/// Scales of weights, which commands only read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScaleOperands {
    float: DType,
    scales: Operand,
    biases: Operand,
    group: [usize; 2],
}

impl ScaleOperands {
    /// As for [`Operand::of`], the tensors must outlive the step.
    pub(super) fn of(scales: &Scales<'_>) -> Self {
        Self {
            float: scales.float,
            scales: Operand::of(scales.bytes),
            biases: Operand::of(scales.biases),
            group: scales.group,
        }
    }
}

/// The operands of a step and the other parameters of its kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// Operands of the operation, then working memory, then parts.
    pub(super) operands: [Operand; OPERANDS_MAX],
    /// Bit `i`: operand `i` is written.
    pub(super) writes: u32,
    /// Number of operands.
    pub(super) count: usize,
    /// Parameters of the operation.
    pub(super) params: [u8; PARAMS_BYTES_MAX],
    /// Reader of the weights, operand 0, if the kernel supports several storage types.
    pub(super) reader: Option<WeightReader>,
    /// Shape of the matrix product.
    pub(super) matmul: Option<MatmulShape>,
    /// Parameters of a quantized matrix product.
    pub(super) codes: Option<QuantizedMatmul>,
    /// Scales of the weights, if they are separate tensors.
    pub(super) scales: Option<ScaleOperands>,
    /// Maximum number of active rows.
    pub(super) tokens: usize,
    /// Threads that run the step.
    pub(super) run_on: RunOn,
}

impl Bound {
    /// Whether operand `i` is written.
    pub(super) fn writes(&self, i: usize) -> bool {
        self.writes & 1 << i != 0
    }
}

/// Arguments of a kernel: the operands of its command and the units of this thread.
#[derive(Debug)]
pub(super) struct Args<'a> {
    bound: &'a Bound,
    part: Part,
    active_rows: usize,
    opened: u32,
}

impl<'a> Args<'a> {
    /// Returns the arguments for this part of this step.
    ///
    /// # Safety
    ///
    /// Only parts of the same step may run at a time if steps share written memory, the parts of a
    /// step must be disjoint, and each part must be passed once per run of the step.
    pub(super) unsafe fn new(bound: &'a Bound, part: Part, active_rows: usize) -> Self {
        Self {
            bound,
            part,
            active_rows,
            opened: 0,
        }
    }

    /// The command's parameters.
    pub(super) fn params<P: Pod>(&self) -> P {
        bytemuck::pod_read_unaligned(&self.bound.params[..size_of::<P>()])
    }

    /// Number of operands, including those that link adds.
    pub(super) fn count(&self) -> usize {
        self.bound.count
    }

    /// Number of active rows.
    pub(super) fn active_rows(&self) -> usize {
        self.active_rows
    }

    /// Threads that the units are divided among.
    pub(super) fn threads(&self) -> usize {
        self.part.threads
    }

    /// Units of this thread.
    pub(super) fn units(&self) -> impl Iterator<Item = usize> + use<> {
        (self.part.first..self.part.end).step_by(self.part.step)
    }

    /// Units of this thread as a range, for contiguous parts.
    pub(super) fn range(&self) -> Range<usize> {
        debug_assert_eq!(self.part.step, 1, "units are not contiguous");
        self.part.first..self.part.end
    }

    /// An operand that the command only reads.
    pub(super) fn bytes(&self, i: usize) -> &'a [u8] {
        assert!(!self.bound.writes(i), "operand {i} is written");
        let operand = self.bound.operands[i];
        let at = operand.at.wrapping_add(operand.stride * self.part.thread);
        // SAFETY: the operand's memory outlives the step; no thread writes it while the step runs,
        // because link rejects commands that write what they read.
        unsafe { std::slice::from_raw_parts(at, operand.bytes) }
    }

    /// Reader of the weights as integers.
    pub(super) fn unpack(&self) -> Unpack {
        match self.bound.reader {
            Some(WeightReader::Ints(unpack)) => unpack,
            other => unreachable!("unexpected weight reader {other:?}"),
        }
    }

    /// Reader of the weights as floats.
    pub(super) fn decode(&self) -> Decode {
        match self.bound.reader {
            Some(WeightReader::Floats(decode)) => decode,
            other => unreachable!("unexpected weight reader {other:?}"),
        }
    }

    /// Reader of the weights, if link selected one.
    pub(super) fn reader(&self) -> Option<WeightReader> {
        self.bound.reader
    }

    /// Maximum number of active rows.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn tokens(&self) -> usize {
        self.bound.tokens
    }

    /// Shape of the matrix product.
    pub(super) fn matmul(&self) -> &'a MatmulShape {
        self.bound
            .matmul
            .as_ref()
            .expect("link sets it for matrix products")
    }

    /// Parameters of the quantized matrix product.
    pub(super) fn codes(&self) -> &'a QuantizedMatmul {
        self.bound
            .codes
            .as_ref()
            .expect("link sets them for quantized matrix products")
    }

    /// Scales of the weights, if they are separate tensors.
    pub(super) fn scales(&self) -> Option<Scales<'a>> {
        let bytes = |operand: Operand| {
            // SAFETY: a tensor, which no thread writes and which outlives the step.
            unsafe { std::slice::from_raw_parts(operand.at.cast_const(), operand.bytes) }
        };
        let scales = self.bound.scales?;
        Some(Scales {
            float: scales.float,
            bytes: bytes(scales.scales),
            biases: bytes(scales.biases),
            group: scales.group,
        })
    }

    /// The weights as a matrix of this shape.
    pub(super) fn matrix(&self, rows: usize, cols: usize) -> Matrix<'a> {
        Matrix {
            bytes: self.bytes(WEIGHT),
            scales: self.scales(),
            rows,
            cols,
        }
    }

    /// An operand that the command only reads, as f32.
    pub(super) fn f32s(&self, i: usize) -> &'a [f32] {
        bytemuck::cast_slice(self.bytes(i))
    }

    /// The step state, operand `i`.
    pub(super) fn state(&self, i: usize) -> &'a State {
        bytemuck::from_bytes(&self.bytes(i)[..ROWS_OFFSET])
    }

    /// Token and position of each row, in the step state, operand `i`.
    pub(super) fn rows(&self, i: usize) -> &'a [Row] {
        bytemuck::cast_slice(&self.bytes(i)[ROWS_OFFSET..])
    }

    /// Sampling parameters of each sequence, operand `i`.
    pub(super) fn samplers(&self, i: usize) -> &'a [Sampler] {
        bytemuck::cast_slice(self.bytes(i))
    }

    /// Opens an operand that the command writes; allowed once per part.
    pub(super) fn open<T: Pod>(&mut self, i: usize) -> Out<'a, T> {
        assert!(self.bound.writes(i), "operand {i} is not written");
        assert_eq!(self.opened & 1 << i, 0, "operand {i} was already opened");
        self.opened |= 1 << i;
        let operand = self.bound.operands[i];
        let at = operand.at.wrapping_add(operand.stride * self.part.thread);
        assert!(
            at.addr().is_multiple_of(align_of::<T>()),
            "operand {i} is not aligned"
        );
        Out {
            at: at.cast(),
            len: operand.bytes / size_of::<T>(),
            part: self.part,
            exclusive: operand.stride != 0 || self.bound.run_on == RunOn::FirstThread,
            life: PhantomData,
        }
    }
}

/// The part of an output operand that a thread may write. Units and rows must be divided in the
/// same way in every part of a command; this holds if they are derived from its parameters.
#[derive(Debug)]
pub(super) struct Out<'a, T> {
    at: *mut T,
    len: usize,
    part: Part,
    exclusive: bool,
    life: PhantomData<&'a mut [T]>,
}

impl<T: Pod> Out<'_, T> {
    /// Elements of a unit of `size` elements, which must be in the part.
    pub(super) fn unit(&mut self, unit: usize, size: usize) -> &mut [T] {
        self.check(unit);
        self.slice(unit * size, size)
    }

    /// Panics unless a unit is in the part.
    fn check(&self, unit: usize) {
        let part = self.part;
        let owned =
            (part.first..part.end).contains(&unit) && (unit - part.first).is_multiple_of(part.step);
        assert!(owned, "unit {unit} belongs to another thread");
    }

    /// Elements of column `at` of `columns` in a row, `size` elements each. A unit is a column in a
    /// tile of `rows` rows and must be in the part.
    pub(super) fn tiled(
        &mut self,
        row: usize,
        at: usize,
        [rows, columns]: [usize; 2],
        size: usize,
    ) -> &mut [T] {
        self.check(row / rows * columns + at);
        self.slice((row * columns + at) * size, size)
    }

    /// Elements of a unit, which must be in the part. Each row of `width` elements is divided into
    /// units of `size` elements; the last one may be shorter.
    pub(super) fn segment(&mut self, unit: usize, [width, size]: [usize; 2]) -> &mut [T] {
        self.check(unit);
        let each = width.div_ceil(size);
        let first = unit % each * size;
        self.slice(unit / each * width + first, size.min(width - first))
    }

    /// Elements of a unit, which must be in the part. Each row of `width` elements has `count` units of
    /// `size` elements, starting at element `front`; its other elements are in no unit.
    pub(super) fn within_row(
        &mut self,
        unit: usize,
        count: usize,
        [front, width]: [usize; 2],
        size: usize,
    ) -> &mut [T] {
        self.check(unit);
        assert!(front + count * size <= width, "units exceed the row");
        self.slice(unit / count * width + front + unit % count * size, size)
    }

    /// Elements of all units of the part, `size` elements each; only for contiguous parts.
    pub(super) fn units(&mut self, size: usize) -> &mut [T] {
        assert_eq!(self.part.step, 1, "units are not contiguous");
        let (first, end) = (self.part.first, self.part.end);
        self.slice(first * size, (end - first) * size)
    }

    /// Columns of the part's units in a row of `width` elements, `size` elements per unit; only for
    /// contiguous parts.
    pub(super) fn columns(&mut self, row: usize, width: usize, size: usize) -> &mut [T] {
        self.columns_from(0, [row, width], size)
    }

    /// Like [`columns`](Self::columns), starting at element `front` of the row.
    pub(super) fn columns_from(
        &mut self,
        front: usize,
        [row, width]: [usize; 2],
        size: usize,
    ) -> &mut [T] {
        assert_eq!(self.part.step, 1, "units are not contiguous");
        let (first, end) = (self.part.first, self.part.end);
        assert!(front + end * size <= width, "columns exceed the row");
        self.slice(row * width + front + first * size, (end - first) * size)
    }

    /// Columns of units in a row of `width` elements, `size` per unit, cut off at the end of the
    /// row.
    pub(super) fn panels(
        &mut self,
        row: usize,
        width: usize,
        units: Range<usize>,
        size: usize,
    ) -> &mut [T] {
        let part = self.part;
        assert!(
            part.first <= units.start && units.end <= part.end && part.step == 1,
            "units {units:?} belong to another thread"
        );
        let columns = (units.start * size).min(width)..(units.end * size).min(width);
        self.slice(row * width + columns.start, columns.len())
    }

    /// All elements, if no other thread has a part.
    pub(super) fn whole(&mut self) -> &mut [T] {
        assert!(self.exclusive, "other threads write to this operand too");
        self.slice(0, self.len)
    }

    fn slice(&mut self, start: usize, len: usize) -> &mut [T] {
        let end = start
            .checked_add(len)
            .expect("sizes are far below usize::MAX");
        assert!(
            end <= self.len,
            "end {end} is out of bounds for {} elements",
            self.len
        );
        let at = self.at.wrapping_add(start);
        // SAFETY: inside the operand, which is alive and aligned for T; the elements belong to this
        // part alone, and `&mut self` allows one slice of it at a time.
        unsafe { std::slice::from_raw_parts_mut(at, len) }
    }
}
