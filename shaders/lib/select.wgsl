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

fn pass_bins(prefix: u32, target_weight: u32) -> vec2<u32> {
    var bin = 255u;
    var rest = target_weight;
    loop {
        let held = atomicLoad(&bins[bin]);
        if (held >= rest || bin == 0u) {
            break;
        }
        rest -= held;
        bin -= 1u;
    }
    return vec2((prefix << 8u) | bin, rest);
}

fn threshold(lane: u32, target_weight: u32) -> u32 {
    var at = vec2(0u, target_weight);
    for (var round = 0u; round < 4u; round++) {
        let shift = 24u - 8u * round;
        atomicStore(&bins[lane], 0u);
        workgroupBarrier();
        for (var i = lane; i < params.vocab; i += WG) {
            let key = key_of(rank_of(logit(i)));
            // In two steps, since a shift by 32 is undefined.
            if (((key >> shift) >> 8u) == at.x) {
                atomicAdd(&bins[(key >> shift) & 255u], weight_of(logit(i)));
            }
        }
        workgroupBarrier();
        if (lane == 0u) {
            prefix_and_rest = pass_bins(at.x, at.y);
        }
        workgroupBarrier();
        at = prefix_and_rest;
    }
    return at.x;
}

// Sets values with smaller keys to -inf.
fn keep_keys_from(lane: u32, least: u32) {
    for (var i = lane; i < params.vocab; i += WG) {
        if (key_of(rank_of(logit(i))) < least) {
            y[base + i] = minus_inf();
        }
    }
}
