// sums[g] = sum of all words read by workgroup g; each word is read by one invocation
//
// words: [n, 4] u32; n is a multiple of four times all lanes.  sums: [workgroups] u32.

const WG = 256u;

@group(0) @binding(0) var<storage, read> words: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;

var<workgroup> sum: atomic<u32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // Adjacent invocations read adjacent words, with four reads in flight.
    let lanes = groups.x * WG;
    let n = arrayLength(&words);
    var total = vec4<u32>();
    for (var i = group.x * WG + lane; i < n; i += 4u * lanes) {
        let a = words[i] + words[i + lanes];
        let b = words[i + 2u * lanes] + words[i + 3u * lanes];
        total += a + b;
    }
    atomicAdd(&sum, total.x + total.y + total.z + total.w);
    workgroupBarrier();
    if (lane == 0u) {
        sums[group.x] = atomicLoad(&sum);
    }
}
