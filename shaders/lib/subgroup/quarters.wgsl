// Maximum or sum over each quarter of the lanes of a workgroup, one quarter per component: within
// subgroups, then over subgroups in order. The kernel has a barrier between two uses.

#import lane

const QUARTER = WG / 4u;

// Subgroups of a quarter, one if they are larger; four quarters of each, which several lanes write.
var<workgroup> quarters: array<array<f32, 4>, SUBGROUPS_MAX / 4u>;

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

fn quarters_of(i: u32) -> vec4<f32> {
    return vec4(quarters[i][0], quarters[i][1], quarters[i][2], quarters[i][3]);
}

// Whether the quarter of a lane is the second or fourth. Subgroups of more than a quarter of the lanes have two.
fn is_odd(lane: Lane) -> bool {
    return index_of(lane) / QUARTER % 2u == 1u;
}

// Treats NaN as the lowest number.
fn quarter_max(lane: Lane, value: f32) -> vec4<f32> {
    const LEAST = -3.4028234e38;
    let number = select(LEAST, value, value == value);
    let odd = is_odd(lane);
    let first = subgroupMax(select(number, LEAST, odd));
    let second = subgroupMax(select(LEAST, number, odd));
    let count = put_quarters(lane, select(first, second, odd));
    var all = quarters_of(0u);
    for (var i = 1u; i < count; i++) {
        all = max(all, quarters_of(i));
    }
    return all;
}

fn quarter_sum(lane: Lane, value: f32) -> vec4<f32> {
    let odd = is_odd(lane);
    let first = subgroupAdd(select(value, 0.0, odd));
    let second = subgroupAdd(select(0.0, value, odd));
    let count = put_quarters(lane, select(first, second, odd));
    var all = quarters_of(0u);
    for (var i = 1u; i < count; i++) {
        all += quarters_of(i);
    }
    return all;
}
