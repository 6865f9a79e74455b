// Row of y that a workgroup processes.

#import keys

// Index of its first element.
var<private> base: u32;

fn logit(i: u32) -> f32 {
    return y[base + i];
}

// Sets smaller values to -inf.
fn keep_from(lane: u32, least: f32) {
    for (var i = lane; i < params.vocab; i += WG) {
        if (logit(i) < least) {
            y[base + i] = minus_inf();
        }
    }
}
