// y[t, r] = (W[r, :] . q[t, :]) d[t] scale, digits of W times signed bytes
//
// W: [rows, cols] ternary digits, bound by lib/codes2.  q: [tokens, cols] signed bytes, rows padded
// with zeros to 64.  d: [tokens] f32.  y: [tokens, rows] f32.  Sums are exact, so that all devices
// compute the same bits.  One workgroup per four rows and eight tokens.

#import bit_mat

struct Params { tokens: u32, rows: u32, cols: u32, scale: f32 }

@group(0) @binding(1) var<storage, read> q: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> d: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;

fn put(at: u32, value: f32) {
    y[at] = value;
}
