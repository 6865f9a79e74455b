// Tiled attention, one workgroup per head and 32 tokens; head_dim is a multiple of 8 and at most
// 576.
//
// Keys and values are loaded into workgroup memory one tile of positions at a time, shared by all
// tokens at consecutive positions of a sequence. 4, 8 or 16 lanes, depending on head_dim, process a
// token: each scores every 4th (8th, 16th) position of a tile and sums every 4th (8th, 16th) vector
// of columns. Tiles begin at multiples of their size and sums are in order of positions, so that
// results do not depend on the other tokens of the batch.

#import eight
#import keys_values
#import pages
#import tanh

const WG = 128u;
const UNITS = 1u;
const TOKENS = 32u;
const LOWEST = -3.0e38;
// Maximum number of positions of a tile, and of vectors of four columns. Rows are padded by one
// vector to avoid bank conflicts.
const POSITIONS = 32u;
const VECTORS = 512u;

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;

var<workgroup> tile: array<vec4<f32>, VECTORS + POSITIONS>;
// [token][position]: scores, then weights.
var<workgroup> scores: array<f32, TOKENS * POSITIONS>;

// Range of visible positions, end exclusive.
struct Seen { first: u32, end: u32 }

fn seen_by(token: u32) -> Seen {
    let own = min(state.row[token].position + 1u, state.context);
    let end = select(own, params.positions, params.positions != 0u);
    return Seen(end - min(min(end, params.window), end - min(params.skip, end - 1u)), end);
}

// End of the run of tokens after `first` at consecutive positions of the same sequence.
fn run_end(first: u32, limit: u32) -> u32 {
    var end = first + 1u;
    while (end < limit) {
        let follows = state.row[end].sequence == state.row[first].sequence
            && state.row[end].position == state.row[end - 1u].position + 1u;
        if (!follows) {
            break;
        }
        end += 1u;
    }
    return end;
}

// Cache row of a position of the tile at `at`, which spans at most two pages.
fn row_in(tile_pages: vec2<u32>, at: u32, position: u32) -> u32 {
    return select(tile_pages.y, tile_pages.x, position / PAGE == at / PAGE) + position % PAGE;
}

fn softcapped(score: f32) -> f32 {
    if (params.softcap == 0.0) {
        return score;
    }
    return params.softcap * tanh_of(score / params.softcap);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let head = unit_of(group, groups);
    let begin = group.y * TOKENS;
    let all = min(begin + TOKENS, min(params.tokens, state.active_rows));
    if (begin >= all || head >= params.heads) {
        return;
    }
    let quads = params.head_dim / 4u;
    let lanes = select(select(16u, 8u, quads <= 64u), 4u, quads <= 32u);
    for (var at = begin; at < all; at += WG / lanes) {
        attend(head, at, min(at + WG / lanes, all), lanes, lane);
    }
}

