//! A weight in the form that tables use: one tensor, or several tensors of a file combined.

use crate::dtype::DType;
use crate::error::{Context, Error, ErrorKind, Result, bail};
use crate::format::{Directory, TensorInfo};
use crate::quant::{self, i2_s::Layout};
use std::ops::Range;
use std::sync::Arc;

/// Maximum length of a vector that is converted to f32.
const VECTOR_MAX: u32 = 1 << 21;

/// Types that no kernel reads. They occur in small tensors and are converted to f32.
const CONVERTED_TYPES: [DType; 5] = [DType::F64, DType::I8, DType::I16, DType::I32, DType::I64];

/// A matrix of the model. A vector is a matrix of one row.
#[derive(Clone, Debug)]
pub struct Weight {
    /// Name in GGUF files, used by recipes.
    pub name: String,
    /// Storage type.
    pub dtype: DType,
    /// Number of rows, of all stacked matrices.
    pub rows: u32,
    /// Number of columns.
    pub cols: u32,
    /// Number of concatenated matrices of `rows / stack` rows: the expert count, otherwise 1.
    pub stack: u32,
    /// Elements, or their codes.
    pub codes: Data,
    /// Scales, for types with scales in separate tensors.
    pub(super) scales: Option<Scaling>,
}

/// Scales of a weight, with biases if the format has them.
#[derive(Clone, Debug)]
pub(super) struct Scaling {
    pub(super) float: DType,
    pub(super) scales: Data,
    pub(super) biases: Option<Data>,
    /// Rows and columns per scale.
    pub(super) group: [usize; 2],
}

/// Bytes of a tensor or of a range of it: in place in the file, or computed while loading.
#[derive(Clone, Debug)]
pub struct Data {
    /// Index of the tensor in the file.
    pub tensor: usize,
    computed: Option<Arc<Vec<u8>>>,
    /// Byte range; `None` means all bytes.
    range: Option<Range<usize>>,
}

impl Data {
    /// Refers to the bytes in the file.
    pub(super) fn in_place(tensor: usize) -> Self {
        Self {
            tensor,
            computed: None,
            range: None,
        }
    }

    /// Replaces the bytes of the file.
    pub(super) fn computed(tensor: usize, bytes: Vec<u8>) -> Self {
        Self {
            tensor,
            computed: Some(Arc::new(bytes)),
            range: None,
        }
    }

    /// Returns the bytes.
    pub fn bytes<'a>(&'a self, file: &'a Directory) -> &'a [u8] {
        let all = match &self.computed {
            Some(bytes) => bytes,
            None => file.bytes(&file.tensors[self.tensor]),
        };
        match &self.range {
            Some(range) => &all[range.clone()],
            None => all,
        }
    }

    /// Copies the bytes from `first` on, without mapping pages of the file into memory.
    pub(super) fn read(&self, file: &Directory, first: usize, to: &mut [u8]) -> Result<()> {
        let all = self.bytes(file);
        let Some(bytes) = all.get(first..).and_then(|bytes| bytes.get(..to.len())) else {
            let (name, bytes) = (&file.tensors[self.tensor].name, to.len());
            bail!(
                Argument,
                "tensor {name}: {bytes} bytes from byte {first} on exceed its {} bytes",
                all.len()
            );
        };
        if self.computed.is_some() {
            to.copy_from_slice(bytes);
            return Ok(());
        }
        let start = self.range.as_ref().map_or(0, |range| range.start);
        file.read(&file.tensors[self.tensor], start + first, to)
    }

    /// Hints to the system that a byte range is unlikely to be read again.
    pub(super) fn release(&self, file: &Directory, range: Range<usize>) {
        if self.computed.is_none() {
            let first = self.range.as_ref().map_or(0, |own| own.start);
            let tensor = &file.tensors[self.tensor];
            file.release(tensor, first + range.start..first + range.end);
        }
    }

    /// Returns the data of files to which the tensors before `first` were added.
    fn moved(self, first: usize) -> Self {
        Self {
            tensor: self.tensor + first,
            ..self
        }
    }

    /// Returns a byte range of the data, without a copy.
    pub(super) fn slice(&self, bytes: Range<usize>) -> Self {
        let first = self.range.as_ref().map_or(0, |own| own.start);
        Self {
            range: Some(first + bytes.start..first + bytes.end),
            ..self.clone()
        }
    }
}

impl Weight {
    /// Returns the weight of files to which the tensors before `first` were added.
    pub(super) fn moved(self, first: usize) -> Self {
        let scales = self.scales.map(|scales| Scaling {
            scales: scales.scales.moved(first),
            biases: scales.biases.map(|biases| biases.moved(first)),
            ..scales
        });
        Self {
            codes: self.codes.moved(first),
            scales,
            ..self
        }
    }

