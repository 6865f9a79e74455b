// Products of blocks of W and x in int8; x is rounded to signed bytes per block.

// A block of x: bytes, their scale and, for types with minima, the scaled sums of both halves.
struct X {
    lo: vec4<u32>,
    hi: vec4<u32>,
    scale: f32,
    sums: vec2<f32>,
}

fn dot16(a: vec4<u32>, b: vec4<u32>) -> f32 {
    return f32(dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y)
        + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w));
}

// Adding 1.5 2^23 leaves the nearest integer in the lower bits.
fn rounded(v: vec4<f32>, inverse: f32) -> u32 {
    return pack4xU8(bitcast<vec4<u32>>(fma(v, vec4(inverse), vec4(12582912.0))));
}

// Bits of the magnitudes, which have the same order; NaN is the largest.
fn magnitudes(v: vec4<f32>) -> vec4<u32> {
    return bitcast<vec4<u32>>(v) & vec4(0x7fffffffu);
}

fn larger(a: vec4<f32>, b: vec4<f32>) -> vec4<u32> {
    return max(magnitudes(a), magnitudes(b));
}

// `scale = max |x| / 127`, bytes are `round(x / scale)`, halves to even.
fn x_of(v: Numbers) -> X {
    let lower = max(larger(v[0], v[1]), larger(v[2], v[3]));
    let m = max(lower, max(larger(v[4], v[5]), larger(v[6], v[7])));
    let largest = bitcast<f32>(max(max(m.x, m.y), max(m.z, m.w)));
    // 0 for zeros and for values so small that the inverse overflows.
    let inverse = select(0.0, 127.0 / largest, largest > 4e-37);
    let lo = vec4(
        rounded(v[0], inverse),
        rounded(v[1], inverse),
        rounded(v[2], inverse),
        rounded(v[3], inverse),
    );
    let hi = vec4(
        rounded(v[4], inverse),
        rounded(v[5], inverse),
        rounded(v[6], inverse),
        rounded(v[7], inverse),
    );
    let scale = largest / 127.0;
    var sums = vec2(0.0);
    if (MINIMA) {
        let ones = vec4(0x01010101u);
        sums = scale * vec2(dot16(lo, ones), dot16(hi, ones));
    }
    return X(lo, hi, scale, sums);
}

fn block_product(w: Block, x: X) -> f32 {
    let scaled = x.scale * fma(w.scale.y, dot16(w.hi, x.hi), w.scale.x * dot16(w.lo, x.lo));
    if (MINIMA) {
        return fma(w.min.y, x.sums.y, fma(w.min.x, x.sums.x, scaled));
    }
    return scaled;
}

// Product of block `i` of a row and x.
fn product(row: u32, i: u32, x: X) -> f32 {
    return block_product(block(row, i), x);
}
