// Largest logits of four columns of a row at a time, and their ids; NaN is ignored.
//
// A lane keeps the best of each of its four columns: their ids increase, so that the first of equal values stays.

#import best
#import keys
#import strides

struct Best { value: vec4<f32>, id: vec4<u32> }

fn no_best() -> Best {
    return Best(vec4(minus_inf()), vec4(NO_TOKEN));
}

// The best so far, or four logits.
fn better_of(best: Best, v: vec4<f32>, id: vec4<u32>) -> Best {
    let larger = v > best.value;
    return Best(select(best.value, v, larger), select(best.id, id, larger));
}

// The best of the four columns goes to element 0 of best_value and best_id.
fn reduce_four(lane: Lane, best: Best) {
    var value = best.value.x;
    var id = best.id.x;
    if (before(best.value.y, best.id.y, value, id)) { value = best.value.y; id = best.id.y; }
    if (before(best.value.z, best.id.z, value, id)) { value = best.value.z; id = best.id.z; }
    if (before(best.value.w, best.id.w, value, id)) { value = best.value.w; id = best.id.w; }
    reduce_best(lane, value, id);
}
