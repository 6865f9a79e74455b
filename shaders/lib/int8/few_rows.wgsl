// Products of four rows of W and eight tokens of x in int8.

#import quant
#import reduce4
#import x_block

struct FourRows {
    a: Block,
    b: Block,
    c: Block,
    d: Block,
}

fn rows_product(w: FourRows, row: u32, i: u32) -> vec4<f32> {
    let x = x_block(row, i);
    return vec4(product(w.a, x), product(w.b, x), product(w.c, x), product(w.d, x));
}

// Stores the results of a token; `own` are a lane's parts.
fn put_rows(first: u32, token: u32, own: vec4<f32>, lane: Lane) {
    let sums = reduce_sum4(lane, own);
    if (lane.index < UNITS && first + lane.index < params.rows) {
        put(first + lane.index, token, sums[lane.index]);
    }
}

// Computes rows first + (0..4) of the tokens from `token`, of which there are `count`.
fn few_rows(first: u32, token: u32, count: u32, lane: Lane) {
    // FourRows beyond the last repeat the last row; their results are not written.
    let r = min(vec4(first) + vec4(0u, 1u, 2u, 3u), vec4(params.rows - 1u));
    var s0 = vec4(0.0);
    var s1 = vec4(0.0);
    var s2 = vec4(0.0);
    var s3 = vec4(0.0);
    var s4 = vec4(0.0);
    var s5 = vec4(0.0);
    var s6 = vec4(0.0);
    var s7 = vec4(0.0);
    for (var i = lane.index; i < blocks(); i += WG) {
        let w = FourRows(block(r.x, i), block(r.y, i), block(r.z, i), block(r.w, i));
        s0 += rows_product(w, token, i);
        if (count > 1u) { s1 += rows_product(w, token + 1u, i); }
        if (count > 2u) { s2 += rows_product(w, token + 2u, i); }
        if (count > 3u) { s3 += rows_product(w, token + 3u, i); }
        if (count > 4u) { s4 += rows_product(w, token + 4u, i); }
        if (count > 5u) { s5 += rows_product(w, token + 5u, i); }
        if (count > 6u) { s6 += rows_product(w, token + 6u, i); }
        if (count > 7u) { s7 += rows_product(w, token + 7u, i); }
    }
    put_rows(first, token, s0, lane);
    if (count > 1u) { put_rows(first, token + 1u, s1, lane); }
    if (count > 2u) { put_rows(first, token + 2u, s2, lane); }
    if (count > 3u) { put_rows(first, token + 3u, s3, lane); }
    if (count > 4u) { put_rows(first, token + 4u, s4, lane); }
    if (count > 5u) { put_rows(first, token + 5u, s5, lane); }
    if (count > 6u) { put_rows(first, token + 6u, s6, lane); }
    if (count > 7u) { put_rows(first, token + 7u, s7, lane); }
}
