// y[t, column + i] -= strength (y[t, column..column + count] . v) v[i]
//
// v: [count] f32.  y: [tokens, width] f32, of which only rows with first <= position[t] < end change.
// One workgroup per token.

#import tokens128
#import reduce

struct Params { tokens: u32, width: u32, column: u32, count: u32, first: u32, end: u32, strength: f32 }

@group(0) @binding(0) var<storage, read> v: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn compute(token: u32, lane: Lane) {
    let position = state.row[token].position;
    if (position < params.first || position >= params.end) {
        return;
    }
    let base = token * params.width + params.column;
    var sum = 0.0;
    for (var i = lane.index; i < params.count; i += WG) {
        sum += y[base + i] * v[i];
    }
    let factor = params.strength * reduce_sum(lane, sum);
    for (var i = lane.index; i < params.count; i += WG) {
        y[base + i] -= factor * v[i];
    }
}
