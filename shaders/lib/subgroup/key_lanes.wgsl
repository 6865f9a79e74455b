// Sums of four values per lane over eight consecutive lanes, in a fixed order. A subgroup has at least eight.

#import lane

// Number of a lane in the workgroup, consecutive in a subgroup.
fn number_of(lane: Lane) -> u32 {
    return lane.subgroup * (WG / lane.subgroups) + lane.place;
}

fn sum_key_lanes(lane: Lane, value: vec4<f32>) -> vec4<f32> {
    let two = value + subgroupShuffleXor(value, 1u);
    let four = two + subgroupShuffleXor(two, 2u);
    return four + subgroupShuffleXor(four, 4u);
}
