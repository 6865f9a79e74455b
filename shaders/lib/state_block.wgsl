// State S of a head with a block of later positions, whose keys and values are not yet in S.
//
// recurrent_state of a head: S before the block [key_dim, value_dim], for each position of the block: its key
// k [key_dim, STATE_BLOCK], the value u that is added [STATE_BLOCK, value_dim], sums of gates [STATE_BLOCK].
// S after position i is e^G_i S + sum_j e^(G_i - G_j) k_j u_j^T over the positions j up to i, with the sums
// G of gates in the block.
//
// One workgroup per head and sequence, for all of its rows. The kernel defines TILE, the number of rows that are
// processed together, which divides STATE_BLOCK, and compute_tile, which computes `count` rows from row t on:
// positions of the block from `at` on, of head to.y, whose state begins at to.x.

#import groups

// Sums of gates in the block.
var<workgroup> sums: array<f32, STATE_BLOCK>;

// Element of recurrent_state where a state of the head begins.
fn head_at(head: u32, page: u32) -> u32 {
    let size = params.key_dim * params.value_dim + STATE_BLOCK * (params.key_dim + params.value_dim + 1u);
    return (page * params.heads + head) * size;
}

// Begins a block: S = the state at the end of the block before, which is 0 before position 0.
fn begin_block(to: u32, old: u32, position: u32, lane: u32) {
    let keys = old + params.key_dim * params.value_dim;
    let values = keys + STATE_BLOCK * params.key_dim;
    let totals = values + STATE_BLOCK * params.value_dim;
    if (position > 0u && lane < STATE_BLOCK) {
        sums[lane] = recurrent_state[totals + lane];
    }
    workgroupBarrier();
    for (var c = lane; c < params.value_dim; c += WG) {
        for (var d = 0u; d < params.key_dim; d++) {
            var sum = 0.0;
            if (position > 0u) {
                let last = sums[STATE_BLOCK - 1u];
                sum = exp(last) * recurrent_state[old + d * params.value_dim + c];
                for (var i = 0u; i < STATE_BLOCK; i++) {
                    let weight = exp(last - sums[i]) * recurrent_state[keys + d * STATE_BLOCK + i];
                    sum += weight * recurrent_state[values + i * params.value_dim + c];
                }
            }
            recurrent_state[to + d * params.value_dim + c] = sum;
        }
    }
    storageBarrier();
    workgroupBarrier();
}

fn groups() -> u32 { return params.heads; }

fn compute(token: u32, head: u32, lane: Lane) {
    let rows = min(params.tokens, state.active_rows);
    if (!is_first(token)) {
        return;
    }
    let own = pages_of(state.row[token].sequence);
    var t = token;
    while (t < rows && (t == token || !is_first(t)) && state.row[t].position < state.context) {
        let position = state.row[t].position;
        let to = head_at(head, state_at(own, position));
        if (position % STATE_BLOCK == 0u) {
            begin_block(to, head_at(head, state_at(own, max(position, 1u) - 1u)), position, lane.index);
        }
        // Rows of the tile.
        var count = 1u;
        let limit = min(min(TILE - position % TILE, rows - t), state.context - position);
        while (count < limit && !is_first(t + count)) {
            count += 1u;
        }
        compute_tile(t, count, vec2(to, head), position % STATE_BLOCK, lane.index);
        storageBarrier();
        workgroupBarrier();
        t += count;
    }
}
