// Attention sinks: a score per head that takes part in the softmax and has no value.
//
// The kernel defines sinks, [heads] f32, and params.sinks, which is 0 if there are none.

// Score of the sink of a head. Without sinks it is so low that it changes no bit of a sum.
fn sink_of(head: u32) -> f32 {
    if (params.sinks == 0u) {
        return -3.0e38;
    }
    return sinks[head];
}
