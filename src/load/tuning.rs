//! Tunings: kernels and numbers measured for a model on an adapter, in place of the defaults.

use super::catalog::Catalog;
use super::options::LoadOptions;
use crate::device::{DeviceKind, Fusion, Precision, Profile, TunedKernel};
use crate::error::{Context, Error, ErrorKind, Result, bail};
use crate::exec::Digest;
use crate::exec::shader_sources;
use crate::format;
use crate::model::Tuned;
use crate::output::Output;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Candidates for the positions that attention of few tokens takes at a time.
pub(super) const PARTS: [u32; 5] = [64, 128, 256, 512, 1024];

/// Candidates for the tokens of a prefill chunk.
pub(super) const CHUNKS: [u32; 4] = [128, 256, 512, 1024];

/// Bytes of a file at most.
const BYTES_MAX: u64 = 1 << 20;

/// Which kernels and numbers suit a model on an adapter, as [`tune`](crate::tune) measures them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    /// The version of the library, and a digest of its shaders.
    pub build: String,
    /// The adapter, by its maker's name.
    pub device: String,
    /// Name and version of its driver.
    pub driver: String,
    /// A digest of the precision and of the model's weights: names, storage types and shapes.
    pub model: String,
    /// Which small commands of one token products do themselves.
    pub fusion: Fusion,
    /// Positions that attention of few tokens takes at a time.
    pub attention_part: u32,
    /// Tokens of a prefill chunk.
    pub chunk_tokens: u32,
    /// The kernels of commands that several can run.
    pub choices: Vec<TunedKernel>,
}

impl Tuning {
    /// What is usual, where nothing was measured.
    pub(super) fn usual(profile: &Profile, catalog: &Catalog, precision: Precision) -> Self {
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
            fusion: profile.fusion,
            attention_part: profile.attention_part,
            chunk_tokens: profile.chunk_tokens,
            choices: Vec::new(),
        }
    }

    /// Puts it in the place of what is usual.
    pub(super) fn put_into(&self, profile: &mut Profile) {
        profile.fusion = self.fusion;
        profile.attention_part = self.attention_part;
        profile.chunk_tokens = self.chunk_tokens;
        profile.choices.clone_from(&self.choices);
    }

    /// Writes it into a folder, where loading finds it by adapter, driver and model; the folder is
    /// made if need be.
    ///
    /// # Errors
    ///
    /// `Io` where the system refuses.
    pub fn write(&self, folder: &Path) -> Result<PathBuf> {
        std::fs::create_dir_all(folder).map_err(|e| {
            let message = format!("{}: cannot be created", folder.display());
            Error::new(ErrorKind::Io, message).caused_by(e)
        })?;
        let path = folder.join(self.file_name());
        let mut file = Output::create(&path, std::iter::empty())?;
        serde_json::to_writer_pretty(&mut file, self).map_err(|e| {
            let message = format!("{}: cannot be written", path.display());
            Error::new(ErrorKind::Io, message).caused_by(e)
        })?;
        file.commit()?;
        Ok(path)
    }

    /// The adapter for people, and a digest of all that the file is found by.
    fn file_name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let device: String = self.device.chars().take(40).map(plain).collect();
        let digest = digest([&*self.device, &*self.driver, &*self.model]);
        format!("{}-{digest}.json", device.to_lowercase())
    }

    /// Refuses what was not measured for this build, adapter and model, and numbers that none of
    /// the candidates is.
    fn check(&self, usual: &Self) -> Result<()> {
        if (&self.device, &self.driver, &self.model) != (&usual.device, &usual.driver, &usual.model)
        {
            bail!(
                Argument,
                "measured on {} ({}) for model {}, this is {} ({}) and model {}",
                self.device,
                self.driver,
                self.model,
                usual.device,
                usual.driver,
                usual.model
            );
        }
        if self.build != usual.build {
            bail!(
                Argument,
                "measured with build {}, this is {}",
                self.build,
                usual.build
            );
        }
        let numbers = [
            (
                "attention_part",
                self.attention_part,
                usual.attention_part,
                &PARTS[..],
            ),
            (
                "chunk_tokens",
                self.chunk_tokens,
                usual.chunk_tokens,
                &CHUNKS[..],
            ),
        ];
        for (name, found, usual, known) in numbers {
            if found != usual && !known.contains(&found) {
                bail!(Format, "{name}: {found} is none of {known:?}");
            }
        }
        Ok(())
    }
}

