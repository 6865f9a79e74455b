// y[t, i] = (x[t, i] - mean(x[t, :])) / sqrt(var(x[t, :]) + eps) * w[i]
//
// x, y: [tokens, dim] f32.  w: [dim] f32.  One workgroup per token.  The variance is computed from
// x - mean, to avoid the cancellation of mean(x^2) - mean(x)^2.

#import tokens256
#import norm

struct Params { tokens: u32, dim: u32, eps: f32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

// Differences from the mean, 0 after the end of the row.
fn centered(v: vec4<f32>, i: u32, mean: f32) -> vec4<f32> {
    return select(vec4(0.0), v - mean, vec4(i) + vec4(0u, 1u, 2u, 3u) * WG < vec4(params.dim));
}

fn weights(i: u32) -> vec4<f32> {
    let at = min(vec4(i) + vec4(0u, 1u, 2u, 3u) * WG, vec4(params.dim - 1u));
    return vec4(w[at.x], w[at.y], w[at.z], w[at.w]);
}

fn compute(token: u32, lane: Lane) {
    let base = token * params.dim;
    let own = lane.index;
    var e = load_elements(base, own, WG, params.dim);
    let four = (e.a + e.b) + (e.c + e.d);
    var sum = (four.x + four.y) + (four.z + four.w);
    for (var i = own + 16u * WG; i < params.dim; i += WG) {
        sum += x[base + i];
    }
    let mean = sum_row(own, WG, sum) / f32(params.dim);
    e = Elements(
        centered(e.a, own, mean), centered(e.b, own + 4u * WG, mean),
        centered(e.c, own + 8u * WG, mean), centered(e.d, own + 12u * WG, mean),
    );
    var squares = sum_of_squares(e);
    for (var i = own + 16u * WG; i < params.dim; i += WG) {
        let d = x[base + i] - mean;
        squares += d * d;
    }
    let scale = inverseSqrt(sum_row(own, WG, squares) / f32(params.dim) + params.eps);
    e = Elements(e.a * scale * weights(own), e.b * scale, e.c * scale, e.d * scale);
    if (params.dim > 4u * WG) { e.b *= weights(own + 4u * WG); }
    if (params.dim > 8u * WG) { e.c *= weights(own + 8u * WG); }
    if (params.dim > 12u * WG) { e.d *= weights(own + 12u * WG); }
    store_elements(base, own, WG, params.dim, e);
    for (var i = own + 16u * WG; i < params.dim; i += WG) {
        y[base + i] = (x[base + i] - mean) * scale * w[i];
    }
}
