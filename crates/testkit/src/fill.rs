//! Random matrices in all storage types.
#![expect(
    clippy::cast_possible_truncation,
    reason = "random numbers are rounded to f32"
)]

use tabla_core::dtype::DType;
use tabla_core::op::pages::Pages;
use tabla_core::op::params::Bias;
use tabla_core::op::table::{BIASES_MAX, BufferId, SlotInfo};
use tabla_quant::{CHUNK, Chunk, Floats, Ints, Matrix, Scales, Visit, q8_0};

/// Pseudo-random number generator (64-bit LCG) for test data.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator seeded by a name.
    pub fn of(name: &str) -> Self {
        let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self(seed | 1)
    }

    /// Returns 31 random bits.
    pub fn word(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).expect("31 bits")
    }

    /// Returns a number in (-2, 2).
    pub fn number(&mut self) -> f32 {
        (f64::from(self.word()) / f64::from(1u32 << 29) - 2.0) as f32
    }
}

/// Converts `q8_0` blocks to a row of a `q8_0` KV cache: first all codes, then all scales.
pub fn row_of_codes(blocks: &[u8]) -> Vec<u8> {
    let (blocks, _) = blocks.as_chunks::<{ q8_0::BYTES }>();
    let codes = blocks.iter().flat_map(|block| &block[2..]);
    let scales = blocks.iter().flat_map(|block| &block[..2]);
    codes.chain(scales).copied().collect()
}

/// Converts a row of a `q8_0` KV cache to blocks.
pub fn blocks_of_codes(row: &[u8]) -> Vec<u8> {
    let (codes, scales) = row.split_at(row.len() / q8_0::BYTES * q8_0::ELEMENTS);
    let codes = codes.chunks_exact(q8_0::ELEMENTS);
    let blocks = scales.chunks_exact(2).zip(codes);
    blocks.flat_map(|(d, q)| [d, q].concat()).collect()
}

/// Returns a page table in random order. The states of a sequence alternate.
pub fn shuffled(pages: &Pages, sequences: u32, name: &str) -> Vec<u32> {
    let mut random = Random::of(name);
    let [whole, ringed] = [pages.whole_pool, pages.ringed_pool].map(|pool| {
        let mut order: Vec<u32> = (0..pool).collect();
        for i in (1..pool).rev() {
            order.swap(i as usize, (random.word() % (i + 1)) as usize);
        }
        order
    });
    let mut table = pages.in_order(sequences);
    for row in table.chunks_exact_mut(pages.stride() as usize) {
        let (first, rest) = row.split_at_mut(pages.whole as usize);
        first
            .iter_mut()
            .for_each(|page| *page = whole[*page as usize]);
        let (rest, states) = rest.split_at_mut(pages.ringed as usize);
        rest.iter_mut()
            .for_each(|page| *page = ringed[*page as usize]);
        for (at, state) in (0..).zip(states) {
            *state = pages.states_pool - 1 - 2 * *state - at % 2;
        }
    }
    table
}

/// A random matrix.
#[derive(Debug)]
pub struct Filling {
    dtype: DType,
    shape: [usize; 2],
    /// Stored elements or codes.
    pub bytes: Vec<u8>,
    scales: Option<OwnScales>,
}

/// Scales in a separate tensor.
#[derive(Debug)]
struct OwnScales {
    float: DType,
    group: [usize; 2],
    scales: Vec<u8>,
    biases: Vec<u8>,
}

/// Types that are filled with random bits, so that every code occurs, and the offsets of f16 values in their blocks,
/// where random bits would have arbitrary magnitudes. Other types with an encoder are filled with encoded numbers.
const F16S: &[(DType, &[usize])] = &[
    (DType::Q5_0, &[0]),
    (DType::Q5_1, &[0, 2]),
    (DType::Q2K, &[80, 82]),
    (DType::Q3K, &[108]),
    (DType::Q4K, &[0, 2]),
    (DType::Q5K, &[0, 2]),
    (DType::Q6K, &[208]),
    (DType::Iq4Nl, &[0]),
    (DType::Iq4Xs, &[0]),
    (DType::Iq1S, &[0]),
    (DType::Iq2Xxs, &[0]),
    (DType::Iq2Xs, &[0]),
    (DType::Iq2S, &[0]),
    (DType::Iq3Xxs, &[0]),
    (DType::Iq3S, &[0]),
    (DType::Tq1_0, &[52]),
    (DType::Tq2_0, &[64]),
    (DType::Q1_0, &[0]),
    (DType::Q2_0, &[0]),
];

