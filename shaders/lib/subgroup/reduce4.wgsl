// Sums of four values per lane over a workgroup of WG lanes: within subgroups, then over subgroups in
// order.

#import lane

var<workgroup> reduce4_shared: array<vec4<f32>, SUBGROUPS_MAX>;

fn reduce_sum4(lane: Lane, value: vec4<f32>) -> vec4<f32> {
    let sum = subgroupAdd(value);
    workgroupBarrier();
    if (lane.place == 0u) {
        reduce4_shared[lane.subgroup] = sum;
    }
    workgroupBarrier();
    var all = reduce4_shared[0];
    for (var i = 1u; i < lane.subgroups; i++) {
        all += reduce4_shared[i];
    }
    return all;
}
