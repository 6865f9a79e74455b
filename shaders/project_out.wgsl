// y[t, column + i] -= strength (y[t, column..column + count] . v) v[i]
//
// v: [count] f32.  y: [tokens, width] f32, of which only rows with first <= position[t] < end change.
// One workgroup per token.

#import grid
#import state
#import reduce

const WG = 128u;
const UNITS = 1u;

struct Params { tokens: u32, width: u32, column: u32, count: u32, first: u32, end: u32, strength: f32 }

@group(0) @binding(0) var<storage, read> v: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, lane: Lane) {
    if (group.y >= min(params.tokens, state.active_rows)) {
        return;
    }
    let position = state.row[group.y].position;
    if (position < params.first || position >= params.end) {
        return;
    }
    let base = group.y * params.width + params.column;
    var sum = 0.0;
    for (var i = lane.index; i < params.count; i += WG) {
        sum += y[base + i] * v[i];
    }
    let factor = params.strength * reduce_sum(lane, sum);
    for (var i = lane.index; i < params.count; i += WG) {
        y[base + i] -= factor * v[i];
    }
}
