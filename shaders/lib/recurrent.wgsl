// State of recurrent layers. Rows of a sequence are consecutive in a pass.
//
// A state is kept in blocks: what it was before the first position of the current block, and one entry
// for each position of the block. So a sequence can continue after any position of the block, and every
// position is computed in the same way whatever the passes.

#import pages

// Positions of a block. Divides PAGE.
const STATE_BLOCK = 16u;

// Whether a row is the first of its sequence in this pass.
fn is_first(t: u32) -> bool {
    return t == 0u || state.row[max(t, 1u) - 1u].sequence != state.row[t].sequence;
}

// State after a position.
fn state_at(own: u32, position: u32) -> u32 {
    return pages[own + position / PAGE];
}
