//! `cargo xtask sbom`: bills of materials in `CycloneDX`, one for each artifact.
//!
//! The same sources, target and compiler give the same bytes: the serial number is a digest of the rest, and
//! there is a time only if `SOURCE_DATE_EPOCH` is set.

use crate::lock::Lock;
use crate::packages::{Package, PackageId, packages};
use crate::tree::{Result, root};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

/// File that is packaged, with the crate that it is built from.
struct Artifact {
    name: &'static str,
    /// Type of a `CycloneDX` component.
    kind: &'static str,
    package: &'static str,
    description: &'static str,
}

const ARTIFACTS: [Artifact; 3] = [
    Artifact {
        name: "tabla",
        kind: "application",
        package: "tabla-cli",
        description: "The program tabla",
    },
    Artifact {
        name: "libtabla",
        kind: "library",
        package: "tabla-capi",
        description: "The C library, shared and static",
    },
    Artifact {
        name: WHEEL,
        kind: "library",
        package: "tabla-capi",
        description: "The Python wheel, which contains the C library",
    },
];

/// Artifact with the requirements of bindings/python/pyproject.toml.
const WHEEL: &str = "tabla-runtime";

/// The model that every artifact contains.
const STORY: &str = "models/story.gguf";

/// Compiler and target of a build.
struct Build {
    /// Target triple.
    target: String,
    /// Version of Rust.
    rust: String,
    /// Value of `SOURCE_DATE_EPOCH`, in seconds.
    epoch: Option<i64>,
}

/// Component of a bill of materials, and the references of those that it depends on.
struct Component {
    reference: String,
    fields: Value,
    depends_on: Vec<String>,
}

/// Writes the bill of each artifact, as `NAME.cdx.json`. Without a target triple, it is that of this machine.
///
/// # Errors
///
/// If Cargo fails, or a file cannot be read or written.
pub fn sbom(folder: &Path, target: Option<&str>) -> Result<String> {
    let build = Build::new(target)?;
    let lock = Lock::read()?;
    fs::create_dir_all(folder)?;
    let mut report = String::new();
    for artifact in &ARTIFACTS {
        let bill = bill(artifact, &build, &lock)?;
        let path = folder.join(format!("{}.cdx.json", artifact.name));
        fs::write(&path, serde_json::to_string_pretty(&bill)? + "\n")?;
        report = report + &path.display().to_string() + "\n";
    }
    Ok(report)
}

impl Build {
    fn new(target: Option<&str>) -> Result<Self> {
        let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_string());
        let output = Command::new(compiler).arg("-vV").output()?;
        let output = String::from_utf8(output.stdout)?;
        let field = |name: &str| {
            let value = output.lines().find_map(|line| line.strip_prefix(name));
            value.ok_or_else(|| format!("rustc -vV does not print {name}"))
        };
        let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(seconds) => Some(seconds.parse().map_err(|_| {
                format!("SOURCE_DATE_EPOCH: expected seconds since 1970, got {seconds}")
            })?),
            Err(_) => None,
        };
        Ok(Self {
            target: target.map_or_else(|| field("host: "), Ok)?.to_string(),
            rust: field("release: ")?.to_string(),
            epoch,
        })
    }
}

