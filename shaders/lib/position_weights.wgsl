// Attention weights of a query by position, by a workgroup of WG lanes.
//
// The kernel defines y; Query; score(query, position); and params.positions. A lane processes the
// positions that are equal modulo WG, in order.

#import reduce

const LOWEST = -3.0e38;

// Visible positions: from `first` to before `end`; at least one.
struct Seen { first: u32, end: u32 }

// Writes the weights of the first `params.positions` positions to y, starting at `at`. The softmax is
// over all visible positions and the sink.
fn put_weights(query: Query, seen: Seen, at: u32, sink: f32, lane: Lane) {
    var peak = LOWEST;
    var total = 0.0;
    for (var p = seen.first / WG * WG + lane.index; p < seen.end; p += WG) {
        if (p >= seen.first) {
            let s = score(query, p);
            let top = max(peak, s);
            total = total * exp(peak - top) + exp(s - top);
            peak = top;
            if (p < params.positions) {
                y[at + p] = s;
            }
        }
    }
    let top = max(reduce_max(lane, peak), sink);
    let scale = 1.0 / (reduce_sum(lane, total * exp(peak - top)) + exp(sink - top));
    for (var p = lane.index; p < params.positions; p += WG) {
        var weight = 0.0;
        if (p >= seen.first && p < seen.end) {
            weight = scale * exp(y[at + p] - top);
        }
        y[at + p] = weight;
    }
}
