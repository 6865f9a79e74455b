// Finds the largest key such that the total weight of all keys at or above it is at least the target,
// by a workgroup of 256 lanes.
//
// The kernel imports `filter` and defines `weight_of` and `rank_of`, the value that keys are computed
// from. Radix search, byte by byte: finds the bin of 256 in which the cumulative weight
// from the top reaches the target. Weights are integers, so the order of the atomic additions does
// not matter.

#import keys

var<workgroup> bins: array<atomic<u32>, 256>;
// Prefix of the key, and the remaining weight below the bins passed.
var<workgroup> prefix_and_rest: vec2<u32>;

// Finds the last bin whose sum reaches the target, the first if none does, by all lanes. It is added to the prefix, and
// the bins above it are subtracted from the target.
fn pass_bins(lane: u32, prefix: u32, target_weight: u32) {
    sum_from(lane, atomicLoad(&bins[lane]));
    let rest = select(0u, sums_from[min(lane + 1u, 255u)], lane < 255u);
    if (rest < target_weight && (sums_from[lane] >= target_weight || lane == 0u)) {
        prefix_and_rest = vec2((prefix << 8u) | lane, target_weight - rest);
    }
}

// Adds the weight of a value to its bin, if its key has the prefix.
fn count_value(v: f32, shift: u32, prefix: u32) {
    let key = key_of(rank_of(v));
    // In two steps, since a shift by 32 is undefined.
    if (((key >> shift) >> 8u) == prefix) {
        atomicAdd(&bins[(key >> shift) & 255u], weight_of(v));
    }
}

fn count_four(v: vec4<f32>, valid: vec4<bool>, shift: u32, prefix: u32) {
    if (valid.x) { count_value(v.x, shift, prefix); }
    if (valid.y) { count_value(v.y, shift, prefix); }
    if (valid.z) { count_value(v.z, shift, prefix); }
    if (valid.w) { count_value(v.w, shift, prefix); }
}

fn count_elements(lane: u32, shift: u32, prefix: u32) {
    for (var i = lane; i < row_len(); i += 8u * WG) {
        let v0 = four_logits(i);
        let v1 = four_logits(i + 4u * WG);
        count_four(v0, four_valid(i), shift, prefix);
        count_four(v1, four_valid(i + 4u * WG), shift, prefix);
    }
}

fn count_maxima(lane: u32, shift: u32, prefix: u32) {
    for (var i = lane; i < live_count; i += WG) {
        count_value(maxima[first_part + live[i]], shift, prefix);
    }
}

// Finds the key among those of the selected parts: of their maxima, or of all elements.
fn search(lane: u32, target_weight: u32, of_maxima: bool) -> u32 {
    var at = vec2(0u, target_weight);
    for (var round = 0u; round < 4u; round++) {
        let shift = 24u - 8u * round;
        atomicStore(&bins[lane], 0u);
        workgroupBarrier();
        if (of_maxima) {
            count_maxima(lane, shift, at.x);
        } else {
            count_elements(lane, shift, at.x);
        }
        workgroupBarrier();
        pass_bins(lane, at.x, at.y);
        workgroupBarrier();
        at = prefix_and_rest;
    }
    return at.x;
}