/// Storage types with separate scales: type of the scales, group (0: the whole dimension), and
/// whether there are biases.
const SCALES: &[(DType, DType, [usize; 2], bool)] = &[
    (DType::Affine2, DType::F16, [1, 32], true),
    (DType::Affine3, DType::Bf16, [1, 32], true),
    (DType::Affine4, DType::Bf16, [1, 64], true),
    (DType::Affine5, DType::F32, [1, 32], true),
    (DType::Affine6, DType::F16, [1, 128], true),
    (DType::Affine8, DType::Bf16, [1, 64], true),
    (DType::E2m1, DType::E4m3, [1, 16], false),
    (DType::Nvfp4, DType::F32, [0, 0], false),
    (DType::E4m3, DType::F32, [128, 128], false),
    (DType::I8, DType::Bf16, [1, 0], false),
    (DType::Ternary, DType::F32, [0, 0], false),
];

impl Filling {
    /// Creates a random tensor `[rows, cols]`, seeded by its name.
    pub fn random(name: &str, dtype: DType, shape: [u32; 2]) -> Self {
        let row = SCALES.iter().find(|row| row.0 == dtype);
        let scales = row.map(|(_, float, group, biased)| (*float, *group, *biased));
        Self::scaled(name, dtype, shape, scales)
    }

    /// Creates a random tensor with these separate scales.
    pub fn scaled(
        name: &str,
        dtype: DType,
        shape: [u32; 2],
        scales: Option<(DType, [usize; 2], bool)>,
    ) -> Self {
        let mut random = Random::of(name);
        let shape @ [rows, cols] = shape.map(|n| n as usize);
        let has_codes = F16S.iter().any(|row| row.0 == dtype);
        let bytes = match tabla_quant::encoder(dtype) {
            Some(encode) if !has_codes => {
                let row: Vec<f32> = (0..rows * cols).map(|_| random.number()).collect();
                let mut bytes = Vec::new();
                let parts = row.chunks_exact(cols);
                parts.for_each(|row| encode(row, None, &mut bytes));
                bytes
            }
            _ => codes(&mut random, dtype, rows * cols),
        };
        let scales = scales.map(|(float, group, biased)| {
            let group = [0, 1].map(|i| if group[i] == 0 { shape[i] } else { group[i] });
            let count = rows.div_ceil(group[0]) * cols.div_ceil(group[1]);
            let mut numbers = || floats(&mut random, float, count);
            let scales = numbers();
            let biases = if biased { numbers() } else { Vec::new() };
            OwnScales {
                float,
                group,
                scales,
                biases,
            }
        });
        Self {
            dtype,
            shape,
            bytes,
            scales,
        }
    }

    /// Returns the separate scales.
    pub fn scales(&self) -> Option<Scales<'_>> {
        let own = self.scales.as_ref()?;
        Some(Scales {
            float: own.float,
            bytes: &own.scales,
            biases: &own.biases,
            group: own.group,
        })
    }

    /// Returns the decoded elements, row-major.
    pub fn numbers(&self) -> Vec<f32> {
        let [rows, cols] = self.shape;
        let matrix = Matrix {
            bytes: &self.bytes,
            scales: self.scales(),
            rows,
            cols,
        };
        let mut numbers = vec![0.0; rows * cols];
        for (r, row) in numbers.chunks_exact_mut(cols).enumerate() {
            tabla_quant::decode_row_of(self.dtype, &matrix, r, row);
        }
        numbers
    }
}

/// Returns random blocks with scales of a reasonable magnitude.
fn codes(random: &mut Random, dtype: DType, elements: usize) -> Vec<u8> {
    let bytes = dtype.bytes(elements as u64).expect("whole blocks") as usize;
    let mut codes: Vec<u8> = (0..bytes).map(|_| random.word() as u8).collect();
    let mut small = || half::f16::from_f32(random.number() * 0.05).to_le_bytes();
    let facts = dtype.facts();
    if let Some((_, at)) = F16S.iter().find(|row| row.0 == dtype) {
        for block in codes.chunks_exact_mut(facts.bytes) {
            at.iter()
                .for_each(|&at| block[at..at + 2].copy_from_slice(&small()));
        }
    }
    match dtype {
        // The f16 scale is in the upper nibbles of four words, the highest nibble last.
        DType::Iq1M => {
            let blocks = codes.chunks_exact_mut(facts.bytes);
            blocks.for_each(|block| block[55] = block[55] & 15 | 0x20);
        }
        DType::Mxfp4 => {
            let blocks = codes.chunks_exact_mut(facts.bytes);
            blocks.for_each(|block| block[0] = 120 + block[0] % 8);
        }
        DType::Nvfp4 => {
            let blocks = codes.chunks_exact_mut(facts.bytes);
            for block in blocks {
                block[..4].iter_mut().for_each(|d| *d = 0x20 + *d % 32);
            }
        }
        DType::Q8K => {
            let blocks = codes.chunks_exact_mut(facts.bytes);
            blocks.for_each(|block| block[..4].copy_from_slice(&0.01f32.to_le_bytes()));
        }
        DType::I2S => {
            let at = bytes - facts.tail;
            codes[at..at + 4].copy_from_slice(&0.37f32.to_le_bytes());
        }
        // Excludes both NaN codes.
        DType::E4m3 => codes.iter_mut().for_each(|code| *code &= 0xbf),
        _ => {}
    }
    codes
}

