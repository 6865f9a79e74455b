// Tile of W x: 64 rows by TOKENS tokens per workgroup of WG = 2 TOKENS lanes, one block of columns
// at a time.
//
// The first 64 lanes decode W into workgroup memory, the last 64 load x; then each lane multiplies
// 8 rows by 4 tokens. Each result is one running sum over the columns in order, so it does not
// depend on the other tokens of the tile.

#import lane
#import quant
#import x_tile

// One block of 64 rows of W.
var<workgroup> w_tile: array<vec4<f32>, 512>;

// Element i: row lane % 8 + 8 i of the tile times tokens 4 (lane / 8) + (0..4).
alias Sums = array<vec4<f32>, 8>;

// Decodes block `i` of a row into row `at` of the tile.
fn fetch_w(row: u32, i: u32, at: u32) {
    var v = Numbers();
    if (row < params.rows) {
        v = numbers(row, i);
    }
    w_tile[tile_at(at, 0u)] = v[0];
    w_tile[tile_at(at, 1u)] = v[1];
    w_tile[tile_at(at, 2u)] = v[2];
    w_tile[tile_at(at, 3u)] = v[3];
    w_tile[tile_at(at, 4u)] = v[4];
    w_tile[tile_at(at, 5u)] = v[5];
    w_tile[tile_at(at, 6u)] = v[6];
    w_tile[tile_at(at, 7u)] = v[7];
}

struct Tokens {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
    d: vec4<f32>,
}

// Adds the products of four columns of row `at` of the tile and four tokens.
fn add(sums: vec4<f32>, at: u32, part: u32, x: Tokens) -> vec4<f32> {
    let w = w_tile[tile_at(at, part)];
    return vec4(
        dot_add(sums.x, w, x.a),
        dot_add(sums.y, w, x.b),
        dot_add(sums.z, w, x.c),
        dot_add(sums.w, w, x.d),
    );
}

fn mat_mat(row: u32, token: u32, live: u32, lane: Lane) -> Sums {
    let t = 4u * (lane.index / 8u);
    let r = lane.index % 8u;
    let busy = token + t < live;
    var s0 = vec4(0.0);
    var s1 = vec4(0.0);
    var s2 = vec4(0.0);
    var s3 = vec4(0.0);
    var s4 = vec4(0.0);
    var s5 = vec4(0.0);
    var s6 = vec4(0.0);
    var s7 = vec4(0.0);
    for (var i = 0u; i < blocks(); i++) {
        workgroupBarrier();
        if (lane.index < 64u) {
            fetch_w(row + lane.index, i, lane.index);
        }
        if (lane.index >= WG - 64u) {
            fetch_x(token, live, i, lane.index - (WG - 64u));
        }
        workgroupBarrier();
        if (busy) {
            for (var part = 0u; part < 8u; part++) {
                let x = Tokens(
                    x_tile[tile_at(t, part)],
                    x_tile[tile_at(t + 1u, part)],
                    x_tile[tile_at(t + 2u, part)],
                    x_tile[tile_at(t + 3u, part)],
                );
                s0 = add(s0, r, part, x);
                s1 = add(s1, r + 8u, part, x);
                s2 = add(s2, r + 16u, part, x);
                s3 = add(s3, r + 24u, part, x);
                s4 = add(s4, r + 32u, part, x);
                s5 = add(s5, r + 40u, part, x);
                s6 = add(s6, r + 48u, part, x);
                s7 = add(s7, r + 56u, part, x);
            }
        }
    }
    return Sums(s0, s1, s2, s3, s4, s5, s6, s7);
}
