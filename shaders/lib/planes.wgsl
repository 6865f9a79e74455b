// Planes: sections of w with the same bits of each code of a matrix, one stretch after another.
//
// A word of a plane holds some neighbouring words of codes, four columns in the bytes of each:
// two words in fields of 4 bits, four in fields of 2 bits, eight in fields of 1 bit. Planes of 8
// bits have their codes as they are: of a row first the words of columns 0 to 16 of all
// stretches, then those of columns 16 to 32.

#import numbers
#import words

// The codes of a stretch, a byte each, as `lo` and `hi` of it.
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

// Codes under further bits, which begin at bit `shift`.
fn topped(low: Codes, high: Codes, shift: u32) -> Codes {
    return Codes(low.lo | (high.lo << vec4(shift)), low.hi | (high.hi << vec4(shift)));
}

// The word behind all codes.
fn behind() -> u32 {
    return BITS * params.rows * stretches();
}
