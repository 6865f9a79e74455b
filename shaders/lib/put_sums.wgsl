// Storing of the results of mat_mat.
//
// The kernel defines `put(row, token, sum)`, which stores one result.

// Stores the sums of a lane for the tile whose first row and token are `begin`, up to before `end`.
fn put_sums(begin: vec2<u32>, end: vec2<u32>, sums: Sums, lane: Lane) {
    let r = begin.x + lane.index % 8u;
    let t = begin.y + 4u * (lane.index / 8u);
    put4(r, t, end, sums[0]);
    put4(r + 8u, t, end, sums[1]);
    put4(r + 16u, t, end, sums[2]);
    put4(r + 24u, t, end, sums[3]);
    put4(r + 32u, t, end, sums[4]);
    put4(r + 40u, t, end, sums[5]);
    put4(r + 48u, t, end, sums[6]);
    put4(r + 56u, t, end, sums[7]);
}

// Stores the sums of a row and four tokens.
fn put4(row: u32, token: u32, end: vec2<u32>, sums: vec4<f32>) {
    for (var j = 0u; j < 4u; j++) {
        if (row < end.x && token + j < end.y) {
            put(row, token + j, sums[j]);
        }
    }
}
