// Block of UNITS rows of W in workgroup memory, in f16.
//
// The kernel defines `rows` of its Params.

#import quant

// Row pitch of a tile in vectors: a block, padded to avoid bank conflicts between adjacent rows.
const PITCH = 10u;

var<workgroup> w_tile: array<vec4<f16>, PITCH * UNITS>;

// Decodes block `i` of a row into row `at` of the tile.
fn fetch_w(row: u32, i: u32, at: u32) {
    var v = Numbers();
    if (row < params.rows) {
        v = numbers(row, i);
    }
    w_tile[PITCH * at] = vec4<f16>(v[0]);
    w_tile[PITCH * at + 1u] = vec4<f16>(v[1]);
    w_tile[PITCH * at + 2u] = vec4<f16>(v[2]);
    w_tile[PITCH * at + 3u] = vec4<f16>(v[3]);
    w_tile[PITCH * at + 4u] = vec4<f16>(v[4]);
    w_tile[PITCH * at + 5u] = vec4<f16>(v[5]);
    w_tile[PITCH * at + 6u] = vec4<f16>(v[6]);
    w_tile[PITCH * at + 7u] = vec4<f16>(v[7]);
}
