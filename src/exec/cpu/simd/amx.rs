//! AMX: products of 16 rows, 16 tokens and 64 bytes of columns by one instruction.
//!
//! Every instruction here is reached through a value of [`Amx`], which only [`enter`] makes.
//! The compiler knows nothing of tiles: each product of stretches configures them, uses them and
//! leaves them in one piece of assembler, so that nothing of them is expected to last between two.
//! Small products are the exception ([`ByteTiles`]): one configuration serves all of a task.

use super::{Args, Task};
use std::arch::asm;
use std::arch::x86_64::{
    __m512, __m512bh, _CMP_LT_OQ, _mm512_abs_ps, _mm512_add_ps, _mm512_and_si512, _mm512_castpd_ps,
    _mm512_castps_pd, _mm512_cmp_ps_mask, _mm512_cvtne2ps_pbh, _mm512_dpbf16_ps, _mm512_loadu_ps,
    _mm512_loadu_si512, _mm512_mask_and_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_shuffle_f32x4, _mm512_storeu_ps, _mm512_unpackhi_pd, _mm512_unpackhi_ps,
    _mm512_unpacklo_pd, _mm512_unpacklo_ps,
};
use std::marker::PhantomData;
use std::mem::{offset_of, transmute};
use std::sync::OnceLock;

/// Rows of a tile, and numbers of a row of sums.
pub(in crate::exec::cpu) const TILE: usize = 16;

/// Bytes of a tile's row.
pub(in crate::exec::cpu) const ROW_BYTES: usize = 64;

/// Proof that the processor has AMX with int8 and bf16, that the system lets this process use it,
/// and that it has the level of AVX-512 and bf16.
#[derive(Clone, Copy, Debug)]
pub(in crate::exec::cpu) struct Amx(());

/// A kernel that multiplies tiles.
pub(in crate::exec::cpu) trait TileKernel {
    /// Does one thread's part of the operation.
    fn run(s: Amx, args: Args<'_>);
}

/// The proof that tiles may be used, on a processor that is known to have the level of AVX-512:
/// asks the system for their registers, once.
#[cfg(target_os = "linux")]
pub(super) fn detect() -> Option<Amx> {
    static FOUND: OnceLock<bool> = OnceLock::new();
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

/// Elsewhere nobody has tried.
#[cfg(not(target_os = "linux"))]
pub(super) fn detect() -> Option<Amx> {
    None
}

/// Tiles in use make every switch of threads dearer; a panic gives them back as well.
struct Release;
impl Drop for Release {
    fn drop(&mut self) {
        // SAFETY: only made where there are tiles; no product expects what they hold.
        unsafe {
            asm!("tilerelease", out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nomem, nostack, preserves_flags));
        }
    }
}

/// Runs a kernel, and gives the tiles back.
///
/// # Safety
///
/// [`detect`] must have said yes, and the processor have what `avx512::enter` wants.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")]
pub(super) unsafe fn enter<K: TileKernel>(args: Args<'_>) {
    let _release = Release;
    K::run(Amx(()), args);
}

/// Multiplies what is near in bf16 so many times; yields the operations that it took.
///
/// # Safety
///
/// As [`enter`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn probe(rounds: u32) -> u64 {
    const STEPS: usize = 8;
    let _release = Release;
    let shape = Shape {
        rows: 2 * TILE,
        lanes: TILE,
        wide: true,
    };
    let bytes = [1; 2 * TILE * ROW_BYTES * STEPS];
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let rows = (&bytes[..], Apart::rows(STEPS * ROW_BYTES));
    let stretch = shape.stretch(rows, ([first, second], shape.lane_bytes()), STEPS);
    let mut sums = [Block::ZERO; 4];
    for _ in 0..rounds / 64 {
        Amx(()).bf16(&[stretch; 8], &mut sums);
    }
    std::hint::black_box(sums);
    let products = 8 * STEPS * (2 * TILE) * (2 * TILE) * ROW_BYTES / 2;
    u64::from(rounds / 64) * 2 * products as u64
}

