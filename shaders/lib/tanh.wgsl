// tanh; relative error about 3e-7, also near 0.
//
// The WGSL function is less accurate near 0, and some devices return NaN for large arguments.

fn tanh_of(v: f32) -> f32 {
    // Cephes tanhf: minimax of (tanh v - v) / v^3 below 0.625.
    let z = v * v;
    let p = -3.33332819422e-1
        + z * (1.33314422036e-1 + z * (-5.37397155531e-2 + z * (2.06390887954e-2 - z * 5.70498872745e-3)));
    let near = v + v * z * p;
    // Rounds to 1 from 10.
    let far = 1.0 - 2.0 / (exp(2.0 * min(abs(v), 10.0)) + 1.0);
    return select(near, sign(v) * far, abs(v) >= 0.625);
}
