// Natural logarithm of a positive normal number; relative error about 1e-7, also near 1.
//
// The WGSL function has an absolute error of 2^-21 near 1, where the result is small. Here v = m
// 2^e with m in [sqrt(1/2), sqrt(2)), and ln m = 2 artanh(s), s = (m - 1) / (m + 1).

fn ln(v: f32) -> f32 {
    // 0x3f3504f3 is sqrt(1/2).
    let bits = bitcast<i32>(v) - 0x3f3504f3i;
    let e = f32(bits >> 23u);
    let m = bitcast<f32>((bits & 0x7fffffi) + 0x3f3504f3i);
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let tail = z * (0.6666666667 + z * (0.4 + z * (0.2857142857 + z * 0.2222222222)));
    // ln 2 as a sum of two parts, the first with trailing zeros.
    return e * 0.693359375 + (e * -2.12194440e-4 + s * tail + 2.0 * s);
}
