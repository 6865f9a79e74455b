// y[t, :] = W[token[t], :]
//
// W: [rows, cols] in any storage type, bound by lib/quant.  y: [tokens, cols] f32.
// A token out of range yields zeros; if W is a part of a larger matrix, starting at row `first`,
// only the first part writes them.  One workgroup per token and 2048 columns.

#import embed

const ZEROS = true;

struct Params { tokens: u32, rows: u32, cols: u32, first: u32 }

@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn row_of(token: u32) -> u32 {
    return state.row[token].token;
}

fn put(at: u32, value: f32) {
    y[at] = value;
}
