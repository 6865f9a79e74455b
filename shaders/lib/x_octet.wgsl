// Octets of one row of x: array<vec4<f32>>.

#import octet

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
