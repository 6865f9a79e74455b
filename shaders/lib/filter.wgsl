// Filter of the logits of each token, [tokens, vocab], in y; one workgroup per token.
//
// The kernel defines y, maxima of parts of the rows, samplers, Params, `is_on(row)`, and `filter_row(row, lane)`, which
// changes the values `logit(i)` of a row and which all lanes of a workgroup call.

#import tokens256
#import sampler
#import logits

fn compute(token: u32, lane: Lane) {
    let row = state.row[token];
    if (!is_on(row)) {
        return;
    }
    base = token * params.vocab;
    first_part = token * params.parts;
    select_parts(lane.index, ABOVE, END);
    filter_row(row, lane);
}
