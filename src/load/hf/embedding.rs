//! What stands beside models of sentence-transformers: pooling, length and prompts.

use super::config::{Config, shown};
use super::{Folder, read};
use crate::error::{Context, Result, bail};
use crate::format::write::Writer;
use serde_json::Value;
use std::path::{Component, Path};

/// The modules behind the tensors' own one.
const MODULES: &str = "modules.json";
const PROMPTS: &str = "config_sentence_transformers.json";
const LENGTH: &str = "sentence_bert_config.json";

/// Bytes of such a file.
const BYTES_MAX: u64 = 1 << 20;

/// Names of a pooling, as the older files have them as flags and newer ones as a word, and its
/// number in GGUF files. The last is ours.
const POOLINGS: &[(&str, &str, u32)] = &[
    ("pooling_mode_mean_tokens", "mean", 1),
    ("pooling_mode_cls_token", "cls", 2),
    ("pooling_mode_lasttoken", "lasttoken", 3),
    ("pooling_mode_max_tokens", "max", 5),
];

/// What stands in front of the names of flags.
const FLAG: &str = "pooling_mode_";

impl Folder {
    /// Writes what the modules behind the model say: `pooling_type` as GGUF numbers it, and keys
    /// of our own.
    pub(super) fn write_embedding(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let path = self.path(MODULES);
        if let Some(text) = self.text(MODULES, BYTES_MAX)? {
            self.write_modules(&text, arch, w).context(path.display())?;
        }
        if let Some(config) = read(&self.path(LENGTH))? {
            let length = config.integer("max_seq_length");
            if let Some(length) = length.context(self.path(LENGTH).display())? {
                w.set(&format!("{arch}.embedding_context_length"), length);
            }
        }
        Ok(())
    }

    fn write_modules(&self, text: &str, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let Ok(Value::Array(modules)) = serde_json::from_str(text) else {
            bail!(Format, "the JSON is no list of modules");
        };
        let mut normalize = false;
        for module in &modules {
            let said = |name: &str| module.get(name).and_then(Value::as_str);
            let class = said("type").and_then(|class| class.rsplit('.').next());
            match class {
                Some("Transformer") => {}
                Some("Pooling") => {
                    let path = Path::new(said("path").unwrap_or_default());
                    let inside = path.components().all(|c| matches!(c, Component::Normal(_)));
                    if !inside {
                        bail!(
                            Format,
                            "{} is no folder inside of the model's",
                            path.display()
                        );
                    }
                    let path = self.path("").join(path).join("config.json");
                    let Some(config) = read(&path)? else {
                        bail!(Io, "{}: no such file", path.display());
                    };
                    let pooling = pooling(&config).context(path.display())?;
                    w.set(&format!("{arch}.pooling_type"), pooling);
                }
                Some("Normalize") => normalize = true,
                _ => bail!(Unsupported, "the module {} is not known", shown(module)),
            }
        }
        w.set(&format!("{arch}.embedding_normalize"), normalize);
        Ok(())
    }

    /// What stands before texts of a kind: name and text.
    ///
    /// # Errors
    ///
    /// `Format` for a prompt that is no text.
    pub(in crate::load) fn prompts(&self) -> Result<Vec<(String, String)>> {
        let Some(config) = read(&self.path(PROMPTS))? else {
            return Ok(Vec::new());
        };
        let list = |prompts: &Value| {
            let pairs = prompts.as_object()?.iter();
            let text =
                |(name, text): (&String, &Value)| Some((name.clone(), text.as_str()?.into()));
            pairs.map(text).collect()
        };
        let prompts = config.typed("prompts", "an object of texts", list);
        let prompts = prompts.context(self.path(PROMPTS).display())?;
        Ok(prompts.unwrap_or_default())
    }

    /// The name of the prompt that is taken when none is asked for.
    ///
    /// # Errors
    ///
    /// `Format` for a name that is no text.
    pub(in crate::load) fn default_prompt(&self) -> Result<Option<String>> {
        let Some(config) = read(&self.path(PROMPTS))? else {
            return Ok(None);
        };
        let name = config.text("default_prompt_name");
        Ok(name
            .context(self.path(PROMPTS).display())?
            .map(str::to_string))
    }
}

/// The number of a pooling in GGUF files.
fn pooling(config: &Config) -> Result<u32> {
    if config.boolean("include_prompt")? == Some(false) {
        bail!(
            Unsupported,
            "include_prompt: prompts that pooling leaves out"
        );
    }
    let mode = config.find("pooling_mode");
    // A list of one is that one.
    let mode = mode.map(|mode| match mode.as_array().map(Vec::as_slice) {
        Some([one]) => one,
        _ => mode,
    });
    let found = match mode {
        Some(mode) => POOLINGS.iter().filter(|p| mode == p.1).collect::<Vec<_>>(),
        None => {
            let flags = config.flags(FLAG);
            let mut found = Vec::new();
            for flag in &flags {
                match POOLINGS.iter().find(|p| p.0 == *flag) {
                    Some(pooling) => found.push(pooling),
                    None => bail!(Unsupported, "{flag} is not known"),
                }
            }
            found
        }
    };
    match found[..] {
        [(_, _, number)] => Ok(*number),
        _ => bail!(
            Unsupported,
            "pooling_mode: wanted one of mean, cls, lasttoken, max; found {}",
            mode.map_or_else(|| format!("{} flags", found.len()), shown)
        ),
    }
}
