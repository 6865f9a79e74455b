// The largest key such that what lies at or over it weighs `target`, by a workgroup of 256 lanes.
//
// The kernel gives `logit`, `params.vocab`, `weight_of` and by what the keys are: `rank_of`. A radix search: the heaviest-valued of 256
// bins that holds the target, byte by byte. Weights are integers, so the order of the
// atomic additions does not matter.

#import keys

var<workgroup> bins: array<atomic<u32>, 256>;
// The bytes found, and what is still wanted below the bins passed.
var<workgroup> found: vec2<u32>;

fn pass_bins(prefix: u32, wanted: u32) -> vec2<u32> {
    var bin = 255u;
    var rest = wanted;
    loop {
        let held = atomicLoad(&bins[bin]);
        if (held >= rest || bin == 0u) {
            break;
        }
        rest -= held;
        bin -= 1u;
    }
    return vec2(prefix << 8u | bin, rest);
}

fn threshold(lane: u32, wanted: u32) -> u32 {
    var at = vec2(0u, wanted);
    for (var round = 0u; round < 4u; round++) {
        let shift = 24u - 8u * round;
        atomicStore(&bins[lane], 0u);
        workgroupBarrier();
        for (var i = lane; i < params.vocab; i += WG) {
            let key = key_of(rank_of(logit(i)));
            // In two steps, since the first round shifts by 32.
            if (((key >> shift) >> 8u) == at.x) {
                atomicAdd(&bins[(key >> shift) & 255u], weight_of(logit(i)));
            }
        }
        workgroupBarrier();
        if (lane == 0u) {
            found = pass_bins(at.x, at.y);
        }
        workgroupBarrier();
        at = found;
    }
    return at.x;
}
