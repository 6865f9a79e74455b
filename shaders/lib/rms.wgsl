// x[t, g, i] / sqrt(mean(x[t, g, :]^2) + eps), one workgroup per token and group.
//
// The kernel defines x, [tokens, groups, dim] f32; these dimensions and eps in its Params; and
// `put(at, i, value)`, which stores the result for element `at` of x, element i of its group.

#import groups
#import reduce

const WG = 128u;
const UNITS = 1u;

fn compute(token: u32, group: u32, lane: Lane) {
    let base = (token * params.groups + group) * params.dim;
    var sum = 0.0;
    for (var i = lane.index; i < params.dim; i += WG) {
        sum += x[base + i] * x[base + i];
    }
    let scale = inverseSqrt(reduce_sum(lane, sum) / f32(params.dim) + params.eps);
    for (var i = lane.index; i < params.dim; i += WG) {
        put(base + i, i, x[base + i] * scale);
    }
}

fn groups() -> u32 { return params.groups; }
