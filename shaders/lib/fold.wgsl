// Sums of scores over the lanes that share positions: eight lanes share two positions.

#import reduce4
#import scores

// Index of a lane in the order of sums.
fn index_of(lane: Lane) -> u32 {
    return lane.index;
}

// Stores the sums of four lanes for the first or second position of each group of eight lanes.
fn fold_one(index: u32, position: u32, own: vec4<f32>) {
    workgroupBarrier();
    reduce4_shared[index % 8u * (WG / 8u) + index / 8u] = own;
    workgroupBarrier();
    if (index < WG / 4u) {
        let half = index / (WG / 8u);
        let at = half * (WG / 2u) + index % (WG / 8u);
        let low = reduce4_shared[at] + reduce4_shared[at + WG / 8u];
        let sum = low + (reduce4_shared[at + WG / 4u] + reduce4_shared[at + 3u * WG / 8u]);
        let to = 2u * (half * TILE + position + 2u * (index % (WG / 8u)));
        scores[to] = sum.xy;
        scores[to + 1u] = sum.zw;
    }
}

// Stores the partial sums of the two positions of a lane.
fn fold(index: u32, own: Two) {
    fold_one(index, 0u, own.a);
    fold_one(index, 1u, own.b);
}
