//! Writes a compiled model.

use super::{ALIGNMENT, ALIGNMENT_HEADS, DIGEST, DIGEST_BYTES, DIGESTS, Header, stored_tables};
use crate::build::Build;
use crate::catalog::stored::Part;
use crate::device::DeviceKind;
use crate::digest;
use crate::dtype::DType;
use crate::error::{Context, Result, bail};
#[cfg(feature = "gpu")]
use crate::exec::gpu;
use crate::exec::{Layout, Program, Tensors, cpu};
use crate::format::write::{Body, Writer};
use crate::op::table::{BufferId, Place, SlotInfo, Table};
use crate::options::{DeviceChoice, LoadOptions};
use crate::output::Output;
use crate::selected_device::SelectedDevice;
use crate::source::Source;
use crate::text::ChatTemplates;
use crate::weight::Weight;
use crate::{chat, speech_model, tokenizer};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use tabla_format::TensorType;

/// Sizes of a compiled model.
#[derive(Clone, Debug)]
pub struct CompileReport {
    /// Layouts of the weights.
    pub layouts: Vec<Layout>,
    /// Size of the source in bytes.
    pub source_bytes: u64,
    /// Size of the compiled model in bytes.
    pub bytes: u64,
}

/// Bytes of a tensor of the file.
struct Tensor<'a> {
    name: String,
    dtype: TensorType,
    dims: Vec<u64>,
    data: Data<'a>,
}

enum Data<'a> {
    Bytes(std::borrow::Cow<'a, [u8]>),
    /// A weight in a layout.
    InLayout(u32, Layout),
}

/// The program that is compiled for one kind of device.
struct Target {
    build: Build,
    program: Program,
    weights: Weights,
}

/// The weights of a program that are stored in the layout of its device.
enum Weights {
    Panels(cpu::StoredPanels),
    /// A slot of each weight that the GPU reads, and the places that read it.
    Sections(BTreeMap<u32, (SlotInfo, BTreeSet<Place>)>),
}

