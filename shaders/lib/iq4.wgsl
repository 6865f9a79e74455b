// 4-bit codes that index one of 16 values:
// -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113.

#import codes4
#import block

const MINIMA = false;
const UNSIGNED = false;

// A polynomial of the codes of a word is at most 0.44 from their values. Adding 1.5 2^23 leaves the nearest integer in
// the lower bits. This takes fewer operations than a table lookup of each code.
fn values_of(codes: u32) -> u32 {
    let c = vec4<f32>(unpack4xU8(codes));
    var sum = fma(vec4(0.00144801846), c, vec4(0.0362732496));
    sum = fma(sum, c, vec4(-1.43856375));
    sum = fma(sum, c, vec4(24.5005993));
    return pack4xU8(bitcast<vec4<u32>>(fma(sum, c, vec4(12582912.0 - 127.0))));
}

fn four_of(c: vec4<u32>) -> vec4<u32> {
    return vec4(values_of(c.x), values_of(c.y), values_of(c.z), values_of(c.w));
}

fn iq4(row: u32, i: u32, scale: f32) -> Block {
    let c = codes(row, i);
    return Block(four_of(c.lo), four_of(c.hi), vec2(scale), vec2(0.0));
}
