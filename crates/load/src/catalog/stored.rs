//! The catalog in a compiled model: weights as columns of metadata, and their bytes as tensors.

use super::layouts::StoredWeights;
use super::{Catalog, HEAD, resolve};
use crate::arch::{Arch, Config};
use crate::compiled::Header;
use crate::dtype::DType;
use crate::error::{Context, Error, ErrorKind, Result, bail};
use crate::exec::Layout;
use crate::format::Directory;
use crate::format::write::Writer;
use crate::options::{DraftingHead, LoadMode, LoadOptions};
use crate::plan::builder::Weights;
use crate::quant::Scales;
use crate::source::Opened;
use crate::speech_model;
use crate::weight::{Data, Scaling, Weight};
use std::sync::OnceLock;

/// Columns of the weights, an array each.
mod columns {
    pub(super) const NAMES: &str = "tabla.weights.names";
    pub(super) const DTYPES: &str = "tabla.weights.types";
    pub(super) const ROWS: &str = "tabla.weights.rows";
    pub(super) const COLS: &str = "tabla.weights.columns";
    pub(super) const STACKS: &str = "tabla.weights.stacked";
    /// Scales of ternary weights, NaN for others.
    pub(super) const DIGIT_SCALES: &str = "tabla.weights.digit_scales";
    /// Types of scales in separate tensors, empty for weights without any.
    pub(super) const SCALE_TYPES: &str = "tabla.weights.scale_types";
    /// Rows and columns per scale.
    pub(super) const SCALE_GROUPS: &str = "tabla.weights.scale_groups";
    pub(super) const TIED: &str = "tabla.weights.tied";
    pub(super) const PARAMETERS: &str = "tabla.weights.parameters";
}

/// Bytes of a weight in a compiled model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Elements as in files.
    Elements,
    /// Elements in the layout of a device.
    InLayout(Layout),
    /// Scales.
    Scales,
    /// Biases.
    Biases,
}

impl Part {
    /// Returns the name of the tensor with these bytes of a weight.
    pub(crate) fn tensor(self, weight: &str) -> String {
        match self {
            Self::Elements => weight.to_string(),
            Self::InLayout(layout) => format!("{weight}#{}", layout.name()),
            Self::Scales => format!("{weight}#scales"),
            Self::Biases => format!("{weight}#biases"),
        }
    }
}

impl Catalog {
    /// Adds the columns of the weights to a compiled model.
    pub(crate) fn write_columns(&self, to: &mut Writer<'_>) {
        let scaling = |w: &Weight| w.scales.clone();
        let of =
            |column: &dyn Fn(&Weight) -> u32| self.weights.iter().map(column).collect::<Vec<_>>();
        let texts = |column: &dyn Fn(&Weight) -> String| {
            self.weights.iter().map(column).collect::<Vec<_>>()
        };
        let digit_scales = self.digit_scales.iter();
        let groups = self.weights.iter().flat_map(|w| {
            let group = scaling(w).map_or([0; 2], |s| s.group);
            group.map(|n| u32::try_from(n).unwrap_or(u32::MAX))
        });
        to.list(columns::NAMES, &texts(&|w| w.name.clone()))
            .list(columns::DTYPES, &texts(&|w| w.dtype.name().to_string()))
            .list(columns::ROWS, &of(&|w| w.rows))
            .list(columns::COLS, &of(&|w| w.cols))
            .list(columns::STACKS, &of(&|w| w.stack))
            .list(
                columns::DIGIT_SCALES,
                &digit_scales
                    .map(|s| s.unwrap_or(f32::NAN))
                    .collect::<Vec<_>>(),
            )
            .list(
                columns::SCALE_TYPES,
                &texts(&|w| scaling(w).map_or(String::new(), |s| s.float.name().to_string())),
            )
            .list(columns::SCALE_GROUPS, &groups.collect::<Vec<_>>())
            .set(columns::TIED, self.tied)
            .set(columns::PARAMETERS, self.parameters);
    }

    /// Builds the catalog of a compiled model.
    ///
    /// # Errors
    ///
    /// `Format` for columns or tensors that do not fit each other.
    pub(super) fn restore(
        model: Opened,
        header: &Header,
        arch: &'static Arch,
        mut config: Config,
        options: &LoadOptions,
    ) -> Result<(Self, Config)> {
        let mut catalog = Self::of_columns(model, header, arch).context("compiled model")?;
        resolve::check_vocab(&catalog.weights, &catalog.model.file, &mut config)?;
        if options.drafting_head == DraftingHead::Mtp {
            config.enable_mtp(arch)?;
        }
        resolve::complete(&mut config, &catalog);
        if config.speech.is_some() {
            let positions = catalog.find("position_embd.weight");
            speech_model::complete(&catalog.model, positions, &mut config)?;
        }
        catalog.load_mode = options.load_mode;
        catalog.merged.clone_from(&header.merged);
        Ok((catalog, config))
    }

