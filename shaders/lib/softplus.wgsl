// ln(1 + e^x). The quotient corrects the rounding of 1 + e (Kahan).
fn softplus(x: f32) -> f32 {
    let e = exp(max(-abs(x), -80.0));
    let u = 1.0 + e;
    return max(x, 0.0) + select(log(u) * (e / max(u - 1.0, 1e-7)), e, u == 1.0);
}
