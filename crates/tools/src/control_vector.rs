//! Control vectors: vectors that are added to the residual stream.

use crate::dtype::DType;
use crate::error::{Context, Error, ErrorKind, Result, bail};
use crate::format::npy::{self, Array};
use crate::format::write::Writer;
use crate::format::{self, Directory};
use crate::load::weight::floats;
use crate::model::Facts;
use crate::op::hooks::{Edit, EditAction};
use crate::output::Output;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::Path;

/// Value of `general.architecture`.
const ARCHITECTURE: &str = "controlvector";
const MODEL_HINT: &str = "controlvector.model_hint";
const LAYER_COUNT: &str = "controlvector.layer_count";
/// Name of a tensor before the number of its layer.
const DIRECTION: &str = "direction.";
/// Maximum number of layers of a model.
const LAYERS_MAX: u32 = 4096;

/// A control vector: for each layer, a vector that is added to its output, the residual stream.
///
/// The layer numbers are those of llama.cpp, from 0: the tensor `direction.N` of a GGUF file is added
/// to the output of layer N. GGUF files cannot contain a vector of layer 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControlVector {
    /// Architecture of the model that it was made for, such as `llama`; empty if not known.
    pub model_hint: String,
    /// Vectors by the layer, counted from 0, to whose output they are added. All have the length of
    /// the residual stream.
    pub layers: BTreeMap<u32, Vec<f32>>,
}

impl ControlVector {
    /// Reads a GGUF file of llama.cpp, or an `.npy` file of float16, float32 or float64 with the shape
    /// `[layers, dim]`, whose rows of zeros are no vectors.
    ///
    /// # Errors
    ///
    /// `Io` if the file cannot be read, `Format` for an invalid file, vectors of different lengths and
    /// values that are not finite, `Unsupported` for other types. `Argument` for an `.npy` file with
    /// one vector, which [`read_at`](Self::read_at) reads.
    pub fn read(path: &Path) -> Result<Self> {
        Self::of_file(path, None).context(path.display())
    }

    /// Reads an `.npy` file with one vector of the shape `[dim]`, for the output of `layer`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); `Argument` for a file with vectors of several layers.
    pub fn read_at(path: &Path, layer: u32) -> Result<Self> {
        Self::of_file(path, Some(layer)).context(path.display())
    }

