// Sums of scores over four lanes, which share two positions: they exchange values, which subgroups of
// every size can.

#import scores

// Number of positions of a tile.
const TILE = WG;

// Stores the scores of two positions from `position`, of which each lane has a part.
fn fold(index: u32, position: u32, own: Two) {
    let odd = (index & 1u) != 0u;
    let high = (index & 2u) != 0u;
    // Each lane has all heads of one position, then two heads.
    let one = select(own.a, own.b, odd) + quadSwapX(select(own.b, own.a, odd));
    let two = select(one.xy, one.zw, high) + quadSwapY(select(one.zw, one.xy, high));
    let i = position / 4u;
    let j = position % 4u + (index & 1u);
    scores[i][j][index & 2u] = two.x;
    scores[i][j][(index & 2u) + 1u] = two.y;
}
