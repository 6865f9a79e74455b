// One block of TOKENS tokens of x in workgroup memory. The kernel defines `x_row`: the row of x of a token.

#import tile
#import x4

var<workgroup> x_tile: array<vec4<f32>, 8u * TOKENS>;

// Loads x with 64 lanes, eight per token.
fn fetch_x(token: u32, live: u32, i: u32, lane: u32) {
    for (var at = lane; at < 8u * TOKENS; at += 64u) {
        let t = token + at / 8u;
        var v = vec4(0.0);
        if (t < live) {
            v = x4(x_row(t), 8u * i + at % 8u);
        }
        x_tile[tile_at(at / 8u, at % 8u)] = v;
    }
}
