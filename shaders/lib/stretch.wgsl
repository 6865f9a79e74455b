// Quantised weights: a stretch is signed bytes, and what makes numbers of them. A type gives
// `stretch(row, i)` and says whether it has MINIMA, which cost where they are not.

#import numbers
#import words

struct Stretch {
    lo: vec4<u32>,    // columns 0 to 16: column 4 k + j is byte j of word k
    hi: vec4<u32>,    // columns 16 to 32
    scale: vec2<f32>, // of lo and of hi: x = scale byte + min
    min: vec2<f32>,
}

fn four(bytes: u32, scale: f32, min: f32) -> vec4<f32> {
    return scale * vec4<f32>(unpack4xI8(bytes)) + min;
}

fn numbers(row: u32, i: u32) -> Numbers {
    let s = stretch(row, i);
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

// `sum + bytes . x`
fn bytes_add(sum: f32, bytes: u32, x: vec4<f32>) -> f32 {
    return dot_add(sum, vec4<f32>(unpack4xI8(bytes)), x);
}

// Stretch `i` of a row times x, of whose halves the sums are given where the type has minima.
fn product(row: u32, i: u32, x: Numbers, sums: vec2<f32>) -> f32 {
    let s = stretch(row, i);
    let lo = bytes_add(bytes_add(bytes_add(bytes_add(0.0, s.lo.x, x[0]), s.lo.y, x[1]), s.lo.z, x[2]), s.lo.w, x[3]);
    let hi = bytes_add(bytes_add(bytes_add(bytes_add(0.0, s.hi.x, x[4]), s.hi.y, x[5]), s.hi.z, x[6]), s.hi.w, x[7]);
    let scaled = fma(s.scale.y, hi, s.scale.x * lo);
    if (MINIMA) {
        return fma(s.min.y, sums.y, fma(s.min.x, sums.x, scaled));
    }
    return scaled;
}
