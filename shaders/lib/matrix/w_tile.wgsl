// Block of UNITS rows of W in workgroup memory, in f16.

#import octet
#import quant

// Row pitch of a tile in octets: a block, padded to avoid bank conflicts between adjacent rows. Rows are arrays,
// because naga limits every index but constants: a flat array would need it for each vector.
const PITCH = 5u;

var<workgroup> w_tile: array<array<Octet, PITCH>, UNITS>;

// Decodes block `i` of a row of W into row `at` of the tile.
fn fetch_w(row: u32, i: u32, at: u32) {
    let v = numbers(row, i);
    w_tile[at][0] = octet(v[0], v[1]);
    w_tile[at][1] = octet(v[2], v[3]);
    w_tile[at][2] = octet(v[4], v[5]);
    w_tile[at][3] = octet(v[6], v[7]);
}
