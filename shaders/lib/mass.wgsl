// Weights of values for `select`: softmax as integers in units of 2^-31, so that the order of their sum
// does not matter.
//
// The kernel imports `filter` and sets `peak` and `units`.

#import softmax

const ONE = 2147483648.0;

// Largest value, and ONE divided by the sum of weights.
var<private> peak: f32;
var<private> units: f32;

fn weight_of(v: f32) -> u32 {
    return u32(min(weight(v, peak) * units + 0.5, ONE));
}
