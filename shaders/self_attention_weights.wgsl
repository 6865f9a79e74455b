// y[t, offset + h positions + p] = softmax(scale q[t, h, :] . k[seen, h / group, :])[p]
//
// q: [tokens, heads, head_dim] f32.  k: [tokens, kv_heads, head_dim] f32.  Sequences, `seen` as in
// self_attention; p is the position of a row in its sequence.  y: [tokens, width] f32, of which other
// columns are unchanged; 0 for positions that are not seen.  One workgroup per token and head.

#import groups
#import sequence
#import position_weights

const WG = 128u;
const UNITS = 1u;

struct Params { tokens: u32, heads: u32, kv_heads: u32, head_dim: u32, scale: f32, reach: u32, positions: u32, offset: u32, width: u32 }

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

// First element of a head of q, the first element of its keys in a row, and the row of position 0.
struct Query { base: u32, column: u32, origin: u32 }

fn score(query: Query, position: u32) -> f32 {
    let start = (query.origin + position) * params.kv_heads * params.head_dim + query.column;
    var dots = 0.0;
    for (var i = 0u; i < params.head_dim; i++) {
        dots += q[query.base + i] * k[start + i];
    }
    return params.scale * dots;
}

fn groups() -> u32 { return params.heads; }

fn compute(token: u32, head: u32, lane: Lane) {
    let live = min(params.tokens, state.active_rows);
    let span = span_of(token, live);
    let origin = token - min(state.row[token].position, token);
    let column = head / (params.heads / params.kv_heads) * params.head_dim;
    let query = Query((token * params.heads + head) * params.head_dim, column, origin);
    let first = span.first - origin;
    let at = token * params.width + params.offset + head * params.positions;
    put_weights(query, Seen(first, first + span.count), at, LOWEST, lane);
}
