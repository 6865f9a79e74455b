//! `cargo xtask dist`: the files of a release for a target.

use crate::install::install;
use crate::licenses::licenses;
use crate::program::output;
use crate::reproducible::without_paths;
use crate::sbom::sbom;
use crate::target::Target;
use crate::tree::{Result, root};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Folder of documents below a prefix.
const DOCUMENTS: &str = "share/doc/tabla";

/// Files of the repository in that folder.
const FILES: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Templates that are files of a release, in which `@VERSION@` and `@TARGET@` are replaced.
const TEMPLATES: [&str; 2] = ["packaging/install.sh", "packaging/Containerfile"];

/// Templates of the folder `DEBIAN` of a package.
const DEBIAN: [&str; 3] = [
    "packaging/deb/control",
    "packaging/deb/shlibs",
    "packaging/deb/triggers",
];

/// Machines: the beginning of a target triple, and Debian's name.
const MACHINES: [(&str, &str); 2] = [("x86_64", "amd64"), ("aarch64", "arm64")];

/// Packages of Debian with the libraries that programs need, and the beginning of their names.
const LIBRARIES: [(&str, &str); 2] = [("libc6", "libc.so"), ("libgcc-s1", "libgcc_s.so")];

/// Release that is made.
struct Release<'a> {
    target: &'a Target,
    triple: String,
    /// Name of the archive without its ending.
    name: String,
    /// Folder of the files of the archive, whose name is `name`.
    prefix: PathBuf,
    /// Folder of the release.
    folder: &'a Path,
    /// Time of all files, in seconds since 1970.
    epoch: String,
}

/// Builds the files of a release and writes them to a folder: an archive, a package of Debian, a wheel, the recipe of a
/// container, an install script, bills of materials and checksums.
///
/// # Errors
///
/// If a tool fails or a file cannot be written.
pub fn dist(folder: &Path, target: &Target) -> Result<String> {
    let triple = target.triple()?;
    let name = format!("tabla-{VERSION}-{triple}");
    fs::create_dir_all(folder)?;
    let release = Release {
        target,
        prefix: root().join("target/release-files").join(&name),
        triple,
        name,
        folder: &std::path::absolute(folder)?,
        epoch: epoch()?,
    };
    let libraries = release.stage()?;
    let mut files = vec![release.archive()?];
    if release.triple.ends_with("linux-gnu") {
        files.push(release.package(&libraries)?);
    }
    if !release.triple.ends_with("musl") {
        files.push(release.wheel()?);
    }
    files.extend(release.bills()?);
    files.extend(release.templates()?);
    release.checksums(&files)
}

/// Returns `SOURCE_DATE_EPOCH`, or the time of the commit.
fn epoch() -> Result<String> {
    if let Ok(epoch) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(epoch);
    }
    let mut git = Command::new("git");
    let time = output(git.args(["log", "-1", "--format=%ct"]).current_dir(root()))?;
    Ok(String::from_utf8(time)?.trim().to_string())
}

/// Replaces the names of values in a template.
fn fill(template: &Path, values: &[(&str, &str)]) -> Result<String> {
    let mut text = fs::read_to_string(template)?;
    for (name, value) in values {
        text = text.replace(name, value);
    }
    Ok(text)
}

/// Sets the permissions of all files, so that they do not depend on the umask.
fn set_permissions(folder: &Path) -> Result<()> {
    let mut chmod = Command::new("chmod");
    output(chmod.args(["-R", "u=rwX,go=rX"]).arg(folder))?;
    Ok(())
}

