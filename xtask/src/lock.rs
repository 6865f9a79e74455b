//! Packages of Cargo.lock and their dependencies, for every target.

use crate::tree::{Result, root};
use serde::Deserialize;
use std::collections::BTreeSet;

/// Cargo.lock.
#[derive(Deserialize)]
pub(crate) struct Lock {
    #[serde(rename = "package")]
    packages: Vec<Package>,
}

/// Package of Cargo.lock.
#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    /// None for packages of the workspace.
    source: Option<String>,
    /// SHA-256 of the archive that Cargo downloads.
    checksum: Option<String>,
    /// `name`, or `name version` if there are several versions.
    #[serde(default)]
    dependencies: Vec<String>,
}

/// Indices of packages.
type Indices = BTreeSet<usize>;

impl Lock {
    /// Reads Cargo.lock.
    pub(crate) fn read() -> Result<Self> {
        let text = std::fs::read_to_string(root().join("Cargo.lock"))?;
        Ok(toml::from_str(&text)?)
    }

    /// Returns the SHA-256 of a package's archive. None for packages of the workspace.
    pub(crate) fn checksum(&self, name: &str, version: &str) -> Option<&str> {
        let mut packages = self.packages.iter();
        let package = packages.find(|p| p.name == name && p.version == version)?;
        package.checksum.as_deref()
    }

    /// Returns the names of the packages that the workspace depends on directly.
    pub(crate) fn direct(&self) -> BTreeSet<&str> {
        let direct = self.direct_indices().into_iter();
        direct
            .map(|index| self.packages[index].name.as_str())
            .collect()
    }

    /// Returns the number of packages that direct dependencies consist of: themselves and what they depend on.
    pub(crate) fn tree(&self, names: &[&str]) -> usize {
        self.reachable(self.direct_of(names), &Indices::new()).len()
    }

    /// Returns the number of packages that would not be in Cargo.lock without these direct dependencies.
    pub(crate) fn only_by(&self, names: &[&str]) -> usize {
        let members: Indices = self.members().collect();
        let all = self.reachable(members.clone(), &Indices::new());
        all.len() - self.reachable(members, &self.direct_of(names)).len()
    }

    /// Returns the packages of the workspace.
    fn members(&self) -> impl Iterator<Item = usize> {
        (0..self.packages.len()).filter(|index| self.packages[*index].source.is_none())
    }

    fn direct_indices(&self) -> Indices {
        let members = self.members();
        let dependencies = members.flat_map(|index| self.dependencies(index));
        let is_other = |index: &usize| self.packages[*index].source.is_some();
        dependencies.filter(is_other).collect()
    }

    fn direct_of(&self, names: &[&str]) -> Indices {
        let direct = self.direct_indices().into_iter();
        direct
            .filter(|index| names.contains(&self.packages[*index].name.as_str()))
            .collect()
    }

    /// Returns the direct dependencies of a package.
    fn dependencies(&self, index: usize) -> impl Iterator<Item = usize> {
        let dependencies = self.packages[index].dependencies.iter();
        dependencies.filter_map(|dependency| {
            let mut words = dependency.split(' ');
            let (name, version) = (words.next()?, words.next());
            self.packages
                .iter()
                .position(|p| p.name == name && version.is_none_or(|version| p.version == version))
        })
    }

    /// Returns the packages that `from` depend on, and `from`. Dependencies of the workspace on packages of
    /// `without` are ignored.
    fn reachable(&self, from: Indices, without: &Indices) -> Indices {
        let mut found = from.clone();
        let mut waiting: Vec<_> = from.into_iter().collect();
        while let Some(index) = waiting.pop() {
            let is_member = self.packages[index].source.is_none();
            for dependency in self.dependencies(index) {
                let is_ignored = is_member && without.contains(&dependency);
                if !is_ignored && found.insert(dependency) {
                    waiting.push(dependency);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_counted_once_and_by_version() {
        let lock: Lock = toml::from_str(
            r#"
            [[package]]
            name = "own"
            version = "0.1.0"
            dependencies = ["a", "b 2.0.0"]
            [[package]]
            name = "a"
            version = "1.0.0"
            source = "registry"
            checksum = "00ff"
            dependencies = ["b 1.0.0", "shared"]
            [[package]]
            name = "b"
            version = "1.0.0"
            source = "registry"
            [[package]]
            name = "b"
            version = "2.0.0"
            source = "registry"
            dependencies = ["shared"]
            [[package]]
            name = "shared"
            version = "1.0.0"
            source = "registry"
            "#,
        )
        .expect("a lock file");
        assert_eq!(lock.direct(), BTreeSet::from(["a", "b"]));
        assert_eq!((lock.tree(&["a"]), lock.only_by(&["a"])), (3, 2));
        assert_eq!((lock.tree(&["b"]), lock.only_by(&["b"])), (2, 1));
        assert_eq!((lock.tree(&["a", "b"]), lock.only_by(&["a", "b"])), (4, 4));
        assert_eq!(lock.checksum("a", "1.0.0"), Some("00ff"));
        assert_eq!(lock.checksum("own", "0.1.0"), None);
    }
}
