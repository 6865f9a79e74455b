//! Classification heads: labels and activation function.

use super::catalog::Catalog;
use crate::arch::CLASSIFIER;
use crate::error::{Result, bail};
use crate::model::{Classifier, ScoreActivation};
use crate::plan::builder::Weights;

/// Returns whether the model has a classification head.
pub(super) fn is_present(catalog: &Catalog) -> bool {
    catalog.arch().encoder && catalog.find(&format!("{CLASSIFIER}.weight")).is_some()
}

/// Reads the properties of the classification head; `None` if there is none.
///
/// # Errors
///
/// `Format` if the labels do not fit the tensors, `Unsupported` for an unknown activation function.
pub(super) fn read(catalog: &Catalog) -> Result<Option<Classifier>> {
    if !is_present(catalog) {
        return Ok(None);
    }
    let weight = catalog.find(&format!("{CLASSIFIER}.weight"));
    let rows = weight.map_or(0, |weight| weight.rows);
    let (metadata, arch) = (&catalog.file().metadata, catalog.arch().name);
    let key = |name: &str| format!("{arch}.classifier.{name}");
    let labels = match metadata.strs(&key("output_labels"))? {
        Some(labels) if labels.len() != rows as usize => bail!(
            Format,
            "{}: {} labels, but tensor {} has {rows} rows",
            key("output_labels"),
            labels.len(),
            catalog.spelling(&format!("{CLASSIFIER}.weight"))
        ),
        Some(labels) => labels.into_iter().map(str::to_string).collect(),
        None => (0..rows).map(|n| format!("LABEL_{n}")).collect(),
    };
    let name = metadata.str(&key("activation"))?;
    let activation = match name.map(ScoreActivation::named) {
        Some(Some(activation)) => activation,
        Some(None) => bail!(
            Unsupported,
            "{}: unsupported function {:?}",
            key("activation"),
            name.unwrap_or_default()
        ),
        None if rows == 1 => ScoreActivation::Sigmoid,
        None => ScoreActivation::Softmax,
    };
    Ok(Some(Classifier { labels, activation }))
}
