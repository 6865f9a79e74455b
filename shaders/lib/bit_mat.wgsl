// Products of the digits of W and the signed bytes of tokens, by workgroups of four rows and eight
// tokens.
//
// The kernel defines `put(at, value)`, which stores the result of element `at` of y.

#import grid
#import state
#import codes2
#import total4

const WG = 64u;
const UNITS = 4u;
const TOKENS = 8u;

var<workgroup> totals: array<atomic<i32>, 32>; // [TOKENS, UNITS]

fn dot16(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y)
        + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}

fn dot32(c: Codes, lo: vec4<u32>, hi: vec4<u32>) -> i32 {
    return dot16(c.lo, lo) + dot16(c.hi, hi);
}

// One block of four rows; digits are stored as digit + 1.
struct Four {
    a: Codes,
    b: Codes,
    c: Codes,
    d: Codes,
}

// Products of four rows and block `i` of a token.
fn product(w: Four, t: u32, i: u32) -> vec4<i32> {
    let at = t * ((params.cols + 63u) / 64u * 4u) + 2u * i;
    let lo = q[at];
    let hi = q[at + 1u];
    let ones = vec4(0x01010101u);
    let more = dot16(ones, lo) + dot16(ones, hi);
    return vec4(dot32(w.a, lo, hi), dot32(w.b, lo, hi), dot32(w.c, lo, hi), dot32(w.d, lo, hi)) - more;
}

// Computes the exact sums of four rows, starting at `first`, and `count` tokens in `totals`, which all
// lanes may read afterwards.
fn bit_mat(first: u32, token: u32, count: u32, lane: Lane) {
    if (lane.index < TOKENS * UNITS) {
        atomicStore(&totals[lane.index], 0);
    }
    workgroupBarrier();
    // Rows beyond the last repeat the last row; their results are not written.
    let r = min(vec4(first) + vec4(0u, 1u, 2u, 3u), vec4(params.rows - 1u));
    var own0 = vec4(0);
    var own1 = vec4(0);
    var own2 = vec4(0);
    var own3 = vec4(0);
    var own4 = vec4(0);
    var own5 = vec4(0);
    var own6 = vec4(0);
    var own7 = vec4(0);
    for (var i = lane.index; i < blocks(); i += WG) {
        let w = Four(codes(r.x, i), codes(r.y, i), codes(r.z, i), codes(r.w, i));
        own0 += product(w, token, i);
        if (count > 1u) {
            own1 += product(w, token + 1u, i);
        }
        if (count > 2u) {
            own2 += product(w, token + 2u, i);
        }
        if (count > 3u) {
            own3 += product(w, token + 3u, i);
        }
        if (count > 4u) {
            own4 += product(w, token + 4u, i);
        }
        if (count > 5u) {
            own5 += product(w, token + 5u, i);
        }
        if (count > 6u) {
            own6 += product(w, token + 6u, i);
        }
        if (count > 7u) {
            own7 += product(w, token + 7u, i);
        }
    }
    total4(lane, 0u, own0);
    if (count > 1u) {
        total4(lane, 4u, own1);
    }
    if (count > 2u) {
        total4(lane, 8u, own2);
    }
    if (count > 3u) {
        total4(lane, 12u, own3);
    }
    if (count > 4u) {
        total4(lane, 16u, own4);
    }
    if (count > 5u) {
        total4(lane, 20u, own5);
    }
    if (count > 6u) {
        total4(lane, 24u, own6);
    }
    if (count > 7u) {
        total4(lane, 28u, own7);
    }
    workgroupBarrier();
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    lane: Lane,
) {
    let live = min(params.tokens, state.active_rows);
    let first = unit_of(group, groups) * UNITS;
    let token = group.y * TOKENS;
    if (token >= live || first >= params.rows) {
        return;
    }
    let count = min(TOKENS, live - token);
    bit_mat(first, token, count, lane);
    let t = token + lane.index / UNITS;
    let row = first + lane.index % UNITS;
    if (lane.index < count * UNITS && row < params.rows) {
        let sum = f32(atomicLoad(&totals[lane.index]));
        put(t * params.rows + row, sum * (d[t] * params.scale));
    }
}
