// y[t, :] += W[stride * position[t] + type_stride * token_type[t] + offset, :]
//
// W: [rows, cols] in any storage type, bound by lib/quant.  y: [tokens, cols] f32.
// W begins at row `first` of the whole matrix; a row out of range adds nothing.  One workgroup per
// token and 2048 columns.

#import embed

const ZEROS = false;

struct Params {
    tokens: u32, rows: u32, cols: u32, stride: u32, type_stride: u32, offset: u32, first: u32,
}

@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn row_of(token: u32) -> u32 {
    let at = params.stride * state.row[token].position + params.type_stride * state.row[token].token_type;
    return at + params.offset;
}

fn put(at: u32, value: f32) {
    y[at] += value;
}
