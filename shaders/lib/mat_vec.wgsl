// W[first + (0..4), :] . x, by a workgroup of WG lanes.
//
// Lanes take octets of the columns in turn and keep each for four rows, so that x is read
// once for four rows and neighbouring lanes read neighbouring words of a row.

#import quant
#import octet
#import reduce4

// An octet of x; beyond its end stands what another operation left, so the tail is cut off.
fn x_octet(i: u32) -> Octet {
    var v = Octet(x[2u * i], x[2u * i + 1u]);
    let col = 8u * i;
    if (col + 8u > params.cols) {
        let cols = vec4(params.cols);
        let at = vec4(col) + vec4(0u, 1u, 2u, 3u);
        v.lo = select(vec4(0.0), v.lo, at < cols);
        v.hi = select(vec4(0.0), v.hi, at + vec4(4u) < cols);
    }
    return v;
}

fn mat_vec(first: u32, lane: u32) -> vec4<f32> {
    // Rows past the last are computed as the last and not written.
    let r = min(vec4(first) + vec4(0u, 1u, 2u, 3u), vec4(params.rows - 1u));
    var sums = vec4(0.0);
    for (var i = lane; i < octets(); i += WG) {
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