impl Release<'_> {
    /// Installs the files of the archive. Returns the libraries that they need on Linux.
    fn stage(&self) -> Result<Needs> {
        if self.prefix.exists() {
            fs::remove_dir_all(&self.prefix)?;
        }
        install(&self.prefix, self.target)?;
        let documents = self.prefix.join(DOCUMENTS);
        fs::create_dir_all(&documents)?;
        for file in FILES {
            fs::copy(root().join(file), documents.join(file))?;
        }
        fs::write(
            documents.join("LICENSES-CRATES.txt"),
            licenses(&self.triple)?,
        )?;
        let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
        let sysroot = PathBuf::from(String::from_utf8(sysroot)?.trim());
        fs::copy(
            sysroot.join("share/doc/rust/COPYRIGHT-library.html"),
            documents.join("LICENSES-RUST.html"),
        )?;
        self.needs()
    }

    /// Returns what the staged files need of a Linux system, and sets their permissions, independent of the umask.
    fn needs(&self) -> Result<Needs> {
        let mut needs = Needs::default();
        if !self.triple.contains("linux") {
            return Ok(needs);
        }
        set_permissions(&self.prefix)?;
        for file in ["bin/tabla", "lib/libtabla.so"] {
            let file = self.prefix.join(file);
            if file.exists() {
                let mut readelf = Command::new("readelf");
                readelf.args(["--wide", "--dynamic", "--dyn-syms"]);
                needs.read(&String::from_utf8(output(readelf.arg(file))?)?);
            }
        }
        match &self.target.glibc {
            Some(oldest) if needs.glibc > version(oldest) => {
                Err(format!("expected glibc {oldest}, but {:?} is required", needs.glibc).into())
            }
            _ => Ok(needs),
        }
    }

    /// Writes the archive. With GNU tar, the same files give the same bytes.
    fn archive(&self) -> Result<String> {
        let file = format!("{}.tar.gz", self.name);
        let tar = std::env::var("TAR").unwrap_or_else(|_| "tar".to_string());
        output(
            Command::new(tar)
                .args(["--create", "--sort=name", "--format=gnu", "--force-local"])
                .arg(format!("--mtime=@{}", self.epoch))
                .args(["--owner=0", "--group=0", "--numeric-owner"])
                .args(["--mode=u=rwX,go=rX", "--use-compress-program=gzip -n -9"])
                .arg("--file")
                .arg(self.folder.join(&file))
                .arg("--directory")
                .arg(self.prefix.parent().unwrap_or(&self.prefix))
                .arg(&self.name),
        )?;
        Ok(file)
    }

    /// Writes the package of Debian.
    fn package(&self, needs: &Needs) -> Result<String> {
        let mut machines = MACHINES.iter();
        let machine = machines.find(|(start, _)| self.triple.starts_with(start));
        let (_, machine) = machine.ok_or_else(|| format!("no machine for {}", self.triple))?;
        let files = self.prefix.with_file_name(format!("{}.deb", self.name));
        if files.exists() {
            fs::remove_dir_all(&files)?;
        }
        fs::create_dir_all(files.join("DEBIAN"))?;
        let usr = files.join("usr");
        output(Command::new("cp").arg("-a").arg(&self.prefix).arg(&usr))?;
        let documents = usr.join(DOCUMENTS);
        fs::rename(documents.join("CHANGELOG.md"), documents.join("changelog"))?;
        fs::copy(
            root().join("packaging/deb/copyright"),
            documents.join("copyright"),
        )?;
        let mut gzip = Command::new("gzip");
        gzip.arg("-n9").arg(documents.join("changelog"));
        for page in fs::read_dir(usr.join("share/man/man1"))? {
            gzip.arg(page?.path());
        }
        output(&mut gzip)?;
        let size = output(
            Command::new("du")
                .args(["-sk", "--apparent-size"])
                .arg(&usr),
        )?;
        let size = String::from_utf8(size)?;
        let depends = needs.packages();
        let values = [
            ("@VERSION@", VERSION),
            ("@MACHINE@", machine),
            ("@DEPENDS@", &depends),
            ("@SIZE@", size.split_whitespace().next().unwrap_or_default()),
        ];
        for template in DEBIAN {
            let template = root().join(template);
            let to = files
                .join("DEBIAN")
                .join(template.file_name().unwrap_or_default());
            fs::write(to, fill(&template, &values)?)?;
        }
        let md5sums = "find usr -type f | LC_ALL=C sort | xargs md5sum >DEBIAN/md5sums";
        output(Command::new("sh").args(["-c", md5sums]).current_dir(&files))?;
        set_permissions(&files)?;
        let file = format!("tabla_{VERSION}_{machine}.deb");
        output(
            Command::new("dpkg-deb")
                .args(["--build", "--root-owner-group", "-Zxz"])
                .env("SOURCE_DATE_EPOCH", &self.epoch)
                .arg(&files)
                .arg(self.folder.join(&file)),
        )?;
        Ok(file)
    }

    /// Builds the wheel with the pip, maturin and cffi of `python3`.
    fn wheel(&self) -> Result<String> {
        let mut cargo = Command::new(env!("CARGO"));
        without_paths(&mut cargo, &root())?;
        let mut arguments = format!("--profile dist --locked --target {}", self.triple);
        if let Some(glibc) = &self.target.glibc {
            let tag = glibc.replace('.', "_");
            arguments += &format!(" --compatibility manylinux_{tag}");
        }
        for argument in cargo.get_args() {
            arguments += &format!(" '{}'", argument.to_string_lossy());
        }
        let built = self.prefix.with_file_name(format!("{}.whl", self.name));
        if built.exists() {
            fs::remove_dir_all(&built)?;
        }
        let python = if cfg!(windows) { "python" } else { "python3" };
        output(
            Command::new(python)
                .args(["-m", "pip", "wheel", "--quiet", "--no-deps"])
                .args(["--no-build-isolation", "--wheel-dir"])
                .arg(&built)
                .arg(root().join("bindings/python"))
                .envs(
                    cargo
                        .get_envs()
                        .filter_map(|(name, value)| Some((name, value?))),
                )
                .envs(self.target.tools()?)
                .env("MATURIN_PEP517_ARGS", arguments)
                .env("SOURCE_DATE_EPOCH", &self.epoch),
        )?;
        let wheel = fs::read_dir(&built)?.next().ok_or("pip wrote no wheel")??;
        let file = wheel.file_name().to_string_lossy().into_owned();
        fs::copy(wheel.path(), self.folder.join(&file))?;
        Ok(file)
    }

    /// Writes the bills of materials.
    fn bills(&self) -> Result<Vec<String>> {
        let written = self.prefix.with_file_name(format!("{}.sbom", self.name));
        let written = sbom(&written, Some(&self.triple))?;
        let mut files = Vec::new();
        for bill in written.lines().map(Path::new) {
            let name = bill.file_name().unwrap_or_default().to_string_lossy();
            let name = name.replace(".cdx.json", "");
            let file = format!("{name}-{VERSION}-{}.cdx.json", self.triple);
            fs::copy(bill, self.folder.join(&file))?;
            files.push(file);
        }
        Ok(files)
    }

    fn templates(&self) -> Result<Vec<String>> {
        let values = [("@VERSION@", VERSION), ("@TARGET@", &self.triple)];
        let mut files = Vec::new();
        for template in TEMPLATES {
            let template = root().join(template);
            let file = template.file_name().unwrap_or_default().to_string_lossy();
            let to = self.folder.join(&*file);
            fs::write(&to, fill(&template, &values)?)?;
            fs::set_permissions(&to, fs::metadata(&template)?.permissions())?;
            files.push(file.into_owned());
        }
        Ok(files)
    }

    /// Writes the checksums in the format of sha256sum. Returns them with the size of each file.
    fn checksums(&self, files: &[String]) -> Result<String> {
        let sums = |tool: &str, arguments: &[&str]| {
            let mut command = Command::new(tool);
            output(command.args(arguments).args(files).current_dir(self.folder))
        };
        let sums = sums("sha256sum", &[]).or_else(|_| sums("shasum", &["-a", "256"]))?;
        // On Windows, sha256sum marks files as binary.
        let sums = String::from_utf8(sums)?.replace(" *", "  ");
        fs::write(self.folder.join(format!("{}.sha256", self.name)), &sums)?;
        let mut report = String::new();
        for (line, file) in sums.lines().zip(files) {
            let bytes = fs::metadata(self.folder.join(file))?.len();
            report += &format!("{bytes:>10}  {line}\n");
        }
        Ok(report)
    }
}

