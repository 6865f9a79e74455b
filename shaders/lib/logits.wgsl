// The row of y that a workgroup works on.

#import keys

// Where it begins.
var<private> base: u32;

fn logit(i: u32) -> f32 {
    return y[base + i];
}

// Takes away what is smaller.
fn keep_from(lane: u32, least: f32) {
    for (var i = lane; i < params.vocab; i += WG) {
        if (logit(i) < least) {
            y[base + i] = minus_inf();
        }
    }
}
