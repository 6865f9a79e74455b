// Blocks of quantized weights: signed bytes, scales and minima. Each type defines `block(row, i)`
// and the constants MINIMA: whether it has minima, which take additional work, and UNSIGNED: whether
// no byte is negative.

#import blocks
#import numbers
#import product
#import words

struct Block {
    lo: vec4<u32>,    // columns 0 to 16: column 4 k + j is byte j of word k
    hi: vec4<u32>,    // columns 16 to 32
    scale: vec2<f32>, // for lo and hi: x = scale byte + min
    min: vec2<f32>,
}

// Four bytes as numbers. AMD converts unsigned ones in one instruction.
fn floats(bytes: u32) -> vec4<f32> {
    if (UNSIGNED) {
        return vec4<f32>(unpack4xU8(bytes));
    }
    return vec4<f32>(unpack4xI8(bytes));
}

fn four(bytes: u32, scale: f32, min: f32) -> vec4<f32> {
    return scale * floats(bytes) + min;
}

fn numbers(row: u32, i: u32) -> Numbers {
    let s = block(row, i);
    return Numbers(
        four(s.lo.x, s.scale.x, s.min.x),
        four(s.lo.y, s.scale.x, s.min.x),
        four(s.lo.z, s.scale.x, s.min.x),
        four(s.lo.w, s.scale.x, s.min.x),
        four(s.hi.x, s.scale.y, s.min.y),
        four(s.hi.y, s.scale.y, s.min.y),
        four(s.hi.z, s.scale.y, s.min.y),
        four(s.hi.w, s.scale.y, s.min.y),
    );
}
