// What `attend` of many tokens needs to read a KV cache.

#import keys_values
#import pages
#import tanh

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;

fn seen_by(token: u32) -> Seen {
    let own = min(state.row[token].position + 1u, state.context);
    let end = select(own, params.positions, params.positions != 0u);
    return Seen(end - min(min(end, params.window), end - min(params.skip, end - 1u)), end);
}

fn start_of(first: u32, position: u32) -> u32 {
    return row_start(row_at(pages_of(state.row[first].sequence), position));
}

fn capped(score: vec4<f32>) -> vec4<f32> {
    if (params.softcap == 0.0) {
        return score;
    }
    let s = score / params.softcap;
    return params.softcap * vec4(tanh_of(s.x), tanh_of(s.y), tanh_of(s.z), tanh_of(s.w));
}

fn sink_score(head: u32) -> f32 {
    return sink_of(head);
}
