// Ternary digits, each one more than it stands for.

#import codes2
#import stretch

const MINIMA = false;

// Bytes below 128, less 1.
fn less(bytes: vec4<u32>) -> vec4<u32> {
    // The top bits stop what is borrowed.
    return ((bytes | vec4(0x80808080u)) - vec4(0x01010101u)) ^ vec4(0x80808080u);
}

// `scale (digit - 1)`
fn ternary(row: u32, i: u32, scale: f32) -> Stretch {
    let c = codes(row, i);
    return Stretch(less(c.lo), less(c.hi), vec2(scale), vec2(0.0));
}
