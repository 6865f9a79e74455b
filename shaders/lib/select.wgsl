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

// Sums of the bins from each one up.
var<workgroup> sums_above: array<u32, 256>;

// Finds the last bin whose sum reaches the target, the first if none does, by all lanes. It is added to the prefix, and
// the bins above it are subtracted from the target.
fn pass_bins(lane: u32, prefix: u32, target_weight: u32) {
    sums_above[lane] = atomicLoad(&bins[lane]);
    for (var step = 1u; step < 256u; step *= 2u) {
        workgroupBarrier();
        let other = select(0u, sums_above[min(lane + step, 255u)], lane + step < 256u);
        workgroupBarrier();
        sums_above[lane] += other;
    }
    workgroupBarrier();
    let rest = select(0u, sums_above[min(lane + 1u, 255u)], lane < 255u);
    if (rest < target_weight && (sums_above[lane] >= target_weight || lane == 0u)) {
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

fn threshold(lane: u32, target_weight: u32) -> u32 {
    var at = vec2(0u, target_weight);
    for (var round = 0u; round < 4u; round++) {
        let shift = 24u - 8u * round;
        atomicStore(&bins[lane], 0u);
        workgroupBarrier();
        for (var i = lane; i < params.vocab; i += 8u * WG) {
            let v0 = four_logits(i);
            let v1 = four_logits(i + 4u * WG);
            count_four(v0, four_valid(i), shift, at.x);
            count_four(v1, four_valid(i + 4u * WG), shift, at.x);
        }
        workgroupBarrier();
        pass_bins(lane, at.x, at.y);
        workgroupBarrier();
        at = prefix_and_rest;
    }
    return at.x;
}

fn four_keys(v: vec4<f32>) -> vec4<u32> {
    return vec4(key_of(rank_of(v.x)), key_of(rank_of(v.y)), key_of(rank_of(v.z)), key_of(rank_of(v.w)));
}

// Sets values with smaller keys to -inf.
fn keep_keys_from(lane: u32, least: u32) {
    for (var i = lane; i < params.vocab; i += 8u * WG) {
        let v0 = four_logits(i);
        let v1 = four_logits(i + 4u * WG);
        remove_four(i, four_keys(v0) < vec4(least));
        remove_four(i + 4u * WG, four_keys(v1) < vec4(least));
    }
}
