// y[t, i] = g sigmoid(alpha g) (u + 1), g = min(gate[t, stride i], limit), u = clamp(up[t, stride i + stride -
// 1], -limit, limit)
//
// gate, up: [tokens, stride dim] f32, the same buffer if the stride is 2.  y: [tokens, dim] f32.  One lane per
// element of y.

#import elements256

struct Params { tokens: u32, dim: u32, stride: u32, alpha: f32, limit: f32 }

@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read> up: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.dim; }

fn element(token: u32, i: u32) {
    let to = token * params.dim + i;
    let at = params.stride * to;
    let g = min(gate[at], params.limit);
    let u = clamp(up[at + params.stride - 1u], -params.limit, params.limit);
    // The argument of exp is clamped to its finite range.
    y[to] = g / (1.0 + exp(clamp(-params.alpha * g, -80.0, 80.0))) * (u + 1.0);
}
