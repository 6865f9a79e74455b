// A grid at the start of w: GRID words; rows of four or eight bytes, which codes index.

#import block

const MINIMA = false;
const UNSIGNED = false;

// Index of the first word of a section that `words` words per block precede.
fn section(words: u32) -> u32 {
    return GRID + words * params.rows * blocks();
}

fn fours(i: vec4<u32>) -> vec4<u32> {
    return vec4(word_at(i.x), word_at(i.y), word_at(i.z), word_at(i.w));
}

// Four rows of eight elements.
struct Rows {
    lo: vec4<u32>,
    hi: vec4<u32>,
}

fn eights(i: vec4<u32>) -> Rows {
    return Rows(
        vec4(pair_at(2u * i.x), pair_at(2u * i.y)),
        vec4(pair_at(2u * i.z), pair_at(2u * i.w)),
    );
}

fn bytes_of(word: u32) -> vec4<u32> {
    return (vec4(word) >> vec4(0u, 8u, 16u, 24u)) & vec4(0xffu);
}

// Negates the bytes, none of them 0, whose bit is set in `bits`.
fn negated(q: vec4<u32>, bits: vec4<u32>) -> vec4<u32> {
    let ones = ((bits & vec4(15u)) * 0x00204081u) & vec4(0x01010101u);
    // A product by 255 is slow on some devices.
    return (q ^ ((ones << vec4(8u)) - ones)) + ones;
}

// Applies 32 signs, one per column.
fn with_signs(rows: Rows, signs: u32, scale: vec2<f32>) -> Block {
    return Block(
        negated(rows.lo, vec4(signs) >> vec4(0u, 4u, 8u, 12u)),
        negated(rows.hi, vec4(signs) >> vec4(16u, 20u, 24u, 28u)),
        scale,
        vec2(0.0),
    );
}

// Extends four groups of seven signs by an eighth sign each, by even parity.
fn even(seven: vec4<u32>) -> u32 {
    let s = seven & vec4(0x7fu);
    let eight = (s | ((countOneBits(s) & vec4(1u)) << vec4(7u))) << vec4(0u, 8u, 16u, 24u);
    return eight.x | eight.y | eight.z | eight.w;
}
