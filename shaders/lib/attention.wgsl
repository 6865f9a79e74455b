// Attention, one workgroup per token and head.

#import groups
#import cache
#import span
#import attend

const WG = 128u;
const UNITS = 1u;

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;

fn groups() -> u32 { return params.heads; }

fn compute(token: u32, head: u32, lane: Lane) {
    let row = state.row[token];
    let end = select(min(row.position + 1u, state.context), params.positions, params.positions != 0u);
    let count = min(min(end, params.window), end - min(params.skip, end - 1u));
    let span = Span(pages_of(row.sequence), end - count, count);
    attend(token, head, span, vec2(params.softcap, sink_of(head)), lane);
}
