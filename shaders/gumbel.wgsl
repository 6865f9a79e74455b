// y[t, i] += -ln(-ln(u(seed, position[t], i)))
//
// y: [tokens, vocab] f32; -inf is unchanged, and so are all values if the temperature is 0.
// u = (word >> 9 + 1/2) 2^-23; the word of i is lane i % 4 of Philox4x32-10 with key seed and
// counter (i / 4, position + 1, 0, 0).  One lane per element.

#import elements256
#import sampler
#import philox
#import chance
#import ln

struct Params { tokens: u32, vocab: u32 }

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.vocab; }

fn element(token: u32, i: u32) {
    let row = state.row[token];
    if (samplers[row.sequence].temperature <= 0.0) {
        return;
    }
    let key = vec2(samplers[row.sequence].seed_lo, samplers[row.sequence].seed_hi);
    let word = philox(vec4(i / 4u, row.position + 1u, 0u, 0u), key)[i % 4u];
    y[token * params.vocab + i] += -ln(-ln(chance(word)));
}
