// Sums of four integers per lane over a workgroup, exact in any order: one lane per subgroup adds
// the sums of the subgroup. The kernel defines `totals`, initially zero.

#import lane

// Adds to totals `at` to `at + 4`.
fn total4(lane: Lane, at: u32, own: vec4<i32>) {
    let all = subgroupAdd(own);
    if (lane.place == 0u) {
        atomicAdd(&totals[at], all.x);
        atomicAdd(&totals[at + 1u], all.y);
        atomicAdd(&totals[at + 2u], all.z);
        atomicAdd(&totals[at + 3u], all.w);
    }
}
