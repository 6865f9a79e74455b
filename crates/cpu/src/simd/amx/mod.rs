//! AMX: products of 16 rows, 16 tokens and 64 bytes of columns with one instruction.
//!
//! All instructions here need a value of [`Amx`], which only [`enter`] creates. The compiler does
//! not support tiles: each product configures, uses and stores them in one block of inline
//! assembly, so that no tile has to survive between two blocks. Small products are the exception
//! ([`ByteTiles`]): a task configures the tiles once.

mod vectors;

use super::stack;
use super::vectors::Task;
use std::arch::asm;
use std::marker::PhantomData;
use std::mem::offset_of;

/// Rows of a tile, and sums per row.
pub const TILE: usize = 16;

/// Bytes of a row of a tile.
pub const ROW_BYTES: usize = 64;

/// Proof that the processor has AMX with int8 and bf16, that the operating system lets this process
/// use it, and that the processor has the AVX-512 level and bf16 vectors.
#[derive(Clone, Copy, Debug)]
pub struct Amx(());

/// Returns the proof of AMX on a processor with the AVX-512 level. Requests permission for the tile
/// registers from the operating system, once.
#[cfg(target_os = "linux")]
pub(super) fn detect() -> Option<Amx> {
    static FOUND: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    /// `ARCH_REQ_XCOMP_PERM` and `XFEATURE_XTILEDATA` of Linux, Documentation/arch/x86/xstate.rst.
    const REQUEST: [libc::c_long; 2] = [0x1023, 18];
    /// Bits of EDX, leaf 7: AMX-BF16, AMX-TILE and AMX-INT8.
    const TILES: u32 = 1 << 22 | 1 << 24 | 1 << 25;
    let found = FOUND.get_or_init(|| {
        let leaf = std::arch::x86_64::__cpuid_count(7, 0);
        leaf.edx & TILES == TILES && is_x86_feature_detected!("avx512bf16") && {
            // SAFETY: the call takes two numbers and touches no memory of this process.
            unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST[0], REQUEST[1]) == 0 }
        }
    });
    found.then_some(Amx(()))
}

/// Only implemented for Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn detect() -> Option<Amx> {
    None
}

/// Releases the tiles when dropped, also after a panic: tiles in use make thread switches slower.
struct Release;
impl Drop for Release {
    fn drop(&mut self) {
        // SAFETY: only created if the processor has tiles; no later product depends on their
        // contents.
        unsafe {
            asm!("tilerelease", out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nomem, nostack, preserves_flags));
        }
    }
}

/// Runs a task, then releases the tiles.
///
/// # Safety
///
/// [`detect`] must have returned a proof, and the processor must meet the requirements of
/// `Avx512::assume`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")]
pub(super) unsafe fn enter<T: Task<Amx>>(task: T) {
    let _release = Release;
    stack::align();
    task.run(Amx(()));
}

/// Runs bf16 products on data in cache; returns the number of operations.
///
/// # Safety
///
/// As for [`enter`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn probe(rounds: u32) -> u64 {
    const STEPS: usize = 8;
    let _release = Release;
    let shape = TileShape {
        rows: 2 * TILE,
        lanes: TILE,
        wide: true,
    };
    let bytes = [1; 2 * TILE * ROW_BYTES * STEPS];
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let strides = Strides::rows(STEPS * ROW_BYTES);
    let span = shape.span(&bytes, strides, [first, second], shape.lane_bytes(), STEPS);
    let mut sums = [SumTile::ZERO; 4];
    for _ in 0..rounds / 64 {
        Amx(()).bf16(&[span; 8], &mut sums);
    }
    std::hint::black_box(sums);
    let products = 8 * STEPS * (2 * TILE) * (2 * TILE) * ROW_BYTES / 2;
    u64::from(rounds / 64) * 2 * products as u64
}

/// Size of a tile: rows, and bytes of a row.
#[derive(Clone, Copy)]
struct TileSize {
    rows: usize,
    bytes: usize,
}

/// Operand of `ldtilecfg`.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Config {
    /// Configures tiles of these sizes.
    fn new(tiles: [TileSize; 8]) -> Self {
        let mut config = Self {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        for (i, TileSize { rows, bytes }) in tiles.into_iter().enumerate() {
            assert!(
                rows <= TILE && bytes <= ROW_BYTES,
                "invalid tile: {rows} rows of {bytes} bytes"
            );
            config.rows[i] = u8::try_from(rows).expect("at most 16");
            config.row_bytes[i] = u16::try_from(bytes).expect("at most 64");
        }
        config
    }
}

/// f32 sums of 16 rows and 16 tokens.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct SumTile(pub [[f32; TILE]; TILE]);

impl SumTile {
    /// All zeros.
    pub const ZERO: Self = Self([[0.0; TILE]; TILE]);
}

