//! The properties of a compiled model, and whether it fits a device and options.

use super::{DIGEST, DIGEST_BYTES, DIGESTS, VERSION, build, keys};
use crate::catalog::layouts::TOKENIZER;
use crate::device::{DeviceKind, Precision, Profile};
use crate::error::{Result, bail};
use crate::exec::{Layout, cpu};
use crate::format::{Directory, Metadata};
use crate::options::{DraftingHead, LoadOptions};
use crate::quant::i2_s::Layout as I2sLayout;

/// Properties of a compiled model.
#[derive(Clone, Debug)]
pub struct Header {
    /// Version of the library that wrote it.
    pub build: String,
    /// Layouts in which it has weights.
    pub layouts: Vec<Layout>,
    /// Name of the file or folder that it was compiled from.
    pub source: String,
    /// Size of that model in bytes.
    pub source_bytes: u64,
    /// Digest of that model.
    pub(crate) digest: [u8; DIGEST_BYTES],
    /// Digest of the adapters that are merged into the weights; empty without any.
    pub merged: String,
    /// Whether queries and keys may be stored in the order of GGUF files.
    pub(crate) permuted: bool,
    /// Precision that the weights are for: `fast` or `exact`.
    pub precision: String,
    /// Drafting head that it has; empty without one.
    pub drafting_head: String,
    /// Type that the output projection was requantized to; empty if it was not.
    pub lm_head_type: String,
    i2s_layout: String,
}

impl Header {
    /// Reads the header; `None` for a model that is not compiled.
    ///
    /// # Errors
    ///
    /// `Unsupported` for another version, `Format` for a damaged header.
    pub fn read(file: &Directory) -> Result<Option<Self>> {
        let meta = &file.metadata;
        let Some(version) = meta.u32(keys::VERSION)? else {
            return Ok(None);
        };
        if version != VERSION {
            bail!(
                Unsupported,
                "a compiled model of format {version}, expected {VERSION}: compile it again"
            );
        }
        let header = Self::of_any_build(meta)?;
        if header.build != build() {
            bail!(
                Unsupported,
                "a compiled model of version {}, this is version {}: compile it again",
                header.build,
                build()
            );
        }
        check_digest(file)?;
        Ok(Some(header))
    }

    /// Reads the header of a compiled model, also of another version.
    pub(crate) fn of_any_build(meta: &Metadata) -> Result<Self> {
        let text = |key: &str| required(meta.str(key)?.map(str::to_string), key);
        let names = required(meta.strs(keys::LAYOUTS)?, keys::LAYOUTS)?;
        let layouts = Layout::ALL.into_iter();
        let digest = blake3::Hash::from_hex(text(keys::SOURCE_DIGEST)?).ok();
        Ok(Self {
            build: text(keys::BUILD)?,
            layouts: layouts.filter(|l| names.contains(&l.name())).collect(),
            source: text(keys::SOURCE)?,
            source_bytes: required(meta.u64(keys::SOURCE_BYTES)?, keys::SOURCE_BYTES)?,
            digest: required(digest, keys::SOURCE_DIGEST)?.into(),
            merged: text(keys::MERGED)?,
            permuted: required(meta.bool(keys::PERMUTED)?, keys::PERMUTED)?,
            precision: text(keys::PRECISION)?,
            drafting_head: text(keys::DRAFTING)?,
            lm_head_type: text(keys::LM_HEAD)?,
            i2s_layout: text(keys::I2S_LAYOUT)?,
        })
    }

    /// Returns the header of a model that is compiled with these options.
    pub(super) fn of(options: &LoadOptions, layouts: &[Layout]) -> Result<Self> {
        let Some(drafting) = drafting(&options.drafting_head) else {
            bail!(
                Unsupported,
                "an EAGLE-3 drafter cannot be compiled: load it with the original model"
            );
        };
        Ok(Self {
            build: build(),
            layouts: layouts.to_vec(),
            source: String::new(),
            source_bytes: 0,
            digest: [0; DIGEST_BYTES],
            merged: String::new(),
            permuted: false,
            precision: precision(options.precision).to_string(),
            drafting_head: drafting.to_string(),
            lm_head_type: lm_head(options),
            i2s_layout: i2s(options),
        })
    }

