// y[t, :] = k_cache[row(position[t] - 1)], 0 for position 0
//
// y: [tokens, kv_heads, head_dim] f32, head_dim even.  k_cache: [rows, kv_heads, head_dim]; page tables map positions to
// rows.  One lane per pair of elements.

#import elements64
#import cached_keys
#import pages

struct Params { tokens: u32, kv_heads: u32, head_dim: u32, stride: u32, first: u32, ring: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.kv_heads * params.head_dim / 2u; }

fn element(token: u32, pair: u32) {
    let row = state.row[token];
    let position = min(row.position, state.context);
    if (position == 0u) {
        y[token * elements() + pair] = vec2(0.0);
        return;
    }
    let start = row_start(row_at(pages_of(row.sequence), position - 1u));
    y[token * elements() + pair] = key(start, pair);
}
