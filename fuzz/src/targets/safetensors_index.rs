//! Folders with several safetensors files and an index, whose names may point elsewhere.

use super::choices::Choices;
use super::errors::accepted;
use super::folder::Folder;
use super::gguf;
use super::json_edits;
use super::safetensors;
use serde_json::json;
use tabla::format;

const FILES: [&str; 4] = [
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors",
    "other.safetensors",
];
/// Names that must not be opened.
const OUTSIDE: [&str; 6] = [
    "../model.safetensors",
    "/etc/passwd",
    "a/b.safetensors",
    "c:x.safetensors",
    "x\0.safetensors",
    "config.json",
];

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let folder = Folder::new();
    let inside = folder.path().join("model");
    std::fs::create_dir(&inside).expect("the folder is writable");
    let mut index = serde_json::Map::new();
    let mut size = 0;
    for name in FILES {
        if choices.rarely(2) {
            continue;
        }
        let most = usize::from(choices.byte());
        let file = safetensors::file(&mut Choices::new(choices.bytes(most)));
        size += file.len();
        folder.write(inside.join(name), file);
        for tensor in ["w0", "w1", "w2"] {
            match choices.below(8) {
                0..4 => _ = index.insert(tensor.to_string(), json!(name)),
                4 => _ = index.insert(tensor.to_string(), json!(choices.pick(&OUTSIDE))),
                _ => {}
            }
        }
    }
    let mut index = json!({ "metadata": { "total_size": size }, "weight_map": index });
    json_edits::edit(&mut index, &mut choices);
    for (name, text) in [
        ("config.json", "{}"),
        ("model.safetensors.index.json", &*index.to_string()),
    ] {
        if !choices.rarely(8) {
            folder.write(inside.join(name), text);
        }
    }
    if let Some(directory) = accepted(size, || format::open(&inside)) {
        gguf::check(&directory, size);
        assert!(
            directory.paths().all(|path| path.parent() == Some(&inside)),
            "a file outside of the folder"
        );
    }
}
