// A stretch of TOKENS tokens of x in workgroup memory; the kernel says by `x_first` where the row of
// a token begins.

#import x4
#import x_tile

const X_STRETCHES = TOKENS;

// By 64 lanes, of which eight fetch the stretch of a token.
fn fetch_x(token: u32, live: u32, i: u32, lane: u32) {
    for (var at = lane; at < 8u * TOKENS; at += 64u) {
        let t = token + at / 8u;
        var v = vec4(0.0);
        if (t < live) {
            v = x4(x_first(t), 8u * i + at % 8u);
        }
        x_tile[tile_at(at / 8u, at % 8u)] = v;
    }
}
