//! How weights lie on a device: the sections that `shaders/lib` reads, one after the other.
//!
//! A section has one thing of the whole matrix, row after row: codes in planes
//! (`shaders/lib/planes.wgsl`), scales, what scales are multiplied by. Rows are read by stretches
//! of 32 columns, each in loads of 16 bytes where there are as many. Sections go from wide to narrow,
//! so that each begins where it may be read. A matrix of some of the rows has the same rows.

use bytemuck::{cast, cast_slice, cast_slice_mut};
use std::array::from_fn;
use std::ops::Range;
use tabla_core::dtype::DType;
use tabla_quant::{
    CHUNK, Chunk, Floats, Ints, Matrix, Visit, iq_grids, iq4_nl, iq4_xs, mxfp4, one_scale, q3_k,
    q4_k, visit,
};

/// Columns of a stretch.
const STRETCH: usize = 32;
/// Bytes that lanes load at once.
const LOAD_BYTES: usize = 16;
/// More columns than a row has.
const ROW: usize = usize::MAX;

/// A section of a weight.
pub(super) enum Section {
    /// The grid whose rows the codes name.
    Grid(&'static [u8]),
    /// `bits` bits of every code from bit `shift` on; of codes that stand for the numbers.
    Plane {
        shift: u32,
        bits: usize,
        coded: Option<fn(&mut [u8])>,
    },
    /// Numbers as the file has them, in so many parts: of a row the first part of all stretches,
    /// then the second of all.
    Numbers { parts: usize },
    /// These bytes of every block.
    Field(Range<usize>),
    /// So many bytes that are worked out of every block.
    Made(usize, fn(&[u8], &mut Vec<u8>)),
    /// For every so many columns an f32 scale, and where there are two an f32 bias.
    Scales { columns: usize, numbers: usize },
    /// The one f32 scale of the tensor.
    Scale,
}

/// The sections of a type, in their order.
pub(super) fn sections(dtype: DType) -> Vec<Section> {
    use Section::{Field, Made, Numbers, Scale};
    match dtype {
        DType::F16 | DType::Bf16 => vec![Numbers { parts: 4 }],
        DType::E4m3 => vec![Numbers { parts: 2 }, scales(32, 1)],
        DType::Q4_0 => vec![plane(0, 4), Field(0..2)],
        DType::Q4_1 => vec![plane(0, 4), Field(0..4)],
        DType::Q5_0 => vec![plane(0, 4), plane(4, 1), Field(0..2)],
        DType::Q5_1 => vec![plane(0, 4), plane(4, 1), Field(0..4)],
        DType::Q8_0 => vec![plane(0, 8), Field(0..2)],
        DType::Q2K => vec![plane(0, 2), Field(0..16), Field(80..84)],
        DType::Q3K => vec![
            plane(0, 2),
            plane(2, 1),
            Made(16, |b, out| {
                out.extend(q3_k::scales(b).map(i8::cast_unsigned));
            }),
            Field(108..110),
        ],
        DType::Q4K => vec![plane(0, 4), Made(16, lines), Field(0..4)],
        DType::Q5K => vec![plane(0, 4), plane(4, 1), Made(16, lines), Field(0..4)],
        DType::Q6K => vec![plane(0, 4), plane(4, 2), Field(192..208), Field(208..210)],
        DType::Q8K => vec![plane(0, 8), Field(0..4)],
        DType::Iq4Nl => vec![iq4(), Field(0..2)],
        DType::Iq4Xs => vec![
            iq4(),
            Made(8, |b, out| {
                out.extend(iq4_xs::scales(b).map(i8::cast_unsigned));
            }),
            Field(0..2),
        ],
        DType::Mxfp4 => vec![fp4(), Field(0..1)],
        DType::Tq1_0 => vec![digits(), Field(52..54)],
        DType::Tq2_0 => vec![digits(), Field(64..66)],
        DType::I2S => vec![digits(), Scale],
        DType::Ternary => vec![digits(), scales(ROW, 1)],
        DType::E2m1 => vec![fp4(), scales(16, 1)],
        DType::I8 => vec![plane(0, 8), scales(32, 1)],
        DType::Affine2 => vec![plane(0, 2), scales(32, 2)],
        DType::Affine3 => vec![plane(0, 2), plane(2, 1), scales(32, 2)],
        DType::Affine4 => vec![plane(0, 4), scales(32, 2)],
        DType::Affine5 => vec![plane(0, 4), plane(4, 1), scales(32, 2)],
        DType::Affine6 => vec![plane(0, 4), plane(4, 2), scales(32, 2)],
        DType::Affine8 => vec![plane(0, 8), scales(32, 2)],
        _ => match grid(dtype) {
            Some((grid, fields)) => {
                let fields = fields.iter().cloned().map(Field);
                std::iter::once(Section::Grid(grid)).chain(fields).collect()
            }
            None => vec![Numbers { parts: 1 }],
        },
    }
}

/// The grid of a type that has one, and what of its blocks lies behind it.
fn grid(dtype: DType) -> Option<(&'static [u8], &'static [Range<usize>])> {
    Some(match dtype {
        DType::Iq1S => (cast_slice(&iq_grids::IQ1), &[2..34, 34..50, 0..2]),
        DType::Iq1M => (cast_slice(&iq_grids::IQ1), &[0..32, 32..48, 48..56]),
        DType::Iq2Xxs => (cast_slice(&iq_grids::IQ2_XXS), &[2..66, 0..2]),
        DType::Iq2Xs => (cast_slice(&iq_grids::IQ2_XS), &[2..66, 66..74, 0..2]),
        DType::Iq2S => (
            cast_slice(&iq_grids::IQ2_S),
            &[2..34, 34..66, 66..74, 74..82, 0..2],
        ),
        DType::Iq3Xxs => (cast_slice(&iq_grids::IQ3_XXS), &[2..66, 66..98, 0..2]),
        DType::Iq3S => (
            cast_slice(&iq_grids::IQ3_S),
            &[2..66, 74..106, 66..74, 106..110, 0..2],
        ),
        _ => return None,
    })
}

fn plane(shift: u32, bits: usize) -> Section {
    let coded = None;
    Section::Plane { shift, bits, coded }
}

/// Codes of so many bits that stand for the numbers.
fn coded(bits: usize, coded: fn(&mut [u8])) -> Section {
    Section::Plane {
        shift: 0,
        bits,
        coded: Some(coded),
    }
}

/// Ternary digits, each one more than it stands for.
fn digits() -> Section {
    coded(2, |q| q.iter_mut().for_each(|q| *q = q.wrapping_add(1)))
}

fn iq4() -> Section {
    static CODES: [u8; 256] = codes_of(&iq4_nl::VALUES);
    coded(4, |q| name(q, &CODES))
}

fn fp4() -> Section {
    static CODES: [u8; 256] = codes_of(&mxfp4::DOUBLED);
    coded(4, |q| name(q, &CODES))
}

fn scales(columns: usize, numbers: usize) -> Section {
    Section::Scales { columns, numbers }
}

/// A byte of scale and a byte of minimum for each group of `Q4_K` and `Q5_K`.
fn lines(block: &[u8], out: &mut Vec<u8>) {
    let [scales, mins] = q4_k::scales(block);
    out.extend(scales.iter().zip(mins).flat_map(|(s, m)| [*s, m]));
}

/// Numbers become codes.
fn name(q: &mut [u8], codes: &[u8; 256]) {
    q.iter_mut().for_each(|q| *q = codes[usize::from(*q)]);
}

/// The first code of each number that has one.
const fn codes_of(numbers: &[i8]) -> [u8; 256] {
    let mut codes = [0; 256];
    let mut rest = numbers;
    while let [first @ .., last] = rest {
        codes[last.cast_unsigned() as usize] = first.len().to_le_bytes()[0];
        rest = first;
    }
    codes
}

impl Section {
    /// Bytes of the section of a matrix.
    pub(super) fn bytes(&self, dtype: DType, [rows, cols]: [usize; 2]) -> usize {
        let facts = dtype.facts();
        let (stretches, blocks) = (cols.div_ceil(STRETCH), cols / facts.block);
        match self {
            Self::Grid(grid) => grid.len(),
            Self::Plane { bits, .. } => rows * stretches * STRETCH / 8 * bits,
            Self::Numbers { .. } => rows * stretches * STRETCH * facts.bytes,
            Self::Field(range) => rows * blocks * range.len(),
            Self::Made(bytes, _) => rows * blocks * bytes,
            Self::Scales { columns, numbers } => {
                rows * cols.div_ceil(*columns) * numbers * size_of::<f32>()
            }
            Self::Scale => size_of::<f32>(),
        }
    }

