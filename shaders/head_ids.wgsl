// ids[t, h] = h
//
// ids: [tokens, heads] u32.  One lane per element.

#import elements64

struct Params { tokens: u32, heads: u32 }

@group(0) @binding(0) var<storage, read_write> ids: array<u32>;
@group(0) @binding(1) var<storage, read> state: State;
var<immediate> params: Params;

fn elements() -> u32 { return params.heads; }

fn element(token: u32, h: u32) {
    ids[token * params.heads + h] = h;
}
