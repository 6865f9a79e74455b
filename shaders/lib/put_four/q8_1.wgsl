// Stores rows of y in q8_1, four columns per lane: blocks of 32 signed bytes, their scale, and the scaled sums of both halves.
// A row has the first halves of all blocks, then the second halves, then the scales and sums.

@group(0) @binding(Y) var<storage, read_write> y: array<u32>;

var<workgroup> four_largest: array<u32, WG>;
var<workgroup> four_sum: array<i32, WG>;

// Bits of the magnitudes, which have the same order; NaN is the largest.
fn magnitudes(v: vec4<f32>) -> vec4<u32> {
    return bitcast<vec4<u32>>(v) & vec4(0x7fffffffu);
}

// Adding 1.5 2^23 leaves the nearest integer in the lower bits.
fn rounded(v: vec4<f32>, inverse: f32) -> u32 {
    return pack4xU8(bitcast<vec4<u32>>(fma(v, vec4(inverse), vec4(12582912.0))));
}

// Stores columns 4 i to 4 i + 4 of a row if `stored`. All lanes of a workgroup call it, with blocks at groups of eight lanes:
// `scale = max |v| / 127`, bytes are `round(v / scale)`, halves to even.
fn put_four(row: u32, i: u32, v: vec4<f32>, stored: bool, lane: u32) {
    let m = magnitudes(v);
    // An earlier call may still read.
    workgroupBarrier();
    four_largest[lane] = max(max(m.x, m.y), max(m.z, m.w));
    workgroupBarrier();
    let b = lane & 0xfffffff8u;
    let low = max(max(four_largest[b], four_largest[b + 1u]), max(four_largest[b + 2u], four_largest[b + 3u]));
    let high = max(max(four_largest[b + 4u], four_largest[b + 5u]), max(four_largest[b + 6u], four_largest[b + 7u]));
    let largest = bitcast<f32>(max(low, high));
    // 0 for zeros and for values so small that the inverse overflows.
    let word = rounded(v, select(0.0, 127.0 / largest, largest > 4e-37));
    four_sum[lane] = dot4I8Packed(word, 0x01010101u);
    workgroupBarrier();
    if (stored) {
        let place = i % 8u;
        let at = 3u * row * blocks() + i / 8u;
        y[4u * (at + place / 4u * blocks()) + place % 4u] = word;
        if (place == 0u) {
            let scale = largest / 127.0;
            let lo = four_sum[lane] + four_sum[lane + 1u] + four_sum[lane + 2u] + four_sum[lane + 3u];
            let hi = four_sum[lane + 4u] + four_sum[lane + 5u] + four_sum[lane + 6u] + four_sum[lane + 7u];
            let line = 4u * (at + 2u * blocks());
            y[line] = bitcast<u32>(scale);
            y[line + 1u] = bitcast<u32>(scale * f32(lo));
            y[line + 2u] = bitcast<u32>(scale * f32(hi));
        }
    }
}
