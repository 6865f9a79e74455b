// y[t, i] /= temperature
//
// y: [tokens, vocab] f32.  No change if the temperature is 0 (greedy) or dynamic (see
// dynamic_temper).
// One lane per element.

#import elements256
#import sampler

struct Params { tokens: u32, vocab: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.vocab; }

fn element(token: u32, i: u32) {
    let sequence = state.row[token].sequence;
    let temperature = samplers[sequence].temperature;
    if (temperature > 0.0 && samplers[sequence].dynatemp_range <= 0.0) {
        y[token * params.vocab + i] /= temperature;
    }
}