    /// What stands once, in front of the rows.
    pub(super) fn head(&self, dtype: DType, matrix: &Matrix<'_>) -> Vec<u8> {
        match self {
            Self::Grid(grid) => grid.to_vec(),
            Self::Scale => {
                let scale = one_scale(dtype, matrix).expect("a type of one scale has it");
                scale.to_le_bytes().to_vec()
            }
            _ => Vec::new(),
        }
    }

    /// Appends what it has of a row.
    pub(super) fn row(&self, dtype: DType, matrix: &Matrix<'_>, row: usize, out: &mut Vec<u8>) {
        let blocks = || matrix.row(row).chunks_exact(dtype.facts().bytes);
        let stretches = matrix.cols.div_ceil(STRETCH);
        match self {
            Self::Grid(_) | Self::Scale => {}
            Self::Plane { shift, bits, coded } => {
                let mut words = words(dtype, matrix, row, stretches);
                if let Some(coded) = coded {
                    coded(cast_slice_mut(&mut words));
                }
                match bits {
                    1 => pack::<1>(&words, *shift, out),
                    2 => pack::<2>(&words, *shift, out),
                    4 => pack::<4>(&words, *shift, out),
                    _ => split(cast_slice(&words), STRETCH, LOAD_BYTES, out),
                }
            }
            Self::Numbers { parts } => {
                let stretch = STRETCH * dtype.facts().bytes;
                let mut padded = matrix.row(row).to_vec();
                padded.resize(stretches * stretch, 0);
                split(&padded, stretch, stretch / parts, out);
            }
            Self::Field(range) => blocks().for_each(|b| out.extend_from_slice(&b[range.clone()])),
            Self::Made(_, make) => blocks().for_each(|b| make(b, out)),
            Self::Scales { columns, numbers } => {
                for col in (0..matrix.cols).step_by(*columns) {
                    let all = match &matrix.scales {
                        Some(scales) => scales.at(row, col, matrix.cols),
                        None => [1.0, 0.0],
                    };
                    out.extend_from_slice(cast_slice(&all[..*numbers]));
                }
            }
        }
    }
}

/// The codes of a row, signed, by stretches: words of four columns.
fn words(dtype: DType, matrix: &Matrix<'_>, row: usize, stretches: usize) -> Vec<[u32; 8]> {
    struct Codes<'a>(&'a Matrix<'a>, usize, &'a mut [[u32; 8]]);
    impl Visit for Codes<'_> {
        type Out = ();
        fn ints<T: Ints>(self) {
            let Self(matrix, row, out) = self;
            let mut chunk = Chunk::ZERO;
            let parts = out.chunks_mut(CHUNK / STRETCH);
            for (first, out) in (0..).step_by(CHUNK).zip(parts) {
                chunk.q.fill(0);
                T::unpack(matrix, row, first, &mut chunk);
                let all: [[u32; 8]; CHUNK / STRETCH] = cast(chunk.q);
                out.copy_from_slice(&all[..out.len()]);
            }
        }
        fn floats<T: Floats>(self) {}
    }
    let mut all = vec![[0; 8]; stretches];
    visit(dtype, Codes(matrix, row, &mut all)).expect("a type of codes is read as integers");
    all
}

