//! A weight: a tensor, or several of a file that together are one, as tables want it.

use crate::dtype::DType;
use crate::error::{Context, Error, ErrorKind, Result, bail};
use crate::format::{Directory, TensorInfo};
use crate::quant::{self, i2_s::Layout};
use std::ops::Range;
use std::sync::Arc;

/// Elements of a vector that is turned into f32; no model is wider.
const VECTOR_MAX: u32 = 1 << 21;

/// Numbers that no kernel reads: they occur in small tensors, and become f32.
const UNUSUAL: [DType; 5] = [DType::F64, DType::I8, DType::I16, DType::I32, DType::I64];

/// A matrix of the model, or a vector, which is a matrix of one row.
#[derive(Clone, Debug)]
pub(super) struct Weight {
    /// Its name in GGUF files, by which recipes ask for it.
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) rows: u32,
    pub(super) cols: u32,
    /// Matrices of `rows / stack` rows that lie one behind the other: experts, and 1 elsewhere.
    pub(super) stack: u32,
    pub(super) codes: Data,
    /// The scales of types whose scales lie in tensors of their own.
    pub(super) scales: Option<Scaling>,
}

/// The scales of a weight, and the biases of formats that have them.
#[derive(Clone, Debug)]
pub(super) struct Scaling {
    pub(super) float: DType,
    pub(super) scales: Data,
    pub(super) biases: Option<Data>,
    /// Rows and columns that share a scale.
    pub(super) group: [usize; 2],
}

/// The bytes of a tensor or of a stretch of it: in place, or other ones that loading computed.
#[derive(Clone, Debug)]
pub(super) struct Data {
    /// Its place among the tensors of the file.
    pub(super) tensor: usize,
    computed: Option<Arc<Vec<u8>>>,
    /// Which of the bytes; all where there is none.
    stretch: Option<Range<usize>>,
}

impl Data {
    /// The bytes where the file has them.
    pub(super) fn in_place(tensor: usize) -> Self {
        Self {
            tensor,
            computed: None,
            stretch: None,
        }
    }

    /// Bytes that stand for those of the file.
    pub(super) fn computed(tensor: usize, bytes: Vec<u8>) -> Self {
        Self {
            tensor,
            computed: Some(Arc::new(bytes)),
            stretch: None,
        }
    }

    pub(super) fn bytes<'a>(&'a self, file: &'a Directory) -> &'a [u8] {
        let all = match &self.computed {
            Some(bytes) => bytes,
            None => file.bytes(&file.tensors[self.tensor]),
        };
        match &self.stretch {
            Some(stretch) => &all[stretch.clone()],
            None => all,
        }
    }

    /// Says that some of the bytes will hardly be read again.
    pub(super) fn release(&self, file: &Directory, range: Range<usize>) {
        if self.computed.is_none() {
            let first = self.stretch.as_ref().map_or(0, |stretch| stretch.start);
            let tensor = &file.tensors[self.tensor];
            file.release(tensor, first + range.start..first + range.end);
        }
    }

    /// A stretch of these bytes, without a copy.
    pub(super) fn stretch(&self, bytes: Range<usize>) -> Self {
        let first = self.stretch.as_ref().map_or(0, |stretch| stretch.start);
        Self {
            stretch: Some(first + bytes.start..first + bytes.end),
            ..self.clone()
        }
    }
}

impl Weight {
    /// The tensor at `index` of the file as a weight of this name: a vector as f32, whatever it is
    /// stored as, and a matrix in place where a kernel reads its type.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a type that this build cannot compute with or a shape over its sizes.
    pub(super) fn plain(name: String, file: &Directory, index: usize) -> Result<Self> {
        let tensor = &file.tensors[index];
        let dtype = known(tensor)?;
        let [rows, cols] = shape(tensor)?;
        let vector = tensor.dims.len() == 1 && cols <= VECTOR_MAX;
        let narrow = matches!(dtype, DType::F16 | DType::Bf16) && vector;
        let (dtype, codes) = if narrow || UNUSUAL.contains(&dtype) {
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
            // A factor of the rows, which fit.
            stack: u32::try_from(stack).unwrap_or(1).max(1),
            codes,
            scales: None,
        })
    }

    /// The same numbers in the layout of `I2_S` that kernels read, where the file has another.
    ///
    /// # Errors
    ///
    /// `Format` for a tensor that the layout cannot have.
    pub(super) fn with_i2s_layout(mut self, layout: Layout, file: &Directory) -> Result<Self> {
        if self.dtype == DType::I2S && layout != Layout::default() {
            let bytes = layout.canonical(self.codes.bytes(file), self.cols as usize);
            self.codes = Data::computed(self.codes.tensor, bytes.context(&self.name)?);
        }
        Ok(self)
    }

    /// The scales as kernels want them.
    pub(super) fn scales<'a>(&'a self, file: &'a Directory) -> Option<quant::Scales<'a>> {
        let scaling = self.scales.as_ref()?;
        let biases = scaling.biases.as_ref();
        Some(quant::Scales {
            float: scaling.float,
            bytes: scaling.scales.bytes(file),
            biases: biases.map_or(&[], |biases| biases.bytes(file)),
            group: scaling.group,
        })
    }

    /// Bytes of the codes, the scales and the biases.
    pub(super) fn bytes(&self, file: &Directory) -> u64 {
        let scaling = self.scales.as_ref();
        let biases = scaling.and_then(|s| s.biases.as_ref());
        let parts = [Some(&self.codes), scaling.map(|s| &s.scales), biases];
        let lengths = parts.into_iter().flatten();
        lengths.map(|data| data.bytes(file).len() as u64).sum()
    }
}

/// The storage type of a tensor, if this build can compute with it.
pub(super) fn known(tensor: &TensorInfo) -> Result<DType> {
    tensor.dtype.known().ok_or_else(|| {
        let message = format_args!(
            "tensor {} is {}, which is not supported yet",
            tensor.name, tensor.dtype
        )
        .to_string();
        Error::new(ErrorKind::Unsupported, message)
    })
}

/// Rows and columns of a tensor.
pub(super) fn shape(tensor: &TensorInfo) -> Result<[u32; 2]> {
    match (u32::try_from(tensor.rows()), u32::try_from(tensor.cols())) {
        (Ok(rows), Ok(cols)) => Ok([rows, cols]),
        _ => bail!(
            Unsupported,
            "tensor {}: {} rows of {} columns",
            tensor.name,
            tensor.rows(),
            tensor.cols()
        ),
    }
}

/// All elements of a tensor of plain numbers.
pub(super) fn floats(file: &Directory, tensor: &TensorInfo) -> Result<Vec<f32>> {
    let dtype = known(tensor)?;
    let plain = matches!(dtype, DType::F32 | DType::F16 | DType::Bf16);
    if !plain && !UNUSUAL.contains(&dtype) {
        bail!(
            Unsupported,
            "tensor {} is {dtype}, wanted plain numbers",
            tensor.name
        );
    }
    let bytes = file.bytes(tensor);
    // Opening has held the bytes against the elements, so that this is no more than the file.
    let mut row = vec![0.0; bytes.len() / dtype.facts().bytes];
    quant::decode_row(dtype, bytes, &mut row);
    Ok(row)
}

/// Floats as they lie in memory.
pub(super) fn f32_bytes(floats: &[f32]) -> Vec<u8> {
    bytemuck::cast_slice(floats).to_vec()
}
