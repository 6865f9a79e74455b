//! Parser of Silero's voice activity model in the ggml form of whisper.cpp: header, tensors. Numbers are
//! little endian, nothing is aligned. Every number is checked before use.

use tabla_core::error::{Result, bail};
use tabla_core::scales::f16;

/// Maximum number of bytes of a file. One with all tensors as f32 has 1.2 MB.
pub(crate) const MAX_BYTES: u64 = 4 << 20;
/// First bytes of a ggml file: the number `0x67676d6c`.
const MAGIC: &[u8] = b"lmgg";
/// Model type that the header states.
const MODEL_TYPE: &[u8] = b"silero-16k";
/// Numbers that follow the version: name in messages and supported value.
const NUMBERS: [(&str, usize); 19] = [
    ("samples of a window", 512),
    ("samples of context", 64),
    ("encoder layers", 4),
    ("inputs of encoder layer 0", 129),
    ("outputs of encoder layer 0", 128),
    ("kernel size of encoder layer 0", 3),
    ("inputs of encoder layer 1", 128),
    ("outputs of encoder layer 1", 64),
    ("kernel size of encoder layer 1", 3),
    ("inputs of encoder layer 2", 64),
    ("outputs of encoder layer 2", 64),
    ("kernel size of encoder layer 2", 3),
    ("inputs of encoder layer 3", 64),
    ("outputs of encoder layer 3", 128),
    ("kernel size of encoder layer 3", 3),
    ("inputs of the LSTM", 128),
    ("hidden size of the LSTM", 128),
    ("inputs of the output layer", 128),
    ("outputs of the output layer", 1),
];
/// Number of tensors.
const COUNT: usize = 15;
/// Names and shapes of the tensors, the contiguous dimension first.
const TENSORS: [(&str, [usize; 3]); COUNT] = [
    ("_model.stft.forward_basis_buffer", [256, 1, 258]),
    ("_model.encoder.0.reparam_conv.weight", [3, 129, 128]),
    ("_model.encoder.0.reparam_conv.bias", [128, 1, 1]),
    ("_model.encoder.1.reparam_conv.weight", [3, 128, 64]),
    ("_model.encoder.1.reparam_conv.bias", [64, 1, 1]),
    ("_model.encoder.2.reparam_conv.weight", [3, 64, 64]),
    ("_model.encoder.2.reparam_conv.bias", [64, 1, 1]),
    ("_model.encoder.3.reparam_conv.weight", [3, 64, 128]),
    ("_model.encoder.3.reparam_conv.bias", [128, 1, 1]),
    ("_model.decoder.rnn.weight_ih", [128, 512, 1]),
    ("_model.decoder.rnn.weight_hh", [128, 512, 1]),
    ("_model.decoder.rnn.bias_ih", [512, 1, 1]),
    ("_model.decoder.rnn.bias_hh", [512, 1, 1]),
    ("_model.decoder.decoder.2.weight", [128, 1, 1]),
    ("_model.decoder.decoder.2.bias", [1, 1, 1]),
];
/// Maximum number of dimensions of a tensor.
const MAX_DIMENSIONS: usize = 4;
/// Maximum number of bytes of the name of a tensor.
const MAX_NAME: usize = 256;

/// A parsed file.
pub(crate) struct VoiceFile {
    pub(crate) version: [usize; 3],
    pub(crate) tensors: VoiceTensors,
}

/// The tensors of a file, in file layout and with the sizes of [`TENSORS`].
pub(crate) struct VoiceTensors {
    pub(crate) basis: Vec<f32>,
    /// Weights and biases of the encoder layers.
    pub(crate) encoder: [(Vec<f32>, Vec<f32>); 4],
    pub(crate) input_weights: Vec<f32>,
    pub(crate) hidden_weights: Vec<f32>,
    pub(crate) input_biases: Vec<f32>,
    pub(crate) hidden_biases: Vec<f32>,
    pub(crate) output_weights: Vec<f32>,
    pub(crate) output_bias: Vec<f32>,
}

/// Parses a file.
///
/// # Errors
///
/// * `Format` if the file is truncated, if a tensor is missing, duplicate or unknown, or if a weight is
///   not finite.
/// * `Unsupported` if it is not a Silero model at 16 kHz, or if its sizes or types are others.
pub(crate) fn parse(bytes: &[u8]) -> Result<VoiceFile> {
    let mut reader = Reader { bytes, at: 0 };
    let version = read_header(&mut reader)?;
    let mut tensors = [const { None }; COUNT];
    while reader.at < bytes.len() {
        read_tensor(&mut reader, &mut tensors)?;
    }
    if let Some(missing) = tensors.iter().position(Option::is_none) {
        bail!(
            Format,
            "tensor {} is missing: the file is truncated or incomplete",
            TENSORS[missing].0
        );
    }
    let [
        basis,
        w0,
        b0,
        w1,
        b1,
        w2,
        b2,
        w3,
        b3,
        wi,
        wh,
        bi,
        bh,
        wo,
        bo,
    ] = tensors.map(Option::unwrap_or_default);
    Ok(VoiceFile {
        version,
        tensors: VoiceTensors {
            basis,
            encoder: [(w0, b0), (w1, b1), (w2, b2), (w3, b3)],
            input_weights: wi,
            hidden_weights: wh,
            input_biases: bi,
            hidden_biases: bh,
            output_weights: wo,
            output_bias: bo,
        },
    })
}

