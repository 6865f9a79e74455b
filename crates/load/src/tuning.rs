//! Tunings: kernels and planning parameters measured for a model on an adapter.

use super::catalog::Catalog;
use super::options::LoadOptions;
use crate::device::{DeviceKind, Precision, Profile, TunedKernel};
use crate::error::{Context, Error, ErrorKind, Result, bail};
use crate::exec::Digest;
use crate::exec::shader_sources;
use crate::format;
use crate::model::Tuned;
use crate::output::Output;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Candidates for the number of positions per part of decode attention.
pub const PARTS: [u32; 5] = [64, 128, 256, 512, 1024];

/// Candidates for the tokens of a prefill chunk.
pub const CHUNKS: [u32; 4] = [128, 256, 512, 1024];

/// Maximum size of a tuning file in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// Fastest kernels and planning parameters of a model on an adapter, measured by
/// `tune`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    /// Version of the library, and a digest of its shaders.
    pub build: String,
    /// Name of the adapter.
    pub device: String,
    /// Name and version of the driver.
    pub driver: String,
    /// Digest of the precision and of the names, storage types and shapes of the weights.
    pub model: String,
    /// Positions per part of decode attention.
    pub attention_part: u32,
    /// Tokens of a prefill chunk.
    pub chunk_tokens: u32,
    /// Selected kernels of commands with several candidates.
    #[serde(rename = "choices")]
    pub tuned_kernels: Vec<TunedKernel>,
}

impl Tuning {
    /// Returns the default tuning, used without measurements.
    #[doc(hidden)] // for `tune`
    pub fn default_for(profile: &Profile, catalog: &Catalog, precision: Precision) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let sources = shader_sources()
            .iter()
            .flat_map(|(name, text)| [*name, *text]);
        let mut model = vec![format!("{precision:?}")];
        for weight in catalog.weights() {
            let shape = format!("{} {} {}", weight.dtype, weight.rows, weight.cols);
            model.extend([weight.name.clone(), shape]);
        }
        Self {
            build: format!("{version} {}", digest(sources)),
            device: profile.name.clone(),
            driver: profile.driver.clone(),
            model: digest(model.iter().map(String::as_str)),
            attention_part: profile.attention_part,
            chunk_tokens: profile.chunk_tokens,
            tuned_kernels: Vec::new(),
        }
    }

    /// Applies the tuning to a device profile.
    #[doc(hidden)] // for `tune`
    pub fn apply(&self, profile: &mut Profile) {
        profile.attention_part = self.attention_part;
        profile.chunk_tokens = self.chunk_tokens;
        profile.tuned_kernels.clone_from(&self.tuned_kernels);
    }

    /// Writes the tuning to a folder, which is created if needed, and returns its path. Loading
    /// finds it by adapter, driver and model.
    ///
    /// # Errors
    ///
    /// `Io` if the folder or the file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf> {
        std::fs::create_dir_all(folder).map_err(|e| {
            let message = format!("{}: cannot create the folder", folder.display());
            Error::new(ErrorKind::Io, message).caused_by(e)
        })?;
        let path = folder.join(self.file_name());
        let mut file = Output::create(&path, std::iter::empty())?;
        serde_json::to_writer_pretty(&mut file, self).map_err(|e| {
            let message = format!("{}: cannot write the tuning", path.display());
            Error::new(ErrorKind::Io, message).caused_by(e)
        })?;
        file.commit()?;
        Ok(path)
    }

    /// Returns the file name: the adapter for readability, and a digest of adapter, driver and model.
    fn file_name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let device: String = self.device.chars().take(40).map(plain).collect();
        let digest = digest([&*self.device, &*self.driver, &*self.model]);
        format!("{}-{digest}.json", device.to_lowercase())
    }

    /// Rejects a tuning for another build, adapter or model, and parameters that are no candidates.
    fn check(&self, default: &Self) -> Result<()> {
        if (&self.device, &self.driver, &self.model)
            != (&default.device, &default.driver, &default.model)
        {
            bail!(
                Argument,
                "tuning for {} ({}) and model {} does not match {} ({}) and model {}",
                self.device,
                self.driver,
                self.model,
                default.device,
                default.driver,
                default.model
            );
        }
        if self.build != default.build {
            bail!(
                Argument,
                "tuning for build {} does not match build {}",
                self.build,
                default.build
            );
        }
        let numbers = [
            (
                "attention_part",
                self.attention_part,
                default.attention_part,
                &PARTS[..],
            ),
            (
                "chunk_tokens",
                self.chunk_tokens,
                default.chunk_tokens,
                &CHUNKS[..],
            ),
        ];
        for (name, value, default, candidates) in numbers {
            if value != default && !candidates.contains(&value) {
                bail!(
                    Format,
                    "{name}: expected one of {candidates:?}, got {value}"
                );
            }
        }
        Ok(())
    }
}

