// Attention of many tokens to rows of the same batch.

#import sequence
#import attend

// Index of the first quad.
alias Octet = u32;
alias Quad = vec4<f32>;

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

// Row of the first position of the sequence of a token.
fn first_row(token: u32) -> u32 {
    return token - state.row[token].position;
}

fn seen_by(token: u32) -> Seen {
    let span = span_of(token, min(params.tokens, state.active_rows));
    let first = span.first - first_row(token);
    return Seen(first, first + span.count);
}

fn start_of(token: u32, position: u32) -> u32 {
    return (first_row(token) + position) * (params.kv_heads * params.head_dim / 4u);
}

fn key(start: u32, i: u32) -> Octet {
    return start + 2u * i;
}

fn low(octet: Octet) -> vec4<f32> {
    return k[octet];
}

fn high(octet: Octet) -> vec4<f32> {
    return k[octet + 1u];
}

fn value(start: u32, i: u32) -> Quad {
    return v[start + i];
}

fn four(quad: Quad) -> vec4<f32> {
    return quad;
}

fn capped(score: vec4<f32>) -> vec4<f32> {
    return score;
}

fn sink_score(head: u32) -> f32 {
    return LOWEST;
}
