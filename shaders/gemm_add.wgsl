// y[t, r] += W[r, :] . x[t, :]
//
// W: [rows, cols] in any storage type, bound by lib/quant.  x: [tokens, cols] in f32, or as the variant's
// lib reads it.  y: [tokens, width] f32, from column `first`.

#import gemm

// Whether results are added to y.
const ADDS = true;

struct Params { tokens: u32, rows: u32, cols: u32, first: u32, width: u32 }

@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

fn put(row: u32, token: u32, sum: f32) {
    y[token * params.width + params.first + row] += sum;
}
