// The elements of some parts of a row of logits, as one row of `row_len()` elements, for the WG lanes of a workgroup.
//
// After a filter few parts have values above -inf. The kernel defines maxima, and `vocab`, `part`, a power of two, and
// `parts` of its Params.

#import keys
#import lane
#import reduce
#import sums_from

// Maximum of `parts`.
const PARTS_MAX = 2048u;

// Keys of values: the least above -inf, and one above all.
const ABOVE = 0x00800000u;
const END = 0xffffffffu;

// The selected parts, in order.
var<workgroup> live: array<u32, PARTS_MAX>;
var<private> live_count: u32;
// Index of the first maximum of the row.
var<private> first_part: u32;

fn row_len() -> u32 {
    // Only the last part of a row can be shorter.
    let has_last = live_count > 0u && live[max(live_count, 1u) - 1u] == params.parts - 1u;
    return live_count * params.part - select(0u, params.parts * params.part - params.vocab, has_last);
}

// Index in the whole row of an element.
fn id_of(i: u32) -> u32 {
    return live[i >> firstTrailingBit(params.part)] * params.part + (i & (params.part - 1u));
}

// Returns whether the key of the maximum of a part is at least `least` and below `end`.
fn is_live(part: u32, least: u32, end: u32) -> bool {
    let key = key_of(maxima[first_part + part]);
    return key >= least && key < end;
}

// Selects the parts with a maximum between two keys. Each lane lists adjacent parts.
fn select_parts(lane: u32, least: u32, end: u32) {
    let each = (params.parts + WG - 1u) / WG;
    let first = lane * each;
    let last = min(first + each, params.parts);
    var count = 0u;
    for (var p = first; p < last; p++) {
        count += select(0u, 1u, is_live(p, least, end));
    }
    sum_from(lane, count);
    live_count = sums_from[0];
    var at = live_count - sums_from[lane];
    for (var p = first; p < last; p++) {
        if (is_live(p, least, end)) {
            live[at] = p;
            at += 1u;
        }
    }
    workgroupBarrier();
}

// Largest value of the selected parts.
fn peak_of(lane: Lane) -> f32 {
    var top = minus_inf();
    for (var i = lane.index; i < live_count; i += WG) {
        let v = maxima[first_part + live[i]];
        top = select(top, v, v > top);
    }
    return reduce_max(lane, top);
}
