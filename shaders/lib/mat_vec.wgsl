// W[first + (0..4), :] . x, by a workgroup of WG <= 64 lanes; x is a row whose first element has
// index `x_first`.
//
// Lanes process blocks of columns in turn, each for four rows, so that adjacent lanes read adjacent
// words of a row. x is staged in workgroup memory, one block per lane at a time, with coalesced
// loads. The kernel defines `x4(first, i)`: columns 4 i to 4 i + 4 of x, called once for each i
// over all lanes.

#import quant
#import reduce4
#import x_tile

const X_BLOCKS = 64u;

fn mat_vec(first: u32, x_first: u32, lane: Lane) -> vec4<f32> {
    // Rows beyond the last repeat the last row; their results are not written.
    let r = min(vec4(first) + vec4(0u, 1u, 2u, 3u), vec4(params.rows - 1u));
    var sums = vec4(0.0);
    for (var begin = 0u; begin < blocks(); begin += WG) {
        workgroupBarrier();
        for (var at = lane.index; at < 8u * WG; at += WG) {
            x_tile[tile_at(at / 8u, at % 8u)] = x4(x_first, 8u * begin + at);
        }
        workgroupBarrier();
        let i = begin + lane.index;
        if (i < blocks()) {
            let v = x_of(x_numbers(lane.index));
            sums += vec4(
                product(r.x, i, v),
                product(r.y, i, v),
                product(r.z, i, v),
                product(r.w, i, v),
            );
        }
    }
    return reduce_sum4(lane, sums);
}
