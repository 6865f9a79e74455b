// y[t, column + i] = keep y[t, column + i] + gain v[stride (position[t] - first), i]
//
// v: [rows, count] f32.  y: [tokens, width] f32.  Only rows with first <= position[t] < end that have
// a row of v change.  A factor of 0 removes its term, also if that is not finite.  One lane per
// element.

#import elements256

struct Params { tokens: u32, width: u32, column: u32, count: u32, rows: u32, first: u32, end: u32, stride: u32, keep: f32, gain: f32 }

@group(0) @binding(0) var<storage, read> v: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.count; }

fn element(token: u32, i: u32) {
    let position = state.row[token].position;
    if (position < params.first || position >= params.end) {
        return;
    }
    let after = position - params.first;
    // stride * after >= rows, without overflow.
    if (params.stride > 0u && after > (params.rows - 1u) / params.stride) {
        return;
    }
    var added = 0.0;
    if (params.gain != 0.0) {
        added = params.gain * v[params.stride * after * params.count + i];
    }
    let at = token * params.width + params.column + i;
    if (params.keep == 0.0) {
        y[at] = added;
    } else if (params.gain == 0.0) {
        y[at] *= params.keep;
    } else {
        y[at] = params.keep * y[at] + added;
    }
}