/// Puts what was measured in the place of what is usual, where the folder of tunings has it. One
/// that cannot be followed is left, and it is said why: tables are right without it.
pub(super) fn follow(profile: &mut Profile, catalog: &Catalog, options: &LoadOptions) -> Tuned {
    let Some(folder) = &options.tuning_folder else {
        return Tuned::None;
    };
    if profile.kind == DeviceKind::Cpu {
        return Tuned::None;
    }
    let usual = Tuning::usual(profile, catalog, options.precision);
    let path = folder.join(usual.file_name());
    match read(&path, &usual) {
        Ok(None) => Tuned::None,
        Ok(Some(tuning)) => {
            tuning.put_into(profile);
            Tuned::Applied(path)
        }
        Err(error) => Tuned::Ignored(error.to_string()),
    }
}

fn read(path: &Path, usual: &Tuning) -> Result<Option<Tuning>> {
    let Some(text) = format::read_text(path, BYTES_MAX)? else {
        return Ok(None);
    };
    let parsed = || {
        let tuning: Tuning = serde_json::from_str(&text)
            .map_err(|e| Error::new(ErrorKind::Format, format_args!("no tuning: {e}")))?;
        tuning.check(usual)?;
        Ok(Some(tuning))
    };
    parsed().context(path.display())
}

/// A digest of texts, in their order.
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
            fusion: Fusion::Fused,
            attention_part: 128,
            chunk_tokens: 512,
            choices: vec![TunedKernel {
                kernel: "gemv_q4_0".into(),
                extent: ProblemSize {
                    shape: [64, 32],
                    many: false,
                },
            }],
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = std::env::temp_dir().join(format!("tabla-tuning-{}", std::process::id()));
        let usual = tuning();
        let path = usual.write(&folder).expect("it can be written");
        let name = path.file_name().and_then(|name| name.to_str());
        assert!(
            name.is_some_and(|n| n.starts_with("some-gpu--rev-2--")),
            "{path:?}"
        );
        assert_eq!(
            read(&path, &usual).expect("it is right"),
            Some(usual.clone())
        );
        let other = folder.join("other.json");
        assert_eq!(read(&other, &usual).expect("none is there"), None);

        let refused = |change: fn(&mut Tuning), clue: &str| {
            let mut tuning = tuning();
            change(&mut tuning);
            let text = serde_json::to_string(&tuning).expect("it is plain data");
            std::fs::write(&path, text).expect("the folder takes files");
            let error = read(&path, &usual).expect_err(clue);
            assert!(error.message().contains(clue), "{error}");
        };
        refused(|t| t.build = "2".into(), "measured with build 2, this is 1");
        refused(|t| t.device = "Another".into(), "measured on Another");
        refused(|t| t.driver = "4".into(), "(4)");
        refused(|t| t.model = "5".into(), "for model 5");
        refused(|t| t.chunk_tokens = u32::MAX, "chunk_tokens: 4294967295");
        refused(|t| t.attention_part = 0, "attention_part: 0");
        for damaged in ["", "{", "[]", "{\"build\": 1}"] {
            std::fs::write(&path, damaged).expect("the folder takes files");
            let error = read(&path, &usual).expect_err(damaged);
            assert_eq!(error.kind(), ErrorKind::Format);
        }
        std::fs::remove_dir_all(&folder).expect("it was made here");
    }
}
