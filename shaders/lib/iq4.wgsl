// 4-bit codes that index one of 16 values:
// -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113.

#import codes4
#import block

const MINIMA = false;

// Selects bytes of b where the mask is 0xff, and of a where it is 0.
fn pick(mask: vec4<u32>, a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
    return a ^ ((a ^ b) & mask);
}

fn pick1(mask: vec4<u32>, a: u32, b: u32) -> vec4<u32> {
    return pick(mask, vec4(a * 0x01010101u), vec4(b * 0x01010101u));
}

// Bit n of each code as a byte mask.
fn bit(c: vec4<u32>, n: u32) -> vec4<u32> {
    return ((c >> vec4(n)) & vec4(0x01010101u)) * 0xffu;
}

// Selects values bit by bit, without a table lookup.
fn values_of(c: vec4<u32>) -> vec4<u32> {
    let b0 = bit(c, 0u);
    let b1 = bit(c, 1u);
    let b2 = bit(c, 2u);
    let n0 = pick(b1, pick1(b0, 0x81u, 0x98u), pick1(b0, 0xadu, 0xbfu));
    let n4 = pick(b1, pick1(b0, 0xcfu, 0xddu), pick1(b0, 0xeau, 0xf6u));
    let n8 = pick(b1, pick1(b0, 0x01u, 0x0du), pick1(b0, 0x19u, 0x26u));
    let n12 = pick(b1, pick1(b0, 0x35u, 0x45u), pick1(b0, 0x59u, 0x71u));
    return pick(bit(c, 3u), pick(b2, n0, n4), pick(b2, n8, n12));
}

fn iq4(row: u32, i: u32, scale: f32) -> Block {
    let c = codes(row, i);
    return Block(values_of(c.lo), values_of(c.hi), vec2(scale), vec2(0.0));
}
