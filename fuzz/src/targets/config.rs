//! Checkpoints of Hugging Face with a changed `config.json`. The weights stay as they are.

use super::choices::Choices;
use super::errors::accepted;
use super::folder::Folder;
use super::json_edits;
use super::models::{computes, golden, load};
use serde_json::Value;
use std::sync::OnceLock;
use tabla::Session;

/// One of each kind of layer, RoPE scaling and quantization.
const CHECKPOINTS: [&str; 14] = [
    "arch/llama/hf",
    "arch/gemma3/hf",
    "arch/gemma3n/hf",
    "arch/qwen3_next/hf",
    "arch/deepseek_v3/hf",
    "arch/gpt_oss/hf",
    "arch/falcon_h1/hf",
    "arch/lfm2/hf",
    "arch/phi3/hf",
    "arch/modernbert/hf",
    "arch/bitnet/hf",
    "hf/mlx-4",
    "hf/fp8-block",
    "packed/gptq",
];

/// A checkpoint, with the text of its configuration.
struct Checkpoint {
    config: Value,
    /// Every other file.
    files: Vec<std::path::PathBuf>,
    bytes: usize,
}

fn checkpoints() -> &'static [Checkpoint] {
    static ALL: OnceLock<Vec<Checkpoint>> = OnceLock::new();
    ALL.get_or_init(|| CHECKPOINTS.iter().map(|name| checkpoint(name)).collect())
}

fn checkpoint(name: &str) -> Checkpoint {
    let folder = golden(name);
    let text = std::fs::read_to_string(folder.join("config.json")).expect("a configuration");
    let entries = folder
        .read_dir()
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path());
    let files: Vec<_> = entries
        .filter(|path| path.is_file() && !path.ends_with("config.json"))
        .collect();
    let bytes = files
        .iter()
        .map(|path| path.metadata().map_or(0, |facts| facts.len() as usize))
        .sum();
    Checkpoint {
        config: serde_json::from_str(&text).expect("JSON"),
        files,
        bytes,
    }
}

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let checkpoint = choices.pick(checkpoints());
    let mut config = checkpoint.config.clone();
    json_edits::edit(&mut config, &mut choices);
    let folder = Folder::new();
    for file in &checkpoint.files {
        let to = folder.path().join(file.file_name().expect("a name"));
        std::os::unix::fs::symlink(file, to).expect("the folder is writable");
    }
    let config = config.to_string();
    folder.write("config.json", &config);
    if let Some(model) = accepted(checkpoint.bytes + config.len(), || load(folder.path()))
        && !model.is_encoder()
    {
        computes(&mut Session::new(model));
    }
}