/// Returns the bill of an artifact.
fn bill(artifact: &Artifact, build: &Build, lock: &Lock) -> Result<Value> {
    let packages = packages(artifact.package, &build.target)?;
    let mut components = vec![standard_library(&build.rust), story()?];
    if artifact.name == WHEEL {
        components.extend(python_requirements()?);
    }
    let direct = components.iter().map(|c| c.reference.clone());
    let mut direct: Vec<_> = direct.collect();
    direct.push(format!("{}@{VERSION}", artifact.package));
    direct.sort();
    let crates = packages.iter();
    components.extend(crates.map(|(id, package)| crate_component(id, package, lock)));
    components.sort_by(|a, b| a.reference.cmp(&b.reference));
    let mut graph = vec![json!({ "ref": artifact.name, "dependsOn": direct })];
    graph.extend(
        components
            .iter()
            .map(|c| json!({ "ref": c.reference, "dependsOn": c.depends_on })),
    );
    let components: Vec<_> = components.into_iter().map(|c| c.fields).collect();
    let mut bill = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": metadata(artifact, build),
        "components": components,
        "dependencies": graph,
    });
    bill["serialNumber"] = serial_number(&bill.to_string()).into();
    Ok(bill)
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn metadata(artifact: &Artifact, build: &Build) -> Value {
    let mut component = json!({
        "type": artifact.kind,
        "bom-ref": artifact.name,
        "name": artifact.name,
        "version": VERSION,
        "description": artifact.description,
        "licenses": [{ "expression": LICENSE }],
        "externalReferences": [{ "type": "vcs", "url": env!("CARGO_PKG_REPOSITORY") }],
    });
    if artifact.name == WHEEL {
        component["purl"] = format!("pkg:pypi/{WHEEL}@{VERSION}").into();
    }
    let mut metadata = json!({
        "lifecycles": [{ "phase": "build" }],
        "tools": { "components": [{ "type": "application", "name": "cargo xtask sbom", "version": VERSION }] },
        "component": component,
        "properties": [
            { "name": "tabla:target", "value": build.target },
            { "name": "tabla:package", "value": artifact.package },
        ],
    });
    if let Some(epoch) = build.epoch {
        metadata["timestamp"] = time(epoch).into();
    }
    metadata
}

/// License of the project.
const LICENSE: &str = "MIT OR Apache-2.0";

