// y[t, h, :] = softmax(scale q[t, h, :] . k[seen, h / group, :]) v[seen, h / group, :]
//
// q, y: [tokens, heads, head_dim] f32, head_dim even and at most 512.
// k, v: [tokens, kv_heads, head_dim] f32.  `seen` are the rows of the same sequence at a distance of
// at most `reach`.
// One workgroup per token and head.

#import groups
#import sequence
#import attend

const WG = 128u;
const UNITS = 1u;

struct Params { tokens: u32, heads: u32, kv_heads: u32, head_dim: u32, scale: f32, reach: u32 }

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> v: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;

fn row_of(span: Span, i: u32) -> u32 {
    return span.first + i;
}

fn row_start(row: u32) -> u32 {
    return row * params.kv_heads * params.head_dim;
}

fn key(start: u32, i: u32) -> vec2<f32> {
    return vec2(k[start + 2u * i], k[start + 2u * i + 1u]);
}

fn value(start: u32, i: u32) -> vec2<f32> {
    return vec2(v[start + 2u * i], v[start + 2u * i + 1u]);
}

fn groups() -> u32 { return params.heads; }

fn compute(token: u32, head: u32, lane: Lane) {
    let live = min(params.tokens, state.active_rows);
    attend(token, head, span_of(token, live), vec2(0.0, LOWEST), lane);
}
