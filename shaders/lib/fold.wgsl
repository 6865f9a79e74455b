// Sums of scores over four lanes, which share two positions.

#import scores

// Number of positions of a tile.
const TILE = WG / 2u;

var<workgroup> fold_shared: array<vec2<f32>, WG>;

// Stores the scores of two heads, from `head`, of one position of every four lanes.
fn fold_one(index: u32, position: u32, head: u32, own: vec2<f32>) {
    const GROUPS = WG / 4u;
    workgroupBarrier();
    fold_shared[index % 4u * GROUPS + index / 4u] = own;
    workgroupBarrier();
    if (index < GROUPS) {
        let low = fold_shared[index] + fold_shared[GROUPS + index];
        let sum = low + (fold_shared[2u * GROUPS + index] + fold_shared[3u * GROUPS + index]);
        let to = position + 2u * index;
        scores[to / 4u][to % 4u][head] = sum.x;
        scores[to / 4u][to % 4u][head + 1u] = sum.y;
    }
}

// Stores the scores of two positions from `position`, of which each lane has a part.
fn fold(index: u32, position: u32, own: Two) {
    let first = position - index / 4u * 2u;
    fold_one(index, first, 0u, own.a.xy);
    fold_one(index, first, 2u, own.a.zw);
    fold_one(index, first + 1u, 0u, own.b.xy);
    fold_one(index, first + 1u, 2u, own.b.zw);
}
