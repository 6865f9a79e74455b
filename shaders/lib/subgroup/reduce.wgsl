// Sum or maximum of one value per lane over a workgroup of WG lanes: within subgroups, then over
// subgroups in order.

#import lane

var<workgroup> reduce_shared: array<f32, SUBGROUPS_MAX>;

fn reduce_sum(lane: Lane, value: f32) -> f32 {
    let sum = subgroupAdd(value);
    workgroupBarrier();
    if (lane.place == 0u) {
        reduce_shared[lane.subgroup] = sum;
    }
    workgroupBarrier();
    var all = reduce_shared[0];
    for (var i = 1u; i < lane.subgroups; i++) {
        all += reduce_shared[i];
    }
    return all;
}

// Treats NaN as the lowest number.
fn reduce_max(lane: Lane, value: f32) -> f32 {
    let top = subgroupMax(select(-3.4028234e38, value, value == value));
    workgroupBarrier();
    if (lane.place == 0u) {
        reduce_shared[lane.subgroup] = top;
    }
    workgroupBarrier();
    var all = reduce_shared[0];
    for (var i = 1u; i < lane.subgroups; i++) {
        all = max(all, reduce_shared[i]);
    }
    return all;
}