/// What `ldtilecfg` reads.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Config {
    /// Tiles of so many rows and bytes of a row.
    fn new(tiles: [(usize, usize); 8]) -> Self {
        let mut config = Self {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        for (i, (rows, bytes)) in tiles.into_iter().enumerate() {
            assert!(
                rows <= TILE && bytes <= ROW_BYTES,
                "{rows} rows of {bytes} bytes"
            );
            config.rows[i] = u8::try_from(rows).expect("at most 16");
            config.row_bytes[i] = u16::try_from(bytes).expect("at most 64");
        }
        config
    }
}

/// The sums of 16 rows and 16 tokens.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub(in crate::exec::cpu) struct Block(pub(in crate::exec::cpu) [[f32; TILE]; TILE]);

impl Block {
    /// Nothing.
    pub(in crate::exec::cpu) const ZERO: Self = Self([[0.0; TILE]; TILE]);
}

/// Columns of some rows and lanes whose products are added up, one step after the other.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(in crate::exec::cpu) struct Stretch<'a> {
    rows: [*const u8; 2],
    row_stride: usize,
    lanes: [*const u8; 2],
    step_bytes: usize,
    steps: usize,
    row_step: usize,
    shape: Shape,
    life: PhantomData<&'a [u8]>,
}

/// How many rows of one matrix and lanes of the other a product is of, up to two tiles of each.
/// Rows lie as they are; lanes lie side by side, four bytes of columns of each in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exec::cpu) struct Shape {
    /// Rows: 1 to 32.
    pub(in crate::exec::cpu) rows: usize,
    /// Lanes of a tile: 1 or 16.
    pub(in crate::exec::cpu) lanes: usize,
    /// Whether there is a second tile of lanes.
    pub(in crate::exec::cpu) wide: bool,
}

/// How many bytes lie between rows, between tiles of rows and between steps.
#[derive(Clone, Copy, Debug)]
pub(in crate::exec::cpu) struct Apart {
    stride: usize,
    tile: usize,
    step: usize,
}

impl Apart {
    /// Rows of a matrix that has so many bytes in each.
    pub(in crate::exec::cpu) fn rows(bytes: usize) -> Self {
        Self {
            stride: bytes,
            tile: TILE * bytes,
            step: ROW_BYTES,
        }
    }

    /// Tiles of so many rows one behind the other along the columns, and the tiles of the next
    /// rows `bytes` behind these.
    pub(in crate::exec::cpu) fn tiles(bytes: usize, rows: usize) -> Self {
        Self {
            stride: ROW_BYTES,
            tile: bytes,
            step: rows * ROW_BYTES,
        }
    }
}

impl Shape {
    /// Bytes of a step's tile of lanes.
    pub(in crate::exec::cpu) fn lane_bytes(self) -> usize {
        self.lanes * ROW_BYTES
    }

