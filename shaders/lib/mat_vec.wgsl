// W[first + (0..2), :] . x, by a workgroup of WG lanes; x is row `x_row` of the activations.
//
// Lanes process blocks of columns in turn, each for two rows, so that adjacent lanes read adjacent
// words of a row. With more rows, compilers wait for the weights of a row before they load those of the last.

#import quant
#import reduce2
#import x_block

fn mat_vec(first: u32, x_row: u32, lane: Lane) -> vec2<f32> {
    // A row beyond the last repeats the last row; its result is not written.
    let r = min(vec2(first) + vec2(0u, 1u), vec2(params.rows - 1u));
    var sums = vec2(0.0);
    for (var i = lane.index; i < blocks(); i += WG) {
        // All weights, except f32 and bf16, are loaded before the first product, so that their latencies overlap.
        let a = weights(r.x, i);
        let b = weights(r.y, i);
        let v = x_block(x_row, i);
        sums += vec2(product(a, v), product(b, v));
    }
    return reduce_sum2(lane, sums);
}
