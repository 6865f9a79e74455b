// y[t, h] = rate[h] softplus(a[t, h] + bias[h]), y[t, heads + h] = sigmoid(b[t, h])
//
// a, b: [tokens, heads] f32.  rate, bias: [heads] f32.  y: [tokens, 2, heads] f32.

#import elements64
#import softplus

struct Params { tokens: u32, heads: u32 }

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read> rate: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.heads; }

fn element(token: u32, h: u32) {
    let i = token * params.heads + h;
    y[i + token * params.heads] = rate[h] * softplus(a[i] + bias[h]);
    y[i + (token + 1u) * params.heads] = 1.0 / (1.0 + exp(clamp(-b[i], -80.0, 80.0)));
}
