//! `tabla show`: a summary of a model in a few lines.

use crate::commands::common::open;
use crate::hub::{self, HubModel};
use crate::output::{Failure, terminal};
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tabla::Source;
use tabla::format::{Directory, Value};
use tabla::load::LoadOptions;

#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// Model: a file, a model folder, or the name of a downloaded model
    #[arg(value_name = "FILE|ORG/REPO[:QUANT]")]
    model: PathBuf,
}

pub(crate) fn run(args: &ShowArgs) -> Result<(), Failure> {
    let is_name = HubModel::of_argument(&args.model).is_some();
    let is_file = args.model.exists() || hub::is_model_file(&args.model);
    let path = match is_file && !is_name {
        true => args.model.clone(),
        false => hub::path(&args.model.to_string_lossy())?,
    };
    let source = Source::Path(path.clone());
    let directory = tabla::tools::open_directory(&source)?;
    let template = match open::has_chat_template(&source) {
        true => "yes",
        false => "no",
    };
    // The tensors of a compiled model are bytes in layouts of devices.
    let compiled = directory.metadata.u64("tabla.weights.parameters")?;
    let elements = directory.tensors.iter().map(|t| t.elements()).sum();
    let elements: u64 = compiled.unwrap_or(elements);
    let quantization = match compiled {
        Some(_) => {
            let source = Source::Path(path.clone());
            let estimate = tabla::tools::estimate(&source, &LoadOptions::default());
            estimate.map_or("none".to_string(), |estimate| estimate.dtype.to_uppercase())
        }
        None => quantization(&path, &directory),
    };
    let text = |key: &str| text(&directory, key);
    let architecture = text("general.architecture");
    let context = architecture
        .as_ref()
        .and_then(|name| text(&format!("{name}.context_length")));
    let rows = [
        ("name", text("general.name").filter(|name| !name.is_empty())),
        ("architecture", architecture),
        ("parameters", Some(terminal::count(elements))),
        ("quantization", Some(quantization)),
        ("context", context.map(|tokens| format!("{tokens} tokens"))),
        ("chat template", Some(template.to_string())),
        ("license", text("general.license")),
        ("size", Some(terminal::bytes(directory.file_bytes()))),
        ("path", Some(path.to_string_lossy().into_owned())),
    ];
    for (label, value) in rows {
        if let Some(value) = value {
            let value = terminal::one_line(&value);
            terminal::line(&format!("{label:<13}  {value}"))?;
        }
    }
    terminal::note(
        "`tabla inspect` shows the metadata, tensors, tokenizer and memory requirements",
    );
    Ok(())
}

/// Returns a metadata value as text.
fn text(directory: &Directory, key: &str) -> Option<String> {
    match directory.metadata.get(key)? {
        Value::String(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        value => Some(value.to_string()),
    }
}

/// Returns the quantization in the file name, otherwise the storage type with the most bytes.
fn quantization(path: &Path, directory: &Directory) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if let Some(name) = hub::quantization(&name) {
        return name.to_uppercase();
    }
    let mut bytes = BTreeMap::new();
    for tensor in &directory.tensors {
        *bytes.entry(tensor.dtype.name()).or_insert(0) += tensor.bytes;
    }
    let largest = bytes.into_iter().max_by_key(|(_, bytes)| *bytes);
    largest.map_or("none".to_string(), |(name, _)| name.to_uppercase())
}
