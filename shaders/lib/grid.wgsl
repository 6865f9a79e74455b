// The unit of work of a workgroup: grids wider than a device allows go on in z.

fn unit_of(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.x + group.z * groups.x;
}