    /// Returns the tensor at `index` of the file as a weight called `name`. Float vectors are
    /// converted to f32; matrices stay in place if a kernel reads their type.
    ///
    /// # Errors
    ///
    /// `Unsupported` for an unsupported type or a shape over 32 bits.
    pub fn plain(name: String, file: &Directory, index: usize) -> Result<Self> {
        let tensor = &file.tensors[index];
        let dtype = known(tensor)?;
        let [rows, cols] = shape(tensor)?;
        let vector = tensor.dims.len() == 1 && cols <= VECTOR_MAX;
        let narrow = matches!(dtype, DType::F16 | DType::Bf16) && vector;
        let (dtype, codes) = if narrow || CONVERTED_TYPES.contains(&dtype) {
            let bytes = f32_bytes(&floats(file, tensor)?);
            (DType::F32, Data::computed(index, bytes))
        } else {
            (dtype, Data::in_place(index))
        };
        let outer = tensor.dims.iter().skip(2);
        let stack = outer.fold(1u64, |n, dim| n.saturating_mul(*dim));
        Ok(Self {
            name,
            dtype,
            rows,
            cols,
            // A factor of the rows, which fit into 32 bits.
            stack: u32::try_from(stack).unwrap_or(1).max(1),
            codes,
            scales: None,
        })
    }

    /// Converts an `I2_S` weight from `layout` to the layout that kernels read.
    ///
    /// # Errors
    ///
    /// `Format` for a tensor that does not fit the layout.
    pub(super) fn with_i2s_layout(mut self, layout: Layout, file: &Directory) -> Result<Self> {
        if self.dtype == DType::I2S && layout != Layout::default() {
            let bytes = layout.canonical(self.codes.bytes(file), self.cols as usize);
            self.codes = Data::computed(self.codes.tensor, bytes.context(&self.name)?);
        }
        Ok(self)
    }

    /// Returns the scales in the form that kernels use.
    pub fn scales<'a>(&'a self, file: &'a Directory) -> Option<quant::Scales<'a>> {
        let scaling = self.scales.as_ref()?;
        let biases = scaling.biases.as_ref();
        Some(quant::Scales {
            float: scaling.float,
            bytes: scaling.scales.bytes(file),
            biases: biases.map_or(&[], |biases| biases.bytes(file)),
            group: scaling.group,
        })
    }

    /// Returns the bytes of codes, scales and biases.
    pub(super) fn bytes(&self, file: &Directory) -> u64 {
        self.parts().map(|data| data.bytes(file).len() as u64).sum()
    }

    /// Returns the indices of the tensors whose bytes are used in place.
    pub(super) fn tensors(&self) -> impl Iterator<Item = usize> {
        let in_place = self.parts().filter(|data| data.computed.is_none());
        in_place.map(|data| data.tensor)
    }

    /// Codes, scales and biases.
    fn parts(&self) -> impl Iterator<Item = &Data> {
        let scaling = self.scales.as_ref();
        let biases = scaling.and_then(|s| s.biases.as_ref());
        let parts = [Some(&self.codes), scaling.map(|s| &s.scales), biases];
        parts.into_iter().flatten()
    }
}

/// Returns the storage type of a tensor.
///
/// # Errors
///
/// `Unsupported` for a type without kernels.
pub(super) fn known(tensor: &TensorInfo) -> Result<DType> {
    tensor.dtype.known().ok_or_else(|| {
        let message =
            format_args!("tensor {}: unsupported type {}", tensor.name, tensor.dtype).to_string();
        Error::new(ErrorKind::Unsupported, message)
    })
}

/// Returns the rows and columns of a tensor.
pub(super) fn shape(tensor: &TensorInfo) -> Result<[u32; 2]> {
    match (u32::try_from(tensor.rows()), u32::try_from(tensor.cols())) {
        (Ok(rows), Ok(cols)) => Ok([rows, cols]),
        _ => bail!(
            Unsupported,
            "tensor {}: {} rows of {} columns, which do not fit 32 bits",
            tensor.name,
            tensor.rows(),
            tensor.cols()
        ),
    }
}

/// Decodes all elements of an unquantized tensor.
pub fn floats(file: &Directory, tensor: &TensorInfo) -> Result<Vec<f32>> {
    let dtype = known(tensor)?;
    let plain = matches!(dtype, DType::F32 | DType::F16 | DType::Bf16);
    if !plain && !CONVERTED_TYPES.contains(&dtype) {
        bail!(
            Unsupported,
            "tensor {} is {dtype}, expected an unquantized type",
            tensor.name
        );
    }
    let bytes = file.bytes(tensor);
    // Bounded by the file size: opening checked the bytes against the shape.
    let mut row = vec![0.0; bytes.len() / dtype.facts().bytes];
    quant::decode_row(dtype, bytes, &mut row);
    Ok(row)
}

/// Returns the bytes of f32 values in memory order.
pub fn f32_bytes(floats: &[f32]) -> Vec<u8> {
    bytemuck::cast_slice(floats).to_vec()
}
