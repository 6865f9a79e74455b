//! sentence-transformers files: pooling, Dense modules, maximum length and prompts.

use super::config::{HfConfig, shown};
use super::{CONFIG, Folder, read};
use crate::arch::{self, DENSE_MODULES};
use crate::error::{Context, Result, bail};
use crate::format::write::Writer;
use crate::format::{self, Directory};
use serde_json::Value;
use std::path::{Component, Path, PathBuf};
use std::slice;

/// List of the modules: the transformer, pooling, Dense modules and normalization.
const MODULES: &str = "modules.json";
const PROMPTS: &str = "config_sentence_transformers.json";
const LENGTH: &str = "sentence_bert_config.json";
const TOKENIZER: &str = "tokenizer_config.json";

/// Maximum size in bytes of [`MODULES`].
const BYTES_MAX: u64 = 1 << 20;

/// Pooling modes: flag of older files, name of newer files, GGUF number. 5 is Tabla's own number.
const POOLINGS: &[(&str, &str, u32)] = &[
    ("pooling_mode_mean_tokens", "mean", 1),
    ("pooling_mode_cls_token", "cls", 2),
    ("pooling_mode_lasttoken", "lasttoken", 3),
    ("pooling_mode_max_tokens", "max", MAX),
];

/// Number of max pooling.
const MAX: u32 = 5;

/// Prefix of the flags.
const FLAG: &str = "pooling_mode_";

impl Folder {
    /// Writes `pooling_type` and Tabla's own keys for normalization, maximum length and prompts.
    pub(super) fn write_embedding(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let path = self.path(MODULES);
        if let Some(text) = self.text(MODULES, BYTES_MAX)? {
            self.write_modules(&text, arch, w).context(path.display())?;
        }
        if let Some(length) = self.max_length(arch)? {
            w.set(&format!("{arch}.embedding_context_length"), length);
        }
        let (names, texts): (Vec<String>, Vec<String>) = self.prompts()?.into_iter().unzip();
        if !names.is_empty() {
            w.list(&format!("{arch}.embedding_prompt_names"), &names);
            w.list(&format!("{arch}.embedding_prompt_texts"), &texts);
        }
        if let Some(name) = self.default_prompt()? {
            w.set(&format!("{arch}.embedding_default_prompt"), &*name);
        }
        Ok(())
    }

    /// Returns the maximum length of a text in tokens: that of sentence-transformers, otherwise that of
    /// the tokenizer of an encoder.
    fn max_length(&self, arch: &str) -> Result<Option<u32>> {
        let path = self.path(LENGTH);
        if let Some(config) = read(&path)?
            && let Some(length) = config.integer("max_seq_length").context(path.display())?
        {
            return Ok(Some(length));
        }
        let path = self.path(TOKENIZER);
        let Some(config) = read(&path)?.filter(|_| arch::find(arch).is_ok_and(|a| a.encoder))
        else {
            return Ok(None);
        };
        let length = config.typed("model_max_length", "a number", Value::as_f64);
        let length = length.context(path.display())?;
        // `transformers` writes 1e30 if there is no limit.
        #[expect(clippy::cast_possible_truncation, reason = "checked range")]
        #[expect(clippy::cast_sign_loss, reason = "checked range")]
        let length =
            length.and_then(|n| (1.0..=f64::from(u32::MAX)).contains(&n).then_some(n as u32));
        Ok(length)
    }

