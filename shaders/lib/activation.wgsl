// Activations by their number in `Activation` of the builder, with a relative error of about 5e-7.
// Arguments of exp are clamped to its finite range.

fn activate(activation: u32, x: f32) -> f32 {
    switch activation {
        case 0u: { return silu(x); }
        case 1u: { return gelu(x); }
        case 2u: { return gelu_tanh(x); }
        case 3u: { return max(x, 0.0) * max(x, 0.0); }
        case 4u: { return max(x, 0.0); }
        case 5u: { return sigmoid(x); }
        default: { return x; }
    }
}

fn sigmoid(x: f32) -> f32 {
    return 1.0 / (1.0 + exp(clamp(-x, -80.0, 80.0)));
}

fn silu(x: f32) -> f32 {
    return x / (1.0 + exp(clamp(-x, -80.0, 80.0)));
}

// x (1 + erf(x / sqrt(2))) / 2. The tail of the normal distribution beyond |x| is exp(-x^2 / 2)
// times a smooth function; this is its minimax polynomial in t on [0, 7], with an error of 4e-8.
fn gelu(x: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.3 * abs(x));
    var p = 0.03701011;
    p = p * t - 0.16252689;
    p = p * t + 0.2150033;
    p = p * t - 0.06101699;
    p = p * t + 0.13199516;
    p = p * t + 0.099060014;
    p = p * t + 0.12084813;
    p = p * t + 0.1196272;
    let beyond = exp(max(-0.5 * x * x, -80.0)) * (p * t);
    return x * select(1.0 - beyond, beyond, x < 0.0);
}

// x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), which is x sigmoid(2 u).
fn gelu_tanh(x: f32) -> f32 {
    return x / (1.0 + exp(clamp(-x * (1.5957691216 + 0.0713548163 * x * x), -80.0, 80.0)));
}
