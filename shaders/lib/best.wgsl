// Largest of one value per lane and its id, ties by lowest id, over a workgroup of WG lanes.

#import lane

var<workgroup> best_value: array<f32, WG>;
var<workgroup> best_id: array<u32, WG>;

// Whether (value, id) sorts before (other, other_id); NaN sorts last.
fn before(value: f32, id: u32, other: f32, other_id: u32) -> bool {
    return value > other || (value == other && id < other_id);
}

// Finds the value and id that sort first. They are element 0 of best_value and best_id; other lanes than
// the first may read them after a barrier.
fn reduce_best(lane: Lane, value: f32, id: u32) {
    best_value[lane.index] = value;
    best_id[lane.index] = id;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane.index < half) {
            let other = best_value[lane.index + half];
            let other_id = best_id[lane.index + half];
            if (before(other, other_id, best_value[lane.index], best_id[lane.index])) {
                best_value[lane.index] = other;
                best_id[lane.index] = other_id;
            }
        }
    }
}