    fn write_modules(&self, text: &str, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let Ok(Value::Array(modules)) = serde_json::from_str(text) else {
            bail!(Format, "expected a JSON list of modules");
        };
        let (mut normalize, mut is_linear) = (false, false);
        let mut dense = DenseModules(DENSE_MODULES.iter());
        for module in &modules {
            let field = |name: &str| module.get(name).and_then(Value::as_str);
            let class = field("type").and_then(|class| class.rsplit('.').next());
            match class {
                Some("Transformer") => {}
                Some("Pooling") => {
                    let (path, config) = self.module(field("path").unwrap_or_default())?;
                    let number = pooling(&config).context(path.display())?;
                    w.set(&format!("{arch}.pooling_type"), number);
                    is_linear = number != MAX;
                }
                // A linear module can be computed before pooling.
                Some("Dense") if is_linear && dense.next_path() == field("path") => {
                    let (path, config) = self.module(field("path").unwrap_or_default())?;
                    dense.write(&config, arch, w).context(path.display())?;
                }
                Some("Normalize") => normalize = true,
                _ => bail!(Unsupported, "unsupported module {}", shown(module)),
            }
        }
        w.set(&format!("{arch}.embedding_normalize"), normalize);
        Ok(())
    }

    /// Reads the configuration of a module; returns its path too.
    fn module(&self, path: &str) -> Result<(PathBuf, HfConfig)> {
        let path = Path::new(path);
        let inside = path.components().all(|c| matches!(c, Component::Normal(_)));
        if !inside {
            bail!(
                Format,
                "{} is not a path inside the model folder",
                path.display()
            );
        }
        let path = self.path("").join(path).join(CONFIG);
        match read(&path)? {
            Some(config) => Ok((path, config)),
            None => bail!(Io, "{}: no such file", path.display()),
        }
    }

    /// Adds the tensors of the Dense modules, which have files of their own, to those of the model.
    pub(in crate::load) fn add_dense_modules(&self, file: &mut Directory) -> Result<()> {
        let arch = self.config.arch()?.unwrap_or_default();
        for (module, name) in DENSE_MODULES {
            if file.metadata.get(&feature_key(arch, name, "in")).is_none() {
                break;
            }
            let path = module_path(module);
            let weights = self.path(path).join("model.safetensors");
            format::add_file(file, &weights, &format!("{path}."))?;
        }
        Ok(())
    }

    /// Returns the prompts (text prefixes): name and text.
    ///
    /// # Errors
    ///
    /// `Format` for a prompt that is not a string.
    fn prompts(&self) -> Result<Vec<(String, String)>> {
        let Some(config) = read(&self.path(PROMPTS))? else {
            return Ok(Vec::new());
        };
        let list = |prompts: &Value| {
            let pairs = prompts.as_object()?.iter();
            let text =
                |(name, text): (&String, &Value)| Some((name.clone(), text.as_str()?.into()));
            pairs.map(text).collect()
        };
        let prompts = config.typed("prompts", "an object of strings", list);
        let prompts = prompts.context(self.path(PROMPTS).display())?;
        Ok(prompts.unwrap_or_default())
    }

    /// Returns the name of the default prompt.
    ///
    /// # Errors
    ///
    /// `Format` for a name that is not a string.
    fn default_prompt(&self) -> Result<Option<String>> {
        let Some(config) = read(&self.path(PROMPTS))? else {
            return Ok(None);
        };
        let name = config.text("default_prompt_name");
        Ok(name
            .context(self.path(PROMPTS).display())?
            .map(str::to_string))
    }
}

/// The Dense modules that can follow.
struct DenseModules(slice::Iter<'static, (&'static str, &'static str)>);

impl DenseModules {
    /// Returns the path that the next module must have.
    fn next_path(&self) -> Option<&'static str> {
        let (module, _) = self.0.as_slice().first()?;
        Some(module_path(module))
    }

    /// Writes the keys of the next module.
    ///
    /// # Errors
    ///
    /// `Unsupported` for an activation function: the result would depend on the order of the module and
    /// of pooling.
    fn write(&mut self, config: &HfConfig, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let key = "activation_function";
        let activation = config.text(key)?.unwrap_or("Tanh");
        if !activation.ends_with("Identity") {
            bail!(Unsupported, "unsupported {key}: {activation:?}");
        }
        let Some((_, name)) = self.0.next() else {
            bail!(Unsupported, "too many Dense modules");
        };
        for side in ["in", "out"] {
            let key = format!("{side}_features");
            let Some(features) = config.integer(&key)? else {
                bail!(Format, "{key} is missing");
            };
            w.set(&feature_key(arch, name, side), features);
        }
        Ok(())
    }
}

