// Sums of four values per lane over a workgroup of WG lanes, in a fixed order.

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
