// Sums of four values per lane over a workgroup of WG lanes, in a fixed order.

var<workgroup> reduce4_shared: array<vec4<f32>, WG>;

fn reduce_sum4(lane: u32, value: vec4<f32>) -> vec4<f32> {
    workgroupBarrier();
    reduce4_shared[lane] = value;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            reduce4_shared[lane] += reduce4_shared[lane + half];
        }
    }
    workgroupBarrier();
    return reduce4_shared[0];
}
