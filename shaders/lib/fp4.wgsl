// 4-bit floats (e2m1).

#import codes4
#import block

const MINIMA = false;

// Doubled values of 0 1/2 1 3/2 2 3 4 6, negated if the fourth bit is set.
fn doubled(c: vec4<u32>) -> vec4<u32> {
    let ones = vec4(0x01010101u);
    // The step is 2 from doubled value 4, and 4 for the last.
    let from_4 = (c >> vec4(2u)) & ones;
    let last = from_4 & (c >> vec4(1u)) & c;
    let size = (c & vec4(0x07070707u)) + (c & (from_4 * 3u)) + (last << vec4(1u));
    let negative = size & (((c >> vec4(3u)) & ones) * 0xffu);
    return ((size | vec4(0x80808080u)) - (negative << vec4(1u))) ^ vec4(0x80808080u);
}

// `half` is the scale of doubled values.
fn fp4(row: u32, i: u32, half: vec2<f32>) -> Block {
    let c = codes(row, i);
    return Block(doubled(c.lo), doubled(c.hi), half, vec2(0.0));
}
