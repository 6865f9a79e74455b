// Filter of the logits of each token, [tokens, vocab], in y; one workgroup per token.
//
// The kernel defines y, samplers, `tokens` and `vocab` of its Params, and `filter_row(row, lane)`, which
// changes the values `logit(i)` of a row and which all lanes of a workgroup call.

#import tokens256
#import sampler
#import logits

fn compute(token: u32, lane: Lane) {
    base = token * params.vocab;
    filter_row(state.row[token], lane);
}
