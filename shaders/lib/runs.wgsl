// Runs: tokens at consecutive positions of the same sequence, which share its keys and values.

#import grid
#import state

// Range of visible positions, end exclusive.
struct Seen { first: u32, end: u32 }

// End of a run, the minimum over lanes.
var<workgroup> run_limit: atomic<u32>;
var<workgroup> run_limit_all: u32;

// End of the run of tokens after `first` at consecutive positions of the same sequence.
fn run_end(first: u32, limit: u32, lane: u32) -> u32 {
    workgroupBarrier();
    if (lane == 0u) {
        atomicStore(&run_limit, limit);
    }
    workgroupBarrier();
    let token = first + lane;
    if (token < limit) {
        let follows = state.row[token].sequence == state.row[first].sequence
            && state.row[token].position == state.row[first].position + lane;
        if (!follows) {
            atomicMin(&run_limit, token);
        }
    }
    workgroupBarrier();
    if (lane == 0u) {
        run_limit_all = atomicLoad(&run_limit);
    }
    return workgroupUniformLoad(&run_limit_all);
}
