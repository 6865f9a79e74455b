// Work unit of a workgroup: grids that exceed the device limit in x continue in z.

fn unit_of(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.x + group.z * groups.x;
}
