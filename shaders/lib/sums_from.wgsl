// Sums of a value per lane over the lanes from each one up, by the WG lanes of a workgroup.

var<workgroup> sums_from: array<u32, WG>;

fn sum_from(lane: u32, value: u32) {
    workgroupBarrier();
    sums_from[lane] = value;
    for (var step = 1u; step < WG; step *= 2u) {
        workgroupBarrier();
        let other = select(0u, sums_from[min(lane + step, WG - 1u)], lane + step < WG);
        workgroupBarrier();
        sums_from[lane] += other;
    }
    workgroupBarrier();
}
