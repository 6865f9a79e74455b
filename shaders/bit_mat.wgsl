// y[t, r] = (W[r, :] . q[t, :]) d[t] scale, digits of W times signed bytes
//
// W: [rows, cols] ternary digits, bound by lib/trits.  q: [tokens, cols] signed bytes, rows padded
// with zeros to 64.  d: [tokens] f32.  y: [tokens, rows] f32.  Sums are exact, so that every device
// gives the same bits.  One workgroup per four rows and eight tokens.

#import grid
#import state
#import trits

const WG = 64u;
const UNITS = 4u;
const TOKENS = 8u;

struct Params { tokens: u32, rows: u32, cols: u32, scale: f32 }

@group(0) @binding(1) var<storage, read> q: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> d: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> state: State;
var<immediate> params: Params;

var<workgroup> sums: array<atomic<i32>, 32>; // [TOKENS, UNITS]

// An octet of W as signed bytes; the top bits stop what is borrowed.
fn signed(row: u32, i: u32) -> vec2<u32> {
    return ((trits(row, i) | vec2(0x80808080u)) - vec2(0x01010101u)) ^ vec2(0x80808080u);
}

fn dot_signed(a: vec2<u32>, b: vec2<u32>) -> i32 {
    return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let live = min(params.tokens, state.live);
    let first = unit_of(group, groups) * UNITS;
    let token = group.y * TOKENS;
    if (token >= live || first >= params.rows) {
        return;
    }
    let count = min(TOKENS, live - token);
    if (lane < TOKENS * UNITS) {
        atomicStore(&sums[lane], 0);
    }
    workgroupBarrier();
    // Rows past the last are computed as the last and not written.
    let r = min(vec4(first) + vec4(0u, 1u, 2u, 3u), vec4(params.rows - 1u));
    let stride = (params.cols + 63u) / 64u * 8u;
    var own = array<vec4<i32>, TOKENS>();
    for (var i = lane; i < octets(); i += WG) {
        let a = signed(r.x, i);
        let b = signed(r.y, i);
        let c = signed(r.z, i);
        let e = signed(r.w, i);
        for (var j = 0u; j < TOKENS; j++) {
            if (j < count) {
                let v = q[(token + j) * stride + i];
                own[j] += vec4(dot_signed(a, v), dot_signed(b, v), dot_signed(c, v), dot_signed(e, v));
            }
        }
    }
    for (var j = 0u; j < count; j++) {
        for (var k = 0u; k < UNITS; k++) {
            atomicAdd(&sums[j * UNITS + k], own[j][k]);
        }
    }
    workgroupBarrier();
    let t = token + lane / UNITS;
    let row = first + lane % UNITS;
    if (lane < count * UNITS && row < params.rows) {
        y[t * params.rows + row] = f32(atomicLoad(&sums[lane])) * (d[t] * params.scale);
    }
}
