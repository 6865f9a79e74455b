// 4-bit floats (e2m1).

#import codes4
#import block

const MINIMA = false;
const UNSIGNED = false;

// Bytes from the lower fields of words, with the upper half of each byte from `top`.
fn bytes_of(fields: vec4<u32>, top: vec4<u32>) -> vec4<u32> {
    return (fields & vec4(0x0f0f0f0fu)) | (top & vec4(0xf0f0f0f0u));
}

// Doubled values of 0 1/2 1 3/2 2 3 4 6, negated if the fourth bit is set. `half` is the scale of doubled values.
// They are computed in the fields of words, eight at once, as two's complement numbers of four bits and a sign.
fn fp4(row: u32, i: u32, half: vec2<f32>) -> Block {
    let c = packed_codes(row, i);
    let ones = vec4(0x11111111u);
    let codes = c & vec4(0x77777777u);
    // The step is 2 from doubled value 4, and 4 for the last.
    let from_4 = (c >> vec4(2u)) & ones;
    let more = c & (from_4 | (from_4 << vec4(1u)));
    let last = more & (more >> vec4(1u));
    let size = codes + more + (last << vec4(1u));
    // The fourth bit of the sum is set unless the value is 0.
    let negative = (((codes + vec4(0x77777777u)) & c) >> vec4(3u)) & ones;
    let sign = (negative << vec4(4u)) - negative;
    let value = (size ^ sign) + negative;
    let low = bytes_of(value, sign << vec4(4u));
    let high = bytes_of(value >> vec4(4u), sign);
    // The upper fields of a word are four columns after the lower ones.
    return Block(
        vec4(low.x, high.x, low.y, high.y), vec4(low.z, high.z, low.w, high.w), half, vec2(0.0),
    );
}