/// A range of columns of some rows and lanes, multiplied in steps.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ColumnSpan<'a> {
    rows: [*const u8; 2],
    row_stride: usize,
    lanes: [*const u8; 2],
    step_bytes: usize,
    steps: usize,
    row_step: usize,
    shape: TileShape,
    life: PhantomData<&'a [u8]>,
}

/// Number of rows of one matrix and lanes of the other in a product, up to two tiles of each. Rows
/// are contiguous; lanes are interleaved, four bytes of columns of each in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileShape {
    /// Rows: 1 to 32.
    pub rows: usize,
    /// Lanes of a tile: 1 or 16.
    pub lanes: usize,
    /// Whether there is a second tile of lanes.
    pub wide: bool,
}

/// Distances in bytes between rows, between tiles of rows, and between steps.
#[derive(Clone, Copy, Debug)]
pub struct Strides {
    stride: usize,
    tile: usize,
    step: usize,
}

impl Strides {
    /// Strides of a matrix with rows of `bytes` bytes.
    pub fn rows(bytes: usize) -> Self {
        Self {
            stride: bytes,
            tile: TILE * bytes,
            step: ROW_BYTES,
        }
    }

    /// Strides of tiles of `rows` rows, stored in column order; the tiles of the next rows start
    /// `bytes` bytes further on.
    pub(crate) fn tiles(bytes: usize, rows: usize) -> Self {
        Self {
            stride: ROW_BYTES,
            tile: bytes,
            step: rows * ROW_BYTES,
        }
    }
}

impl TileShape {
    /// Bytes of a tile of lanes per step.
    pub fn lane_bytes(self) -> usize {
        self.lanes * ROW_BYTES
    }

    /// Returns a span of `steps` steps of 64 bytes of columns.
    ///
    /// `rows` starts at the first row. `lanes` are the tiles of lanes; their steps are `step_bytes`
    /// apart.
    pub fn span<'a>(
        self,
        rows: &'a [u8],
        strides: Strides,
        lanes: [&'a [u8]; 2],
        step_bytes: usize,
        steps: usize,
    ) -> ColumnSpan<'a> {
        let Strides { stride, tile, step } = strides;
        assert!(steps > 0, "at least one step");
        let (full, rest) = ((self.rows - 1) / TILE, (self.rows - 1) % TILE);
        for [tile_rows, last] in [[0, if full > 0 { TILE - 1 } else { rest }], [full, rest]] {
            let ends = [(tile_rows, tile), (last, stride), (steps - 1, step)];
            let end = ends.into_iter().fold(ROW_BYTES, |end, (count, bytes)| {
                end.saturating_add(count.saturating_mul(bytes))
            });
            assert!(end <= rows.len(), "rows are too short");
        }
        let last = (steps - 1)
            .saturating_mul(step_bytes)
            .saturating_add(self.lane_bytes());
        for lanes in &lanes[..1 + usize::from(self.wide)] {
            assert!(last <= lanes.len(), "lanes are too short");
        }
        // Without a second tile of rows, the first is used twice and the second sums are ignored.
        let second = if self.rows > TILE { tile } else { 0 };
        ColumnSpan {
            rows: [rows.as_ptr(), rows[second..].as_ptr()],
            row_stride: stride,
            lanes: lanes.map(<[u8]>::as_ptr),
            step_bytes,
            steps,
            row_step: step,
            shape: self,
            life: PhantomData,
        }
    }

    /// The shape that all spans share.
    fn of(spans: &[ColumnSpan<'_>]) -> Self {
        let shape = spans.first().expect("at least one span").shape;
        assert!(
            spans.iter().all(|s| s.shape == shape),
            "spans have different shapes"
        );
        shape
    }

    fn config(self) -> Config {
        assert!(
            (1..=2 * TILE).contains(&self.rows) && [1, TILE].contains(&self.lanes),
            "{self:?}"
        );
        let first = self.rows.min(TILE);
        let second = if self.rows > TILE {
            self.rows - TILE
        } else {
            first
        };
        let size = |rows, bytes| TileSize { rows, bytes };
        let lane_bytes = 4 * self.lanes;
        let [sums, more_sums, lanes] = [first, second, TILE].map(|rows| size(rows, lane_bytes));
        let [rows, more_rows] = [first, second].map(|rows| size(rows, ROW_BYTES));
        // Sums are tiles 0 to 3, rows 4 and 5, lanes 6 and 7.
        Config::new([
            sums, sums, more_sums, more_sums, rows, more_rows, lanes, lanes,
        ])
    }
}

/// Initial sums: loaded or zero.
macro_rules! begin {
    (load $sum:literal) => {
        concat!(
            "tileloadd tmm",
            $sum,
            ", [{sums} + {sum_stride} + 1024 * ",
            $sum,
            "]"
        )
    };
    (zero $sum:literal) => {
        concat!("tilezero tmm", $sum)
    };
}

