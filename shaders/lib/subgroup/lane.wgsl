// A lane of a workgroup, and the subgroup that runs it in step with others.

struct Lane {
    @builtin(local_invocation_index) index: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) place: u32,
    @builtin(num_subgroups) subgroups: u32,
}

// Subgroups that a workgroup of WG lanes has at most: the smallest have four lanes.
const SUBGROUPS_MAX = WG / 4u;
