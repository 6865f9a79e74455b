// Sums of scores over the lanes that share positions: eight lanes share two positions. Four of
// them exchange values, which subgroups of every size can.

#import reduce4
#import scores

// Index of a lane, so that lanes 4 i to 4 i + 3 can exchange values.
fn index_of(lane: Lane) -> u32 {
    return lane.subgroup * (WG / lane.subgroups) + lane.place;
}

// Stores the partial sums of the two positions of a lane: each lane of four sums two heads of one.
fn fold(index: u32, own: Two) {
    let odd = (index & 1u) != 0u;
    let high = (index & 2u) != 0u;
    let one = select(own.a, own.b, odd) + quadSwapX(select(own.b, own.a, odd));
    let sum = select(one.xy, one.zw, high) + quadSwapY(select(one.zw, one.xy, high));
    let position = index / 8u * 2u + (index & 1u);
    scores[(index & 4u) / 2u * TILE + 2u * position + (index >> 1u & 1u)] = sum;
}
