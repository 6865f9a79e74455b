// Lane of a workgroup.

struct Lane {
    @builtin(local_invocation_index) index: u32,
}
