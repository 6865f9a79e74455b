// Attention to rows of the same batch, one workgroup per token and head.

#import groups
#import sequence
#import attend

const WG = 128u;
const UNITS = 1u;

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> v: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

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
