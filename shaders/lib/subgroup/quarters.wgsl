// Maximum or sum over each quarter of the lanes of a workgroup, one quarter per component: within
// subgroups, then over subgroups in order. The kernel has a barrier between two uses.

#import lane

const QUARTER = WG / 4u;

// Subgroups of a quarter; one if they are larger.
var<workgroup> quarters: array<vec4<f32>, SUBGROUPS_MAX / 4u>;

// Index of a lane in the order of quarters, consecutive within subgroups.
fn index_of(lane: Lane) -> u32 {
    return lane.subgroup * (WG / lane.subgroups) + lane.place;
}

// Stores the results of subgroups; returns their number in a quarter.
fn put_quarters(lane: Lane, value: f32) -> u32 {
    let size = min(WG / lane.subgroups, QUARTER);
    let index = index_of(lane);
    if (index % size == 0u) {
        quarters[index % QUARTER / size][index / QUARTER] = value;
    }
    workgroupBarrier();
    return QUARTER / size;
}

// Treats NaN as the lowest number.
fn quarter_max(lane: Lane, value: f32) -> vec4<f32> {
    let number = select(-3.4028234e38, value, value == value);
    var top = subgroupMax(number);
    if (lane.subgroups < 4u) {
        let quarter = index_of(lane) / QUARTER;
        for (var i = 0u; i < 4u; i++) {
            let other = subgroupMax(select(-3.4028234e38, number, quarter == i));
            top = select(top, other, quarter == i);
        }
    }
    let count = put_quarters(lane, top);
    var all = quarters[0];
    for (var i = 1u; i < count; i++) {
        all = max(all, quarters[i]);
    }
    return all;
}

fn quarter_sum(lane: Lane, value: f32) -> vec4<f32> {
    var sum = subgroupAdd(value);
    if (lane.subgroups < 4u) {
        let quarter = index_of(lane) / QUARTER;
        for (var i = 0u; i < 4u; i++) {
            let other = subgroupAdd(select(0.0, value, quarter == i));
            sum = select(sum, other, quarter == i);
        }
    }
    let count = put_quarters(lane, sum);
    var all = quarters[0];
    for (var i = 1u; i < count; i++) {
        all += quarters[i];
    }
    return all;
}
