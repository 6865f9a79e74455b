// Tiles of W x: 64 rows by 64 tokens a workgroup of 128 lanes, a stretch of columns at a time.
//
// Half of the lanes decode W into workgroup memory, half fetch x; then a lane multiplies 8 rows
// by 4 tokens. A result is one running sum over the columns in their order, so it does not
// depend on which tokens share its tile.

#import quant
#import tile
#import x4

// Rows of W and tokens of x, 32 columns each.
var<workgroup> w_tile: array<vec4<f32>, 512>;
var<workgroup> x_tile: array<vec4<f32>, 512>;

// Of tokens token + 4 (lane / 8) + j rows row + lane % 8 + 8 i: i below 4 in `lo`, from 4 on in
// `hi`.
struct Tile {
    lo: array<vec4<f32>, 4>,
    hi: array<vec4<f32>, 4>,
}

// Stretch `i` of a row becomes row `at` of the tile.
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

// Eight lanes fetch the stretch of a token.
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

struct Rows4 {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
    d: vec4<f32>,
}

// Rows at, at + 8, at + 16 and at + 24 of the tile.
fn rows4(at: u32, part: u32) -> Rows4 {
    return Rows4(
        w_tile[tile_at(at, part)],
        w_tile[tile_at(at + 8u, part)],
        w_tile[tile_at(at + 16u, part)],
        w_tile[tile_at(at + 24u, part)],
    );
}

fn add4(sums: vec4<f32>, w: Rows4, x: vec4<f32>) -> vec4<f32> {
    return vec4(
        dot_add(sums.x, w.a, x),
        dot_add(sums.y, w.b, x),
        dot_add(sums.z, w.c, x),
        dot_add(sums.w, w.d, x),
    );
}

fn mat_mat(row: u32, token: u32, live: u32, lane: u32) -> Tile {
    let tg = 4u * (lane / 8u);
    let rg = lane % 8u;
    let busy = token + tg < live;
    var lo0 = vec4(0.0);
    var lo1 = vec4(0.0);
    var lo2 = vec4(0.0);
    var lo3 = vec4(0.0);
    var hi0 = vec4(0.0);
    var hi1 = vec4(0.0);
    var hi2 = vec4(0.0);
    var hi3 = vec4(0.0);
    for (var i = 0u; i < stretches(); i++) {
        workgroupBarrier();
        if (lane < 64u) {
            fetch_w(row + lane, i, lane);
        } else {
            fetch_x(token, live, i, lane - 64u);
        }
        workgroupBarrier();
        if (busy) {
            for (var part = 0u; part < 8u; part++) {
                let x0 = x_tile[tile_at(tg, part)];
                let x1 = x_tile[tile_at(tg + 1u, part)];
                let x2 = x_tile[tile_at(tg + 2u, part)];
                let x3 = x_tile[tile_at(tg + 3u, part)];
                let lo = rows4(rg, part);
                lo0 = add4(lo0, lo, x0);
                lo1 = add4(lo1, lo, x1);
                lo2 = add4(lo2, lo, x2);
                lo3 = add4(lo3, lo, x3);
                let hi = rows4(rg + 32u, part);
                hi0 = add4(hi0, hi, x0);
                hi1 = add4(hi1, hi, x1);
                hi2 = add4(hi2, hi, x2);
                hi3 = add4(hi3, hi, x3);
            }
        }
    }
    return Tile(array(lo0, lo1, lo2, lo3), array(hi0, hi1, hi2, hi3));
}
