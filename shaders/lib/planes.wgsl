// Bit planes: sections of w with the same bits of all codes of a matrix, block by block.
//
// A word of a plane packs consecutive words of codes, each with four columns in its bytes: two
// words in 4-bit fields, four in 2-bit fields, eight in 1-bit fields. 8-bit planes store codes
// unpacked: per row, first the words of columns 0 to 16 of all blocks, then those of columns 16 to
// 32.

#import blocks
#import numbers
#import words

// Codes of a block, one per byte; columns as in Block.
struct Codes {
    lo: vec4<u32>,
    hi: vec4<u32>,
}

fn fields4(v: vec4<u32>) -> Codes {
    let shift = vec4(0u, 4u, 0u, 4u);
    return Codes((v.xxyy >> shift) & vec4(0x0f0f0f0fu), (v.zzww >> shift) & vec4(0x0f0f0f0fu));
}

fn fields2(v: vec2<u32>) -> Codes {
    let shift = vec4(0u, 2u, 4u, 6u);
    return Codes((v.xxxx >> shift) & vec4(0x03030303u), (v.yyyy >> shift) & vec4(0x03030303u));
}

fn fields1(v: u32) -> Codes {
    let shift = vec4(0u, 1u, 2u, 3u);
    return Codes((vec4(v) >> shift) & vec4(0x01010101u), (vec4(v >> 4u) >> shift) & vec4(0x01010101u));
}

// Adds upper bits to codes, starting at bit `shift`.
fn topped(low: Codes, high: Codes, shift: u32) -> Codes {
    return Codes(low.lo | (high.lo << vec4(shift)), low.hi | (high.hi << vec4(shift)));
}

// Index of the first word after all codes.
fn codes_end() -> u32 {
    return BITS * params.rows * blocks();
}
