// y[t, s, r] = W[ids[t, s], r, :] . x[t, s or 0, :], grouped by expert
//
// W: [rows, cols] in any storage type, bound by lib/quant, `rows / experts` rows per expert.
// x: [tokens, cols] f32, or [tokens, k, cols] if `per_expert` is 1.  tiles: output of
// group_by_expert, up to `tile` pairs each.  y: [tokens, k, rows / experts] f32, zeros for an
// expert id out of range; if W is a part of all experts, starting at expert `first`, only the first
// part writes them.  One workgroup per 64 rows of an expert and tile.

#import grid
#import lane
#import state
#import mat_mat
#import put_sums

const WG = 64u;
const UNITS = 64u;
const TOKENS = 32u;

struct Params {
    tokens: u32,
    rows: u32,
    cols: u32,
    experts: u32,
    k: u32,
    per_expert: u32,
    first: u32,
    tile: u32,
}

@group(0) @binding(2) var<storage, read> tiles: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;

// Pairs of the tile.
var<workgroup> pairs: array<u32, TOKENS>;

// Row of x of a pair.
fn x_row(place: u32) -> u32 {
    let pair = pairs[place];
    return select(pair / params.k, pair, params.per_expert != 0u);
}

fn put(row: u32, place: u32, sum: f32) {
    y[pairs[place] * (params.rows / params.experts) + row] = sum;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    lane: Lane,
) {
    let each = params.rows / params.experts;
    let row = unit_of(group, groups) * UNITS;
    let tile = group.y * (2u + params.tile);
    let count = tiles[tile + 1u];
    if (state.active_rows == 0u || count == 0u || row >= each) {
        return;
    }
    // Wraps around to a value out of range for experts before `first`.
    let id = tiles[tile] - params.first;
    if (id >= params.experts && params.first != 0u) {
        return;
    }
    if (lane.index < count) {
        pairs[lane.index] = tiles[tile + 2u + lane.index];
    }
    workgroupBarrier();
    var sums = Sums();
    if (id < params.experts) {
        // May include rows of the next expert; their results are not written.
        sums = mat_mat(id * each + row, 0u, count, lane);
    }
    put_sums(vec2(row, 0u), vec2(each, count), sums, lane);
}
