// y[t, g, :] = x[t, g, :] in another storage type
//
// x: [tokens, groups, cols] f32.  y: [tokens, groups] rows in a storage type of lib/put_four, padded with zeros to
// blocks of 32 columns.  One lane per four columns.

#import blocks
#import fours

const Y = 1;

struct Params { tokens: u32, groups: u32, cols: u32 }

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn rows() -> u32 { return params.groups; }

fn number(first: u32, col: u32) -> f32 {
    if (col < params.cols) {
        let at = first + col;
        return x[at / 4u][at % 4u];
    }
    return 0.0;
}

fn four_of(row: u32, i: u32) -> vec4<f32> {
    let first = row * params.cols;
    let col = 4u * i;
    if (params.cols % 4u == 0u) {
        if (col < params.cols) {
            return x[first / 4u + i];
        }
        return vec4(0.0);
    }
    return vec4(number(first, col), number(first, col + 1u), number(first, col + 2u), number(first, col + 3u));
}
