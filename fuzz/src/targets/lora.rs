//! LoRA adapters: a changed `adapter_config.json`, and edits of headers of safetensors and GGUF files.

use super::choices::Choices;
use super::edits::edit;
use super::errors::accepted;
use super::folder::Folder;
use super::json_edits;
use super::models::{computes, golden, load};
use std::sync::OnceLock;
use tabla::{HookSpec, Model, Session};

const CONFIG: &str = include_str!("../../../tests/golden/lora/llama/adapter_config.json");
const WEIGHTS: &[u8] = include_bytes!("../../../tests/golden/lora/llama/adapter_model.safetensors");
const GGUF: &[u8] = include_bytes!("../../../tests/golden/lora/llama/adapter.gguf");
/// Part of the files that is edited: the header, and some values.
const HEADER: usize = 4096;

fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| load(golden("arch/llama/model.gguf")).expect("a valid model"))
}

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let folder = Folder::new();
    let (mut config, mut weights, mut gguf) = (CONFIG.to_string(), WEIGHTS.to_vec(), GGUF.to_vec());
    let kind = choices.below(3);
    match kind {
        0 => {
            let mut json = serde_json::from_str(CONFIG).expect("JSON");
            json_edits::edit(&mut json, &mut choices);
            config = json.to_string();
        }
        1 => edit(&mut weights, 0..HEADER, &mut choices),
        _ => edit(&mut gguf, 0..HEADER, &mut choices),
    }
    let (path, size) = match kind {
        2 => (folder.write("adapter.gguf", &gguf), gguf.len()),
        _ => {
            folder.write("adapter_config.json", &config);
            folder.write("adapter_model.safetensors", &weights);
            (folder.path().to_path_buf(), config.len() + weights.len())
        }
    };
    let Some(adapter) = accepted(size, || model().read_adapter(&path)) else {
        return;
    };
    assert!(adapter.modules().len() > 0);
    let hooks = accepted(size, || {
        model().hooks_with(&HookSpec::default(), &[adapter])
    });
    if let Some(hooks) = hooks {
        let mut session = Session::new(model().clone());
        session.set_hooks(Some(&hooks)).expect("hooks of the model");
        computes(&mut session);
    }
}
