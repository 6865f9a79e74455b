// Sums and maxima of four values per lane over a workgroup of WG lanes, in a fixed order.

#import lane

var<workgroup> reduce4_shared: array<vec4<f32>, WG>;

fn reduce_sum4(lane: Lane, value: vec4<f32>) -> vec4<f32> {
    workgroupBarrier();
    reduce4_shared[lane.index] = value;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane.index < half) {
            reduce4_shared[lane.index] += reduce4_shared[lane.index + half];
        }
    }
    workgroupBarrier();
    return reduce4_shared[0];
}

// Treats NaN as the lowest number.
fn reduce_max4(lane: Lane, value: vec4<f32>) -> vec4<f32> {
    workgroupBarrier();
    reduce4_shared[lane.index] = select(vec4(-3.4028234e38), value, value == value);
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane.index < half) {
            let other = reduce4_shared[lane.index + half];
            reduce4_shared[lane.index] = max(reduce4_shared[lane.index], other);
        }
    }
    workgroupBarrier();
    return reduce4_shared[0];
}
