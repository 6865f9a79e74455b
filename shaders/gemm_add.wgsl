// y[t, r] += W[r, :] . x[t, :]
//
// W: [rows, cols] in any storage type, bound by lib/quant.  x: [tokens, cols] f32.
// y: [tokens, width] f32, columns `first` and up.  One workgroup per 64 rows and 64 tokens.

#import grid
#import state
#import mat_mat

const WG = 128u;
const UNITS = 64u;
const TOKENS = 64u;

struct Params { tokens: u32, rows: u32, cols: u32, first: u32, width: u32 }

@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let live = min(params.tokens, state.live);
    let row = unit_of(group, groups) * UNITS;
    let token = group.y * TOKENS;
    if (token >= live || row >= params.rows) {
        return;
    }
    var tile = mat_mat(row, token, live, lane);
    let r = row + lane % 8u;
    for (var j = 0u; j < 4u; j++) {
        let t = token + 4u * (lane / 8u) + j;
        for (var i = 0u; i < 4u; i++) {
            if (t < live && r + 8u * i < params.rows) {
                y[t * params.width + params.first + r + 8u * i] += tile.lo[j][i];
            }
            if (t < live && r + 32u + 8u * i < params.rows) {
                y[t * params.width + params.first + r + 32u + 8u * i] += tile.hi[j][i];
            }
        }
    }
}