/// Checks the header and returns the version.
fn read_header(reader: &mut Reader<'_>) -> Result<[usize; 3]> {
    let magic = reader.take(MAGIC.len(), "magic")?;
    if magic != MAGIC {
        bail!(
            Unsupported,
            "not a Silero model in ggml form: the file starts with {magic:02x?}, expected {MAGIC:02x?}"
        );
    }
    let length = reader.number("length of the model type")?;
    if length != MODEL_TYPE.len() {
        bail!(
            Unsupported,
            "not a Silero model: this ggml file has another type, such as a speech model; expected {} \
             as length of the model type, got {length}",
            MODEL_TYPE.len()
        );
    }
    let found = reader.take(length, "model type")?;
    if found != MODEL_TYPE {
        bail!(
            Unsupported,
            "not a Silero model at 16 kHz: expected the model type \"{}\", got \"{}\"",
            MODEL_TYPE.escape_ascii(),
            found.escape_ascii()
        );
    }
    let mut version = [0; 3];
    for part in &mut version {
        *part = reader.number("version")?;
    }
    for (name, expected) in NUMBERS {
        let found = reader.number(name)?;
        if found != expected {
            bail!(
                Unsupported,
                "header of the Silero model: {name}: expected {expected}, got {found}"
            );
        }
    }
    Ok(version)
}

/// Reads the tensor at the position of `reader` into its place.
fn read_tensor(reader: &mut Reader<'_>, tensors: &mut [Option<Vec<f32>>; COUNT]) -> Result<()> {
    let start = reader.at;
    let dimensions = reader.number("number of dimensions")?;
    let length = reader.number("length of a tensor name")?;
    let kind = reader.number("type of a tensor")?;
    if dimensions > MAX_DIMENSIONS || length > MAX_NAME {
        bail!(
            Format,
            "tensor at byte {start}: {dimensions} dimensions and a name of {length} bytes, expected at most \
             {MAX_DIMENSIONS} and {MAX_NAME}"
        );
    }
    let mut shape = [1; MAX_DIMENSIONS];
    for size in shape.iter_mut().take(dimensions) {
        *size = reader.number("shape of a tensor")?;
    }
    let name = reader.take(length, "name of a tensor")?;
    let place = TENSORS.iter().position(|(n, _)| n.as_bytes() == name);
    let Some(place) = place else {
        bail!(
            Format,
            "tensor at byte {start}: \"{}\" is not a tensor of a Silero model",
            name.escape_ascii()
        );
    };
    let (name, [a, b, c]) = TENSORS[place];
    if shape != [a, b, c, 1] {
        bail!(
            Unsupported,
            "tensor {name}: expected shape {:?}, got {shape:?}",
            [a, b, c, 1]
        );
    }
    if tensors[place].is_some() {
        bail!(Format, "tensor {name} occurs twice, again at byte {start}");
    }
    tensors[place] = Some(read_weights(reader, name, kind, a * b * c)?);
    Ok(())
}

/// Reads weights of a ggml type.
fn read_weights(
    reader: &mut Reader<'_>,
    name: &str,
    kind: usize,
    count: usize,
) -> Result<Vec<f32>> {
    let start = reader.at;
    let weights: Vec<f32> = match kind {
        0 => {
            let bytes = reader.take(4 * count, name)?.as_chunks().0.iter();
            bytes.map(|b| f32::from_le_bytes(*b)).collect()
        }
        1 => {
            let bytes = reader.take(2 * count, name)?.as_chunks().0.iter();
            bytes.map(|b| f16(*b)).collect()
        }
        _ => bail!(
            Unsupported,
            "tensor {name}: expected ggml type 0 (f32) or 1 (f16), got {kind}"
        ),
    };
    if let Some(bad) = weights.iter().position(|w| !w.is_finite()) {
        bail!(
            Format,
            "tensor {name} at byte {start}: weight {bad} is {}, expected a finite number",
            weights[bad]
        );
    }
    Ok(weights)
}

/// Bytes of a file and the position of the next.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Takes the next `len` bytes; `what` is their name in messages.
    fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let Some(taken) = rest.get(..len) else {
            bail!(
                Format,
                "{what} at byte {}: expected {len} bytes, got {}: the file is truncated",
                self.at,
                rest.len()
            );
        };
        self.at += len;
        Ok(taken)
    }

    /// Takes an i32 that must not be negative.
    fn number(&mut self, what: &str) -> Result<usize> {
        let start = self.at;
        let bytes = self.take(4, what)?.as_chunks().0;
        let number = i32::from_le_bytes(bytes[0]);
        let Ok(number) = usize::try_from(number) else {
            bail!(Format, "{what} at byte {start}: {number} is negative");
        };
        Ok(number)
    }
}
