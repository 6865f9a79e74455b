// tiles[i, :] = an expert id, the number of pairs `k t + s` with this `ids[t, s]`, and the pairs
//
// ids: [tokens, k].  tiles: [count, 2 + tile] u32, each with up to `tile` pairs, padded with zeros:
// the pairs of the first expert in order, then those of the next one, and so on; then, as expert
// `experts`, the pairs with an id out of range; then empty tiles.  One workgroup per expert and one
// for the ids out of range.

#import grid
#import lane
#import state

const WG = 256u;
const UNITS = 1u;
// Number of experts whose pairs are counted at once.
const COUNTED = 1024u;

struct Params { tokens: u32, k: u32, experts: u32, tile: u32, count: u32 }

@group(0) @binding(0) var<storage, read> ids: array<u32>;
@group(0) @binding(1) var<storage, read_write> tiles: array<u32>;
@group(0) @binding(2) var<storage, read> state: State;
var<immediate> params: Params;

// Number of pairs of preceding experts, and of the tiles that they fill.
var<workgroup> counts: array<atomic<u32>, COUNTED>;
var<workgroup> filled: atomic<u32>;
// Number of pairs of this expert per lane.
var<workgroup> found: array<u32, WG>;

fn tiles_of(pairs: u32) -> u32 {
    return (pairs + params.tile - 1u) / params.tile;
}

// Number of tiles of preceding experts: integer sums, independent of their order.
fn tiles_before(expert: u32, pairs: u32, lane: u32) -> u32 {
    if (lane == 0u) {
        atomicStore(&filled, 0u);
    }
    for (var first = 0u; first < expert; first += COUNTED) {
        let end = min(expert - first, COUNTED);
        for (var i = lane; i < end; i += WG) {
            atomicStore(&counts[i], 0u);
        }
        workgroupBarrier();
        for (var pair = lane; pair < pairs; pair += WG) {
            let i = ids[pair] - first;
            if (i < end) {
                atomicAdd(&counts[i], 1u);
            }
        }
        workgroupBarrier();
        for (var i = lane; i < end; i += WG) {
            atomicAdd(&filled, tiles_of(atomicLoad(&counts[i])));
        }
    }
    workgroupBarrier();
    return atomicLoad(&filled);
}

// Index of a pair of an expert whose tiles begin at `first`.
fn place_of(first: u32, i: u32) -> u32 {
    return (2u + params.tile) * (first + i / params.tile) + 2u + i % params.tile;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    lane: Lane,
) {
    let pairs = min(params.tokens, state.active_rows) * params.k;
    let expert = unit_of(group, groups);
    if (pairs == 0u || expert > params.experts) {
        return;
    }
    let first = tiles_before(expert, pairs, lane.index);
    // Each lane processes consecutive pairs, which preserves their order.
    let share = (pairs + WG - 1u) / WG;
    let begin = min(lane.index * share, pairs);
    let end = min(begin + share, pairs);
    var own = 0u;
    for (var pair = begin; pair < end; pair++) {
        own += u32(min(ids[pair], params.experts) == expert);
    }
    found[lane.index] = own;
    workgroupBarrier();
    var i = 0u;
    var all = 0u;
    for (var other = 0u; other < WG; other++) {
        i += select(0u, found[other], other < lane.index);
        all += found[other];
    }
    for (var pair = begin; pair < end; pair++) {
        if (min(ids[pair], params.experts) == expert) {
            tiles[place_of(first, i)] = pair;
            i++;
        }
    }
    // Clears the rest of the last tile and, after the last expert, all remaining tiles.
    let count = select(tiles_of(all), params.count - first, expert == params.experts);
    for (i = all + lane.index; i < count * params.tile; i += WG) {
        tiles[place_of(first, i)] = 0u;
    }
    for (i = lane.index; i < count; i += WG) {
        let head = (2u + params.tile) * (first + i);
        tiles[head] = expert;
        tiles[head + 1u] = min(all - min(all, params.tile * i), params.tile);
    }
}
