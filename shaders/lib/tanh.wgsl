// tanh to about 1e-7: WGSL's own is as good as its exp, whose error counts for all where x is
// small, and it may be NaN where e^x is too large. Polynomial of Cephes' tanhf.

fn tanh_of(x: f32) -> f32 {
    let z = x * x;
    let near = x + x * z * (-3.33332819422e-1 + z * (1.33314422036e-1
        + z * (-5.37397155531e-2 + z * (2.06390887954e-2 - z * 5.70498872745e-3))));
    let far = 1.0 - 2.0 / (exp(min(2.0 * abs(x), 80.0)) + 1.0);
    return select(sign(x) * far, near, abs(x) < 0.625);
}
