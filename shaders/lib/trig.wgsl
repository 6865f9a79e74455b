// (cos, sin) of an angle of up to a million radians, with an error of about 1e-7.
//
// The WGSL functions have an error of 2^-11 at best, and no bound for large angles. Here the angle
// is reduced by k quarter turns (Cody and Waite): pi / 2 is split into four parts of at most 12
// bits and k into two parts of at most 11 bits, so that every product is exact, with and without
// fma. The remainder, at most pi / 4, goes through the polynomials of sinf and cosf of Cephes.

const QUARTER = array<f32, 4>(1.5703125, 4.837512969970703e-4, 7.549533620476723e-8, 2.5633440682571e-12);

fn turn(angle: f32) -> vec2<f32> {
    let k = round(angle * 0.6366197723675814);
    let coarse = trunc(k * 0.0009765625) * 1024.0;
    let fine = k - coarse;
    var r = angle;
    r = (r - coarse * QUARTER[0]) - fine * QUARTER[0];
    r = (r - coarse * QUARTER[1]) - fine * QUARTER[1];
    r = (r - coarse * QUARTER[2]) - fine * QUARTER[2];
    r = r - k * QUARTER[3];
    let s = r * r;
    let sine = r + r * s * (-1.6666654611e-1 + s * (8.3321608736e-3 - s * 1.9515295891e-4));
    let cosine = 1.0 - 0.5 * s
        + s * s * (4.166664568298827e-2 + s * (-1.388731625493765e-3 + s * 2.443315711809948e-5));
    let quarter = u32(i32(k)) & 3u;
    let turned = select(vec2(cosine, sine), vec2(-sine, cosine), (quarter & 1u) != 0u);
    return select(turned, -turned, (quarter & 2u) != 0u);
}