fn crate_component(id: &PackageId, package: &Package, lock: &Lock) -> Component {
    let (name, version) = id;
    let mut fields = json!({
        "type": "library",
        "bom-ref": reference(id, lock),
        "name": name,
        "version": version,
        "scope": if package.is_linked { "required" } else { "excluded" },
        "licenses": [{ "expression": package.license }],
    });
    if let Some(checksum) = lock.checksum(name, version) {
        fields["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        fields["purl"] = reference(id, lock).into();
    }
    if !package.repository.is_empty() {
        fields["externalReferences"] = json!([{ "type": "vcs", "url": package.repository }]);
    }
    let depends_on = package.dependencies.iter();
    Component {
        reference: reference(id, lock),
        fields,
        depends_on: depends_on.map(|id| reference(id, lock)).collect(),
    }
}

/// Returns the package URL of a crate, or `name@version` of a crate of the workspace, which has none.
fn reference((name, version): &PackageId, lock: &Lock) -> String {
    match lock.checksum(name, version) {
        Some(_) => format!("pkg:cargo/{name}@{}", version.replace('+', "%2B")),
        None => format!("{name}@{version}"),
    }
}

/// The standard library of Rust, without the crates that it consists of.
fn standard_library(rust: &str) -> Component {
    let reference = format!("pkg:generic/rust-std@{rust}");
    Component {
        fields: json!({
            "type": "library",
            "bom-ref": reference,
            "name": "rust-std",
            "version": rust,
            "description": "The standard library of Rust, as compiled for releases of rustc",
            "scope": "required",
            "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            "purl": reference,
            "externalReferences": [{ "type": "vcs", "url": "https://github.com/rust-lang/rust" }],
        }),
        reference,
        depends_on: Vec::new(),
    }
}

fn story() -> Result<Component> {
    let digest = blake3::hash(&fs::read(root().join(STORY))?);
    Ok(Component {
        reference: STORY.to_string(),
        fields: json!({
            "type": "machine-learning-model",
            "bom-ref": STORY,
            "name": "story",
            "version": VERSION,
            "description": "The built-in story model, trained by the project: models/README.md",
            "scope": "required",
            "hashes": [{ "alg": "BLAKE3", "content": digest.to_hex().as_str() }],
            "licenses": [{ "expression": LICENSE }],
        }),
        depends_on: Vec::new(),
    })
}

/// Returns the packages that the wheel requires and does not contain. Their versions are those of the
/// installation.
fn python_requirements() -> Result<Vec<Component>> {
    #[derive(Deserialize)]
    struct Configuration {
        project: Project,
    }
    #[derive(Deserialize)]
    struct Project {
        dependencies: Vec<String>,
    }
    let text = fs::read_to_string(root().join("bindings/python/pyproject.toml"))?;
    let configuration: Configuration = toml::from_str(&text)?;
    let requirements = configuration.project.dependencies.into_iter();
    Ok(requirements.map(python_requirement).collect())
}

fn python_requirement(requirement: String) -> Component {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let end = requirement.find(|c| !is_name(c));
    let name = &requirement[..end.unwrap_or(requirement.len())];
    let reference = format!("pkg:pypi/{}", name.to_lowercase().replace('_', "-"));
    Component {
        fields: json!({
            "type": "library",
            "bom-ref": reference,
            "name": name,
            "description": "Required by the wheel and not part of it",
            "scope": "required",
            "purl": reference,
            "properties": [{ "name": "tabla:requirement", "value": requirement }],
        }),
        reference,
        depends_on: Vec::new(),
    }
}

/// Returns a UUID of version 8 from the digest of a text.
fn serial_number(text: &str) -> String {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    format!("urn:uuid:{}", parts.join("-"))
}

/// Returns seconds since 1970 as a time of RFC 3339 in UTC. The days are those of Howard Hinnant's
/// `civil_from_days`: years begin in March, in eras of 400 years.
fn time(epoch: i64) -> String {
    let (days, seconds) = (epoch.div_euclid(86_400) + 719_468, epoch.rem_euclid(86_400));
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn bill_of(name: &str) -> Value {
        let artifact = ARTIFACTS.iter().find(|artifact| artifact.name == name);
        let mut build = Build::new(None).expect("rustc prints its version");
        build.epoch = None;
        let lock = Lock::read().expect("Cargo.lock is valid");
        bill(artifact.expect("an artifact"), &build, &lock).expect("a bill")
    }

    fn texts<'a>(values: &'a Value, field: &str) -> BTreeSet<&'a str> {
        let values = values.as_array().expect("an array").iter();
        values.filter_map(|value| value[field].as_str()).collect()
    }

    /// Returns the packages of Cargo's own graph that `package` depends on. `cargo metadata` enables the
    /// features that any crate of the workspace enables.
    fn of_metadata(package: &str) -> BTreeMap<String, bool> {
        let target = Build::new(None).expect("rustc prints its version").target;
        let output = Command::new(env!("CARGO"))
            .args([
                "metadata",
                "--locked",
                "--format-version",
                "1",
                "--filter-platform",
                &target,
            ])
            .current_dir(root())
            .output()
            .expect("Cargo runs");
        let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let rows = |list: &Value| list.as_array().expect("an array").clone();
        let packages = rows(&metadata["packages"]).into_iter();
        let packages: BTreeMap<String, Value> = packages
            .map(|p| (p["id"].as_str().expect("an id").to_string(), p))
            .collect();
        let nodes = rows(&metadata["resolve"]["nodes"]).into_iter();
        let nodes: BTreeMap<String, Value> = nodes
            .map(|n| (n["id"].as_str().expect("an id").to_string(), n))
            .collect();
        let root = packages.iter().find(|(_, p)| p["name"] == package);
        let mut waiting = vec![(root.expect("the package").0.clone(), true)];
        let mut found: BTreeMap<String, bool> = BTreeMap::new();
        while let Some((id, is_linked)) = waiting.pop() {
            let targets = rows(&packages[&id]["targets"]);
            let is_macro = targets.iter().any(|t| t["kind"][0] == "proc-macro");
            let is_linked = is_linked && !is_macro;
            if found.get(&id).is_some_and(|linked| *linked || !is_linked) {
                continue;
            }
            found.insert(id.clone(), is_linked);
            for dependency in rows(&nodes[&id]["deps"]) {
                let id = dependency["pkg"].as_str().expect("an id").to_string();
                let kinds = texts(&dependency["dep_kinds"], "kind");
                let has_normal = rows(&dependency["dep_kinds"])
                    .iter()
                    .any(|kind| kind["kind"].is_null());
                if has_normal || kinds.contains("build") {
                    waiting.push((id, is_linked && has_normal));
                }
            }
        }
        let name = |id: &String| {
            let package = &packages[id];
            let text = |field: &str| package[field].as_str().expect("a text");
            format!("{}@{}", text("name"), text("version"))
        };
        found
            .iter()
            .map(|(id, linked)| (name(id), *linked))
            .collect()
    }

    #[test]
    fn bills_have_the_packages_of_cargo_metadata() {
        for Artifact { name, package, .. } in &ARTIFACTS[..2] {
            let bill = bill_of(name);
            let components = bill["components"].as_array().expect("an array");
            let crates = components.iter().filter(|c| {
                let is_crate = c["purl"]
                    .as_str()
                    .is_none_or(|p| p.starts_with("pkg:cargo/"));
                is_crate && c["type"] == "library"
            });
            let crates: BTreeMap<String, bool> = crates
                .map(|c| {
                    let text = |field: &str| c[field].as_str().expect("a text");
                    let id = format!("{}@{}", text("name"), text("version"));
                    (id, c["scope"] == "required")
                })
                .collect();
            assert_eq!(crates, of_metadata(package), "{name}");
        }
    }

    #[test]
    fn checksums_are_those_of_the_lock_file() {
        let lock = fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock exists");
        let bill = bill_of("tabla");
        let components = bill["components"].as_array().expect("an array").iter();
        let mut checked = 0;
        for component in components {
            let text = |field: &str| component[field].as_str().unwrap_or_default();
            if text("purl").starts_with("pkg:cargo/") {
                let entry = format!(
                    "name = \"{}\"\nversion = \"{}\"\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"{}\"\n",
                    text("name"),
                    text("version"),
                    component["hashes"][0]["content"]
                        .as_str()
                        .unwrap_or_default(),
                );
                assert!(lock.contains(&entry), "{entry}");
                checked += 1;
            }
        }
        assert!(checked > 100, "{checked}");
    }

    #[test]
    fn every_component_is_reached_from_the_artifact() {
        for artifact in &ARTIFACTS {
            let bill = bill_of(artifact.name);
            let rows = bill["dependencies"].as_array().expect("an array");
            let graph: BTreeMap<&str, Vec<&str>> = rows
                .iter()
                .map(|row| {
                    let on = row["dependsOn"].as_array().expect("an array").iter();
                    let on = on.map(|r| r.as_str().expect("a reference")).collect();
                    (row["ref"].as_str().expect("a reference"), on)
                })
                .collect();
            let mut found = BTreeSet::from([artifact.name]);
            let mut waiting = vec![artifact.name];
            while let Some(reference) = waiting.pop() {
                let on = graph[reference].iter();
                waiting.extend(on.filter(|r| found.insert(**r)));
            }
            let mut all = texts(&bill["components"], "bom-ref");
            assert_eq!(all.len() + 1, rows.len(), "references are unique");
            all.insert(artifact.name);
            assert_eq!(found, all);
        }
    }

    #[test]
    fn bills_differ_by_artifact_and_not_by_run() {
        let (library, program, wheel) = (bill_of("libtabla"), bill_of("tabla"), bill_of(WHEEL));
        assert_eq!(library, bill_of("libtabla"));
        assert_ne!(library["serialNumber"], wheel["serialNumber"]);
        let names = |bill: &Value| -> BTreeSet<String> {
            let names = texts(&bill["components"], "name").into_iter();
            names.map(str::to_string).collect()
        };
        let (library_names, program, wheel) = (names(&library), names(&program), names(&wheel));
        for name in ["clap", "rustls", "tokio", "tabla-server"] {
            assert!(
                program.contains(name) && !library_names.contains(name),
                "{name}"
            );
        }
        let only: Vec<_> = wheel.difference(&library_names).collect();
        assert_eq!(only, ["cffi", "numpy"]);
        let text = library.to_string();
        let folder = root().display().to_string();
        assert!(
            !text.contains(&folder) && !text.contains("timestamp"),
            "{text}"
        );
    }

    #[test]
    fn times_are_those_of_date() {
        // By GNU date.
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_798_761_600, "2027-01-01T00:00:00Z"),
            (-86_401, "1969-12-30T23:59:59Z"),
        ];
        for (epoch, text) in cases {
            assert_eq!(time(epoch), text);
        }
    }

    #[test]
    fn serial_numbers_are_version_8_uuids() {
        let number = serial_number("text");
        let uuid = number.strip_prefix("urn:uuid:").expect("a UUID");
        let lengths: Vec<_> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(&uuid[14..15], "8");
        assert!(matches!(&uuid[19..20], "8" | "9" | "a" | "b"), "{uuid}");
        assert_ne!(number, serial_number("texts"));
    }
}
