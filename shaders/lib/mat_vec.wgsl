// W[first + (0..4), :] . x, by a workgroup of WG lanes.
//
// Lanes take octets of the columns in turn and keep each for four rows, so that x is read
// once for four rows and neighbouring lanes read neighbouring words of a row. The kernel gives
// `x_octet`.

#import quant
#import octet
#import reduce4

fn mat_vec(first: u32, lane: Lane) -> vec4<f32> {
    // Rows past the last are computed as the last and not written.
    let r = min(vec4(first) + vec4(0u, 1u, 2u, 3u), vec4(params.rows - 1u));
    var sums = vec4(0.0);
    for (var i = lane.index; i < octets(); i += WG) {
        let v = x_octet(i);
        sums += vec4(
            dot_octet(r.x, i, v),
            dot_octet(r.y, i, v),
            dot_octet(r.z, i, v),
            dot_octet(r.w, i, v),
        );
    }
    return reduce_sum4(lane, sums);
}
