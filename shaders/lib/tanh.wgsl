// tanh, to about 3e-7 relative, near 0 too.
//
// WGSL's own may be off by far more near 0, and some devices make NaN of large arguments.

fn tanh_of(v: f32) -> f32 {
    // Cephes tanhf: minimax of (tanh v - v) / v^3 below 0.625.
    let z = v * v;
    let p = -3.33332819422e-1
        + z * (1.33314422036e-1 + z * (-5.37397155531e-2 + z * (2.06390887954e-2 - z * 5.70498872745e-3)));
    let near = v + v * z * p;
    // From 10 on it rounds to 1.
    let far = 1.0 - 2.0 / (exp(2.0 * min(abs(v), 10.0)) + 1.0);
    return select(near, sign(v) * far, abs(v) >= 0.625);
}
