// token[t] = ids[t], position[t] += 1; history[sequence[t], position[t]] = ids[t]; finished rows
// are moved to the end
//
// ids: [tokens].  history: [sequences, context], token by position.  A row is finished if its token
// is a stop token of its sequence, its position is outside the context, or it has no token, which
// leaves it unchanged: it is swapped with the last active row, and state.active_rows decreases.
// One workgroup; its first lane swaps rows.

#import state
#import sampler

const WG = 64u;
const UNITS = 1u;
const STOPPED = 1u;
const FULL = 2u;
const NOT_FINITE = 3u;

struct Params { tokens: u32 }

@group(0) @binding(0) var<storage, read> ids: array<u32>;
@group(0) @binding(1) var<storage, read_write> history: array<u32>;
@group(0) @binding(2) var<storage, read> samplers: array<Sampler>;
@group(0) @binding(3) var<storage, read_write> state: State;
var<immediate> params: Params;

fn advance(row: Row, token: u32) -> Row {
    var next = row;
    if (token == NO_TOKEN) {
        next.done = NOT_FINITE;
        return next;
    }
    next.token = token;
    next.position += 1u;
    if (next.position >= state.context) {
        next.done = FULL;
    }
    for (var i = 0u; i < min(samplers[row.sequence].stop_count, STOPS); i++) {
        if (samplers[row.sequence].stops[i] == token) {
            next.done = STOPPED;
        }
    }
    return next;
}

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) lane: u32) {
    let live = min(params.tokens, state.active_rows);
    for (var t = lane; t < live; t += WG) {
        let row = advance(state.row[t], ids[t]);
        state.row[t] = row;
        if (row.done != NOT_FINITE && row.position < state.context) {
            history[row.sequence * state.context + row.position] = row.token;
        }
    }
    storageBarrier();
    if (lane != 0u || live == 0u) {
        return;
    }
    var end = live;
    for (var t = 0u; t < end;) {
        let row = state.row[t];
        if (row.done == 0u) {
            t += 1u;
            continue;
        }
        end -= 1u;
        state.row[t] = state.row[end];
        state.row[end] = row;
    }
    state.active_rows = end;
    state.step += 1u;
}
