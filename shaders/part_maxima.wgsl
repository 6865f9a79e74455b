// maxima[t, p] = max(x[t, p part .. (p + 1) part])
//
// x: [tokens, vocab] f32; NaN is ignored.  maxima: [tokens, parts] f32, -inf if no value is above it.  One workgroup
// per token and 16 parts, each of which has 16 lanes.

#import groups
#import lane
#import keys

const WG = 256u;
const UNITS = 16u;
const LANES = WG / UNITS;

struct Params { tokens: u32, vocab: u32, part: u32, parts: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> maxima: array<f32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

var<workgroup> tops: array<f32, WG>;

fn groups() -> u32 { return (params.parts + UNITS - 1u) / UNITS; }

// By key, as filters compare.
fn larger(a: f32, b: f32) -> f32 {
    return select(a, b, key_of(b) > key_of(a));
}

fn compute(token: u32, group: u32, lane: Lane) {
    let p = group * UNITS + lane.index / LANES;
    let first = p * params.part;
    let end = min(first + params.part, params.vocab);
    let base = token * params.vocab;
    var top = minus_inf();
    // The last element of the row again after its end.
    for (var i = first + lane.index % LANES; i < end; i += 4u * LANES) {
        let at = base + min(vec4(i) + vec4(0u, 1u, 2u, 3u) * LANES, vec4(params.vocab - 1u));
        top = larger(larger(larger(larger(top, x[at.x]), x[at.y]), x[at.z]), x[at.w]);
    }
    tops[lane.index] = top;
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane.index % LANES < half) {
            tops[lane.index] = larger(tops[lane.index], tops[lane.index + half]);
        }
    }
    if (lane.index % LANES == 0u && p < params.parts) {
        maxima[token * params.parts + p] = tops[lane.index];
    }
}
