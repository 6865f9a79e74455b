// A stretch of 64 tokens of x in workgroup memory.

#import x4
#import x_tile

// By 64 lanes, of which eight fetch the stretch of a token.
fn fetch_x(token: u32, live: u32, i: u32, lane: u32) {
    for (var at = lane; at < 512u; at += 64u) {
        let t = token + at / 8u;
        var v = vec4(0.0);
        if (t < live) {
            v = x4(t * params.cols, 8u * i + at % 8u);
        }
        x_tile[tile_at(at / 8u, at % 8u)] = v;
    }
}
