// Sums of two values per lane over a workgroup of WG lanes: within subgroups, then over subgroups in
// order.

#import lane

var<workgroup> reduce2_shared: array<vec2<f32>, SUBGROUPS_MAX>;

fn reduce_sum2(lane: Lane, value: vec2<f32>) -> vec2<f32> {
    let sum = subgroupAdd(value);
    workgroupBarrier();
    if (lane.place == 0u) {
        reduce2_shared[lane.subgroup] = sum;
    }
    workgroupBarrier();
    var all = reduce2_shared[0];
    for (var i = 1u; i < lane.subgroups; i++) {
        all += reduce2_shared[i];
    }
    return all;
}
