//! Memory of linked tables, and how the threads of a command share it.
//!
//! A command's operands are memory; its work is cut into units, and a thread owns the units of
//! its [`Part`]. What a command reads is seen whole by every thread; of what it writes, a thread
//! sees the units it owns. Three facts make that sound, and they are checked: link refuses a
//! command that names the memory it writes twice; the parts of a command are disjoint because
//! [`Part::of`] makes them; and an operand is opened once in a part ([`Args::open`]). Commands
//! that touch the same memory are kept apart by the pool's barrier.
#![expect(
    unsafe_code,
    reason = "threads of a command write disjoint parts of one buffer"
)]

use super::descriptors::{CodeProduct, Product, Read};
use super::simd::{Decode, Unpack};
use super::work::{By, Part};
use bytemuck::Pod;
use memmap2::{Advice, MmapMut};
use std::marker::PhantomData;
use std::ops::Range;
use tabla_core::dtype::DType;
use tabla_core::error::{Error, ErrorKind, Result, bail};
use tabla_core::exec::state::{ROWS_OFFSET, Row, Sampler, State};
use tabla_core::op::operands::WEIGHT;
use tabla_core::op::table::{PARAMS_BYTES_MAX, SLOTS_MAX};
use tabla_quant::{Matrix, Scales};

/// All memory that linked tables own, zero until touched.
#[derive(Debug)]
pub(super) struct Arena {
    map: MmapMut,
    all: Operand,
}

impl Arena {
    /// Reserves this many bytes.
    pub(super) fn new(bytes: usize) -> Result<Self> {
        let failed = |e| {
            let message = format_args!("{bytes} bytes of working memory cannot be had");
            Error::new(ErrorKind::Memory, message).caused_by(e)
        };
        if isize::try_from(bytes).is_err() {
            bail!(Memory, "{bytes} bytes of working memory cannot be had");
        }
        let mut map = MmapMut::map_anon(bytes.max(1)).map_err(failed)?;
        // Huge pages are an offer: without them everything works, more slowly.
        #[cfg(target_os = "linux")]
        let _ = map.advise(Advice::HugePage);
        let all = Operand {
            at: map.as_mut_ptr(),
            bytes: map.len(),
            stride: 0,
        };
        Ok(Self { map, all })
    }

    /// Bytes `range`, which must lie inside.
    pub(super) fn operand(&self, range: Range<usize>) -> Operand {
        assert!(
            range.start <= range.end && range.end <= self.all.bytes,
            "outside the arena"
        );
        Operand {
            at: self.all.at.wrapping_add(range.start),
            bytes: range.len(),
            stride: 0,
        }
    }

    /// All of it, before any step knows of it.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.map
    }

    /// Copies the first bytes into `range`, before any step knows of it.
    pub(super) fn fill(&mut self, range: &Range<usize>, bytes: &[u8]) {
        let operand = self.operand(range.clone());
        // SAFETY: inside the map, which `&mut self` holds alone: steps are made later.
        let to = unsafe { std::slice::from_raw_parts_mut(operand.at, operand.bytes) };
        to.copy_from_slice(&bytes[..operand.bytes]);
    }
}

/// The bytes that a command finds behind a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    at: *mut u8,
    bytes: usize,
    /// Distance between the threads' own copies; 0 where all share one.
    stride: usize,
}

// SAFETY: an operand is an address; memory is only reached through `Args` and `Operand::exclusive`.
unsafe impl Send for Operand {}
// SAFETY: as above.
unsafe impl Sync for Operand {}

impl Operand {
    /// Memory that commands only read. It must stay for as long as the step that names it, which
    /// holds for tensors: link keeps them in the same object as its steps.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self {
            at: bytes.as_ptr().cast_mut(),
            bytes: bytes.len(),
            stride: 0,
        }
    }

    /// The same memory cut into a copy of `bytes` for every thread.
    pub(super) fn per_thread(self, bytes: usize) -> Self {
        Self {
            bytes,
            stride: bytes,
            ..self
        }
    }

    /// Whether the two share a byte.
    pub(super) fn overlaps(self, other: Self) -> bool {
        let (a, b) = (self.at.addr(), other.at.addr());
        a < b + other.bytes && b < a + self.bytes
            // Copies of one memory that are cut differently: one thread's meets another's.
            || a == b && self.stride != other.stride
    }

    /// Whether its address suits f32.
    pub(super) fn suits_f32(self) -> bool {
        self.at.addr().is_multiple_of(align_of::<f32>())
    }

    /// Whether the two cut the same memory into the same copies: each thread keeps to its own.
    pub(super) fn same_copies(self, other: Self) -> bool {
        self.stride != 0 && (self.at, self.stride) == (other.at, other.stride)
    }

    /// All of its memory, to be written.
    ///
    /// # Safety
    ///
    /// The operand must be of an arena that outlives `'a`, and nothing else may use this memory.
    pub(super) unsafe fn exclusive<'a>(self) -> &'a mut [u8] {
        // SAFETY: the memory is there and nobody else's by the contract.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.bytes) }
    }

    /// `live` of the step state, which this operand must be.
    ///
    /// # Safety
    ///
    /// The operand must be the state, and no other thread may be writing it.
    pub(super) unsafe fn live(self) -> usize {
        assert!(self.bytes >= ROWS_OFFSET, "link gives a state its size");
        // SAFETY: it is the state by the contract, `ALIGN`ed by link, and nobody writes it.
        let state = unsafe { &*self.at.cast::<State>() };
        state.live as usize
    }
}

