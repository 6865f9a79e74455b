// y[t, :] = k_cache[row(position[t] - 1)], 0 for position 0
//
// y: [tokens, kv_heads, head_dim] f32, head_dim even.  k_cache: [rows, kv_heads, head_dim]; page tables map positions to
// rows.  One lane per pair of elements.

#import grid
#import state
#import cached_keys
#import pages

const WG = 64u;
const UNITS = 64u;

struct Params { tokens: u32, kv_heads: u32, head_dim: u32, stride: u32, first: u32, ring: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let pairs = params.kv_heads * params.head_dim / 2u;
    let pair = unit_of(group, groups) * UNITS + lane;
    let token = group.y;
    if (token >= min(params.tokens, state.active_rows) || pair >= pairs) {
        return;
    }
    let row = state.row[token];
    let position = min(row.position, state.context);
    if (position == 0u) {
        y[token * pairs + pair] = vec2(0.0);
        return;
    }
    let start = row_start(row_at(pages_of(row.sequence), position - 1u));
    y[token * pairs + pair] = key(start, pair);
}
