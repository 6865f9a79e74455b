// The key of `select` if ranks are the values themselves: the maxima of the parts have a part of the weight, so the key
// that they reach is not above the result, and only parts that have it are searched.

#import select

fn rank_of(v: f32) -> f32 {
    return v;
}

fn threshold(lane: u32, target_weight: u32) -> u32 {
    let bound = search(lane, target_weight, true);
    select_parts(lane, max(bound, ABOVE), END);
    return search(lane, target_weight, false);
}
