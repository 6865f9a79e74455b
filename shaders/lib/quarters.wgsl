// Maximum or sum over each quarter of the lanes of a workgroup, one quarter per component, in a fixed order. The
// kernel has a barrier between two uses.

#import lane

var<workgroup> quarters: array<f32, WG>;

// Index of a lane in the order of quarters.
fn index_of(lane: Lane) -> u32 {
    return lane.index;
}

// Treats NaN as the lowest number.
fn quarter_max(lane: Lane, value: f32) -> vec4<f32> {
    quarters[lane.index] = select(-3.4028234e38, value, value == value);
    for (var half = WG / 8u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane.index % (WG / 4u) < half) {
            quarters[lane.index] = max(quarters[lane.index], quarters[lane.index + half]);
        }
    }
    workgroupBarrier();
    return vec4(quarters[0], quarters[WG / 4u], quarters[WG / 2u], quarters[3u * WG / 4u]);
}

fn quarter_sum(lane: Lane, value: f32) -> vec4<f32> {
    quarters[lane.index] = value;
    for (var half = WG / 8u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane.index % (WG / 4u) < half) {
            quarters[lane.index] += quarters[lane.index + half];
        }
    }
    workgroupBarrier();
    return vec4(quarters[0], quarters[WG / 4u], quarters[WG / 2u], quarters[3u * WG / 4u]);
}
