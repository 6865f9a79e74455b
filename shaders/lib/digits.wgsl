// Ternary digits, stored as digit + 1.

#import codes2
#import block

const MINIMA = false;
const UNSIGNED = false;

// Subtracts 1 from each byte; bytes are below 128.
fn less(bytes: vec4<u32>) -> vec4<u32> {
    // The set top bits stop borrows between bytes.
    return ((bytes | vec4(0x80808080u)) - vec4(0x01010101u)) ^ vec4(0x80808080u);
}

// `scale (digit - 1)`
fn ternary(row: u32, i: u32, scale: f32) -> Block {
    let c = codes(row, i);
    return Block(less(c.lo), less(c.hi), vec2(scale), vec2(0.0));
}
