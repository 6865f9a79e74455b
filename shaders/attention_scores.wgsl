// y[t, offset + p] = scale q[t, head, :] . k[p, head / group, :], for positions p below `positions`
//
// q: [tokens, heads, head_dim] f32, head_dim even.  k_cache: [rows, kv_heads, head_dim]; page tables
// map positions to rows.  y: [tokens, width] f32, of which other columns are unchanged.  One lane per
// position.

#import elements64
#import cached_keys
#import pages

struct Params { tokens: u32, heads: u32, kv_heads: u32, head_dim: u32, scale: f32, stride: u32, first: u32, ring: u32, positions: u32, head: u32, offset: u32, width: u32 }

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.positions; }

fn element(token: u32, position: u32) {
    let pairs = params.head_dim / 2u;
    let start = row_start(row_at(pages_of(state.row[token].sequence), position));
    let column = params.head / (params.heads / params.kv_heads) * pairs;
    let query = (token * params.heads + params.head) * params.head_dim;
    var dots = 0.0;
    for (var p = 0u; p < pairs; p++) {
        dots += dot(vec2(q[query + 2u * p], q[query + 2u * p + 1u]), key(start, column + p));
    }
    y[token * params.width + params.offset + position] = params.scale * dots;
}