    /// Returns the digest of the source in hexadecimal digits.
    pub fn source_digest(&self) -> String {
        blake3::Hash::from(self.digest).to_hex().to_string()
    }

    /// Adds the header to a file.
    pub(super) fn write(&self, to: &mut crate::format::write::Writer<'_>) {
        let layouts: Vec<_> = self.layouts.iter().map(|layout| layout.name()).collect();
        to.set(keys::VERSION, VERSION)
            .set(keys::BUILD, &*self.build)
            .list(keys::LAYOUTS, &layouts)
            .set(keys::PRECISION, &*self.precision)
            .set(keys::DRAFTING, &*self.drafting_head)
            .set(keys::LM_HEAD, &*self.lm_head_type)
            .set(keys::I2S_LAYOUT, &*self.i2s_layout)
            .set(keys::MERGED, &*self.merged)
            .set(keys::PERMUTED, self.permuted)
            .set(keys::SOURCE, &*self.source)
            .set(keys::SOURCE_BYTES, self.source_bytes)
            .set(keys::SOURCE_DIGEST, &*self.source_digest());
    }

    /// Checks that the model was compiled for this device and these options.
    ///
    /// # Errors
    ///
    /// `Unsupported` with the difference.
    pub(crate) fn check(&self, options: &LoadOptions, profile: &Profile) -> Result<()> {
        let layout = match profile.kind {
            DeviceKind::Cpu => Layout::Panels,
            DeviceKind::Gpu => Layout::Sections,
        };
        let level = match options.level {
            Some(level) => level,
            None => cpu::Level::best()?,
        };
        let own_precision = precision(options.precision);
        if !self.layouts.contains(&layout) {
            let targets: Vec<_> = self.layouts.iter().map(|l| target(*l)).collect();
            bail!(
                Unsupported,
                "the model was compiled for {}s, and the device is a {}",
                targets.join("s and "),
                target(layout)
            );
        } else if profile.host_experts.is_some() && !self.layouts.contains(&Layout::Panels) {
            bail!(
                Unsupported,
                "the model was compiled for GPUs alone: experts on the CPU need the targets cpu,gpu"
            );
        } else if profile.kind == DeviceKind::Cpu && !cpu::reads_panels(level)? {
            bail!(
                Unsupported,
                "the model was compiled for CPUs with vectors, and the instruction set is {}",
                level.name()
            );
        } else if own_precision != self.precision {
            bail!(
                Unsupported,
                "the model was compiled for {} precision, not {own_precision}",
                self.precision
            );
        } else if drafting(&options.drafting_head) != Some(&*self.drafting_head) {
            bail!(
                Unsupported,
                "the model was compiled with the drafting head {:?}: compile it with the one that is used",
                self.drafting_head
            );
        }
        self.check_weights(options)
    }

    /// Checks the options that change weights.
    fn check_weights(&self, options: &LoadOptions) -> Result<()> {
        let what = if !options.lora.is_empty() {
            "merged adapters are"
        } else if options.lm_head_type.is_some() && lm_head(options) != self.lm_head_type {
            "the type of lm_head is"
        } else if options.i2s_layout != I2sLayout::default() && i2s(options) != self.i2s_layout {
            "the layout of I2_S tensors is"
        } else {
            return Ok(());
        };
        bail!(
            Unsupported,
            "{what} set when a model is compiled, not when it is loaded"
        )
    }

    /// Returns whether these options change the weights of the source as those of the model were changed.
    pub(crate) fn has_weights_of(&self, options: &LoadOptions) -> bool {
        self.merged.is_empty() == options.lora.is_empty()
            && self.lm_head_type == lm_head(options)
            && self.i2s_layout == i2s(options)
    }

    /// Rejects the model as a source of weights as in files.
    pub(crate) fn reject_as_source(&self) -> Result<()> {
        let source = match &*self.source {
            "" => "the model",
            name => name,
        };
        bail!(
            Unsupported,
            "a compiled model, whose weights are in layouts of devices: use {source}, from which it was compiled"
        )
    }
}