/// Appends a plane of `BITS` bits of codes: bytes hold the same field of neighbouring words.
fn pack<const BITS: usize>(words: &[[u32; 8]], shift: u32, out: &mut Vec<u8>) {
    let mask = 0x0101_0101 * ((1 << BITS) - 1);
    for stretch in words {
        let packed: [u32; BITS] = from_fn(|i| {
            let some = &stretch[i * (8 / BITS)..][..8 / BITS];
            let fields = some.iter().rev().map(|word| word >> shift & mask);
            fields.fold(0, |all, field| all << BITS | field)
        });
        out.extend_from_slice(cast_slice(&packed));
    }
}

/// Appends a row of stretches part by part: the first of all stretches, then the second of all.
fn split(row: &[u8], stretch: usize, part: usize, out: &mut Vec<u8>) {
    for at in (0..stretch).step_by(part) {
        for stretch in row.chunks_exact(stretch) {
            out.extend_from_slice(&stretch[at..at + part]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabla_core::op::list::Op;
    use tabla_core::op::table::KernelId;

    /// Every type that there are kernels for.
    fn dtypes() -> impl Iterator<Item = DType> {
        KernelId::dtypes(Op::Embed)
    }

    /// Bytes of every kind for a matrix.
    fn bytes(dtype: DType, [rows, cols]: [usize; 2]) -> Vec<u8> {
        let count = dtype.bytes((rows * cols) as u64).unwrap();
        let byte = |i: u64| (i * i * 31 + i * 7 + i / 256).to_le_bytes()[0];
        (0..count).map(byte).collect()
    }

    fn matrix(bytes: &[u8], [rows, cols]: [usize; 2]) -> Matrix<'_> {
        let scales = None;
        Matrix {
            bytes,
            scales,
            rows,
            cols,
        }
    }

    /// All rows of a section.
    fn of_rows(section: &Section, dtype: DType, matrix: &Matrix<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        (0..matrix.rows).for_each(|row| section.row(dtype, matrix, row, &mut out));
        out
    }

    #[test]
    fn sections_have_the_bytes_that_they_say() {
        let odd = [
            DType::F32,
            DType::F16,
            DType::Bf16,
            DType::E4m3,
            DType::I8,
            DType::Ternary,
        ];
        for dtype in dtypes() {
            for cols in [256, 768, 77] {
                if cols == 77 && !odd.contains(&dtype) {
                    continue;
                }
                let shape = [4, cols];
                let bytes = bytes(dtype, shape);
                let matrix = matrix(&bytes, shape);
                for (i, section) in sections(dtype).iter().enumerate() {
                    let sent =
                        section.head(dtype, &matrix).len() + of_rows(section, dtype, &matrix).len();
                    assert_eq!(
                        section.bytes(dtype, shape),
                        sent,
                        "{dtype} {cols} section {i}"
                    );
                }
            }
        }
    }

    #[test]
    fn bytes_of_a_weight_are_these() {
        for (dtype, rows, cols, bytes) in [
            (DType::F32, 3, 5, 3 * 32 * 4),
            (DType::Bf16, 3, 40, 3 * 64 * 2),
            (DType::Q4_1, 2, 32, 2 * 20),
            (DType::Q4K, 3, 512, 3 * 2 * (128 + 16 + 4)),
            (DType::Q6K, 3, 512, 3 * 2 * 210),
            (DType::Mxfp4, 2, 64, 2 * 2 * 17),
            (DType::Tq1_0, 1, 256, 64 + 2),
            (DType::I2S, 4, 96, 96 + 4),
            (DType::Iq3S, 1, 256, 110 + 512 * 4),
            (DType::Affine3, 4, 96, 4 * (3 * 12 + 3 * 8)),
            (DType::E2m1, 2, 64, 2 * (2 * 16 + 4 * 4)),
            (DType::E4m3, 5, 77, 5 * (96 + 3 * 4)),
            (DType::Ternary, 8, 77, 8 * 96 / 4 + 8 * 4),
        ] {
            let all = sections(dtype).into_iter();
            let found: usize = all.map(|s| s.bytes(dtype, [rows, cols])).sum();
            assert_eq!(found, bytes, "{dtype}");
        }
    }

    #[test]
    fn some_of_the_rows_lie_as_they_lie_among_all() {
        // Rows of these have no bytes of their own.
        let whole = [DType::Ternary, DType::I2S];
        for dtype in dtypes().filter(|d| !whole.contains(d)) {
            let bytes = bytes(dtype, [5, 512]);
            let part = &bytes[bytes.len() / 5 * 2..][..bytes.len() / 5 * 2];
            for section in sections(dtype) {
                let all = of_rows(&section, dtype, &matrix(&bytes, [5, 512]));
                let some = of_rows(&section, dtype, &matrix(part, [2, 512]));
                assert_eq!(some, all[all.len() / 5 * 2..][..some.len()], "{dtype}");
            }
        }
    }

    #[test]
    fn planes_hold_a_field_of_each_code() {
        // Code n is 8 n + n / 4, so that each of its bits counts.
        let code = |n: u8| n.wrapping_mul(8).wrapping_add(n / 4);
        let stretch: [u8; 32] = from_fn(|n| code(n.to_le_bytes()[0]));
        let words: [u32; 8] = cast(stretch);
        type Pack = fn(&[[u32; 8]], u32, &mut Vec<u8>);
        let packs: [(Pack, u32, usize); 4] = [
            (pack::<4>, 0, 4),
            (pack::<2>, 4, 2),
            (pack::<1>, 2, 1),
            (pack::<2>, 0, 2),
        ];
        for (pack, shift, bits) in packs {
            let mut plane = Vec::new();
            pack(&[words], shift, &mut plane);
            assert_eq!(plane.len(), 4 * bits);
            for (n, code) in stretch.iter().enumerate() {
                let (word, byte) = (n / 4, n % 4);
                let (at, field) = (word / (8 / bits) * 4 + byte, word % (8 / bits));
                let found = plane[at] >> (bits * field) & ((1 << bits) - 1);
                assert_eq!(
                    found,
                    code >> shift & ((1 << bits) - 1),
                    "{bits} bits of code {n}"
                );
            }
        }
    }

    #[test]
    fn codes_name_numbers() {
        for numbers in [iq4_nl::VALUES, mxfp4::DOUBLED] {
            let codes = codes_of(&numbers);
            for n in numbers {
                let code = codes[usize::from(n.cast_unsigned())];
                assert_eq!(numbers[usize::from(code)], n);
            }
        }
    }
}
