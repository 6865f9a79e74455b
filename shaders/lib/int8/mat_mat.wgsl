// Tile of W x with int8 products: 64 rows by TOKENS tokens per workgroup of WG = 2 TOKENS lanes,
// one block of columns at a time.
//
// The first 64 lanes load W into workgroup memory, the last TOKENS lanes load x; then each lane
// multiplies 8 rows by 4 tokens. Each result is one running sum over the blocks in order, so it
// does not depend on the other tokens of the tile.

#import lane
#import quant
#import x_block

// One block of 64 rows of W, and of TOKENS tokens of x.
var<workgroup> w_lo: array<vec4<u32>, 64>;
var<workgroup> w_hi: array<vec4<u32>, 64>;
var<workgroup> w_line: array<vec4<f32>, 64>; // scale and min
var<workgroup> x_lo: array<vec4<u32>, TOKENS>;
var<workgroup> x_hi: array<vec4<u32>, TOKENS>;
var<workgroup> x_line: array<vec4<f32>, TOKENS>; // scale and sums

// Element i: row lane % 8 + 8 i of the tile times tokens 4 (lane / 8) + (0..4).
alias Sums = array<vec4<f32>, 8>;

// Loads block `i` of a row into row `at` of the tile.
fn fetch_w(row: u32, i: u32, at: u32) {
    var w = Block();
    if (row < params.rows) {
        w = block(row, i);
    }
    w_lo[at] = w.lo;
    w_hi[at] = w.hi;
    w_line[at] = vec4(w.scale, w.min);
}

// Loads block `i` of a token into row `at` of the tile.
fn fetch_x(token: u32, live: u32, i: u32, at: u32) {
    var v = X();
    if (token < live) {
        v = x_block(x_row(token), i);
    }
    x_lo[at] = v.lo;
    x_hi[at] = v.hi;
    x_line[at] = v.line;
}

fn x_at(at: u32) -> X {
    return X(x_lo[at], x_hi[at], x_line[at]);
}

struct Tokens {
    a: X,
    b: X,
    c: X,
    d: X,
}

// Products of row `at` of the tile and four tokens.
fn row_product(at: u32, x: Tokens) -> vec4<f32> {
    let line = w_line[at];
    let w = Block(w_lo[at], w_hi[at], line.xy, line.zw);
    return vec4(
        product(w, x.a),
        product(w, x.b),
        product(w, x.c),
        product(w, x.d),
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
        if (lane.index >= WG - TOKENS) {
            let at = lane.index - (WG - TOKENS);
            fetch_x(token + at, live, i, at);
        }
        workgroupBarrier();
        if (busy) {
            let x = Tokens(x_at(t), x_at(t + 1u), x_at(t + 2u), x_at(t + 3u));
            s0 += row_product(r, x);
            s1 += row_product(r + 8u, x);
            s2 += row_product(r + 16u, x);
            s3 += row_product(r + 24u, x);
            s4 += row_product(r + 32u, x);
            s5 += row_product(r + 40u, x);
            s6 += row_product(r + 48u, x);
            s7 += row_product(r + 56u, x);
        }
    }
    return Sums(s0, s1, s2, s3, s4, s5, s6, s7);
}