    /// `steps` steps of 64 bytes of columns.
    ///
    /// `rows` begins with the first row; rows lie `stride` bytes apart, the second tile of them
    /// `tile`, and steps `step`. `lanes` are the tiles of lanes, each of whose steps lie
    /// `step_bytes` apart.
    pub(in crate::exec::cpu) fn stretch<'a>(
        self,
        (rows, Apart { stride, tile, step }): (&'a [u8], Apart),
        (lanes, step_bytes): ([&'a [u8]; 2], usize),
        steps: usize,
    ) -> Stretch<'a> {
        assert!(steps > 0, "a stretch has a step");
        let (full, rest) = ((self.rows - 1) / TILE, (self.rows - 1) % TILE);
        for [tile_rows, last] in [[0, if full > 0 { TILE - 1 } else { rest }], [full, rest]] {
            let ends = [(tile_rows, tile), (last, stride), (steps - 1, step)];
            let end = ends.into_iter().fold(ROW_BYTES, |end, (count, bytes)| {
                end.saturating_add(count.saturating_mul(bytes))
            });
            assert!(end <= rows.len(), "rows end early");
        }
        let last = (steps - 1)
            .saturating_mul(step_bytes)
            .saturating_add(self.lane_bytes());
        for lanes in &lanes[..1 + usize::from(self.wide)] {
            assert!(last <= lanes.len(), "lanes end early");
        }
        // Where there is no second tile of rows the first stands in, and its sums are dropped.
        let second = if self.rows > TILE { tile } else { 0 };
        Stretch {
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

    /// The one that all these have.
    fn of(stretches: &[Stretch<'_>]) -> Self {
        let shape = stretches.first().expect("something to multiply").shape;
        assert!(stretches.iter().all(|s| s.shape == shape), "shapes differ");
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
        let lanes = 4 * self.lanes;
        let (sums, more_sums, lanes) = ((first, lanes), (second, lanes), (TILE, lanes));
        let (rows, more_rows) = ((first, ROW_BYTES), (second, ROW_BYTES));
        // Sums 0 to 3, rows 4 and 5, lanes 6 and 7.
        Config::new([
            sums, sums, more_sums, more_sums, rows, more_rows, lanes, lanes,
        ])
    }
}

/// How sums begin: as they are, or with nothing.
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

/// Adds the products of stretches, in the order of stretches and steps, to what sums begin with.
/// Every sum is by itself: how many rows and lanes go with it changes no bit. `$near` is how tiles
/// are loaded: the hint `t1`, that they are read once while they are near, pays where both matrices
/// are in the second-level cache, and costs where the first one has them. `$tile` and `$product`
/// are those beside the first ones.
macro_rules! products {
    ($name:ident, $sums:ty, $begin:ident, $near:literal, $dot:literal,
     [$($sum:literal),*], [$($tile:literal),*], [$($product:literal),*]) => {
        /// # Safety
        ///
        /// There must be tiles, and a stretch; all must be of this shape.
        #[inline(always)]
        unsafe fn $name(shape: Shape, stretches: &[Stretch<'_>], sums: &mut [$sums; 4]) {
            let config = shape.config();
            // SAFETY: memory is what the stretches were checked to have, and `sums`; all tiles
            // that are touched are named, and configured by the first line.
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
                    concat!($near, " tmm4, [{row0} + {stride}]"),
                    concat!($near, " tmm6, [{lane0} + {lane_stride}]"),
                    $(concat!($near, $tile),)*
                    concat!($dot, " tmm0, tmm4, tmm6"),
                    $(concat!($dot, $product),)*
                    "add {row0}, [{at} + 56]",
                    "add {row1}, [{at} + 56]",
                    "add {lane0}, {step_bytes}",
                    "add {lane1}, {step_bytes}",
                    "dec {steps}",
                    "jnz 3b",
                    "add {at}, {stretch_bytes}",
                    "dec {count}",
                    "jnz 2b",
                    $(concat!("tilestored [{sums} + {sum_stride} + 1024 * ", $sum, "], tmm", $sum),)*
                    steps = inout(reg) &raw const config => _,
                    at = inout(reg) stretches.as_ptr() => _,
                    count = inout(reg) stretches.len() => _,
                    sums = in(reg) sums.as_mut_ptr(),
                    sum_stride = in(reg) ROW_BYTES,
                    lane_stride = in(reg) shape.lanes * 4,
                    stretch_bytes = const size_of::<Stretch<'_>>(),
                    row0 = out(reg) _, row1 = out(reg) _, stride = out(reg) _,
                    lane0 = out(reg) _, lane1 = out(reg) _, step_bytes = out(reg) _,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
    // Two tiles of rows and one of lanes; one and two; two and two.
    ([$narrow:ident, $short:ident, $wide:ident],
     $sums:ty, $begin:ident, $near:literal, $dot:literal) => {
        products!($narrow, $sums, $begin, $near, $dot, [0, 2],
            [" tmm5, [{row1} + {stride}]"], [" tmm2, tmm5, tmm6"]);
        products!($short, $sums, $begin, $near, $dot, [0, 1],
            [" tmm7, [{lane1} + {lane_stride}]"], [" tmm1, tmm4, tmm7"]);
        products!($wide, $sums, $begin, $near, $dot, [0, 1, 2, 3],
            [" tmm5, [{row1} + {stride}]", " tmm7, [{lane1} + {lane_stride}]"],
            [" tmm2, tmm5, tmm6", " tmm1, tmm4, tmm7", " tmm3, tmm5, tmm7"]);
    };
}
products!(
    [bf16_narrow, bf16_short, bf16_wide],
    Block,
    load,
    "tileloadd",
    "tdpbf16ps"
);
products!(
    [bytes_narrow, bytes_short, bytes_wide],
    Ints,
    zero,
    "tileloaddt1",
    "tdpbssd"
);
const _: () = assert!(
    offset_of!(Stretch<'_>, rows) == 0
        && offset_of!(Stretch<'_>, row_stride) == 16
        && offset_of!(Stretch<'_>, lanes) == 24
        && offset_of!(Stretch<'_>, step_bytes) == 40
        && offset_of!(Stretch<'_>, steps) == 48
        && offset_of!(Stretch<'_>, row_step) == 56
);
const _: () = assert!(size_of::<Block>() == 1024 && size_of::<Ints>() == 1024);

/// `f` with the instructions of this level.
macro_rules! with {
    ($self:ident, $call:expr) => {{
        let Amx(()) = $self;
        // SAFETY: `self` proves the instructions that these intrinsics need.
        unsafe { $call }
    }};
}

/// Sums of 16 tokens and 16 rows: i32 as memory has them.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub(in crate::exec::cpu) struct Ints(pub(in crate::exec::cpu) [[u8; ROW_BYTES]; TILE]);

impl Ints {
    /// Nothing.
    pub(in crate::exec::cpu) const ZERO: Self = Self([[0; ROW_BYTES]; TILE]);
}

/// Products of the bytes of 16 rows and 16 tokens. Only [`byte_tiles`] makes it, and the
/// configuration lasts as long as the task, on its thread: nothing that the compiler makes touches
/// tiles, a switch of threads restores them, and a task for it multiplies by nothing else.
pub(in crate::exec::cpu) struct ByteTiles {
    columns: usize,
    /// Not to be sent: another thread's tiles are not configured.
    here: PhantomData<*const ()>,
}

/// Runs a task with tiles in a function of its own.
///
/// # Safety
///
/// As [`enter`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")]
unsafe fn byte_tiles<T: Task<ByteTiles>>(_: Amx, columns: usize, task: T) {
    assert!(
        columns.is_multiple_of(4) && (4..=ROW_BYTES).contains(&columns),
        "{columns} columns"
    );
    let _release = Release;
    let unused = (0, 0);
    let (sums, w, x) = ((TILE, ROW_BYTES), (columns / 4, ROW_BYTES), (TILE, columns));
    let config = Config::new([sums, unused, unused, unused, w, unused, x, unused]);
    // SAFETY: the caller proves tiles, and the configuration is a valid one.
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
    /// `sums[t][r] = sum_c x[t][first + c] w[c / 4][r][c % 4]` of signed bytes, over the columns
    /// that the tiles are configured for.
    #[inline(always)]
    pub(in crate::exec::cpu) fn multiply<const X: usize>(
        &self,
        w: &[[u8; ROW_BYTES]],
        (x, first): (&[[u8; X]; TILE], usize),
        sums: &mut Ints,
    ) {
        assert!(
            4 * w.len() >= self.columns && first + self.columns <= X,
            "columns end early"
        );
        // SAFETY: memory is what was just checked, and `sums`; the tiles are configured, which
        // `self` proves.
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
    /// Runs a task with tiles for products of so many columns of bytes: at most 64, a multiple
    /// of 4.
    #[inline(always)]
    pub(in crate::exec::cpu) fn byte_tiles<T: Task<ByteTiles>>(self, columns: usize, task: T) {
        // SAFETY: `self` proves what the function needs.
        unsafe { byte_tiles(self, columns, task) };
    }

    /// `sums[2 i + j] = ` products of tile `i` of rows and tile `j` of lanes, of signed bytes;
    /// sums of tiles that are not there mean nothing.
    #[inline(always)]
    pub(in crate::exec::cpu) fn bytes(self, stretches: &[Stretch<'_>], sums: &mut [Ints; 4]) {
        let Self(()) = self;
        let shape = Shape::of(stretches);
        let product = match (shape.rows > TILE, shape.wide) {
            (_, false) => bytes_narrow,
            (false, true) => bytes_short,
            (true, true) => bytes_wide,
        };
        // SAFETY: `self` proves tiles, and the stretches are of this shape.
        unsafe { product(shape, stretches, sums) }
    }

    /// `sums[2 i + j] += ` products of tile `i` of rows and tile `j` of lanes, in bf16.
    ///
    /// Numbers too small for a normal f32, in or out, count as zeros.
    #[inline(always)]
    pub(in crate::exec::cpu) fn bf16(self, stretches: &[Stretch<'_>], sums: &mut [Block; 4]) {
        let Self(()) = self;
        let shape = Shape::of(stretches);
        let product = match (shape.rows > TILE, shape.wide) {
            (_, false) => bf16_narrow,
            (false, true) => bf16_short,
            (true, true) => bf16_wide,
        };
        // SAFETY: `self` proves tiles, and the stretches are of this shape.
        unsafe { product(shape, stretches, sums) }
    }

    /// `sums[r] += ` products of 16 rows and one token, in bf16 and 32 columns: the bits of
    /// [`Amx::bf16`], whose sums of even and of odd columns begin anew for each tile.
    ///
    /// Source: `TDPBF16PS` and `VDPBF16PS` of Intel's Software Developer's Manual.
    #[inline(always)]
    pub(in crate::exec::cpu) fn bf16_alone(
        self,
        w: &[[u8; ROW_BYTES]; TILE],
        x: &[u8; ROW_BYTES],
        sums: __m512,
    ) -> __m512 {
        // The other half of a pair is zero in both, so that nothing in it counts, not even infinity.
        let even = with!(self, _mm512_set1_epi32(0x0000_ffff));
        let odd = with!(self, _mm512_set1_epi32(0xffff_0000_u32.cast_signed()));
        let mut parts = [with!(self, _mm512_setzero_ps()); 2];
        for (w, x) in w.iter().zip(x.as_chunks::<4>().0) {
            // SAFETY: 64 bytes are there, and the load wants no alignment.
            let w = unsafe { _mm512_loadu_si512(w.as_ptr().cast()) };
            let x = with!(self, _mm512_set1_epi32(i32::from_ne_bytes(*x)));
            for (part, half) in parts.iter_mut().zip([even, odd]) {
                let w = with!(self, _mm512_and_si512(w, half));
                let x = with!(self, _mm512_and_si512(x, half));
                // SAFETY: both are 64 bytes, and any bits are bf16.
                let [w, x]: [__m512bh; 2] = unsafe { transmute([w, x]) };
                *part = with!(self, _mm512_dpbf16_ps(*part, w, x));
            }
        }
        let [even, odd] = parts;
        let part = self.flushed(with!(self, _mm512_add_ps(even, odd)));
        self.flushed(with!(self, _mm512_add_ps(self.flushed(sums), part)))
    }

    /// Zeros for numbers too small for a normal f32.
    #[inline(always)]
    fn flushed(self, v: __m512) -> __m512 {
        let size = with!(self, _mm512_abs_ps(v));
        let least = with!(self, _mm512_set1_ps(f32::MIN_POSITIVE));
        // Numbers that are none are not below, and stay.
        let small = with!(self, _mm512_cmp_ps_mask::<_CMP_LT_OQ>(size, least));
        let sign = with!(self, _mm512_set1_ps(-0.0));
        with!(self, _mm512_mask_and_ps(v, small, v, sign))
    }

    /// Rows become columns.
    #[inline(always)]
    pub(in crate::exec::cpu) fn transpose(self, block: &mut Block) {
        let mut v = [with!(self, _mm512_setzero_ps()); TILE];
        for (v, row) in v.iter_mut().zip(&block.0) {
            // SAFETY: 16 numbers are there, and the load wants no alignment.
            *v = unsafe { _mm512_loadu_ps(row.as_ptr()) };
        }
        let mut w = v;
        // Twos and then fours of rows, whose quarters are columns of four numbers.
        for i in (0..TILE).step_by(2) {
            w[i] = with!(self, _mm512_unpacklo_ps(v[i], v[i + 1]));
            w[i + 1] = with!(self, _mm512_unpackhi_ps(v[i], v[i + 1]));
        }
        for i in (0..TILE).step_by(4) {
            for j in 0..2 {
                let a = with!(self, _mm512_castps_pd(w[i + j]));
                let b = with!(self, _mm512_castps_pd(w[i + j + 2]));
                v[i + 2 * j] = with!(self, _mm512_castpd_ps(_mm512_unpacklo_pd(a, b)));
                v[i + 2 * j + 1] = with!(self, _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
            }
        }
        // Even and odd quarters of eight rows, then each by itself of all.
        for i in [0, 1, 2, 3, 8, 9, 10, 11] {
            w[i] = with!(self, _mm512_shuffle_f32x4::<0x88>(v[i], v[i + 4]));
            w[i + 4] = with!(self, _mm512_shuffle_f32x4::<0xdd>(v[i], v[i + 4]));
        }
        for i in 0..TILE / 2 {
            v[i] = with!(self, _mm512_shuffle_f32x4::<0x88>(w[i], w[i + 8]));
            v[i + 8] = with!(self, _mm512_shuffle_f32x4::<0xdd>(w[i], w[i + 8]));
        }
        for (v, row) in v.iter().zip(&mut block.0) {
            // SAFETY: 16 numbers have room, and the store wants no alignment.
            unsafe { _mm512_storeu_ps(row.as_mut_ptr(), *v) };
        }
    }

    /// The nearest bf16 to each number.
    #[inline(always)]
    pub(in crate::exec::cpu) fn round(self, x: &[f32; 2 * TILE]) -> [u8; ROW_BYTES] {
        let (low, high) = x.split_at(TILE);
        // SAFETY: 16 numbers are there, and the load wants no alignment.
        let low = unsafe { _mm512_loadu_ps(low.as_ptr()) };
        // SAFETY: as above.
        let high = unsafe { _mm512_loadu_ps(high.as_ptr()) };
        let rounded = with!(self, _mm512_cvtne2ps_pbh(high, low));
        // SAFETY: both are 64 bytes, and any bits are bytes.
        unsafe { transmute(rounded) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::cpu::simd::Simd;
    use crate::exec::cpu::simd::avx512::Avx512;

    /// Numbers of every kind: small and great ones, none, too small, infinite.
    #[test]
    fn one_token_adds_as_tiles_do() {
        let Some(amx) = super::super::Isa::of(super::super::Level::Amx)
            .ok()
            .and_then(|isa| isa.amx())
        else {
            return;
        };
        let mut state = 1u32;
        let mut random = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16
        };
        for round in 0..4000 {
            // bf16 whose exponents lie close to each other, anywhere, or at either end.
            let mut number = |_| {
                let exponent = match round % 4 {
                    0 => 120 + random() % 16,
                    1 => random() % 256,
                    2 => random() % 80,
                    _ => 180 + random() % 76,
                };
                let bits = random() & 0x807f | exponent << 7;
                u16::try_from(bits).expect("16 bits").to_ne_bytes()
            };
            let w: [[u8; 2]; 32 * TILE] = std::array::from_fn(&mut number);
            let x: [[u8; 2]; 32] = std::array::from_fn(&mut number);
            let (w, x) = (w.as_flattened(), x.as_flattened());
            let shape = Shape {
                rows: 1,
                lanes: TILE,
                wide: false,
            };
            let rows = (x, Apart::rows(ROW_BYTES));
            let stretch = shape.stretch(rows, ([w, &[]], shape.lane_bytes()), 1);
            let mut tiles = [Block::ZERO; 4];
            amx.bf16(&[stretch], &mut tiles);

            let vectors = Avx512::from(amx);
            let lines = w.as_chunks().0.first_chunk().expect("a tile");
            let x = x.first_chunk().expect("a row");
            let alone = amx.bf16_alone(lines, x, vectors.splat(0.0));
            let mut sums = [0.0; TILE];
            vectors.store(&mut sums, alone);
            for (tile, sum) in tiles[0].0[0].iter().zip(sums) {
                let same = *tile == sum || tile.is_nan() && sum.is_nan();
                assert!(same, "round {round}: {tile:e} by tiles, {sum:e} alone");
            }
        }
    }
}
