// Sum or maximum of one value per lane over a workgroup of WG lanes, in a fixed order.

#import lane

var<workgroup> reduce_shared: array<f32, WG>;

fn reduce_sum(lane: Lane, value: f32) -> f32 {
    workgroupBarrier();
    reduce_shared[lane.index] = value;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane.index < half) {
            reduce_shared[lane.index] += reduce_shared[lane.index + half];
        }
    }
    workgroupBarrier();
    return reduce_shared[0];
}

// Ignores NaN except in lane 0.
fn reduce_max(lane: Lane, value: f32) -> f32 {
    workgroupBarrier();
    reduce_shared[lane.index] = value;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane.index < half && reduce_shared[lane.index + half] > reduce_shared[lane.index]) {
            reduce_shared[lane.index] = reduce_shared[lane.index + half];
        }
    }
    workgroupBarrier();
    return reduce_shared[0];
}
