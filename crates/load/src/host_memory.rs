//! Free memory of the host.

use std::fs::read_to_string;
use std::path::Path;

/// Returns the free memory of the host in bytes, within the limits of its control groups; `u64::MAX` if
/// unknown. In WebAssembly, the bytes that the memory of the module can still grow by.
pub(super) fn host_free_bytes() -> u64 {
    #[cfg(target_arch = "wasm32")]
    return (1 << 32) - ((std::arch::wasm32::memory_size::<0>() as u64) << 16);
    #[cfg(not(target_arch = "wasm32"))]
    system_free_bytes()
}

#[cfg_attr(
    target_arch = "wasm32",
    expect(dead_code, reason = "a module has no files of a system")
)]
fn system_free_bytes() -> u64 {
    let limit = group_free_bytes(Path::new("/sys/fs/cgroup"), "/proc/self/cgroup");
    let free = available_bytes("/proc/meminfo").into_iter().chain(limit);
    free.min().unwrap_or(u64::MAX)
}

/// Reads `MemAvailable` on Linux; `None` on other systems.
fn available_bytes(path: &str) -> Option<u64> {
    let text = read_to_string(path).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Version of control groups: its files below the folder of a group. Source: the kernel's documents
/// `cgroup-v2.rst` and `cgroup-v1/memory.rst`.
struct GroupVersion {
    /// Controllers in `/proc/self/cgroup`.
    controllers: &'static str,
    /// Folder of the groups.
    folder: &'static str,
    max: &'static str,
    used: &'static str,
    /// Keys of `memory.stat` for pages of files, of a group with the groups inside.
    files: [&'static str; 2],
}

const GROUP_VERSIONS: [GroupVersion; 2] = [
    GroupVersion {
        controllers: "",
        folder: "",
        max: "memory.max",
        used: "memory.current",
        files: ["inactive_file ", "active_file "],
    },
    GroupVersion {
        controllers: "memory",
        folder: "memory",
        max: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        files: ["total_inactive_file ", "total_active_file "],
    },
];

/// Reads the free memory of the control groups of the process and of those around them; `None` without
/// a limit. Pages of files count as free, because they are released on demand.
fn group_free_bytes(root: &Path, groups: &str) -> Option<u64> {
    let text = read_to_string(groups).ok()?;
    let free = GROUP_VERSIONS.iter().filter_map(|version| {
        let group = text.lines().find_map(|line| {
            let (controllers, group) = line.split_once(':')?.1.split_once(":/")?;
            let mut controllers = controllers.split(',');
            controllers
                .any(|name| name == version.controllers)
                .then_some(group)
        })?;
        version.free_bytes(&root.join(version.folder), group)
    });
    free.min()
}

impl GroupVersion {
    /// Reads the free memory of a group and of those around it.
    fn free_bytes(&self, root: &Path, group: &str) -> Option<u64> {
        let folder = root.join(group);
        let folders = folder
            .ancestors()
            .take_while(|folder| folder.starts_with(root));
        let free = folders.filter_map(|folder| {
            let read = |name: &str| read_to_string(folder.join(name)).ok();
            let number = |name| read(name)?.trim().parse::<u64>().ok();
            let (max, used) = (number(self.max)?, number(self.used)?);
            let statistics = read("memory.stat").unwrap_or_default();
            let files = self.files.into_iter().filter_map(|key| {
                let value = statistics.lines().find_map(|line| line.strip_prefix(key))?;
                value.trim().parse::<u64>().ok()
            });
            Some(max.saturating_sub(used.saturating_sub(files.sum())))
        });
        free.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn limits_of_control_groups_apply() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path();
        let inner = root.join("service/task");
        fs::create_dir_all(&inner).expect("a folder");
        let write = |path: &str, text: &str| fs::write(root.join(path), text).expect("written");
        write("group", "1:name=systemd:/other\n0::/service/task\n");
        let group = root.join("group");
        let free = || group_free_bytes(root, group.to_str().expect("UTF-8"));
        assert_eq!(free(), None);

        write("service/task/memory.max", "max\n");
        write("service/task/memory.current", "500\n");
        assert_eq!(free(), None);
        write("service/memory.max", "1000\n");
        write("service/memory.current", "600\n");
        assert_eq!(free(), Some(400));
        write(
            "service/memory.stat",
            "anon 350\ninactive_file 50\nactive_file 200\n",
        );
        assert_eq!(free(), Some(650));
        write("service/task/memory.max", "510\n");
        assert_eq!(free(), Some(10));
        write("service/task/memory.current", "600\n");
        assert_eq!(free(), Some(0));

        // Version 1, below a folder of its own; the group is not visible in a container, the root is.
        write("group", "9:cpu,cpuacct:/x\n4:memory:/docker/1\n0::/\n");
        assert_eq!(free(), None);
        fs::create_dir_all(root.join("memory")).expect("a folder");
        write("memory/memory.limit_in_bytes", "2000\n");
        write("memory/memory.usage_in_bytes", "900\n");
        write(
            "memory/memory.stat",
            "inactive_file 1\ntotal_inactive_file 300\ntotal_active_file 100\n",
        );
        assert_eq!(free(), Some(1500));
    }
}
