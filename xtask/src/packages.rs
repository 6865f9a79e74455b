//! Packages that a package of the workspace is built from, by `cargo tree`.

use crate::tree::{Result, root};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Fields of a line. The first one has the folder of a package of the workspace.
const FORMAT: &str = "{p}|{l}|{r}|";

/// Name and version: `serde 1.0.0`.
pub(crate) type PackageId = (String, String);

/// Package that is compiled for an artifact.
#[derive(Debug, PartialEq)]
pub(crate) struct Package {
    /// SPDX expression.
    pub license: String,
    pub repository: String,
    /// Whether the artifact contains code of the package. Otherwise it is a macro, or used by a build script.
    pub is_linked: bool,
    pub dependencies: BTreeSet<PackageId>,
}

/// Packages by name and version.
pub(crate) type Packages = BTreeMap<PackageId, Package>;

/// Returns the packages that are compiled to build `package`, with its default features, for a target.
///
/// # Errors
///
/// If Cargo fails.
pub(crate) fn packages(package: &str, target: &str) -> Result<Packages> {
    let mut all = read(&tree(package, target, "normal,build")?)?;
    let linked = read(&tree(package, target, "normal,no-proc-macro")?)?;
    for (id, package) in &mut all {
        package.is_linked = linked.contains_key(id);
    }
    Ok(all)
}

fn tree(package: &str, target: &str, edges: &str) -> Result<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "--prefix",
            "depth",
            "--package",
            package,
        ])
        .args(["--target", target, "--edges", edges, "--format", FORMAT])
        .current_dir(root())
        .output()?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?),
        false => Err(String::from_utf8_lossy(&output.stderr).into()),
    }
}

/// Reads lines of depth, `name vVERSION`, license and repository. The dependencies of a package follow it
/// once, one deeper.
fn read(text: &str) -> Result<Packages> {
    let mut packages = Packages::new();
    let mut path: Vec<PackageId> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let unexpected = || format!("unexpected output of cargo tree: {line}");
        let name = line.find(|c: char| !c.is_ascii_digit());
        let (depth, fields) = line.split_at(name.ok_or_else(unexpected)?);
        let depth: usize = depth.parse()?;
        let fields: Vec<&str> = fields.rsplitn(4, '|').collect();
        let [_, repository, license, package] = fields[..] else {
            return Err(unexpected().into());
        };
        let mut words = package.split(' ');
        let (Some(name), Some(version)) = (words.next(), words.next()) else {
            return Err(unexpected().into());
        };
        let id = (
            name.to_string(),
            version.trim_start_matches('v').to_string(),
        );
        path.truncate(depth);
        if let Some(parent) = path.last().and_then(|parent| packages.get_mut(parent)) {
            parent.dependencies.insert(id.clone());
        }
        packages.entry(id.clone()).or_insert_with(|| Package {
            // Cargo once allowed a slash.
            license: license.replace('/', " OR "),
            repository: repository.to_string(),
            is_linked: false,
            dependencies: BTreeSet::new(),
        });
        path.push(id);
    }
    Ok(packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_a_graph() {
        let lines = [
            "0own v0.1.0 (/fol|der)|MIT|https://a|",
            "1a v1.0.0|MIT/Apache-2.0||",
            "2b v2.0.0+c (proc-macro)|ISC||",
            "1b v2.0.0+c (proc-macro)|ISC|| (*)",
        ];
        let packages = read(&lines.join("\n")).expect("valid lines");
        let id = |name: &str, version: &str| (name.to_string(), version.to_string());
        let (a, b) = (id("a", "1.0.0"), id("b", "2.0.0+c"));
        assert_eq!(packages.len(), 3);
        let own = &packages[&id("own", "0.1.0")];
        assert_eq!(own.dependencies, [a.clone(), b.clone()].into());
        assert_eq!(packages[&a].license, "MIT OR Apache-2.0");
        assert_eq!(packages[&a].dependencies, [b.clone()].into());
        assert!(packages[&b].dependencies.is_empty());
        assert!(read("1").is_err());
        assert!(read("0a v1").is_err());
    }
}