/// Compiles a model to a file with the weights in the layouts of `devices`, CPU and GPU. The file is replaced only when
/// the new one is complete. `progress` receives the number of written bytes and the total, and can cancel.
///
/// # Errors
///
/// Those of loading; `Unsupported` for a model that is compiled and for an EAGLE-3 drafter; `Argument` if `path` is a
/// file of the source; `Io` if writing fails; `Cancelled` if `progress` cancels.
pub fn compile_model(
    source: &Source,
    path: &Path,
    devices: &[DeviceChoice],
    options: &LoadOptions,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<CompileReport> {
    let mut targets: Vec<Target> = Vec::new();
    for device in devices {
        let target = target(source, *device, options)?;
        // Several devices may have the same layout.
        if targets
            .iter()
            .all(|other| other.layout() != target.layout())
        {
            targets.push(target);
        }
    }
    let Some(first) = targets.first() else {
        bail!(Argument, "no device to compile for");
    };
    let layouts: Vec<_> = targets.iter().map(Target::layout).collect();
    let catalog = &first.build.catalog;
    let model = catalog.model();
    let mut header = Header::of(options, &layouts)?;
    header.source = name_of(source);
    header.source_bytes = catalog.file_bytes();
    header.digest = digest::of(&model.file)?;
    header.merged = catalog.merged().to_string();
    header.permuted = model.may_permute_heads();
    let mut writer = Writer::new();
    writer.alignment(ALIGNMENT);
    write_metadata(&first.build, &mut writer)?;
    header.write(&mut writer);
    catalog.write_columns(&mut writer);
    for target in &targets {
        stored_tables::write(&mut writer, &target.build, &target.program.tables)?;
    }
    let tensors = tensors(&first.build, &targets)?;
    for tensor in &tensors {
        writer.declare(&tensor.name, tensor.dtype, &tensor.dims);
    }
    let digests = (tensors.len() * DIGEST_BYTES) as u64;
    writer.declare(DIGESTS, DType::I8, &[digests]);
    let mut output = Output::create(path, model.file.paths())?;
    write_tensors(&writer, tensors, &targets, &mut output, progress).context(path.display())?;
    // Each target has maps of its own.
    for target in &targets {
        target.build.catalog.model().file.check_unchanged()?;
    }
    output.commit()?;
    Ok(CompileReport {
        layouts,
        source_bytes: header.source_bytes,
        bytes: path.metadata().map_or(0, |m| m.len()),
    })
}

/// Builds the tables of a model for a device.
fn target(source: &Source, device: DeviceChoice, options: &LoadOptions) -> Result<Target> {
    let options = options.clone().device(device);
    let profile = SelectedDevice::choose(&options)?.profile()?;
    let build = Build::prepare(source, &options, profile)?;
    if let Some(header) = &build.catalog.model().compiled {
        header.reject_as_source()?;
    }
    let program = build.program(build.tables()?.into());
    let weights = match build.profile.kind {
        DeviceKind::Cpu => Weights::Panels(cpu::StoredPanels::of(&program, options.precision)?),
        DeviceKind::Gpu => Weights::Sections(sections(&program.tables)),
    };
    Ok(Target {
        build,
        program,
        weights,
    })
}

/// Returns the weights that a GPU reads, except those that are the same in files.
fn sections(tables: &[Table]) -> BTreeMap<u32, (SlotInfo, BTreeSet<Place>)> {
    let mut weights = BTreeMap::new();
    let cmds = tables
        .iter()
        .flat_map(|table| table.cmds.iter().map(move |cmd| (table, cmd)));
    for (table, cmd) in cmds {
        for slot in cmd.slots().iter().map(|slot| table.slot(*slot)) {
            if let BufferId::Weight(index, _) = slot.buffer
                && slot.dtype != DType::F32
            {
                let weight = weights.entry(index);
                let (_, places) = weight.or_insert((slot.clone(), BTreeSet::new()));
                places.insert(cmd.place);
            }
        }
    }
    weights.retain(|_, (_, places)| places.contains(&Place::Device));
    weights
}

impl Target {
    fn layout(&self) -> Layout {
        match self.weights {
            Weights::Panels(_) => Layout::Panels,
            Weights::Sections(_) => Layout::Sections,
        }
    }

    /// Returns the size of a weight in the layout, if it has one.
    fn bytes_of(&self, index: u32, weight: &Weight) -> Option<u64> {
        match &self.weights {
            Weights::Panels(panels) => panels.bytes_of(index),
            Weights::Sections(slots) => slots
                .get(&index)
                .map(|_| (self.build.profile.weight_bytes)(weight.dtype, weight.rows, weight.cols)),
        }
    }

    /// Returns whether the elements of a weight are read only in the layout.
    fn reads_layout_only(&self, index: u32) -> bool {
        match &self.weights {
            Weights::Panels(panels) => {
                panels.bytes_of(index).is_some() && !panels.is_also_unpacked(index)
            }
            Weights::Sections(slots) => {
                let slot = slots.get(&index);
                slot.is_some_and(|(_, places)| places.len() == 1)
            }
        }
    }

    /// Passes the bytes of a weight in the layout to `write`.
    fn convert(&self, index: u32, write: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        match &self.weights {
            Weights::Panels(panels) => panels.pack(&self.program, index, write),
            #[cfg(feature = "gpu")]
            Weights::Sections(slots) => match slots.get(&index) {
                Some((slot, _)) => {
                    let tensors = &*self.program.tensors;
                    write(&gpu::stored_sections(slot, tensors, index)?)
                }
                None => bail!(Internal, "weight {index} has no layout"),
            },
            #[cfg(not(feature = "gpu"))]
            Weights::Sections(_) => bail!(Internal, "weight {index} has no layout"),
        }
    }
}

/// Returns the name of the file or folder of a model.
fn name_of(source: &Source) -> String {
    let name = match source {
        Source::Path(path) => path.file_name(),
        Source::Bytes(_) | Source::BuiltIn => None,
    };
    name.map_or(String::new(), |name| name.to_string_lossy().into_owned())
}

/// Writes the metadata of the source, and what its other files add.
fn write_metadata(build: &Build, to: &mut Writer<'_>) -> Result<()> {
    let (model, config) = (build.catalog.model(), &build.config);
    let prefixes = ["split.", "tabla.", "tokenizer."];
    let kept = |key: &str| {
        key != "general.alignment" && !prefixes.iter().any(|prefix| key.starts_with(prefix))
    };
    for (key, value) in model.file.metadata.iter().filter(|(key, _)| kept(key)) {
        to.copy(key, value);
    }
    let vocab = format!("{}.vocab_size", config.architecture);
    if model.file.metadata.get(&vocab).is_none() {
        to.set(&vocab, config.vocab);
    }
    for (name, template) in chat::read(model)?.iter() {
        match name {
            ChatTemplates::DEFAULT => to.set(chat::KEY, template),
            name => to.set(&format!("{}.{name}", chat::KEY), template),
        };
    }
    if config.speech.is_some() {
        let heads = speech_model::alignment_heads(model, config)?;
        let heads: Vec<u32> = heads.into_iter().flat_map(|(l, h)| [l, h]).collect();
        to.list(ALIGNMENT_HEADS, &heads);
    }
    Ok(())
}

/// Returns all tensors except the last one, which has their digests.
fn tensors<'a>(build: &'a Build, targets: &[Target]) -> Result<Vec<Tensor<'a>>> {
    let catalog = &build.catalog;
    let mut all = vec![Tensor::bytes(DIGEST.to_string(), vec![0; DIGEST_BYTES])];
    let tokenizer = tokenizer::build(catalog.model(), &build.config)?;
    for (name, bytes) in tokenizer.sections() {
        all.push(Tensor::bytes(tokenizer::section_tensor(name), bytes));
    }
    for (index, weight) in (0..).zip(catalog.weights()) {
        let stored = targets.iter().filter_map(|target| {
            let bytes = target.bytes_of(index, weight)?;
            Some((target.layout(), bytes))
        });
        let stored: Vec<_> = stored.collect();
        for (layout, bytes) in &stored {
            all.push(Tensor {
                name: Part::InLayout(*layout).tensor(&weight.name),
                dtype: DType::I8.into(),
                dims: vec![*bytes],
                data: Data::InLayout(index, *layout),
            });
        }
        let used = targets.iter().all(|target| target.reads_layout_only(index));
        if stored.is_empty() || !used {
            all.push(elements(weight, catalog.weight(index)));
        }
        if let Some(scales) = catalog.scales(index) {
            let parts = [(Part::Scales, scales.bytes), (Part::Biases, scales.biases)];
            let parts = parts.into_iter().filter(|(_, bytes)| !bytes.is_empty());
            let tensors =
                parts.map(|(part, bytes)| Tensor::bytes(part.tensor(&weight.name), bytes));
            all.extend(tensors);
        }
    }
    Ok(all)
}