// Attention of the tokens from `begin` to `limit` with `lanes` lanes per token.
fn attend(head: u32, begin: u32, limit: u32, lanes: u32, lane: u32) {
    let quads = params.head_dim / 4u;
    let octets = params.head_dim / 8u;
    let pitch = quads + 1u;
    let size = min(POSITIONS, VECTORS / quads);
    let column = head / (params.heads / params.kv_heads) * octets;

    let row = lane / lanes;
    let part = lane % lanes;
    let token = begin + row;
    let query = (token * params.heads + head) * quads;
    let mine = row * POSITIONS;

    var first = begin;
    while (first < limit) {
        let end = run_end(first, limit);
        let lowest = seen_by(first).first;
        let highest = seen_by(end - 1u).end;
        let table = pages_of(state.row[first].sequence);
        let alive = token >= first && token < end;
        var own = Seen(0u, 0u);
        if (alive) {
            own = seen_by(token);
        }
        var peak = LOWEST;
        var total = 0.0;
        var a = vec4(0.0);
        var b = vec4(0.0);
        var c = vec4(0.0);
        var d = vec4(0.0);
        var e = vec4(0.0);
        var f = vec4(0.0);
        var g = vec4(0.0);
        var h = vec4(0.0);
        var last = vec4(0.0);
        for (var at = lowest / size * size; at < highest; at += size) {
            let tile_pages = vec2(page_of(table, at), page_of(table, at + size - 1u));
            workgroupBarrier();
            for (var i = lane; i < size * octets; i += WG) {
                let position = at + i / octets;
                let to = i / octets * pitch + i % octets * 2u;
                if (position >= lowest && position < highest) {
                    let k = key(row_start(row_in(tile_pages, at, position)), column + i % octets);
                    tile[to] = low(k);
                    tile[to + 1u] = high(k);
                }
            }
            workgroupBarrier();
            if (alive) {
                for (var j = part; j < size; j += lanes) {
                    let position = at + j;
                    var score = LOWEST;
                    if (position >= own.first && position < own.end) {
                        var dots = 0.0;
                        for (var v = 0u; v < quads; v++) {
                            dots += dot(q[query + v], tile[j * pitch + v]);
                        }
                        score = softcapped(params.scale * dots);
                    }
                    scores[mine + j] = score;
                }
            }
            workgroupBarrier();
            var top = peak;
            for (var j = 0u; j < size; j++) {
                top = max(top, scores[mine + j]);
            }
            let decay = exp(peak - top);
            peak = top;
            for (var i = lane; i < size * octets; i += WG) {
                let position = at + i / octets;
                let to = i / octets * pitch + i % octets * 2u;
                var v = Eight();
                if (position >= lowest && position < highest) {
                    let start = row_start(row_in(tile_pages, at, position));
                    let column = 2u * (column + i % octets);
                    v = Eight(four(value(start, column)), four(value(start, column + 1u)));
                }
                tile[to] = v.lo;
                tile[to + 1u] = v.hi;
            }
            // All lanes have read the scores.
            workgroupBarrier();
            if (alive) {
                for (var j = part; j < size; j += lanes) {
                    let seen = at + j >= own.first && at + j < own.end;
                    scores[mine + j] = select(0.0, exp(scores[mine + j] - top), seen);
                }
            }
            workgroupBarrier();
            total *= decay;
            a *= decay;
            b *= decay;
            c *= decay;
            d *= decay;
            e *= decay;
            f *= decay;
            g *= decay;
            h *= decay;
            last *= decay;
            if (alive) {
                for (var j = 0u; j < size; j++) {
                    let weight = scores[mine + j];
                    let vector = j * pitch + part;
                    total += weight;
                    a += weight * tile[vector];
                    b += weight * tile[vector + lanes];
                    if (quads > 2u * lanes) {
                        c += weight * tile[vector + 2u * lanes];
                        d += weight * tile[vector + 3u * lanes];
                    }
                    if (quads > 4u * lanes) {
                        e += weight * tile[vector + 4u * lanes];
                        f += weight * tile[vector + 5u * lanes];
                    }
                    if (quads > 6u * lanes) {
                        g += weight * tile[vector + 6u * lanes];
                        h += weight * tile[vector + 7u * lanes];
                    }
                    if (quads > 8u * lanes) {
                        last += weight * tile[vector + 8u * lanes];
                    }
                }
            }
        }
        if (alive) {
            let sink = sink_of(head);
            let top = max(peak, sink);
            let factor = exp(peak - top);
            let all = factor * total + exp(sink - top);
            put(query, part, factor * a / all);
            put(query, part + lanes, factor * b / all);
            put(query, part + 2u * lanes, factor * c / all);
            put(query, part + 3u * lanes, factor * d / all);
            put(query, part + 4u * lanes, factor * e / all);
            put(query, part + 5u * lanes, factor * f / all);
            put(query, part + 6u * lanes, factor * g / all);
            put(query, part + 7u * lanes, factor * h / all);
            put(query, part + 8u * lanes, factor * last / all);
        }
        first = end;
    }
}

// Writes vector v of a row, if it exists.
fn put(row: u32, v: u32, value: vec4<f32>) {
    if (v < params.head_dim / 4u) {
        let at = 4u * (row + v);
        y[at] = value.x;
        y[at + 1u] = value.y;
        y[at + 2u] = value.z;
        y[at + 3u] = value.w;
    }
}
