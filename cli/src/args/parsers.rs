//! Parsers of options that name storage types.

use tabla::QuantMix;
use tabla::dtype::DType;

/// A storage type by its name, in capitals or not.
pub(crate) fn storage_type(name: &str) -> Result<DType, String> {
    DType::from_name(&name.to_lowercase()).ok_or_else(|| "not a storage type".to_string())
}

/// The one of these types that has this name.
pub(crate) fn one_of(types: &[DType], name: &str) -> Result<DType, String> {
    let names = || types.iter().map(|dtype| dtype.name()).collect::<Vec<_>>();
    let found = types.iter().find(|dtype| dtype.name() == name);
    let known = || format!("known are {}", names().join(", "));
    found.copied().ok_or_else(known)
}

/// A mix by its name.
pub(crate) fn mix(name: &str) -> Result<&'static QuantMix, String> {
    let names = || {
        tabla::QUANT_MIXES
            .iter()
            .map(|m| m.name)
            .collect::<Vec<_>>()
    };
    QuantMix::named(name).ok_or_else(|| format!("known are {}", names().join(", ")))
}
