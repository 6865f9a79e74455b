// Products of four rows of W and eight tokens of x in f32, one row after the other: a decoded block fills many registers.

#import quant
#import reduce4
#import x4

fn block_product(w: Numbers, row: u32, i: u32) -> f32 {
    let at = 8u * i;
    var lo = dot_add(0.0, w[0], x4(row, at));
    lo = dot_add(lo, w[1], x4(row, at + 1u));
    lo = dot_add(lo, w[2], x4(row, at + 2u));
    lo = dot_add(lo, w[3], x4(row, at + 3u));
    var hi = dot_add(0.0, w[4], x4(row, at + 4u));
    hi = dot_add(hi, w[5], x4(row, at + 5u));
    hi = dot_add(hi, w[6], x4(row, at + 6u));
    hi = dot_add(hi, w[7], x4(row, at + 7u));
    return lo + hi;
}

// Computes a row for the tokens from `token`, of which there are `count`.
fn one_row(row: u32, token: u32, count: u32, lane: Lane) {
    var s0 = 0.0;
    var s1 = 0.0;
    var s2 = 0.0;
    var s3 = 0.0;
    var s4 = 0.0;
    var s5 = 0.0;
    var s6 = 0.0;
    var s7 = 0.0;
    for (var i = lane.index; i < blocks(); i += WG) {
        let w = numbers(row, i);
        s0 += block_product(w, token, i);
        if (count > 1u) { s1 += block_product(w, token + 1u, i); }
        if (count > 2u) { s2 += block_product(w, token + 2u, i); }
        if (count > 3u) { s3 += block_product(w, token + 3u, i); }
        if (count > 4u) { s4 += block_product(w, token + 4u, i); }
        if (count > 5u) { s5 += block_product(w, token + 5u, i); }
        if (count > 6u) { s6 += block_product(w, token + 6u, i); }
        if (count > 7u) { s7 += block_product(w, token + 7u, i); }
    }
    let low = reduce_sum4(lane, vec4(s0, s1, s2, s3));
    let high = reduce_sum4(lane, vec4(s4, s5, s6, s7));
    if (lane.index < min(count, TOKENS)) {
        put(row, token + lane.index, select(low, high, lane.index >= 4u)[lane.index % 4u]);
    }
}

// Computes rows first + (0..4) of the tokens from `token`, of which there are `count`.
fn few_rows(first: u32, token: u32, count: u32, lane: Lane) {
    for (var row = first; row < min(first + UNITS, params.rows); row++) {
        one_row(row, token, count, lane);
    }
}
