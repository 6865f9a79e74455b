// Totals of four whole numbers per lane over a workgroup, which are exact in any order: one lane of a
// subgroup adds for all of it. The kernel has `totals`, zeros at first.

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
