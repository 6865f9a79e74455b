// y[t, s, r] = W[ids[t, s], r, :] . x[t, s or 0, :]
//
// W: [rows, cols] in any storage type, bound by lib/quant, `rows / experts` rows per expert.
// x: [tokens, cols] f32, or [tokens, k, cols] if `per_expert` is 1.  ids: [tokens, k].
// y: [tokens, k, rows / experts] f32, zeros for an expert id out of range; if W is a part of all
// experts, starting at expert `first`, only the first part writes them.  One workgroup per two
// rows of an expert and token.

#import grid
#import state
#import mat_vec

const WG = 64u;
const UNITS = 2u;

struct Params { tokens: u32, rows: u32, cols: u32, experts: u32, k: u32, per_expert: u32, first: u32 }

@group(0) @binding(2) var<storage, read> ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    lane: Lane,
) {
    let pair = group.y;
    let each = params.rows / params.experts;
    let first = unit_of(group, groups) * UNITS;
    if (pair >= min(params.tokens, state.active_rows) * params.k || first >= each) {
        return;
    }
    // Wraps around to a value out of range for experts before `first`.
    let id = ids[pair] - params.first;
    if (id >= params.experts && params.first != 0u) {
        return;
    }
    let x_row = select(pair / params.k, pair, params.per_expert != 0u);
    // May include rows of the next expert; their results are not written.
    let sums = mat_vec(min(id, params.experts - 1u) * each + first, x_row, lane);
    if (lane.index < UNITS && first + lane.index < each) {
        y[pair * each + first + lane.index] = select(0.0, sums[lane.index], id < params.experts);
    }
}
