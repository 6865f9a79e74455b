// W[first + (0..4), :] . x, by a workgroup of WG lanes, at most 64; x is a row that begins at number
// `x_first`.
//
// Lanes take stretches of the columns in turn and keep each for four rows, so that neighbouring
// lanes read neighbouring words of a row. x goes by way of workgroup memory, as much as all lanes
// take at once: neighbouring lanes read it as they find it. The kernel has `x4(first, i)`, columns
// 4 i to 4 i + 4 of x; all lanes together call it once for each.

#import quant
#import reduce4
#import x_tile

const X_STRETCHES = 64u;

fn mat_vec(first: u32, x_first: u32, lane: Lane) -> vec4<f32> {
    // Rows past the last are computed as the last and not written.
    let r = min(vec4(first) + vec4(0u, 1u, 2u, 3u), vec4(params.rows - 1u));
    var sums = vec4(0.0);
    for (var begin = 0u; begin < stretches(); begin += WG) {
        workgroupBarrier();
        for (var at = lane.index; at < 8u * WG; at += WG) {
            x_tile[tile_at(at / 8u, at % 8u)] = x4(x_first, 8u * begin + at);
        }
        workgroupBarrier();
        let i = begin + lane.index;
        if (i < stretches()) {
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
