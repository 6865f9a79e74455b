// W[first + (0..4), :] . x, by a workgroup of WG lanes; x is a row that begins at number `x_first`.
//
// Lanes take stretches of the columns in turn and keep each for four rows, so that neighbouring
// lanes read neighbouring words of a row. x goes by way of workgroup memory, as much as all lanes
// take at once: neighbouring lanes read it as they find it.

#import quant
#import reduce4
#import tile
#import x4

var<workgroup> x_tile: array<vec4<f32>, 8 * WG>;

fn four_sum(v: vec4<f32>) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}

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
            let v = Numbers(
                x_tile[tile_at(lane.index, 0u)],
                x_tile[tile_at(lane.index, 1u)],
                x_tile[tile_at(lane.index, 2u)],
                x_tile[tile_at(lane.index, 3u)],
                x_tile[tile_at(lane.index, 4u)],
                x_tile[tile_at(lane.index, 5u)],
                x_tile[tile_at(lane.index, 6u)],
                x_tile[tile_at(lane.index, 7u)],
            );
            var halves = vec2(0.0);
            if (MINIMA) {
                halves = vec2(
                    four_sum((v[0] + v[1]) + (v[2] + v[3])),
                    four_sum((v[4] + v[5]) + (v[6] + v[7])),
                );
            }
            sums += vec4(
                product(r.x, i, v, halves),
                product(r.y, i, v, halves),
                product(r.z, i, v, halves),
                product(r.w, i, v, halves),
            );
        }
    }
    return reduce_sum4(lane, sums);
}
