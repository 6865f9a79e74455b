// y[t, offset + h positions + p] = softmax(cap(scale q[t, h, :] . k[h / group, seen, :]))[p]
//
// q: [tokens, heads, head_dim] f32, head_dim even.  k_cache: [rows, kv_heads, head_dim]; page tables
// map positions to rows.  `seen` are the rows of the last `window` positions including its own.
// sinks: as in attention.  y: [tokens, width] f32, of which other columns are unchanged; 0 for positions that are not seen.
// One workgroup per token and head.

#import groups
#import sink
#import cached_keys
#import pages
#import softcapped
#import position_weights

const WG = 128u;
const UNITS = 1u;

struct Params { tokens: u32, heads: u32, kv_heads: u32, head_dim: u32, scale: f32, softcap: f32, window: u32, stride: u32, first: u32, ring: u32, positions: u32, offset: u32, width: u32, sinks: u32 }

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> sinks: array<f32>;
@group(0) @binding(5) var<storage, read> state: State;
var<immediate> params: Params;

// First element of a head of q, the first pair of its keys in a row, and the pages of its sequence.
struct Query { base: u32, column: u32, own: u32 }

fn score(query: Query, position: u32) -> f32 {
    let start = row_start(row_at(query.own, position));
    var dots = 0.0;
    for (var p = 0u; p < params.head_dim / 2u; p++) {
        let at = query.base + 2u * p;
        dots += dot(vec2(q[at], q[at + 1u]), key(start, query.column + p));
    }
    return softcapped(params.scale * dots, params.softcap);
}

fn groups() -> u32 { return params.heads; }

fn compute(token: u32, head: u32, lane: Lane) {
    let row = state.row[token];
    let end = min(row.position + 1u, state.context);
    let column = head / (params.heads / params.kv_heads) * (params.head_dim / 2u);
    let base = (token * params.heads + head) * params.head_dim;
    let query = Query(base, column, pages_of(row.sequence));
    let at = token * params.width + params.offset + head * params.positions;
    put_weights(query, Seen(end - min(end, params.window), end), at, sink_of(head), lane);
}