/// Applies the tuning from the tuning folder, if there is one. A tuning that does not match is
/// ignored and the reason is returned, because results are correct without it.
pub(crate) fn apply_stored(
    profile: &mut Profile,
    catalog: &Catalog,
    options: &LoadOptions,
) -> Tuned {
    let Some(folder) = &options.tuning_path else {
        return Tuned::None;
    };
    if profile.kind == DeviceKind::Cpu {
        return Tuned::None;
    }
    let default = Tuning::default_for(profile, catalog, options.precision);
    let path = folder.join(default.file_name());
    match read(&path, &default) {
        Ok(None) => Tuned::None,
        Ok(Some(tuning)) => {
            tuning.apply(profile);
            Tuned::Applied(path)
        }
        Err(error) => Tuned::Ignored(error.to_string()),
    }
}

fn read(path: &Path, default: &Tuning) -> Result<Option<Tuning>> {
    let Some(text) = format::read_text(path, BYTES_MAX)? else {
        return Ok(None);
    };
    let parsed = || {
        let tuning: Tuning = serde_json::from_str(&text)
            .map_err(|e| Error::new(ErrorKind::Format, format_args!("invalid tuning: {e}")))?;
        tuning.check(default)?;
        Ok(Some(tuning))
    };
    parsed().context(path.display())
}

/// Returns a digest of texts, in order.
fn digest<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut digest = Digest::new();
    texts.into_iter().for_each(|text| digest.add_text(text));
    format!("{:016x}", digest.value())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::ProblemSize;

    fn tuning() -> Tuning {
        Tuning {
            build: "1".into(),
            device: "Some GPU (rev/2)".into(),
            driver: "driver 3".into(),
            model: "4".into(),
            attention_part: 128,
            chunk_tokens: 512,
            tuned_kernels: vec![TunedKernel {
                kernel: "gemv_q4_0".into(),
                extent: ProblemSize {
                    shape: [64, 32],
                    multiple_tokens: false,
                },
            }],
        }
    }

    #[test]
    fn tuning_round_trips_and_rejects_mismatches() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folder = root.path();
        let default = tuning();
        let path = default.write(folder).expect("writes the tuning");
        let name = path.file_name().and_then(|name| name.to_str());
        assert!(
            name.is_some_and(|n| n.starts_with("some-gpu--rev-2--")),
            "{path:?}"
        );
        assert_eq!(
            read(&path, &default).expect("reads the tuning"),
            Some(default.clone())
        );
        let other = folder.join("other.json");
        assert_eq!(read(&other, &default).expect("no such file"), None);

        let rejects = |change: fn(&mut Tuning), part: &str| {
            let mut tuning = tuning();
            change(&mut tuning);
            let text = serde_json::to_string(&tuning).expect("serializes");
            std::fs::write(&path, text).expect("writes the file");
            let error = read(&path, &default).expect_err(part);
            assert!(error.message().contains(part), "{error}");
        };
        rejects(
            |t| t.build = "2".into(),
            "tuning for build 2 does not match build 1",
        );
        rejects(|t| t.device = "Another".into(), "tuning for Another");
        rejects(|t| t.driver = "4".into(), "(4)");
        rejects(|t| t.model = "5".into(), "and model 5 does not match");
        rejects(|t| t.chunk_tokens = u32::MAX, "got 4294967295");
        rejects(|t| t.attention_part = 0, "got 0");
        for damaged in ["", "{", "[]", "{\"build\": 1}"] {
            std::fs::write(&path, damaged).expect("writes the file");
            let error = read(&path, &default).expect_err(damaged);
            assert_eq!(error.kind(), ErrorKind::Format);
        }
    }
}