/// Returns the kind of device that reads a layout.
pub fn target(layout: Layout) -> &'static str {
    match layout {
        Layout::Panels => "CPU",
        Layout::Sections => "GPU",
    }
}

fn precision(precision: Precision) -> &'static str {
    match precision {
        Precision::Fast => "fast",
        Precision::Exact => "exact",
    }
}

fn lm_head(options: &LoadOptions) -> String {
    let dtype = options.lm_head_type;
    dtype.map_or(String::new(), |dtype| dtype.name().to_string())
}

fn i2s(options: &LoadOptions) -> String {
    format!("{:?}", options.i2s_layout)
}

fn drafting(head: &DraftingHead) -> Option<&'static str> {
    match head {
        DraftingHead::None => Some(""),
        DraftingHead::Mtp => Some("MTP"),
        DraftingHead::Eagle3(_) => None,
    }
}

fn required<T>(value: Option<T>, key: &str) -> Result<T> {
    match value {
        Some(value) => Ok(value),
        None => bail!(
            Format,
            "{key} is missing or invalid: the compiled model is damaged"
        ),
    }
}

/// Checks the digest of the header.
fn check_digest(file: &Directory) -> Result<()> {
    let stored = file.tensor(DIGEST).map(|tensor| file.bytes(tensor));
    match stored == Some(blake3::hash(file.head()).as_bytes()) {
        true => Ok(()),
        false => bail!(
            Format,
            "the header does not have its digest: the compiled model is damaged"
        ),
    }
}

/// A part of a compiled model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionSize {
    /// What it has.
    pub name: &'static str,
    /// Number of tensors.
    pub tensors: usize,
    /// Size in bytes.
    pub bytes: u64,
}

/// Returns the sizes of the parts of a compiled model; empty for other models.
pub fn section_sizes(file: &Directory) -> Vec<SectionSize> {
    if !is_compiled(&file.metadata) {
        return Vec::new();
    }
    let mut sizes: Vec<SectionSize> = Vec::new();
    let mut add = |name, tensors, bytes| match sizes.iter_mut().find(|size| size.name == name) {
        Some(size) => {
            size.tensors += tensors;
            size.bytes += bytes;
        }
        None => sizes.push(SectionSize {
            name,
            tensors,
            bytes,
        }),
    };
    add("metadata and tables", 0, file.head().len() as u64);
    for tensor in &file.tensors {
        let name = match &*tensor.name {
            DIGEST | DIGESTS => "digests",
            name if name.starts_with(TOKENIZER) => "tokenizer",
            name if name.ends_with("#panels") => "weights in panels, for CPUs",
            name if name.ends_with("#sections") => "weights in sections, for GPUs",
            name if name.ends_with("#scales") || name.ends_with("#biases") => "scales and biases",
            _ => "weights as in files",
        };
        add(name, 1, tensor.bytes);
    }
    sizes
}

/// Checks the digests of all tensors, and returns their number. Reads the whole file.
///
/// # Errors
///
/// `Format` with the name of a tensor that has changed.
pub fn check_digests(file: &Directory) -> Result<usize> {
    let digests = file
        .tensor(DIGESTS)
        .map_or(&[][..], |tensor| file.bytes(tensor));
    let (digests, rest) = digests.as_chunks::<DIGEST_BYTES>();
    let checked = file.tensors.iter().filter(|tensor| tensor.name != DIGESTS);
    if !rest.is_empty() || digests.len() != checked.clone().count() {
        bail!(
            Format,
            "{} digests of {} tensors: the compiled model is damaged",
            digests.len(),
            checked.count()
        );
    }
    for (tensor, digest) in checked.zip(digests) {
        if blake3::hash(file.bytes(tensor)).as_bytes() != digest {
            bail!(
                Format,
                "tensor {} does not have its digest: it is damaged",
                tensor.name
            );
        }
        file.release(tensor, 0..file.bytes(tensor).len());
    }
    Ok(digests.len())
}

/// Returns whether metadata is that of a compiled model.
fn is_compiled(metadata: &Metadata) -> bool {
    metadata.get(keys::VERSION).is_some()
}
