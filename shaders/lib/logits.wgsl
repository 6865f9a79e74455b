// Row of y that a workgroup processes.

#import keys
#import strides

// Index of its first element.
var<private> base: u32;

fn logit(i: u32) -> f32 {
    return y[base + i];
}

// Sets those of four elements to -inf that `removed` has.
fn remove_four(i: u32, removed: vec4<bool>) {
    let id = four_ids(i);
    if (removed.x) { y[base + id.x] = minus_inf(); }
    if (removed.y) { y[base + id.y] = minus_inf(); }
    if (removed.z) { y[base + id.z] = minus_inf(); }
    if (removed.w) { y[base + id.w] = minus_inf(); }
}

// Sets smaller values to -inf.
fn keep_from(lane: u32, least: f32) {
    for (var i = lane; i < params.vocab; i += 8u * WG) {
        let v0 = four_logits(i);
        let v1 = four_logits(i + 4u * WG);
        remove_four(i, v0 < vec4(least));
        remove_four(i + 4u * WG, v1 < vec4(least));
    }
}
