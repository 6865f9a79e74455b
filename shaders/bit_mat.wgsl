// y[t, r] = (W[r, :] . q[t, :]) d[t] scale, digits of W times signed bytes
//
// W: [rows, cols] ternary digits, bound by lib/codes2.  q: [tokens, cols] signed bytes, rows padded
// with zeros to 64.  d: [tokens] f32.  y: [tokens, rows] f32.  Sums are exact, so that every device
// gives the same bits.  One workgroup per four rows and eight tokens.

#import grid
#import state
#import codes2
#import total4

const WG = 64u;
const UNITS = 4u;
const TOKENS = 8u;

struct Params { tokens: u32, rows: u32, cols: u32, scale: f32 }

@group(0) @binding(1) var<storage, read> q: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> d: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;

var<workgroup> totals: array<atomic<i32>, 32>; // [TOKENS, UNITS]

fn dot16(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y)
        + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}

fn dot32(c: Codes, lo: vec4<u32>, hi: vec4<u32>) -> i32 {
    return dot16(c.lo, lo) + dot16(c.hi, hi);
}

// A stretch of four rows, digits one more than they stand for.
struct Four {
    a: Codes,
    b: Codes,
    c: Codes,
    d: Codes,
}

// Four rows times stretch `i` of a token.
fn product(w: Four, t: u32, i: u32) -> vec4<i32> {
    let at = t * ((params.cols + 63u) / 64u * 4u) + 2u * i;
    let lo = q[at];
    let hi = q[at + 1u];
    let ones = vec4(0x01010101u);
    let more = dot16(ones, lo) + dot16(ones, hi);
    return vec4(dot32(w.a, lo, hi), dot32(w.b, lo, hi), dot32(w.c, lo, hi), dot32(w.d, lo, hi)) - more;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    lane: Lane,
) {
    let live = min(params.tokens, state.live);
    let first = unit_of(group, groups) * UNITS;
    let token = group.y * TOKENS;
    if (token >= live || first >= params.rows) {
        return;
    }
    let count = min(TOKENS, live - token);
    if (lane.index < TOKENS * UNITS) {
        atomicStore(&totals[lane.index], 0);
    }
    workgroupBarrier();
    // Rows past the last are computed as the last and not written.
    let r = min(vec4(first) + vec4(0u, 1u, 2u, 3u), vec4(params.rows - 1u));
    var own0 = vec4(0);
    var own1 = vec4(0);
    var own2 = vec4(0);
    var own3 = vec4(0);
    var own4 = vec4(0);
    var own5 = vec4(0);
    var own6 = vec4(0);
    var own7 = vec4(0);
    for (var i = lane.index; i < stretches(); i += WG) {
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
    let t = token + lane.index / UNITS;
    let row = first + lane.index % UNITS;
    if (lane.index < count * UNITS && row < params.rows) {
        y[t * params.rows + row] = f32(atomicLoad(&totals[lane.index])) * (d[t] * params.scale);
    }
}
