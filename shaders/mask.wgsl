// y[t, i] = -inf if bit i of the mask of the sequence is 0
//
// y: [tokens, vocab] f32.  masks: [sequences, words], bit i % 32 of word i / 32.  Rows of a
// sequence without a mask are unchanged.  One lane per element.

#import elements256
#import sampler
#import keys

struct Params { tokens: u32, vocab: u32, words: u32 }

@group(0) @binding(0) var<storage, read> masks: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(3) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.vocab; }

fn element(token: u32, i: u32) {
    let sequence = state.row[token].sequence;
    if (samplers[sequence].masked == 0u) {
        return;
    }
    let word = masks[sequence * params.words + i / 32u];
    if (((word >> (i % 32u)) & 1u) == 0u) {
        y[token * params.vocab + i] = minus_inf();
    }
}