/// The scales of weights, which commands only read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScalesAt {
    float: DType,
    scales: Operand,
    biases: Operand,
    group: [usize; 2],
}

impl ScalesAt {
    /// As [`Operand::of`]: the tensors must stay for as long as the step.
    pub(super) fn of(scales: &Scales<'_>) -> Self {
        Self {
            float: scales.float,
            scales: Operand::of(scales.bytes),
            biases: Operand::of(scales.biases),
            group: scales.group,
        }
    }
}

/// The operands of a step, and what its kernel is told beside them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// The operands of the list, then scratch.
    pub(super) operands: [Operand; SLOTS_MAX],
    /// Bit `i`: operand `i` is written.
    pub(super) writes: u32,
    /// How many operands count.
    pub(super) count: usize,
    /// The parameters.
    pub(super) params: [u8; PARAMS_BYTES_MAX],
    /// How the weights, operand 0, are read where the kernel serves many storage types.
    pub(super) read: Option<Read>,
    /// The shape of a product.
    pub(super) product: Option<Product>,
    /// The parameters of a product of codes.
    pub(super) codes: Option<CodeProduct>,
    /// The scales of the weights, where they lie in tensors of their own.
    pub(super) scales: Option<ScalesAt>,
    /// Live rows at most.
    pub(super) tokens: usize,
    /// Who does the work.
    pub(super) by: By,
}

impl Bound {
    /// Whether operand `i` is written.
    pub(super) fn writes(&self, i: usize) -> bool {
        self.writes & 1 << i != 0
    }
}

/// What a kernel gets: the operands of its command and the part of the work that is its own.
#[derive(Debug)]
pub(super) struct Args<'a> {
    bound: &'a Bound,
    part: Part,
    live: usize,
    opened: u32,
}

impl<'a> Args<'a> {
    /// The arguments for this part of this step.
    ///
    /// # Safety
    ///
    /// At any time only parts of one step run that share written memory with others, the parts
    /// of a step are disjoint, and each is passed here once in a run of the step.
    pub(super) unsafe fn new(bound: &'a Bound, part: Part, live: usize) -> Self {
        Self {
            bound,
            part,
            live,
            opened: 0,
        }
    }

    /// The command's parameters.
    pub(super) fn params<P: Pod>(&self) -> P {
        bytemuck::pod_read_unaligned(&self.bound.params[..size_of::<P>()])
    }

    /// How many operands there are: those of the list and what link adds.
    pub(super) fn count(&self) -> usize {
        self.bound.count
    }

    /// Rows that count.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// The units that are this thread's.
    pub(super) fn units(&self) -> impl Iterator<Item = usize> + use<> {
        (self.part.first..self.part.end).step_by(self.part.step)
    }

    /// The same as a range, for commands whose units are cut and not dealt.
    pub(super) fn range(&self) -> Range<usize> {
        debug_assert_eq!(self.part.step, 1, "units are dealt");
        self.part.first..self.part.end
    }

