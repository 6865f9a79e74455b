// Tile of W x on cooperative matrices, f16 with f32 accumulation: 64 rows by TOKENS = 32 tokens per
// workgroup of WG = 64 lanes, one block of columns at a time.
//
// Each lane decodes a row of W into workgroup memory and loads x; then each subgroup multiplies
// groups of two by two fragments. Each result is one running sum over the columns, so it does not
// depend on the other tokens of the tile. The kernel also defines `rows` of its Params.

#import fragment
#import lane
#import w_tile
#import x8

const Y_PITCH = TOKENS / 4u + 1u;
// Number of fragment groups of a tile, and of those along its rows of W.
const ACROSS = 32u / SIDE;
const FRAGMENT_BLOCKS = ACROSS * (TOKENS / (2u * SIDE));

// One block of TOKENS tokens of x.
var<workgroup> x_tile: array<array<Octet, PITCH>, TOKENS>;
// Four tokens per vector.
var<workgroup> y_tile: array<vec4<f32>, Y_PITCH * 64u>;

// Element i: row lane % 8 + 8 i of the tile times tokens 4 (lane / 8) + (0..4).
alias Sums = array<vec4<f32>, 8>;

// Loads x; four lanes read the block of a token, each lane those of two tokens whose first octets are given.
fn fetch_x(rows: vec2<u32>, i: u32, lane: u32) {
    let column = lane % 4u;
    let v0 = x8(rows.x + 4u * i + column);
    let v1 = x8(rows.y + 4u * i + column);
    x_tile[lane / 4u][column] = v0;
    x_tile[lane / 4u + TOKENS / 2u][column] = v1;
}

// Multiplies two by two fragments at row `r` and token `t` of the tile over all columns. Each
// subgroup has its own fragments; all lanes take part in loading.
fn multiply_fragments(at: vec2<u32>, r: u32, t: u32, live: u32, lane: u32) {
    var c00 = FragmentY();
    var c01 = FragmentY();
    var c10 = FragmentY();
    var c11 = FragmentY();
    // Rows and tokens after the last repeat it; their results are not written.
    let w_row = min(at.x + lane, params.rows - 1u);
    let tokens = min(vec2(at.y + lane / 4u) + vec2(0u, TOKENS / 2u), vec2(live - 1u));
    let x_rows = x_pitch() * vec2(x_row(tokens.x), x_row(tokens.y));
    for (var i = 0u; i < blocks(); i++) {
        workgroupBarrier();
        fetch_w(w_row, i, lane);
        fetch_x(x_rows, i, lane);
        workgroupBarrier();
        for (var k = 0u; k < 4u; k += SIDE / 8u) {
            let a0 = coopLoadT<FragmentW>(&w_tile[r][k][0], 2u * PITCH);
            let a1 = coopLoadT<FragmentW>(&w_tile[r + SIDE][k][0], 2u * PITCH);
            let b0 = coopLoad<FragmentX>(&x_tile[t][k][0], 2u * PITCH);
            let b1 = coopLoad<FragmentX>(&x_tile[t + SIDE][k][0], 2u * PITCH);
            c00 = coopMultiplyAdd(a0, b0, c00);
            c01 = coopMultiplyAdd(a0, b1, c01);
            c10 = coopMultiplyAdd(a1, b0, c10);
            c11 = coopMultiplyAdd(a1, b1, c11);
        }
    }
    let y = Y_PITCH * r + t / 4u;
    coopStoreT(c00, &y_tile[y], Y_PITCH);
    coopStoreT(c01, &y_tile[y + SIDE / 4u], Y_PITCH);
    coopStoreT(c10, &y_tile[y + Y_PITCH * SIDE], Y_PITCH);
    coopStoreT(c11, &y_tile[y + Y_PITCH * SIDE + SIDE / 4u], Y_PITCH);
}

fn mat_mat(row: u32, token: u32, live: u32, lane: Lane) -> Sums {
    // Each subgroup has at least one group of fragments; devices that violate this do not get this
    // variant.
    for (var first = 0u; first < FRAGMENT_BLOCKS; first += lane.subgroups) {
        let b = first + lane.subgroup;
        multiply_fragments(vec2(row, token), 2u * SIDE * (b % ACROSS), 2u * SIDE * (b / ACROSS), live, lane.index);
    }
    workgroupBarrier();
    let y = Y_PITCH * (lane.index % 8u) + lane.index / 8u;
    const ROWS = 8u * Y_PITCH;
    return Sums(
        X_WHOLE * y_tile[y],
        X_WHOLE * y_tile[y + ROWS],
        X_WHOLE * y_tile[y + 2u * ROWS],
        X_WHOLE * y_tile[y + 3u * ROWS],
        X_WHOLE * y_tile[y + 4u * ROWS],
        X_WHOLE * y_tile[y + 5u * ROWS],
        X_WHOLE * y_tile[y + 6u * ROWS],
        X_WHOLE * y_tile[y + 7u * ROWS],
    );
}
