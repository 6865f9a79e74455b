//! Parsers of storage type and quantization names.

use tabla::dtype::DType;
use tabla::tools::QuantMix;

/// Parses a storage type; upper and lower case are equal.
pub(crate) fn storage_type(name: &str) -> Result<DType, String> {
    DType::from_name(&name.to_lowercase()).ok_or_else(|| "unknown storage type".to_string())
}

/// Parses one of the given types.
pub(crate) fn one_of(types: &[DType], name: &str) -> Result<DType, String> {
    let names = || types.iter().map(|dtype| dtype.name()).collect::<Vec<_>>();
    let dtype = types.iter().find(|dtype| dtype.name() == name);
    let error = || format!("expected one of {}", names().join(", "));
    dtype.copied().ok_or_else(error)
}

/// Parses the name of a quantization.
pub(crate) fn mix(name: &str) -> Result<&'static QuantMix, String> {
    let names = || {
        tabla::tools::QUANT_MIXES
            .iter()
            .map(|m| m.name)
            .collect::<Vec<_>>()
    };
    QuantMix::named(name).ok_or_else(|| format!("expected one of {}", names().join(", ")))
}
