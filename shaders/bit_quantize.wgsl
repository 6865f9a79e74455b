// q[t, i] = round(x[t, i] 127 / m), d[t] = m / 127, where m = max(1e-5, max |x[t, :]|)
//
// x: [tokens, cols] f32.  q: [tokens, cols] signed bytes, rows padded with zeros to 64.
// d: [tokens] f32; for a row with a non-finite element, d is NaN and q is 0.  All devices compute
// the same bits: floats are compared as integers, the division uses integers, and no product is
// followed by a sum.  One workgroup per token.

#import tokens256

// Bits of 1e-5, infinity and NaN.
const FLOOR = 0x3727c5acu;
const INFINITY = 0x7f800000u;
const NAN = 0x7fc00000u;
const PART = 0.007874015748031496; // 1 / 127

struct Params { tokens: u32, cols: u32 }

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> q: array<u32>;
@group(0) @binding(2) var<storage, read_write> d: array<u32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

var<workgroup> largest: atomic<u32>;

// 127 / m, rounded to nearest, from the bits of m; m is finite and at least FLOOR.
fn inverse(m: u32) -> f32 {
    let divisor = (m & 0x007fffffu) | 0x00800000u;
    var exponent = 260u - (m >> 23u);
    var rest = 127u << 17u;
    if (rest < divisor) {
        rest <<= 1u;
        exponent -= 1u;
    }
    var quotient = 0u;
    for (var bit = 0u; bit < 24u; bit++) {
        quotient <<= 1u;
        if (rest >= divisor) {
            rest -= divisor;
            quotient |= 1u;
        }
        rest <<= 1u;
    }
    // The quotient is never a tie. A carry propagates into the exponent.
    quotient += u32(rest > divisor);
    return bitcast<f32>(((exponent - 1u) << 23u) + quotient);
}

fn compute(token: u32, lane: Lane) {
    if (lane.index == 0u) {
        atomicStore(&largest, FLOOR);
    }
    workgroupBarrier();
    let row = token * params.cols;
    var own = 0u;
    for (var i = lane.index; i < params.cols; i += WG) {
        own = max(own, x[row + i] & 0x7fffffffu);
    }
    atomicMax(&largest, own);
    workgroupBarrier();
    let m = atomicLoad(&largest);
    let finite = m < INFINITY;
    let scale = inverse(select(FLOOR, m, finite));
    let words = (params.cols + 63u) / 64u * 16u;
    for (var i = lane.index; i < words; i += WG) {
        var word = vec4(0);
        for (var j = 0u; j < 4u; j++) {
            let col = 4u * i + j;
            if (finite && col < params.cols) {
                word[j] = i32(round(bitcast<f32>(x[row + col]) * scale));
            }
        }
        q[token * words + i] = pack4xI8(word);
    }
    if (lane.index == 0u) {
        d[token] = select(NAN, bitcast<u32>(bitcast<f32>(m) * PART), finite);
    }
}