    /// Writes an `.npy` file if the name ends in `.npy`, otherwise a GGUF file. An existing file is
    /// replaced when the new one is complete.
    ///
    /// # Errors
    ///
    /// `Argument` without vectors and for vectors of different lengths or values that are not finite,
    /// `Unsupported` for a vector of layer 0 in a GGUF file, `Io` if writing fails.
    pub fn write(&self, path: &Path) -> Result<()> {
        self.check(ErrorKind::Argument).context(path.display())?;
        let is_npy = path
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("npy"));
        let bytes = match is_npy {
            true => self.npy_bytes(),
            false => self.gguf_bytes().context(path.display())?,
        };
        let mut output = Output::create(path, std::iter::empty())?;
        let written = (&mut output).write_all(&bytes);
        written.map_err(|e| {
            let path = path.display();
            Error::new(
                ErrorKind::Io,
                format_args!("{path}: cannot be written: {e}"),
            )
            .caused_by(e)
        })?;
        output.commit()
    }

    /// Returns the edits that add `scale` times each vector to the output of its layer in a model with
    /// these properties, for the layers of a range, or all with `None`.
    ///
    /// # Errors
    ///
    /// `Argument` if the vectors do not fit the model, and for a range that exceeds its layers or contains
    /// no vector.
    pub fn edits(
        &self,
        model: &Facts,
        layers: Option<Range<u32>>,
        scale: f32,
    ) -> Result<Vec<Edit>> {
        if self.dim() != model.dim as usize {
            bail!(
                Argument,
                "the vectors have {} numbers, the residual stream of the model has {}",
                self.dim(),
                model.dim
            );
        }
        let last = self.layers.keys().next_back().copied().unwrap_or(0);
        if last >= model.layers {
            let count = model.layers;
            bail!(
                Argument,
                "there is a vector for layer {last}, the model has the layers 0 to {}",
                count.saturating_sub(1)
            );
        }
        let range = layers.unwrap_or(0..model.layers);
        if range.is_empty() || range.end > model.layers {
            bail!(
                Argument,
                "layers {range:?} are out of range, the model has {} layers",
                model.layers
            );
        }
        let add = |(layer, vector): (&u32, &Vec<f32>)| {
            let vector = vector.clone();
            Edit::new(format!("blk.{layer}"), EditAction::Add { vector, scale })
        };
        let edits: Vec<Edit> = self.layers.range(range.clone()).map(add).collect();
        if edits.is_empty() {
            bail!(Argument, "there is no vector for the layers {range:?}");
        }
        Ok(edits)
    }

    /// Returns the length of the vectors; 0 without vectors.
    pub fn dim(&self) -> usize {
        self.layers.values().next().map_or(0, Vec::len)
    }

    fn of_file(path: &Path, layer: Option<u32>) -> Result<Self> {
        let mut head = Vec::new();
        let read = File::open(path).and_then(|file| file.take(8).read_to_end(&mut head));
        read.map_err(|e| Error::new(ErrorKind::Io, &e).caused_by(e))?;
        let vector = if npy::is_npy(&head) {
            Self::of_array(&Array::read(path)?, layer)?
        } else if layer.is_some() {
            bail!(
                Argument,
                "expected an .npy file with the vector of one layer"
            );
        } else {
            Self::of_gguf(path)?
        };
        vector.check(ErrorKind::Format)?;
        Ok(vector)
    }

    fn of_gguf(path: &Path) -> Result<Self> {
        if format::detect(path)? != format::Kind::Gguf {
            bail!(Format, "expected a GGUF or an .npy file");
        }
        Self::of_directory(&format::open(path)?)
    }

    fn of_directory(file: &Directory) -> Result<Self> {
        let architecture = file.metadata.str("general.architecture")?;
        if architecture != Some(ARCHITECTURE) {
            bail!(
                Format,
                "general.architecture is {:?}, expected {ARCHITECTURE:?}",
                architecture.unwrap_or_default()
            );
        }
        let mut layers = BTreeMap::new();
        for tensor in &file.tensors {
            let number = tensor.name.strip_prefix(DIRECTION).and_then(|digits| {
                let number: u32 = digits.parse().ok()?;
                let valid = (1..LAYERS_MAX).contains(&number) && number.to_string() == digits;
                valid.then_some(number)
            });
            let Some(layer) = number else {
                bail!(
                    Format,
                    "unexpected tensor {}: expected direction.N, with N from 1 to {}",
                    tensor.name,
                    LAYERS_MAX - 1
                );
            };
            if tensor.dims.len() != 1 {
                bail!(
                    Format,
                    "tensor {} has {} dimensions, expected 1",
                    tensor.name,
                    tensor.dims.len()
                );
            }
            layers.insert(layer, floats(file, tensor)?);
        }
        let hint = file.metadata.str(MODEL_HINT)?;
        Ok(Self {
            model_hint: hint.unwrap_or_default().to_string(),
            layers,
        })
    }

    fn of_array(array: &Array, layer: Option<u32>) -> Result<Self> {
        let mut layers = BTreeMap::new();
        match (array.shape.as_slice(), layer) {
            ([_], Some(layer)) if layer >= LAYERS_MAX => {
                bail!(Argument, "layer {layer}, expected 0 to {}", LAYERS_MAX - 1)
            }
            ([_], Some(layer)) => _ = layers.insert(layer, array.values.clone()),
            ([dim], None) => bail!(
                Argument,
                "one vector of {dim} elements without a layer: set the layer to whose output it is \
                 added"
            ),
            ([rows, cols], None) if *rows <= LAYERS_MAX as usize => {
                let rows = array.values.chunks_exact((*cols).max(1));
                let vectors = (0..).zip(rows);
                let set = vectors.filter(|(_, row)| row.iter().any(|x| *x != 0.0));
                layers.extend(set.map(|(layer, row)| (layer, row.to_vec())));
            }
            ([_, _], Some(layer)) => bail!(
                Argument,
                "the file has vectors of several layers, expected one vector for layer {layer}"
            ),
            (shape, _) => bail!(
                Format,
                "shape {shape:?}, expected [dim], or [layers, dim] with at most {LAYERS_MAX} layers"
            ),
        }
        Ok(Self {
            model_hint: String::new(),
            layers,
        })
    }

    /// Checks that there are vectors of the same length with finite values.
    fn check(&self, kind: ErrorKind) -> Result<()> {
        let invalid = |message: std::fmt::Arguments<'_>| Err(Error::new(kind, message));
        let dim = self.dim();
        if dim == 0 {
            return invalid(format_args!("no vectors"));
        }
        for (layer, vector) in &self.layers {
            if *layer >= LAYERS_MAX {
                let last = LAYERS_MAX - 1;
                return invalid(format_args!("layer {layer}, expected 0 to {last}"));
            }
            if vector.len() != dim {
                let found = vector.len();
                return invalid(format_args!(
                    "layer {layer}: {found} elements, expected {dim} as in the first vector"
                ));
            }
            if let Some(at) = vector.iter().position(|x| !x.is_finite()) {
                let x = vector[at];
                return invalid(format_args!(
                    "layer {layer}: element {at} is {x}, expected a finite value"
                ));
            }
        }
        Ok(())
    }

    fn gguf_bytes(&self) -> Result<Vec<u8>> {
        if self.layers.contains_key(&0) {
            bail!(
                Unsupported,
                "GGUF files cannot contain a vector of layer 0; write an .npy file"
            );
        }
        let mut writer = Writer::new();
        let count = u32::try_from(self.layers.len()).unwrap_or(u32::MAX);
        writer
            .set("general.architecture", ARCHITECTURE)
            .set(MODEL_HINT, self.model_hint.as_str())
            .set(LAYER_COUNT, count);
        for (layer, vector) in &self.layers {
            let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            let name = format!("{DIRECTION}{layer}");
            writer.tensor(&name, DType::F32, &[vector.len() as u64], bytes);
        }
        writer.finish()
    }

    /// Returns the bytes of a file with a row per layer; zeros for layers without a vector.
    fn npy_bytes(&self) -> Vec<u8> {
        let dim = self.dim();
        let rows = self.layers.keys().next_back().map_or(0, |last| last + 1) as usize;
        let mut values = vec![0.0; rows * dim];
        for (layer, vector) in &self.layers {
            values[*layer as usize * dim..][..dim].copy_from_slice(vector);
        }
        let shape = vec![rows, dim];
        Array { shape, values }.to_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(layers: &[(u32, &[f32])]) -> ControlVector {
        let layers = layers.iter().map(|(layer, v)| (*layer, v.to_vec()));
        ControlVector {
            model_hint: "llama".to_string(),
            layers: layers.collect(),
        }
    }

    /// Reads a file with these bytes.
    fn read(name: &str, bytes: &[u8], layer: Option<u32>) -> Result<ControlVector> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        match layer {
            None => ControlVector::read(&path),
            Some(layer) => ControlVector::read_at(&path, layer),
        }
    }

    /// Returns a GGUF file with these tensors.
    fn gguf(architecture: &str, tensors: &[(&str, DType, &[u64], &[f32])]) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.set("general.architecture", architecture);
        writer.set(LAYER_COUNT, 2i32);
        for (name, dtype, dims, values) in tensors {
            let bytes: Vec<u8> = match dtype {
                DType::F32 => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
                _ => vec![0; 34],
            };
            writer.tensor(name, *dtype, dims, bytes);
        }
        writer.finish().unwrap()
    }

    #[test]
    fn files_round_trip() {
        let all = vector(&[(1, &[0.5, -1.0]), (2, &[0.0, 3.0]), (7, &[1e-3, 0.0])]);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("a.gguf");
        all.write(&path).unwrap();
        let file = format::open(&path).unwrap();
        assert_eq!(file.metadata.u32(LAYER_COUNT).unwrap(), Some(3));
        let names: Vec<_> = file.tensors.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["direction.1", "direction.2", "direction.7"]);
        assert_eq!(ControlVector::read(&path).unwrap(), all);
        std::fs::remove_file(&path).unwrap();

        let first = vector(&[(0, &[0.5, -1.0]), (3, &[2.0, 3.0])]);
        let e = first.write(&path).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unsupported);
        assert!(e.message().contains("vector of layer 0"), "{e}");
        assert!(!path.exists());
        let path = folder.path().join("a.npy");
        first.write(&path).unwrap();
        let read = ControlVector::read(&path).unwrap();
        assert_eq!(read.layers, first.layers);
        assert_eq!(read.dim(), 2);
    }

    #[test]
    fn one_vector_needs_a_layer() {
        let array = Array {
            shape: vec![3],
            values: vec![1.0, 0.0, 2.0],
        };
        let bytes = array.to_bytes();
        let read_one = read("one.npy", &bytes, Some(5)).unwrap();
        assert_eq!(read_one.layers, BTreeMap::from([(5, vec![1.0, 0.0, 2.0])]));
        let e = read("none.npy", &bytes, None).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Argument);
        assert!(e.message().contains("without a layer"), "{e}");
        let e = read("far.npy", &bytes, Some(4096)).unwrap_err();
        assert!(
            e.message().contains("layer 4096, expected 0 to 4095"),
            "{e}"
        );
        let several = vector(&[(0, &[1.0]), (1, &[1.0])]).npy_bytes();
        let e = read("several.npy", &several, Some(1)).unwrap_err();
        assert!(e.message().contains("vectors of several layers"), "{e}");
    }

    #[test]
    fn rejects_invalid_files() {
        let one: &[f32] = &[1.0, 2.0];
        for (name, bytes, expected) in [
            (
                "model",
                gguf("llama", &[("direction.1", DType::F32, &[2], one)]),
                "general.architecture is \"llama\", expected \"controlvector\"",
            ),
            ("empty", gguf(ARCHITECTURE, &[]), "no vectors"),
            (
                "zero",
                gguf(ARCHITECTURE, &[("direction.0", DType::F32, &[2], one)]),
                "unexpected tensor direction.0",
            ),
            (
                "padded",
                gguf(ARCHITECTURE, &[("direction.01", DType::F32, &[2], one)]),
                "unexpected tensor direction.01",
            ),
            (
                "matrix",
                gguf(ARCHITECTURE, &[("direction.1", DType::F32, &[1, 2], one)]),
                "tensor direction.1 has 2 dimensions",
            ),
            (
                "quantized",
                gguf(ARCHITECTURE, &[("direction.1", DType::Q8_0, &[32], one)]),
                "expected an unquantized type",
            ),
            (
                "lengths",
                gguf(
                    ARCHITECTURE,
                    &[
                        ("direction.1", DType::F32, &[2], one),
                        ("direction.3", DType::F32, &[1], &[1.0]),
                    ],
                ),
                "layer 3: 1 elements, expected 2",
            ),
            (
                "infinite",
                gguf(
                    ARCHITECTURE,
                    &[("direction.1", DType::F32, &[2], &[1.0, f32::INFINITY])],
                ),
                "layer 1: element 1 is inf",
            ),
        ] {
            let e = read(name, &bytes, None).unwrap_err();
            assert_eq!(
                e.kind(),
                if name == "quantized" {
                    ErrorKind::Unsupported
                } else {
                    ErrorKind::Format
                },
                "{e}"
            );
            assert!(
                e.message().contains(expected),
                "{expected:?} is not in: {e}"
            );
            let file = format!("{}{name}", std::path::MAIN_SEPARATOR);
            assert!(e.message().contains(&file), "{e}");
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("x");
        let e = ControlVector::default().write(&path).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Argument);
    }
}