    /// An operand that the command only reads.
    pub(super) fn bytes(&self, i: usize) -> &'a [u8] {
        assert!(!self.bound.writes(i), "operand {i} is written");
        let operand = self.bound.operands[i];
        let at = operand.at.wrapping_add(operand.stride * self.part.thread);
        // SAFETY: the operand's memory is alive while the step is; while the step runs nobody
        // writes it, because link refuses commands that write what they read.
        unsafe { std::slice::from_raw_parts(at, operand.bytes) }
    }

    /// How the weights are read as integers, where the kernel serves many storage types.
    pub(super) fn unpack(&self) -> Unpack {
        match self.bound.read {
            Some(Read::Ints(unpack)) => unpack,
            other => unreachable!("link chose {other:?}"),
        }
    }

    /// The same for floats.
    pub(super) fn decode(&self) -> Decode {
        match self.bound.read {
            Some(Read::Floats(decode)) => decode,
            other => unreachable!("link chose {other:?}"),
        }
    }

    /// How the weights are read, where link chose.
    pub(super) fn read(&self) -> Option<Read> {
        self.bound.read
    }

    /// Rows that count at most.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn tokens(&self) -> usize {
        self.bound.tokens
    }

    /// The shape of the product.
    pub(super) fn product(&self) -> &'a Product {
        let product = self.bound.product.as_ref();
        product.expect("link sets it for products")
    }

    /// The parameters of the product of codes.
    pub(super) fn codes(&self) -> &'a CodeProduct {
        let codes = self.bound.codes.as_ref();
        codes.expect("link sets them for products of codes")
    }

    /// The weights as a matrix of this shape.
    pub(super) fn matrix(&self, rows: usize, cols: usize) -> Matrix<'a> {
        let bytes = |operand: Operand| {
            // SAFETY: a tensor, which nobody writes and which is alive while the step is.
            unsafe { std::slice::from_raw_parts(operand.at.cast_const(), operand.bytes) }
        };
        Matrix {
            bytes: self.bytes(WEIGHT),
            scales: self.bound.scales.map(|s| Scales {
                float: s.float,
                bytes: bytes(s.scales),
                biases: bytes(s.biases),
                group: s.group,
            }),
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

    /// How each sequence picks its tokens, operand `i`.
    pub(super) fn samplers(&self, i: usize) -> &'a [Sampler] {
        bytemuck::cast_slice(self.bytes(i))
    }

    /// Opens an operand that the command writes, once.
    pub(super) fn open<T: Pod>(&mut self, i: usize) -> Out<'a, T> {
        assert!(self.bound.writes(i), "operand {i} is not written");
        assert_eq!(self.opened & 1 << i, 0, "operand {i} is opened twice");
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
            alone: operand.stride != 0 || self.bound.by == By::First,
            life: PhantomData,
        }
    }
}

/// What a thread may write of an operand. Units and rows must be cut the same way in every part
/// of a command, which holds when they come from its parameters.
#[derive(Debug)]
pub(super) struct Out<'a, T> {
    at: *mut T,
    len: usize,
    part: Part,
    alone: bool,
    life: PhantomData<&'a mut [T]>,
}

impl<T: Pod> Out<'_, T> {
    /// The elements of a unit of this size, which must be in the part.
    pub(super) fn unit(&mut self, unit: usize, size: usize) -> &mut [T] {
        self.check(unit);
        self.slice(unit * size, size)
    }

    /// Panics unless a unit is in the part.
    fn check(&self, unit: usize) {
        let part = self.part;
        let mine =
            (part.first..part.end).contains(&unit) && (unit - part.first).is_multiple_of(part.step);
        assert!(mine, "unit {unit} is another thread's");
    }

    /// The elements of column `at` of `columns`, of this size, in a row, where a unit is a column
    /// in a tile of `rows` rows; it must be in the part.
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

    /// The elements of a unit, which must be in the part, where each row of `width` is cut into
    /// units of `size`, the last one shorter.
    pub(super) fn pieces(&mut self, unit: usize, [width, size]: [usize; 2]) -> &mut [T] {
        self.check(unit);
        let each = width.div_ceil(size);
        let first = unit % each * size;
        self.slice(unit / each * width + first, size.min(width - first))
    }

    /// The elements of all units of this size; of a part that is cut.
    pub(super) fn units(&mut self, size: usize) -> &mut [T] {
        assert_eq!(self.part.step, 1, "units are dealt");
        let (first, end) = (self.part.first, self.part.end);
        self.slice(first * size, (end - first) * size)
    }

    /// The columns of the part's units, of this size each, in a row of `width`; of a part that
    /// is cut.
    pub(super) fn columns(&mut self, row: usize, width: usize, size: usize) -> &mut [T] {
        self.columns_behind(0, [row, width], size)
    }

    /// The same where they begin behind the first `front` elements of the row.
    pub(super) fn columns_behind(
        &mut self,
        front: usize,
        [row, width]: [usize; 2],
        size: usize,
    ) -> &mut [T] {
        assert_eq!(self.part.step, 1, "units are dealt");
        let (first, end) = (self.part.first, self.part.end);
        assert!(front + end * size <= width, "columns end outside the row");
        self.slice(row * width + front + first * size, (end - first) * size)
    }

    /// The columns of units in a row of `width`, `size` for each, or fewer where the row ends.
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
            "units {units:?} are another thread's"
        );
        let columns = (units.start * size).min(width)..(units.end * size).min(width);
        self.slice(row * width + columns.start, columns.len())
    }

    /// All of it, where no other thread has a part.
    pub(super) fn whole(&mut self) -> &mut [T] {
        assert!(self.alone, "other threads write here too");
        self.slice(0, self.len)
    }

    fn slice(&mut self, start: usize, len: usize) -> &mut [T] {
        let end = start.checked_add(len).expect("sizes are far below usize");
        assert!(end <= self.len, "{end} is outside {} elements", self.len);
        let at = self.at.wrapping_add(start);
        // SAFETY: inside the operand, which is alive and aligned for T; the elements belong to
        // this part alone, and `&mut self` keeps one slice of it at a time.
        unsafe { std::slice::from_raw_parts_mut(at, len) }
    }
}