/// Adds the products of spans, in the order of spans and steps, to the initial sums. Each sum is
/// independent of the number of rows and lanes. `$load` is the load instruction: `tileloaddt1`
/// marks data that is read once, which is faster if both matrices are in the L2 cache and slower if
/// they are in L1. `$tile` and `$product` are the loads and products in addition to the first ones.
macro_rules! products {
    ($name:ident, $sums:ty, $begin:ident, $load_op:literal, $dot:literal,
     [$($sum:literal),*], [$($tile:literal),*], [$($product:literal),*]) => {
        /// # Safety
        ///
        /// The processor must have tiles; there must be at least one span, and all spans must have
        /// this shape.
        #[inline(always)]
        unsafe fn $name(shape: TileShape, spans: &[ColumnSpan<'_>], sums: &mut [$sums; 4]) {
            let config = shape.config();
            // SAFETY: accesses only memory that the spans were checked to contain, and `sums`; all
            // tiles that are used are listed as clobbered and configured by the first line.
            unsafe {
                asm!(
                    "ldtilecfg [{steps}]",
                    $(begin!($begin $sum),)*
                    "2:",
                    "mov {row0}, [{at}]",
                    "mov {row1}, [{at} + 8]",
                    "mov {stride}, [{at} + 16]",
                    "mov {lane0}, [{at} + 24]",
                    "mov {lane1}, [{at} + 32]",
                    "mov {step_bytes}, [{at} + 40]",
                    "mov {steps}, [{at} + 48]",
                    "3:",
                    concat!($load_op, " tmm4, [{row0} + {stride}]"),
                    concat!($load_op, " tmm6, [{lane0} + {lane_stride}]"),
                    $(concat!($load_op, $tile),)*
                    concat!($dot, " tmm0, tmm4, tmm6"),
                    $(concat!($dot, $product),)*
                    "add {row0}, [{at} + 56]",
                    "add {row1}, [{at} + 56]",
                    "add {lane0}, {step_bytes}",
                    "add {lane1}, {step_bytes}",
                    "dec {steps}",
                    "jnz 3b",
                    "add {at}, {span_bytes}",
                    "dec {count}",
                    "jnz 2b",
                    $(concat!("tilestored [{sums} + {sum_stride} + 1024 * ", $sum, "], tmm", $sum),)*
                    steps = inout(reg) &raw const config => _,
                    at = inout(reg) spans.as_ptr() => _,
                    count = inout(reg) spans.len() => _,
                    sums = in(reg) sums.as_mut_ptr(),
                    sum_stride = in(reg) ROW_BYTES,
                    lane_stride = in(reg) shape.lanes * 4,
                    span_bytes = const size_of::<ColumnSpan<'_>>(),
                    row0 = out(reg) _, row1 = out(reg) _, stride = out(reg) _,
                    lane0 = out(reg) _, lane1 = out(reg) _, step_bytes = out(reg) _,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
    // Tiles of rows and of lanes: two and one; one and two; two and two.
    ([$narrow:ident, $short:ident, $wide:ident],
     $sums:ty, $begin:ident, $load_op:literal, $dot:literal) => {
        products!($narrow, $sums, $begin, $load_op, $dot, [0, 2],
            [" tmm5, [{row1} + {stride}]"], [" tmm2, tmm5, tmm6"]);
        products!($short, $sums, $begin, $load_op, $dot, [0, 1],
            [" tmm7, [{lane1} + {lane_stride}]"], [" tmm1, tmm4, tmm7"]);
        products!($wide, $sums, $begin, $load_op, $dot, [0, 1, 2, 3],
            [" tmm5, [{row1} + {stride}]", " tmm7, [{lane1} + {lane_stride}]"],
            [" tmm2, tmm5, tmm6", " tmm1, tmm4, tmm7", " tmm3, tmm5, tmm7"]);
    };
}
products!(
    [bf16_narrow, bf16_short, bf16_wide],
    SumTile,
    load,
    "tileloadd",
    "tdpbf16ps"
);
products!(
    [bytes_narrow, bytes_short, bytes_wide],
    IntSumTile,
    zero,
    "tileloaddt1",
    "tdpbssd"
);
const _: () = assert!(
    offset_of!(ColumnSpan<'_>, rows) == 0
        && offset_of!(ColumnSpan<'_>, row_stride) == 16
        && offset_of!(ColumnSpan<'_>, lanes) == 24
        && offset_of!(ColumnSpan<'_>, step_bytes) == 40
        && offset_of!(ColumnSpan<'_>, steps) == 48
        && offset_of!(ColumnSpan<'_>, row_step) == 56
);
const _: () = assert!(size_of::<SumTile>() == 1024 && size_of::<IntSumTile>() == 1024);

/// i32 sums of 16 tokens and 16 rows, as bytes in memory.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct IntSumTile(pub(crate) [[u8; ROW_BYTES]; TILE]);

impl IntSumTile {
    /// All zeros.
    pub(crate) const ZERO: Self = Self([[0; ROW_BYTES]; TILE]);
}

/// Products of bytes of 16 rows and 16 tokens. Only [`byte_tiles`] creates it, and the tile
/// configuration is valid for the duration of the task, on its thread: compiled code does not touch
/// tiles, thread switches restore them, and such a task runs no other tile products.
pub(crate) struct ByteTiles {
    columns: usize,
    /// Not `Send`: the tiles of another thread are not configured.
    here: PhantomData<*const ()>,
}

/// Runs a task with configured tiles, in a function of its own.
///
/// # Safety
///
/// As for [`enter`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")]
unsafe fn byte_tiles<T: Task<ByteTiles>>(_: Amx, columns: usize, task: T) {
    assert!(
        columns.is_multiple_of(4) && (4..=ROW_BYTES).contains(&columns),
        "invalid number of columns {columns}"
    );
    let _release = Release;
    let size = |rows, bytes| TileSize { rows, bytes };
    let (unused, sums) = (size(0, 0), size(TILE, ROW_BYTES));
    let (w, x) = (size(columns / 4, ROW_BYTES), size(TILE, columns));
    let config = Config::new([sums, unused, unused, unused, w, unused, x, unused]);
    // SAFETY: the caller proves tiles, and the configuration is valid.
    unsafe {
        asm!("ldtilecfg [{}]", in(reg) &raw const config,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack, preserves_flags, readonly));
    }
    task.run(ByteTiles {
        columns,
        here: PhantomData,
    });
}

impl ByteTiles {
    /// `sums[t][r] = sum_c x[t][first + c] w[c / 4][r][c % 4]` of signed bytes, over the configured
    /// number of columns.
    #[inline(always)]
    pub(crate) fn multiply<const X: usize>(
        &self,
        w: &[[u8; ROW_BYTES]],
        x: &[[u8; X]; TILE],
        first: usize,
        sums: &mut IntSumTile,
    ) {
        assert!(
            4 * w.len() >= self.columns && first + self.columns <= X,
            "columns are too short"
        );
        // SAFETY: accesses only the memory checked above and `sums`; `self` proves that the tiles
        // are configured.
        unsafe {
            asm!(
                "tileloadd tmm4, [{w} + {line}]",
                "tileloadd tmm6, [{x} + {token}]",
                "tilezero tmm0",
                "tdpbssd tmm0, tmm6, tmm4",
                "tilestored [{sums} + {line}], tmm0",
                w = in(reg) w.as_ptr(),
                x = in(reg) x.as_ptr().cast::<u8>().wrapping_add(first),
                sums = in(reg) sums.0.as_mut_ptr(),
                line = in(reg) ROW_BYTES,
                token = in(reg) X,
                out("tmm0") _, out("tmm4") _, out("tmm6") _,
                options(nostack, preserves_flags),
            );
        }
    }
}

impl Amx {
    /// Runs a task with tiles for products of `columns` columns of bytes: a multiple of 4, at most
    /// 64.
    #[inline(always)]
    pub(crate) fn byte_tiles<T: Task<ByteTiles>>(self, columns: usize, task: T) {
        // SAFETY: `self` proves what the function needs.
        unsafe { byte_tiles(self, columns, task) };
    }

    /// `sums[2 i + j] =` products of tile `i` of rows and tile `j` of lanes, signed bytes; sums of
    /// missing tiles are unspecified.
    #[inline(always)]
    pub(crate) fn bytes(self, spans: &[ColumnSpan<'_>], sums: &mut [IntSumTile; 4]) {
        let Self(()) = self;
        let shape = TileShape::of(spans);
        let product = match (shape.rows > TILE, shape.wide) {
            (_, false) => bytes_narrow,
            (false, true) => bytes_short,
            (true, true) => bytes_wide,
        };
        // SAFETY: `self` proves tiles, and the spans are of this shape.
        unsafe { product(shape, spans, sums) }
    }

    /// `sums[2 i + j] +=` products of tile `i` of rows and tile `j` of lanes, in bf16.
    ///
    /// Subnormal inputs and results are flushed to zero.
    #[inline(always)]
    pub fn bf16(self, spans: &[ColumnSpan<'_>], sums: &mut [SumTile; 4]) {
        let Self(()) = self;
        let shape = TileShape::of(spans);
        let product = match (shape.rows > TILE, shape.wide) {
            (_, false) => bf16_narrow,
            (false, true) => bf16_short,
            (true, true) => bf16_wide,
        };
        // SAFETY: `self` proves tiles, and the spans are of this shape.
        unsafe { product(shape, spans, sums) }
    }
}
