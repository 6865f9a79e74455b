// Sums of two values per lane over a workgroup of WG lanes, in a fixed order.

#import lane

var<workgroup> reduce2_shared: array<vec2<f32>, WG>;

fn reduce_sum2(lane: Lane, value: vec2<f32>) -> vec2<f32> {
    workgroupBarrier();
    reduce2_shared[lane.index] = value;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane.index < half) {
            reduce2_shared[lane.index] += reduce2_shared[lane.index + half];
        }
    }
    workgroupBarrier();
    return reduce2_shared[0];
}
