// Tiles on cooperative matrices, f16 with f32 accumulation, one block of columns at a time.
//
// The first UNITS lanes decode a row of W each into workgroup memory, the last TOKENS lanes load x. Then each subgroup
// multiplies a part of four by two fragments.
// The kernel also defines `first` and `width` of its Params, y, and ADDS.

#import fragment
#import lane
#import parts_of_tile
#import w_tile
#import x8

// Subgroups of 32 lanes have a part each.
const WG = 32u * PARTS;
const UNITS = 4u * SIDE * PARTS_OF_ROWS;
const TOKENS = 2u * SIDE * (PARTS / PARTS_OF_ROWS);

// One block of the tokens of x.
var<workgroup> x_tile: array<array<Octet, PITCH>, TOKENS>;
// A fragment of each subgroup, token by token. Subgroups have at least SIDE SIDE / 8 lanes.
var<workgroup> y_tile: array<vec4<f32>, 2u * WG>;

// Distance of the tokens that a lane loads.
const STEP = TOKENS / 4u;

// First octets of the tokens that a lane loads. Tokens after the last repeat it; their results are not written.
fn x_rows(token: u32, live: u32, lane: u32) -> vec4<u32> {
    let tokens = vec4(token + lane / 4u) + STEP * vec4(0u, 1u, 2u, 3u);
    return x_pitch() * min(tokens, vec4(live - 1u));
}

// Loads x; four lanes read the block of a token, each lane those of four tokens, before it stores them.
fn fetch_x(rows: vec4<u32>, i: u32, lane: u32) {
    let column = lane % 4u;
    let at = 4u * i + column;
    let v0 = x8(rows.x + at);
    let v1 = x8(rows.y + at);
    let v2 = x8(rows.z + at);
    let v3 = x8(rows.w + at);
    let token = lane / 4u;
    x_tile[token][column] = v0;
    x_tile[token + STEP][column] = v1;
    x_tile[token + 2u * STEP][column] = v2;
    x_tile[token + 3u * STEP][column] = v3;
}

// A tile: its first row and token, whether all of it is within y, and the number of tokens.
struct Tile {
    row: u32,
    token: u32,
    whole: bool,
    live: u32,
}

// Stores a fragment whose first row and token of y are given, if the subgroup has one.
fn store(c: FragmentY, row: u32, token: u32, tile: Tile, stored: bool, lane: Lane) {
    if (tile.whole) {
        if (stored) {
            let at = token * params.width + params.first + row;
            // naga 30 requires names for both.
            let width = params.width;
            let sums = c * X_WHOLE;
            coopStore(sums, &y[at], width);
        }
        return;
    }
    let own = lane.subgroup * (SIDE * SIDE / 4u);
    workgroupBarrier();
    coopStore(c, &y_tile[own], SIDE / 4u);
    workgroupBarrier();
    for (var i = lane.place; stored && i < SIDE * SIDE; i += WG / lane.subgroups) {
        let r = row + i % SIDE;
        let t = token + i / SIDE;
        if (r < params.rows && t < tile.live) {
            put(r, t, X_WHOLE * y_tile[own + i / 4u][i % 4u]);
        }
    }
}

// Computes a part per subgroup. Subgroups without one compute another's: with a condition for it, compilers need more
// registers.
fn multiply(tile: Tile, part: u32, lane: Lane) {
    let r = part % PARTS_OF_ROWS * (4u * SIDE);
    let t = part % PARTS / PARTS_OF_ROWS * (2u * SIDE);
    var c00 = FragmentY();
    var c01 = FragmentY();
    var c10 = FragmentY();
    var c11 = FragmentY();
    var c20 = FragmentY();
    var c21 = FragmentY();
    var c30 = FragmentY();
    var c31 = FragmentY();
    // Rows after the last repeat it, as tokens do.
    let w_row = min(tile.row + lane.index, params.rows - 1u);
    let x_lane = lane.index - (WG - TOKENS);
    let rows = x_rows(tile.token, tile.live, x_lane);
    for (var i = 0u; i < blocks(); i++) {
        workgroupBarrier();
        if (lane.index < UNITS) {
            fetch_w(w_row, i, lane.index);
        }
        if (lane.index >= WG - TOKENS) {
            fetch_x(rows, i, x_lane);
        }
        workgroupBarrier();
        for (var k = 0u; k < 4u; k += SIDE / 8u) {
            let b0 = coopLoad<FragmentX>(&x_tile[t][k][0], 2u * PITCH);
            let b1 = coopLoad<FragmentX>(&x_tile[t + SIDE][k][0], 2u * PITCH);
            let a0 = coopLoadT<FragmentW>(&w_tile[r][k][0], 2u * PITCH);
            c00 = coopMultiplyAdd(a0, b0, c00);
            c01 = coopMultiplyAdd(a0, b1, c01);
            let a1 = coopLoadT<FragmentW>(&w_tile[r + SIDE][k][0], 2u * PITCH);
            c10 = coopMultiplyAdd(a1, b0, c10);
            c11 = coopMultiplyAdd(a1, b1, c11);
            let a2 = coopLoadT<FragmentW>(&w_tile[r + 2u * SIDE][k][0], 2u * PITCH);
            c20 = coopMultiplyAdd(a2, b0, c20);
            c21 = coopMultiplyAdd(a2, b1, c21);
            let a3 = coopLoadT<FragmentW>(&w_tile[r + 3u * SIDE][k][0], 2u * PITCH);
            c30 = coopMultiplyAdd(a3, b0, c30);
            c31 = coopMultiplyAdd(a3, b1, c31);
        }
    }
    let row = tile.row + r;
    let token = tile.token + t;
    let stored = part < PARTS;
    // The fragments in turn, which keeps the code short.
    for (var i = 0u; i < 4u; i++) {
        store(c00, row + i * SIDE, token, tile, stored, lane);
        store(c01, row + i * SIDE, token + SIDE, tile, stored, lane);
        c00 = c10;
        c01 = c11;
        c10 = c20;
        c11 = c21;
        c20 = c30;
        c21 = c31;
    }
}

fn compute_tile(row: u32, token: u32, live: u32, lane: Lane) {
    // Matrices are stored at places that are aligned to vectors of four.
    let aligned = (params.width | params.first) % 4u == 0u;
    let whole = !ADDS && aligned && row + UNITS <= params.rows && token + TOKENS <= live;
    for (var first = 0u; first < PARTS; first += lane.subgroups) {
        multiply(Tile(row, token, whole, live), first + lane.subgroup, lane);
    }
}