impl<'a> Tensor<'a> {
    fn bytes(name: String, bytes: impl Into<std::borrow::Cow<'a, [u8]>>) -> Self {
        let bytes = bytes.into();
        Self {
            name,
            dtype: DType::I8.into(),
            dims: vec![bytes.len() as u64],
            data: Data::Bytes(bytes),
        }
    }
}

/// Returns the elements of a weight, in its own type if GGUF files have it.
fn elements<'a>(weight: &Weight, bytes: &'a [u8]) -> Tensor<'a> {
    let dtype = TensorType::from(weight.dtype);
    let dims = vec![u64::from(weight.cols), u64::from(weight.rows)];
    let name = Part::Elements.tensor(&weight.name);
    let size = dtype.bytes(dims[1], dims[0]);
    match dtype.gguf() {
        Some(_) if size == Some(bytes.len() as u64) => Tensor {
            name,
            dtype,
            dims,
            data: Data::Bytes(bytes.into()),
        },
        _ => Tensor::bytes(name, bytes),
    }
}

/// Writes the header, all tensors and their digests.
fn write_tensors(
    writer: &Writer<'_>,
    mut tensors: Vec<Tensor<'_>>,
    targets: &[Target],
    output: &mut Output,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<()> {
    let mut hasher = blake3::Hasher::new();
    writer.begin(&mut hasher)?;
    let digest = hasher.finalize().as_bytes().to_vec();
    if let Some(first) = tensors.first_mut() {
        first.data = Data::Bytes(digest.into());
    }
    let total = tensors.iter().map(Tensor::size).sum();
    let (mut digests, mut done) = (Vec::new(), 0);
    let mut body = writer.begin(output)?;
    for tensor in &tensors {
        let mut put = |bytes: &[u8]| write_one(&mut body, bytes, &mut digests);
        match &tensor.data {
            Data::Bytes(bytes) => put(bytes)?,
            Data::InLayout(index, layout) => {
                let target = targets.iter().find(|target| target.layout() == *layout);
                let Some(target) = target else {
                    bail!(Internal, "no target has the layout {layout:?}");
                };
                target.convert(*index, put)?;
            }
        }
        done += tensor.size();
        if progress(done, total).is_break() {
            bail!(Cancelled, "compiling was cancelled");
        }
    }
    body.write(&digests)?;
    body.end().map(drop)
}

fn write_one<W: std::io::Write>(
    body: &mut Body<W>,
    bytes: &[u8],
    digests: &mut Vec<u8>,
) -> Result<()> {
    digests.extend(blake3::hash(bytes).as_bytes());
    body.write(bytes)
}

impl Tensor<'_> {
    fn size(&self) -> u64 {
        match &self.data {
            Data::Bytes(bytes) => bytes.len() as u64,
            Data::InLayout(..) => self.dims.first().copied().unwrap_or(0),
        }
    }
}
