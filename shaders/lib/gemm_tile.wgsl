// Tiles of 64 rows and 64 tokens.

#import mat_mat
#import put_sums

const WG = 128u;
const UNITS = 64u;
const TOKENS = 64u;

// Row of x of a token.
fn x_row(token: u32) -> u32 {
    return token;
}

fn compute_tile(row: u32, token: u32, live: u32, lane: Lane) {
    let sums = mat_mat(row, token, live, lane);
    put_sums(vec2(row, token), vec2(params.rows, live), sums, lane);
}
