// Sums of four values per lane over key_lanes() consecutive lanes of a workgroup of WG lanes, in a fixed order.

#import lane

var<workgroup> key_lanes_shared: array<vec4<f32>, WG>;

// Number of a lane in the workgroup.
fn number_of(lane: Lane) -> u32 {
    return lane.index;
}

fn sum_key_lanes(lane: Lane, value: vec4<f32>) -> vec4<f32> {
    workgroupBarrier();
    key_lanes_shared[lane.index] = value;
    workgroupBarrier();
    let first = lane.index / key_lanes() * key_lanes();
    var sum = key_lanes_shared[first];
    for (var i = 1u; i < key_lanes(); i++) {
        sum += key_lanes_shared[first + i];
    }
    return sum;
}
