// Live elements of the row of y that a workgroup processes.

#import keys
#import live
#import strides

// Index of the first element of the row.
var<private> base: u32;

fn logit(i: u32) -> f32 {
    return y[base + id_of(i)];
}

// Sets those of four elements to -inf that `removed` has.
fn remove_four(i: u32, removed: vec4<bool>) {
    let four = four_ids(i);
    if (removed.x) { y[base + id_of(four.x)] = minus_inf(); }
    if (removed.y) { y[base + id_of(four.y)] = minus_inf(); }
    if (removed.z) { y[base + id_of(four.z)] = minus_inf(); }
    if (removed.w) { y[base + id_of(four.w)] = minus_inf(); }
}
