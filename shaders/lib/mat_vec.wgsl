// W[first + (0..4), :] . x, by a workgroup of WG lanes; x is row `x_row` of the activations.
//
// Lanes process blocks of columns in turn, each for four rows, so that adjacent lanes read adjacent
// words of a row.

#import quant
#import reduce4
#import x_block

fn mat_vec(first: u32, x_row: u32, lane: Lane) -> vec4<f32> {
    // Rows beyond the last repeat the last row; their results are not written.
    let r = min(vec4(first) + vec4(0u, 1u, 2u, 3u), vec4(params.rows - 1u));
    var sums = vec4(0.0);
    for (var i = lane.index; i < blocks(); i += WG) {
        let v = x_block(x_row, i);
        sums += vec4(
            product(r.x, i, v),
            product(r.y, i, v),
            product(r.z, i, v),
            product(r.w, i, v),
        );
    }
    return reduce_sum4(lane, sums);
}
