// y[t, g, i] = x[t, g, i] / sqrt(mean(x[t, g, :]^2) + eps) * factor
//
// One workgroup per token and eight groups, with 32 lanes each; all lanes if a token has one group.
//
// The kernel defines x and y, [tokens, groups, dim] f32; these dimensions and eps in its Params; and
// `factor(at, i)` of element `at` of x, element i of its group.

#import grid
#import norm
#import state

const WG = 256u;
const UNITS = 8u;

fn four_factors(base: u32, i: u32, lanes: u32) -> vec4<f32> {
    let at = min(vec4(i) + vec4(0u, 1u, 2u, 3u) * lanes, vec4(params.dim - 1u));
    return vec4(factor(base + at.x, at.x), factor(base + at.y, at.y), factor(base + at.z, at.z), factor(base + at.w, at.w));
}

fn factors(base: u32, i: u32, lanes: u32) -> Elements {
    var e = Elements();
    e.a = four_factors(base, i, lanes);
    if (params.dim > 4u * lanes) { e.b = four_factors(base, i + 4u * lanes, lanes); }
    if (params.dim > 8u * lanes) { e.c = four_factors(base, i + 8u * lanes, lanes); }
    if (params.dim > 12u * lanes) { e.d = four_factors(base, i + 12u * lanes, lanes); }
    return e;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) ids: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first = unit_of(id, ids) * UNITS;
    if (id.y >= min(params.tokens, state.active_rows) || first >= params.groups) {
        return;
    }
    let lanes = select(WG, WG / UNITS, params.groups > 1u);
    // Lanes without a group read the last one and store nothing.
    let end = select(0u, params.dim, first + lane / lanes < params.groups);
    let group = min(first + lane / lanes, params.groups - 1u);
    let own = lane % lanes;
    let base = (id.y * params.groups + group) * params.dim;
    let e = load_elements(base, own, lanes, params.dim);
    // Loaded before the sum, which waits for all lanes.
    let f = factors(base, own, lanes);
    var sum = sum_of_squares(e);
    for (var i = own + 16u * lanes; i < params.dim; i += lanes) {
        sum += x[base + i] * x[base + i];
    }
    let scale = inverseSqrt(sum_row(lane, lanes, sum) / f32(params.dim) + params.eps);
    store_elements(base, own, lanes, end, Elements(e.a * scale * f.a, e.b * scale * f.b, e.c * scale * f.c, e.d * scale * f.d));
    for (var i = own + 16u * lanes; i < end; i += lanes) {
        y[base + i] = x[base + i] * scale * factor(base + i, i);
    }
}