/// What programs need of a Linux system.
#[derive(Default)]
struct Needs {
    /// Names of shared libraries.
    libraries: BTreeSet<String>,
    /// Newest version of glibc that a symbol has.
    glibc: Vec<u32>,
}

fn version(text: &str) -> Vec<u32> {
    text.split('.')
        .map_while(|part| part.parse().ok())
        .collect()
}

impl Needs {
    /// Reads the output of `readelf --dynamic --dyn-syms`.
    fn read(&mut self, text: &str) {
        for line in text.lines() {
            if let Some((_, name)) = line.split_once("Shared library: [") {
                self.libraries
                    .insert(name.trim_end_matches(']').to_string());
            } else if let Some((_, rest)) = line.split_once("@GLIBC_") {
                let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit());
                let found = version(&rest[..end.unwrap_or(rest.len())]);
                self.glibc = found.max(std::mem::take(&mut self.glibc));
            }
        }
    }

    /// Returns the packages of Debian.
    fn packages(&self) -> String {
        let glibc: Vec<String> = self.glibc.iter().map(u32::to_string).collect();
        let needed = LIBRARIES
            .iter()
            .filter(|(_, start)| self.libraries.iter().any(|l| l.starts_with(start)));
        let packages: Vec<String> = needed
            .map(|(package, _)| match *package {
                "libc6" => format!("libc6 (>= {})", glibc.join(".")),
                package => package.to_string(),
            })
            .collect();
        packages.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::Needs;

    #[test]
    fn needs_are_read_from_symbols() {
        let mut needs = Needs::default();
        needs.read(
            " 0x01 (NEEDED)  Shared library: [libgcc_s.so.1]
 0x01 (NEEDED)  Shared library: [libc.so.6]
     2: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND exp@GLIBC_2.29 (4)
     3: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND _Unwind_Resume@GCC_3.0 (2)
     4: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND memcpy@GLIBC_2.2.5 (3)\n",
        );
        assert_eq!(needs.packages(), "libc6 (>= 2.29), libgcc-s1");
        assert_eq!(needs.glibc, [2, 29]);
    }
}
