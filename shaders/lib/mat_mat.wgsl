// Tiles of W x: 64 rows by 64 tokens a workgroup of 128 lanes, 32 columns at a time.
//
// Half of the lanes decode W into workgroup memory, half fetch x; then a lane multiplies 8 rows
// by 4 tokens. A result is one running sum over the columns in their order, so it does not
// depend on which tokens share its tile.

#import quant
#import octet

const DEPTH = 32u;

// [column][row / 4] and [column][token / 4].
var<workgroup> w_tile: array<vec4<f32>, 512>;
var<workgroup> x_tile: array<vec4<f32>, 512>;

// Rows first + 4 rg + (0..4) in `lo`, first + 32 + 4 rg + (0..4) in `hi`, of tokens 4 tg + (0..4).
struct Tile {
    lo: array<vec4<f32>, 4>,
    hi: array<vec4<f32>, 4>,
}

fn w_octet(row: u32, i: u32) -> Octet {
    if (row < params.rows && i < octets()) {
        return octet(row, i);
    }
    return Octet();
}

fn x_number(token: u32, col: u32, live: u32) -> f32 {
    if (token < live && col < params.cols) {
        return x[token * params.cols + col];
    }
    return 0.0;
}

// One octet of columns of four rows. `i` counts octets of the row, `at` those of the tile.
fn fetch_w(row: u32, i: u32, at: u32) {
    let a = w_octet(row, i);
    let b = w_octet(row + 1u, i);
    let c = w_octet(row + 2u, i);
    let d = w_octet(row + 3u, i);
    w_tile[at] = vec4(a.lo.x, b.lo.x, c.lo.x, d.lo.x);
    w_tile[at + 16u] = vec4(a.lo.y, b.lo.y, c.lo.y, d.lo.y);
    w_tile[at + 32u] = vec4(a.lo.z, b.lo.z, c.lo.z, d.lo.z);
    w_tile[at + 48u] = vec4(a.lo.w, b.lo.w, c.lo.w, d.lo.w);
    w_tile[at + 64u] = vec4(a.hi.x, b.hi.x, c.hi.x, d.hi.x);
    w_tile[at + 80u] = vec4(a.hi.y, b.hi.y, c.hi.y, d.hi.y);
    w_tile[at + 96u] = vec4(a.hi.z, b.hi.z, c.hi.z, d.hi.z);
    w_tile[at + 112u] = vec4(a.hi.w, b.hi.w, c.hi.w, d.hi.w);
}

fn fetch_x(token: u32, col: u32, at: u32, live: u32) {
    for (var j = 0u; j < 8u; j++) {
        x_tile[at + 16u * j] = vec4(
            x_number(token, col + j, live),
            x_number(token + 1u, col + j, live),
            x_number(token + 2u, col + j, live),
            x_number(token + 3u, col + j, live),
        );
    }
}

fn mat_mat(row: u32, token: u32, live: u32, lane: u32) -> Tile {
    let tg = lane / 8u;
    let rg = lane % 8u;
    let four = lane % 16u;
    let eight = (lane / 16u) % 4u;
    let at = 128u * eight + four;
    let busy = token + 4u * tg < live;
    var lo0 = vec4(0.0);
    var lo1 = vec4(0.0);
    var lo2 = vec4(0.0);
    var lo3 = vec4(0.0);
    var hi0 = vec4(0.0);
    var hi1 = vec4(0.0);
    var hi2 = vec4(0.0);
    var hi3 = vec4(0.0);
    for (var col = 0u; col < params.cols; col += DEPTH) {
        workgroupBarrier();
        if (lane < 64u) {
            fetch_w(row + 4u * four, col / 8u + eight, at);
        } else {
            fetch_x(token + 4u * four, col + 8u * eight, at, live);
        }
        workgroupBarrier();
        if (busy) {
            for (var k = 0u; k < DEPTH; k++) {
                let xs = x_tile[16u * k + tg];
                let lo = w_tile[16u * k + rg];
                let hi = w_tile[16u * k + rg + 8u];
                lo0 += xs.x * lo;
                lo1 += xs.y * lo;
                lo2 += xs.z * lo;
                lo3 += xs.w * lo;
                hi0 += xs.x * hi;
                hi1 += xs.y * hi;
                hi2 += xs.z * hi;
                hi3 += xs.w * hi;
            }
        }
    }
    return Tile(array(lo0, lo1, lo2, lo3), array(hi0, hi1, hi2, hi3));
}
