// x_j[t, i] += sum_k c[t, 4 j + k] x_k[t, i] for the four streams x_0 to x_3
//
// c: [tokens, 16] f32.  x_0 to x_3: [tokens, dim] f32.  One lane per element of a stream.

#import elements256

struct Params { tokens: u32, dim: u32 }

@group(0) @binding(0) var<storage, read> c: array<f32>;
@group(0) @binding(1) var<storage, read_write> x0: array<f32>;
@group(0) @binding(2) var<storage, read_write> x1: array<f32>;
@group(0) @binding(3) var<storage, read_write> x2: array<f32>;
@group(0) @binding(4) var<storage, read_write> x3: array<f32>;
@group(0) @binding(5) var<storage, read> state: State;
var<immediate> params: Params;

// Row j of the coefficients of a token.
fn coefficients(token: u32, j: u32) -> vec4<f32> {
    let at = 16u * token + 4u * j;
    return vec4(c[at], c[at + 1u], c[at + 2u], c[at + 3u]);
}

fn elements() -> u32 { return params.dim; }

fn element(token: u32, i: u32) {
    let at = token * params.dim + i;
    let x = vec4(x0[at], x1[at], x2[at], x3[at]);
    x0[at] = x.x + dot(coefficients(token, 0u), x);
    x1[at] = x.y + dot(coefficients(token, 1u), x);
    x2[at] = x.z + dot(coefficients(token, 2u), x);
    x3[at] = x.w + dot(coefficients(token, 3u), x);
}
