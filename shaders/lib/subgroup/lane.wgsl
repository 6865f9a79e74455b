// Lane of a workgroup, and its subgroup.

struct Lane {
    @builtin(local_invocation_index) index: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) place: u32,
    @builtin(num_subgroups) subgroups: u32,
}

// Maximum number of subgroups of a workgroup of WG lanes: the smallest have four lanes.
const SUBGROUPS_MAX = WG / 4u;