fn floats(random: &mut Random, float: DType, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..count {
        match float {
            DType::E4m3 => bytes.push(0x20 + random.word() as u8 % 16),
            DType::E8m0 => bytes.push(120 + random.word() as u8 % 8),
            _ => tabla_quant::encode_row(float, &[random.number() * 0.1], &mut bytes),
        }
    }
    bytes
}

/// Returns whether a slot is a `q8_0` KV cache.
pub fn of_codes(slot: &SlotInfo) -> bool {
    slot.dtype == DType::Q8_0 && matches!(slot.buffer, BufferId::Keys(_) | BufferId::Values(_))
}

/// Decodes the bytes of a slot.
pub fn numbers(slot: &SlotInfo, bytes: &[u8]) -> Vec<f32> {
    let dtype = slot.dtype;
    if of_codes(slot) {
        let rows = bytes.chunks_exact(bytes.len() / slot.rows as usize);
        let blocks: Vec<u8> = rows.flat_map(blocks_of_codes).collect();
        let mut numbers = vec![0.0; blocks.len() / q8_0::BYTES * q8_0::ELEMENTS];
        tabla_quant::decode_row(dtype, &blocks, &mut numbers);
        return numbers;
    }
    if dtype == DType::U32 {
        let words = bytemuck::pod_collect_to_vec::<u8, u32>(bytes).into_iter();
        let small = words.map(|word| u16::try_from(word).expect("ids in cases are small"));
        return small.map(f32::from).collect();
    }
    if dtype == DType::Q8_1 {
        let rows = bytes.chunks_exact(bytes.len() / slot.rows as usize);
        return rows.flat_map(q8_1_row).collect();
    }
    let facts = dtype.facts();
    let mut row = vec![0.0; bytes.len() / facts.bytes * facts.block];
    tabla_quant::decode_row(dtype, bytes, &mut row);
    row
}

/// Returns the elements of a row of activations in `Q8_1`: the first halves of all blocks, the second halves, then per block
/// a scale and two sums.
fn q8_1_row(bytes: &[u8]) -> Vec<f32> {
    let blocks = bytes.len() / DType::Q8_1.facts().bytes;
    let parts: Vec<&[u8; 16]> = bytes.as_chunks().0.iter().collect();
    let block = |i: usize| {
        let scale: f32 = bytemuck::pod_read_unaligned(&parts[2 * blocks + i][..4]);
        let codes = parts[i].iter().chain(parts[blocks + i]);
        codes.map(move |q| scale * f32::from(q.cast_signed()))
    };
    (0..blocks).flat_map(block).collect()
}

/// Returns the digits of a ternary matrix, row-major.
pub fn digits(slot: &SlotInfo, bytes: &[u8]) -> Vec<i8> {
    struct Digits<'a>(Matrix<'a>);
    impl Visit for Digits<'_> {
        type Out = Vec<i8>;
        fn ints<T: Ints>(self) -> Vec<i8> {
            let mut digits = Vec::new();
            let mut chunk = Chunk::ZERO;
            for row in 0..self.0.rows {
                for first in (0..self.0.cols).step_by(CHUNK) {
                    T::unpack(&self.0, row, first, &mut chunk);
                    digits.extend(&chunk.q[..CHUNK.min(self.0.cols - first)]);
                }
            }
            digits
        }
        fn floats<T: Floats>(self) -> Vec<i8> {
            panic!("not a ternary type")
        }
    }
    let matrix = Matrix {
        bytes,
        scales: None,
        rows: slot.rows as usize,
        cols: slot.cols as usize,
    };
    tabla_quant::visit(slot.dtype, Digits(matrix)).expect("the type is supported")
}

/// Returns random logit biases for all sequences, some of them -inf.
pub fn biases(sequences: u32) -> Vec<u8> {
    let mut random = Random::of("biases");
    let mut bias = |token: u32| Bias {
        token,
        bias: match random.word() % 8 {
            0 => f32::NEG_INFINITY,
            _ => 4.0 * random.number(),
        },
    };
    let rows = (0..sequences).flat_map(|_| 0..BIASES_MAX);
    let biases: Vec<Bias> = rows.map(|i| bias(3 * i)).collect();
    bytemuck::cast_slice(&biases).to_vec()
}
