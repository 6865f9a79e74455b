// y[r] += W[r, :] . x, one token
//
// W: [rows, cols] in any storage type, bound by lib/quant.  x: [cols] f32.  y: f32, from element
// `first`.  One workgroup per two rows.

#import gemv

struct Params { rows: u32, cols: u32, first: u32 }

@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

fn put(at: u32, sum: f32) {
    y[at] += sum;
}