    fn of_columns(model: Opened, header: &Header, arch: &'static Arch) -> Result<Self> {
        let file = &model.file;
        let meta = &file.metadata;
        let names = column(columns::NAMES, meta.strs(columns::NAMES)?, None)?;
        let count = Some(names.len());
        let dtypes = column(columns::DTYPES, meta.strs(columns::DTYPES)?, count)?;
        let numbers = |key: &str, count: usize| column(key, meta.u32s(key)?, Some(count));
        let rows = numbers(columns::ROWS, names.len())?;
        let cols = numbers(columns::COLS, names.len())?;
        let stacks = numbers(columns::STACKS, names.len())?;
        let groups = numbers(columns::SCALE_GROUPS, 2 * names.len())?;
        let digits = column(
            columns::DIGIT_SCALES,
            meta.f32s(columns::DIGIT_SCALES)?,
            count,
        )?;
        let floats = column(
            columns::SCALE_TYPES,
            meta.strs(columns::SCALE_TYPES)?,
            count,
        )?;
        let (mut weights, mut stored) = (Vec::with_capacity(names.len()), StoredWeights::default());
        for (i, name) in names.iter().enumerate() {
            let shape = [rows[i], cols[i], stacks[i]];
            let group = [groups[2 * i], groups[2 * i + 1]].map(|n| n as usize);
            let codes = codes(file, name, i, &mut stored)?;
            let scales = scaling(file, name, shape, (floats[i], group)).context(*name)?;
            let weight = weight(name, (dtypes[i], shape), codes, scales)?;
            let bytes = weight.codes.bytes(file).len() as u64;
            // Devices check the exact sizes of their layouts, in which a byte has at most eight elements.
            let fits = match stored.is_in_layouts_only(index(i)) {
                true => elements(shape) / 8 <= bytes,
                false => weight.dtype.bytes(elements(shape)) == Some(bytes),
            };
            if !fits {
                bail!(
                    Format,
                    "weight {name:?}: {bytes} bytes do not fit {shape:?}"
                );
            }
            weights.push(weight);
        }
        let by_name = resolve::indices(&weights, file)?;
        let tied = meta.bool(columns::TIED)?.unwrap_or(false);
        if tied && by_name.contains_key(HEAD) {
            bail!(Format, "{HEAD} is stored and {} is true", columns::TIED);
        }
        let digit_scales = digits.into_iter().map(|x| (!x.is_nan()).then_some(x));
        Ok(Self {
            arch,
            parameters: meta.u64(columns::PARAMETERS)?.unwrap_or(0),
            digit_scales: digit_scales.collect(),
            by_name,
            tied,
            rope_freqs: Vec::new(),
            merged: header.merged.clone(),
            stored,
            load_mode: LoadMode::default(),
            copied: OnceLock::new(),
            weights,
            model,
        })
    }
}

fn index(i: usize) -> u32 {
    u32::try_from(i).expect("a file has fewer than 2^32 tensors")
}

/// Returns a column; all have the same length.
fn column<T>(key: &str, values: Option<Vec<T>>, count: Option<usize>) -> Result<Vec<T>> {
    let values = values.unwrap_or_default();
    match count {
        Some(count) if count != values.len() => {
            bail!(
                Format,
                "{key}: expected {count} values, got {}",
                values.len()
            )
        }
        _ => Ok(values),
    }
}

/// Returns the elements of a weight, or its bytes in a layout if there is nothing else.
fn codes(file: &Directory, name: &str, i: usize, stored: &mut StoredWeights) -> Result<Data> {
    let tensor = |part: Part| file.index(&part.tensor(name));
    let mut in_layout = None;
    for layout in Layout::ALL {
        if let Some(found) = tensor(Part::InLayout(layout)) {
            stored.add(index(i), layout, found);
            in_layout = Some(found);
        }
    }
    match (tensor(Part::Elements), in_layout) {
        (Some(elements), _) => Ok(Data::in_place(elements)),
        (None, Some(found)) => {
            stored.set_in_layouts_only(index(i));
            Ok(Data::in_place(found))
        }
        (None, None) => bail!(Format, "weight {name:?} has no tensor"),
    }
}

fn scaling(
    file: &Directory,
    name: &str,
    [rows, cols, _]: [u32; 3],
    (float, group): (&str, [usize; 2]),
) -> Result<Option<Scaling>> {
    if float.is_empty() {
        return Ok(None);
    }
    let float = dtype(float)?;
    let bytes = match group {
        [0, _] | [_, 0] => None,
        _ => Scales::bytes_of(float, group, rows as usize, cols as usize),
    };
    let part = |part: Part| {
        let Some(tensor) = file.index(&part.tensor(name)) else {
            return Ok(None);
        };
        match Some(file.bytes(&file.tensors[tensor]).len()) == bytes {
            true => Ok(Some(Data::in_place(tensor))),
            false => bail!(Format, "{part:?}: {bytes:?} bytes expected"),
        }
    };
    let Some(scales) = part(Part::Scales)? else {
        bail!(Format, "the scales are missing");
    };
    Ok(Some(Scaling {
        float,
        scales,
        biases: part(Part::Biases)?,
        group,
    }))
}

/// Returns the number of elements of a weight.
fn elements([rows, cols, _]: [u32; 3]) -> u64 {
    u64::from(rows) * u64::from(cols)
}

fn weight(
    name: &str,
    (dtype_name, [rows, cols, stack]): (&str, [u32; 3]),
    codes: Data,
    scales: Option<Scaling>,
) -> Result<Weight> {
    let dtype = dtype(dtype_name)?;
    let bytes = dtype.bytes(elements([rows, cols, stack]));
    if bytes.is_none() || stack == 0 || !rows.is_multiple_of(stack) {
        bail!(
            Format,
            "weight {name:?}: invalid shape: {rows} rows of {cols} columns of {dtype}, {stack} stacked"
        );
    }
    Ok(Weight {
        name: name.to_string(),
        dtype,
        rows,
        cols,
        stack,
        codes,
        scales,
    })
}

fn dtype(name: &str) -> Result<DType> {
    DType::from_name(name).ok_or_else(|| {
        Error::new(
            ErrorKind::Format,
            format_args!("unknown storage type {name:?}"),
        )
    })
}
