// Tiles of four rows and up to eight tokens: a block of W is decoded once for all tokens.

#import few_rows

const WG = 64u;
const UNITS = 4u;
const TOKENS = 8u;

fn compute_tile(row: u32, token: u32, live: u32, lane: Lane) {
    few_rows(row, token, live - token, lane);
}
