// y[t, 3 i + k] = x[stride t + k - 1, i], 0 for rows outside of x
//
// x: [stride tokens, channels] f32.  y: [tokens, 3 channels] f32: the inputs of a convolution of
// width 3 with padding 1, as rows of a matrix product.  One lane per element.

#import elements256

struct Params { tokens: u32, channels: u32, stride: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return 3u * params.channels; }

fn element(token: u32, i: u32) {
    // The row before the first one wraps around and is out of range too.
    let row = params.stride * token + i % 3u - 1u;
    var value = 0.0;
    if (row < params.stride * params.tokens) {
        value = x[row * params.channels + i / 3u];
    }
    y[token * elements() + i] = value;
}
