// ids[t, :] = the k largest of p + bias in the best groups, y[t, s] = scale scales[id] p[id] / total
//
// x: [tokens, experts] f32.  bias, scales: [experts] f32, if `biased` and `scaled` are 1.
// ids: [tokens, k], in descending order, ties by lowest id.  y: [tokens, k] f32.
// p is a function of x by `score`; total is eps plus the sum of the selected p if `normalize` is 1.
// Groups are ranges of experts / groups ids; the score of a group is the sum of its `group_best`
// largest p + bias, and experts are selected from the `groups_used` best.  One workgroup per token.

#import tokens
#import keys
#import reduce

const WG = 64u;
const UNITS = 1u;

// Values of `score`.
const SOFTMAX = 0u;
const SIGMOID = 1u;
const SQRT_SOFTPLUS = 2u;
const SPARSE_MIXER = 3u;

struct Params {
    tokens: u32,
    experts: u32,
    k: u32,
    score: u32,
    normalize: u32,
    groups: u32,
    groups_used: u32,
    group_best: u32,
    eps: f32,
    scale: f32,
    biased: u32,
    scaled: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> bias: array<f32>;
@group(0) @binding(2) var<storage, read> scales: array<f32>;
@group(0) @binding(3) var<storage, read_write> ids: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<storage, read> state: State;
var<immediate> params: Params;

var<workgroup> largest: atomic<u32>;
var<workgroup> lowest: atomic<u32>;
var<workgroup> group_scores: array<f32, WG>;
var<workgroup> excluded: array<u32, WG>;

// Maximum of the logits of the token and sum of their exponentials relative to it.
struct Mass { best: f32, all: f32 }

// p of an expert, for softmax times `mass.all`.
fn p_of(value: f32, mass: Mass) -> f32 {
    switch params.score {
        case SIGMOID: { return 1.0 / (1.0 + exp(clamp(-value, -80.0, 80.0))); }
        case SQRT_SOFTPLUS: { return sqrt(softplus(value)); }
        default: { return exp(value - mass.best); }
    }
}

// ln(1 + exp(v)); the series of ln(1 + t) is exact where 1 + t rounds.
fn softplus(v: f32) -> f32 {
    let t = exp(max(-abs(v), -80.0));
    let near_one = t * (1.0 - t * (0.5 - t / 3.0));
    return max(v, 0.0) + select(log(1.0 + t), near_one, t < 0.01);
}

// Number by which experts are selected: p + bias, or the logit, which has the same order as p.
fn choice(row: u32, e: u32, mass: Mass) -> f32 {
    let value = x[row + e];
    if (params.biased == 0u && params.group_best < 2u) {
        return value;
    }
    let p = p_of(value, mass) / mass.all;
    return select(p, p + bias[e], params.biased != 0u);
}

// Whether an expert sorts after the last selected one.
fn after(key: u32, id: u32, last: vec2<u32>) -> bool {
    return key < last.x || (key == last.x && id > last.y);
}

// Marks the groups from which no expert is selected. One lane per group.
fn exclude_groups(lane: Lane, row: u32, mass: Mass) {
    let size = params.experts / params.groups;
    var best = vec2(minus_inf());
    for (var e = lane.index * size; e < min((lane.index + 1u) * size, params.experts); e++) {
        let value = choice(row, e, mass);
        if (value > best.x) {
            best = vec2(value, best.x);
        } else if (value > best.y) {
            best.y = value;
        }
    }
    let own = select(best.x, best.x + best.y, params.group_best == 2u);
    group_scores[lane.index] = own;
    workgroupBarrier();
    var better = 0u;
    for (var g = 0u; g < params.groups; g++) {
        let other = group_scores[g];
        if (other > own || (other == own && g < lane.index)) {
            better++;
        }
    }
    excluded[lane.index] = u32(better >= params.groups_used);
    workgroupBarrier();
}

// Sum of the exponentials of the logits that are not selected yet and near the largest of them.
fn near_mass(lane: Lane, row: u32, best: f32, last: vec2<u32>) -> f32 {
    var own = 0.0;
    for (var e = lane.index; e < params.experts; e += WG) {
        let value = x[row + e];
        if (after(key_of(value), e, last) && best - value <= params.eps * max(abs(value), best)) {
            own += exp(value - best);
        }
    }
    return reduce_sum(lane, own);
}

fn mass_of(lane: Lane, row: u32) -> Mass {
    if (params.score != SOFTMAX) {
        return Mass(0.0, 1.0);
    }
    var best = minus_inf();
    for (var e = lane.index; e < params.experts; e += WG) {
        let value = x[row + e];
        if (value > best) {
            best = value;
        }
    }
    best = reduce_max(lane, best);
    var own = 0.0;
    for (var e = lane.index; e < params.experts; e += WG) {
        own += exp(x[row + e] - best);
    }
    return Mass(best, reduce_sum(lane, own));
}

fn compute(token: u32, lane: Lane) {
    let row = token * params.experts;
    let out = token * params.k;
    let mass = mass_of(lane, row);
    let group_size = params.experts / params.groups;
    if (params.groups > 1u) {
        exclude_groups(lane, row, mass);
    }
    // Key and id; larger than any key.
    var last = vec2(0xffffffffu, 0u);
    var chosen = 0.0;
    for (var s = 0u; s < params.k; s++) {
        if (lane.index == 0u) {
            atomicStore(&largest, 0u);
            atomicStore(&lowest, params.experts);
        }
        workgroupBarrier();
        for (var e = lane.index; e < params.experts; e += WG) {
            let key = key_of(choice(row, e, mass));
            let allowed = params.groups < 2u || excluded[e / group_size] == 0u;
            if (allowed && after(key, e, last)) {
                atomicMax(&largest, key);
            }
        }
        workgroupBarrier();
        let key = atomicLoad(&largest);
        for (var e = lane.index; e < params.experts; e += WG) {
            let allowed = params.groups < 2u || excluded[e / group_size] == 0u;
            if (allowed && key_of(choice(row, e, mass)) == key && after(key, e, last)) {
                atomicMin(&lowest, e);
            }
        }
        workgroupBarrier();
        let before = last;
        last = vec2(key, atomicLoad(&lowest));
        workgroupBarrier();
        let value = x[row + last.y];
        var weight = 0.0;
        if (params.score == SPARSE_MIXER) {
            weight = 1.0 / near_mass(lane, row, value, before);
        } else {
            weight = p_of(value, mass);
        }
        chosen += weight;
        if (lane.index == 0u) {
            ids[out + s] = last.y;
            y[out + s] = weight;
        }
    }
    if (lane.index == 0u) {
        let total = select(mass.all, chosen + params.eps * mass.all, params.normalize != 0u);
        for (var s = 0u; s < params.k; s++) {
            var weight = y[out + s] / total * params.scale;
            if (params.scaled != 0u) {
                weight *= scales[ids[out + s]];
            }
            y[out + s] = weight;
        }
    }
}
