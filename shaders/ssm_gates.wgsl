// y[t, h] = rate[h] dt, y[t, heads + h] = dt, dt = clamp(softplus(x[t, h] + bias[h]), low, high)
//
// x: [tokens, heads] f32.  rate, bias: [heads] f32.  y: [tokens, 2, heads] f32.

#import elements64
#import softplus

struct Params { tokens: u32, heads: u32, low: f32, high: f32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> rate: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.heads; }

fn element(token: u32, h: u32) {
    let dt = min(max(softplus(x[token * params.heads + h] + bias[h]), params.low), params.high);
    y[2u * token * params.heads + h] = rate[h] * dt;
    y[(2u * token + 1u) * params.heads + h] = dt;
}
