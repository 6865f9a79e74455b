// A grid in front: GRID words, rows of four or eight numbers, a byte each, that codes name.

#import stretch

const MINIMA = false;

// The first word of a section; `words` of those before it for each stretch.
fn section(words: u32) -> u32 {
    return GRID + words * params.rows * stretches();
}

fn fours(i: vec4<u32>) -> vec4<u32> {
    return vec4(word_at(i.x), word_at(i.y), word_at(i.z), word_at(i.w));
}

// Four rows of eight.
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

// The numbers of rows, none of them 0, negated where a bit of four is set.
fn negated(q: vec4<u32>, bits: vec4<u32>) -> vec4<u32> {
    let ones = ((bits & vec4(15u)) * 0x00204081u) & vec4(0x01010101u);
    return (q ^ (ones * 0xffu)) + ones;
}

// Rows with 32 signs, one for each column.
fn with_signs(rows: Rows, signs: u32, scale: vec2<f32>) -> Stretch {
    return Stretch(
        negated(rows.lo, vec4(signs) >> vec4(0u, 4u, 8u, 12u)),
        negated(rows.hi, vec4(signs) >> vec4(16u, 20u, 24u, 28u)),
        scale,
        vec2(0.0),
    );
}

// Four times seven signs and for each the eighth, which makes their number even.
fn even(seven: vec4<u32>) -> u32 {
    let s = seven & vec4(0x7fu);
    let eight = (s | ((countOneBits(s) & vec4(1u)) << vec4(7u))) << vec4(0u, 8u, 16u, 24u);
    return eight.x | eight.y | eight.z | eight.w;
}
