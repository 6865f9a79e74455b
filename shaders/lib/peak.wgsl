// Largest value of a whole row, by a workgroup. The kernel defines `logit` and `row_len()`.

#import reduce
#import keys
#import strides

fn larger_of(top: vec4<f32>, v: vec4<f32>) -> vec4<f32> {
    return select(top, v, v > top);
}

fn peak_of(lane: Lane) -> f32 {
    var a = vec4(minus_inf());
    var b = a;
    for (var i = lane.index; i < row_len(); i += 16u * WG) {
        let v0 = four_logits(i);
        let v1 = four_logits(i + 4u * WG);
        let v2 = four_logits(i + 8u * WG);
        let v3 = four_logits(i + 12u * WG);
        a = larger_of(larger_of(a, v0), v1);
        b = larger_of(larger_of(b, v2), v3);
    }
    let top = larger_of(a, b);
    return reduce_max(lane, max(max(top.x, top.y), max(top.z, top.w)));
}