/// Returns the path of a Dense module in its folder: `2_Dense.linear` gives `2_Dense`.
fn module_path(module: &'static str) -> &'static str {
    module.strip_suffix(".linear").unwrap_or(module)
}

/// Returns the key of the number of inputs or outputs of a Dense module.
fn feature_key(arch: &str, name: &str, side: &str) -> String {
    format!("{arch}.{name}_feat_{side}")
}

/// Returns the GGUF number of the pooling mode.
fn pooling(config: &HfConfig) -> Result<u32> {
    if config.boolean("include_prompt")? == Some(false) {
        bail!(
            Unsupported,
            "include_prompt: excluding the prompt from pooling is not supported"
        );
    }
    let mode = config.find("pooling_mode");
    // A list with one element is that element.
    let mode = mode.map(|mode| match mode.as_array().map(Vec::as_slice) {
        Some([one]) => one,
        _ => mode,
    });
    let poolings = match mode {
        Some(mode) => POOLINGS.iter().filter(|p| mode == p.1).collect::<Vec<_>>(),
        None => {
            let flags = config.flags(FLAG);
            let mut poolings = Vec::new();
            for flag in &flags {
                match POOLINGS.iter().find(|p| p.0 == *flag) {
                    Some(pooling) => poolings.push(pooling),
                    None => bail!(Unsupported, "unsupported pooling mode {flag}"),
                }
            }
            poolings
        }
    };
    match poolings[..] {
        [(_, _, number)] => Ok(*number),
        _ => bail!(
            Unsupported,
            "pooling_mode: expected one of mean, cls, lasttoken, max; got {}",
            mode.map_or_else(|| format!("{} flags", poolings.len()), shown)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use serde_json::json;
    use std::path::PathBuf;

    /// Creates a sentence-transformers folder with these files.
    fn folder(name: &str, files: &[(&str, Value)]) -> (PathBuf, Folder) {
        let path = std::env::temp_dir().join(format!("tabla-hf-{}-{name}", std::process::id()));
        for (file, value) in files {
            let file = path.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, value.to_string()).unwrap();
        }
        let folder = Folder {
            path: path.clone(),
            config: HfConfig::parse(r#"{"model_type": "bert"}"#).unwrap(),
            generation: None,
        };
        (path, folder)
    }

    #[test]
    fn reads_pooling_and_normalization() {
        let old = "sentence_transformers.models.";
        let new = "sentence_transformers.sentence_transformer.modules.";
        let modules = |prefix: &str, second: &str| {
            json!([
                { "type": format!("{prefix}Transformer"), "path": "" },
                { "type": format!("{prefix}pooling.Pooling"), "path": "1_Pooling" },
                { "type": format!("{prefix}{second}"), "path": "2" },
            ])
        };
        let read = |modules: Value, pooling: Value| {
            let files = [
                ("modules.json", modules),
                ("1_Pooling/config.json", pooling),
                ("sentence_bert_config.json", json!({ "max_seq_length": 80 })),
            ];
            let (path, folder) = folder("modules", &files);
            let meta = folder.metadata();
            std::fs::remove_dir_all(path).unwrap();
            let meta = meta?;
            assert_eq!(meta.u32("bert.embedding_context_length")?, Some(80));
            let normalize = meta.bool("bert.embedding_normalize")?;
            Ok::<_, Error>((meta.u32("bert.pooling_type")?, normalize))
        };
        let flags = json!({ "pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true });
        let actual = read(modules(old, "Normalize"), flags).unwrap();
        assert_eq!(actual, (Some(1), Some(true)));
        for (mode, number) in [("mean", 1), ("cls", 2), ("lasttoken", 3), ("max", 5)] {
            let actual = read(modules(new, "Normalize"), json!({ "pooling_mode": mode }));
            assert_eq!(actual.unwrap().0, Some(number));
        }
        let cls = json!({ "pooling_mode": ["cls"] });
        for (modules, pooling, part) in [
            (modules(old, "Dense"), cls.clone(), "models.Dense"),
            (
                modules(old, "Normalize"),
                json!({ "pooling_mode": "weightedmean" }),
                "weightedmean",
            ),
            (
                modules(old, "Normalize"),
                json!({ "pooling_mode": ["cls", "max"] }),
                "[\"cls\",\"max\"]",
            ),
            (
                modules(old, "Normalize"),
                json!({ "include_prompt": false }),
                "include_prompt",
            ),
            (json!({}), cls.clone(), "list of modules"),
            (
                json!([{ "type": "a.Pooling", "path": "../x" }]),
                cls,
                "../x is not a path inside",
            ),
        ] {
            let e = read(modules, pooling).unwrap_err();
            assert!(e.message().contains(part), "expected {part:?} in: {e}");
        }
    }

    #[test]
    fn reads_dense_modules() {
        let read = |pooling: &str, path: &str, activation: &str| {
            let class = |name: &str| format!("sentence_transformers.models.{name}");
            let modules = json!([
                { "type": class("Transformer"), "path": "" },
                { "type": class("Pooling"), "path": "1_Pooling" },
                { "type": class("Dense"), "path": path },
                { "type": class("Normalize"), "path": "3_Normalize" },
            ]);
            let dense = json!({ "in_features": 4, "out_features": 9, "bias": false,
                "activation_function": format!("torch.nn.modules.{activation}") });
            let files = [
                ("modules.json", modules),
                ("1_Pooling/config.json", json!({ "pooling_mode": pooling })),
                ("2_Dense/config.json", dense),
            ];
            let (path, folder) = folder("dense", &files);
            let meta = folder.metadata();
            std::fs::remove_dir_all(path).unwrap();
            let meta = meta?;
            let key = |side: &str| meta.u32(&format!("bert.dense_2_feat_{side}"));
            Ok::<_, Error>([key("in")?, key("out")?])
        };
        let identity = "linear.Identity";
        assert_eq!(
            read("mean", "2_Dense", identity).unwrap(),
            [Some(4), Some(9)]
        );
        for (pooling, path, activation, part) in [
            (
                "mean",
                "2_Dense",
                "activation.Tanh",
                "unsupported activation_function",
            ),
            ("mean", "3_Dense", identity, "unsupported module"),
            ("max", "2_Dense", identity, "unsupported module"),
        ] {
            let e = read(pooling, path, activation).unwrap_err();
            assert!(e.message().contains(part), "expected {part:?} in: {e}");
        }
    }

    #[test]
    fn length_of_the_tokenizer_is_the_default() {
        let read = |length: Value| {
            let files = [(
                "tokenizer_config.json",
                json!({ "model_max_length": length }),
            )];
            let (path, folder) = folder("length", &files);
            let meta = folder.metadata();
            std::fs::remove_dir_all(path).unwrap();
            meta.unwrap().u32("bert.embedding_context_length").unwrap()
        };
        assert_eq!(read(json!(72)), Some(72));
        assert_eq!(read(json!(1e30)), None);
        assert_eq!(read(Value::Null), None);
    }

    #[test]
    fn reads_prompts() {
        let file = "config_sentence_transformers.json";
        let prompts = json!({ "prompts": { "query": "find: ", "document": "" },
            "default_prompt_name": "query" });
        let (path, folder) = folder("prompts", &[(file, prompts)]);
        let actual = (folder.prompts().unwrap(), folder.default_prompt().unwrap());
        std::fs::remove_dir_all(path).unwrap();
        let pairs = [("query", "find: "), ("document", "")].map(|(a, b)| (a.into(), b.into()));
        assert_eq!(actual, (pairs.to_vec(), Some("query".into())));
        assert_eq!(folder.prompts().unwrap(), []);
    }
}
