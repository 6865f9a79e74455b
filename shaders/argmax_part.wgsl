// ids[t, p] = argmax(x[t, p part .. (p + 1) part]), ties by lowest id
//
// x: [tokens, vocab] f32; NaN is ignored.  ids: [tokens, parts], the id in the row; NO_TOKEN if no value is above
// -inf.  One workgroup per token and part of the row.

#import groups
#import best4

const WG = 256u;
const UNITS = 1u;

struct Params { tokens: u32, vocab: u32, part: u32, parts: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> ids: array<u32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

// Index of the first element of the row, and of the last of the part in the row.
var<private> base: u32;
var<private> last: u32;

fn logit(i: u32) -> f32 {
    return x[base + i];
}

fn row_len() -> u32 {
    return params.vocab;
}

fn groups() -> u32 { return params.parts; }

// The last element again after the end of the part.
fn add_four(best: Best, i: u32) -> Best {
    let id = min(vec4(i) + vec4(0u, 1u, 2u, 3u) * WG, vec4(last));
    return better_of(best, vec4(logit(id.x), logit(id.y), logit(id.z), logit(id.w)), id);
}

fn compute(token: u32, part: u32, lane: Lane) {
    base = token * params.vocab;
    let first = part * params.part;
    last = min(first + params.part, params.vocab) - 1u;
    var best = no_best();
    for (var i = first + lane.index; i <= last; i += 16u * WG) {
        best = add_four(best, i);
        best = add_four(best, i + 4u * WG);
        best = add_four(best, i + 8u * WG);
        best = add_four(best, i + 12u * WG);
    }
    reduce_four(lane, best);
    if (lane.index == 0u) {
        ids[token * params.parts + part] = best_id[0];
    }
}
