// Tile of W x on cooperative matrices, f16 with f32 accumulation: 64 rows by TOKENS tokens per
// workgroup of WG = 2 TOKENS lanes, one block of columns at a time.
//
// The first 64 lanes decode W into workgroup memory, the last 64 load x; then each subgroup
// multiplies groups of two by two fragments. Each result is one running sum over the columns, so it
// does not depend on the other tokens of the tile.

#import fragment
#import lane
#import w_tile
#import x4

const Y_PITCH = TOKENS / 4u + 1u;
// Number of fragment groups of a tile, and of those along its rows of W.
const ACROSS = 32u / SIDE;
const FRAGMENT_BLOCKS = ACROSS * (TOKENS / (2u * SIDE));

// One block of TOKENS tokens of x.
var<workgroup> x_tile: array<vec4<f16>, PITCH * TOKENS>;
// Four tokens per vector.
var<workgroup> y_tile: array<vec4<f32>, Y_PITCH * 64u>;

// Element i: row lane % 8 + 8 i of the tile times tokens 4 (lane / 8) + (0..4).
alias Sums = array<vec4<f32>, 8>;

// Loads x with 64 lanes, eight per token.
fn fetch_x(token: u32, live: u32, i: u32, lane: u32) {
    for (var at = lane; at < 8u * TOKENS; at += 64u) {
        let t = token + at / 8u;
        var v = vec4<f16>();
        if (t < live) {
            v = x4(x_row(t), 8u * i + at % 8u);
        }
        x_tile[PITCH * (at / 8u) + at % 8u] = v;
    }
}

// Multiplies two by two fragments at row `r` and token `t` of the tile over all columns. Each
// subgroup has its own fragments; all lanes take part in loading.
fn multiply_fragments(at: vec2<u32>, r: u32, t: u32, live: u32, lane: u32) {
    var c00 = FragmentY();
    var c01 = FragmentY();
    var c10 = FragmentY();
    var c11 = FragmentY();
    for (var i = 0u; i < blocks(); i++) {
        workgroupBarrier();
        if (lane < 64u) {
            fetch_w(at.x + lane, i, lane);
        }
        if (lane >= WG - 64u) {
            fetch_x(at.y, live, i, lane - (WG - 64u));
        }
        workgroupBarrier();
        for (var k = 0u; k < 8u; k += SIDE / 4u) {
            let a0 = coopLoadT<FragmentW>(&w_tile[PITCH * r + k], PITCH);
            let a1 = coopLoadT<FragmentW>(&w_tile[PITCH * (r + SIDE) + k], PITCH);
            let b0 = coopLoad<FragmentX>(&x_tile[PITCH * t + k], PITCH);
            let b1 = coopLoad<FragmentX>(&x_tile[PITCH * (t + SIDE) + k], PITCH);
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
