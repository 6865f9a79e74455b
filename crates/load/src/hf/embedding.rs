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

/// Pooling modes, in the order of their vectors: flag of older files, name of newer files, GGUF number. The
/// numbers from 5 on are Tabla's own.
const POOLINGS: [(&str, &str, u32); 6] = [
    ("pooling_mode_cls_token", "cls", 2),
    ("pooling_mode_max_tokens", "max", 5),
    ("pooling_mode_mean_tokens", "mean", MEAN),
    (
        "pooling_mode_mean_sqrt_len_tokens",
        "mean_sqrt_len_tokens",
        7,
    ),
    ("pooling_mode_weightedmean_tokens", "weightedmean", 6),
    ("pooling_mode_lasttoken", "lasttoken", 3),
];

/// Number of mean pooling, the default.
const MEAN: u32 = 1;

/// Numbers of the modes that are weighted means of rows. A linear module can be computed before them.
const MEANS: [u32; 4] = [MEAN, 2, 3, 6];

/// `pooling_type` of rerankers. Encoders have a classification head; decoders rank by the logits of two tokens.
pub(in super::super) const RANK: u32 = 4;

/// File that describes a model, and the title of the one of generative rerankers.
const README: &str = "README.md";
const RERANKER_TITLE: &str = "# Qwen3-Reranker";

/// Prefix of the flags.
const FLAG: &str = "pooling_mode_";

impl Folder {
    /// Writes `pooling_type` and Tabla's own keys for normalization, maximum length and prompts.
    pub(super) fn write_embedding(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let path = self.root.join(MODULES);
        if let Some(text) = format::read_text(&path, BYTES_MAX)? {
            self.write_modules(&text, arch, w).context(path.display())?;
        } else if self.is_reranker(arch) {
            w.set(&format!("{arch}.pooling_type"), RANK);
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

    /// Returns whether the README names a generative reranker, as for the converter of llama.cpp. The other
    /// files are those of a chat model.
    fn is_reranker(&self, arch: &str) -> bool {
        let readme = self.text(README, BYTES_MAX).ok().flatten();
        let is_named = readme.is_some_and(|text| text.contains(RERANKER_TITLE));
        is_named && arch::find(arch).is_ok_and(|arch| !arch.encoder)
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
        let (mut poolings, mut normalize) = (Vec::new(), false);
        let mut dense = DenseModules::new();
        for module in &modules(text)? {
            let (class, path) = class_and_path(module);
            match class {
                Some("Transformer") if poolings.is_empty() => {}
                Some("Pooling") if poolings.is_empty() => {
                    let (path, config) = self.module(path.unwrap_or_default())?;
                    poolings = self::poolings(&config).context(path.display())?;
                }
                Some("Dense")
                    if !poolings.is_empty() && !normalize && dense.next_path() == path =>
                {
                    let (path, config) = self.module(path.unwrap_or_default())?;
                    dense.write(&config, arch, w).context(path.display())?;
                }
                Some("Normalize") if !poolings.is_empty() => normalize = true,
                _ => bail!(Unsupported, "unsupported module {}", shown(module)),
            }
        }
        let key = format!("{arch}.pooling_type");
        match poolings[..] {
            [] => {}
            [number] => {
                w.set(&key, number);
            }
            _ => {
                w.list(&key, &poolings);
            }
        }
        let is_mean = poolings.len() == 1 && MEANS.contains(&poolings[0]);
        if dense.count > 0 && (dense.is_nonlinear || !is_mean) {
            w.set(&format!("{arch}.dense_after_pooling"), true);
        }
        w.set(&format!("{arch}.embedding_normalize"), normalize);
        Ok(())
    }

    /// Reads the configuration of a module; returns its path too.
    fn module(&self, path: &str) -> Result<(PathBuf, HfConfig)> {
        check_inside(Path::new(path))?;
        let path = self.root.join(path).join(CONFIG);
        match read(&path)? {
            Some(config) => Ok((path, config)),
            None => bail!(Io, "{}: no such file", path.display()),
        }
    }

    /// Adds the tensors of the Dense modules, which have files of their own, to those of the model.
    pub fn add_dense_modules(&self, file: &mut Directory) -> Result<()> {
        let arch = self.config.arch()?.unwrap_or_default();
        for (module, name) in DENSE_MODULES {
            if file.metadata.get(&feature_key(arch, name, "in")).is_none() {
                break;
            }
            let path = module_path(module);
            let weights = self.root.join(path).join("model.safetensors");
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
        let Some(config) = read(&self.root.join(PROMPTS))? else {
            return Ok(Vec::new());
        };
        let list = |prompts: &Value| {
            let pairs = prompts.as_object()?.iter();
            let text =
                |(name, text): (&String, &Value)| Some((name.clone(), text.as_str()?.into()));
            pairs.map(text).collect()
        };
        let prompts = config.typed("prompts", "an object of strings", list);
        let prompts = prompts.context(self.root.join(PROMPTS).display())?;
        Ok(prompts.unwrap_or_default())
    }

    /// Returns the name of the default prompt.
    ///
    /// # Errors
    ///
    /// `Format` for a name that is not a string.
    fn default_prompt(&self) -> Result<Option<String>> {
        let Some(config) = read(&self.root.join(PROMPTS))? else {
            return Ok(None);
        };
        let name = config.text("default_prompt_name");
        Ok(name
            .context(self.root.join(PROMPTS).display())?
            .map(str::to_string))
    }
}

/// Returns the folder of the transformer of a sentence-transformers folder, if it is not the folder itself.
///
/// # Errors
///
/// `Format` for an invalid `modules.json`, `Unsupported` if its first module is not a transformer.
pub(crate) fn transformer_folder(root: &Path) -> Result<Option<PathBuf>> {
    let path = root.join(MODULES);
    let Some(text) = format::read_text(&path, BYTES_MAX)? else {
        return Ok(None);
    };
    let read = || {
        let modules = modules(&text)?;
        let Some(first) = modules.first() else {
            return Ok(None);
        };
        match class_and_path(first) {
            (Some("Transformer"), None | Some("")) => Ok(None),
            (Some("Transformer"), Some(path)) => {
                check_inside(Path::new(path))?;
                Ok(Some(root.join(path)))
            }
            _ => bail!(
                Unsupported,
                "unsupported module {}: the first module must be a transformer",
                shown(first)
            ),
        }
    };
    read().context(path.display())
}

/// Parses the list of modules.
fn modules(text: &str) -> Result<Vec<Value>> {
    match serde_json::from_str(text) {
        Ok(Value::Array(modules)) => Ok(modules),
        _ => bail!(Format, "expected a JSON list of modules"),
    }
}

/// Returns the name of the class of a module and the path of its folder.
fn class_and_path(module: &Value) -> (Option<&str>, Option<&str>) {
    let field = |name: &str| module.get(name).and_then(Value::as_str);
    let class = field("type").and_then(|class| class.rsplit('.').next());
    (class, field("path"))
}

/// Checks that a path is inside the folder: the list of modules is untrusted.
fn check_inside(path: &Path) -> Result<()> {
    let inside = path.components().all(|c| matches!(c, Component::Normal(_)));
    if !inside {
        bail!(
            Format,
            "{} is not a path inside the model folder",
            path.display()
        );
    }
    Ok(())
}

/// The Dense modules that can follow.
struct DenseModules {
    rest: slice::Iter<'static, (&'static str, &'static str)>,
    count: u32,
    /// Whether a module has an activation function.
    is_nonlinear: bool,
}

impl DenseModules {
    fn new() -> Self {
        Self {
            rest: DENSE_MODULES.iter(),
            count: 0,
            is_nonlinear: false,
        }
    }

    /// Returns the path that the next module must have.
    fn next_path(&self) -> Option<&'static str> {
        let (module, _) = self.rest.as_slice().first()?;
        Some(module_path(module))
    }

    /// Writes the keys of the next module.
    ///
    /// # Errors
    ///
    /// `Unsupported` for another activation function than `Tanh`, for a residual connection, and for a
    /// module that does not read the pooled vector.
    fn write(&mut self, config: &HfConfig, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let Some((_, name)) = self.rest.next() else {
            bail!(Unsupported, "too many Dense modules");
        };
        let key = "activation_function";
        let activation = config.text(key)?.unwrap_or("Tanh");
        match activation.rsplit('.').next() {
            Some("Identity") => {}
            Some("Tanh") => {
                self.is_nonlinear = true;
                w.set(&format!("{arch}.{name}_activation"), "tanh");
            }
            _ => bail!(Unsupported, "unsupported {key}: {activation:?}"),
        }
        if config.boolean("use_residual")? == Some(true) {
            bail!(Unsupported, "unsupported use_residual: true");
        }
        for key in ["module_input_name", "module_output_name"] {
            let vector = config.text(key)?.unwrap_or(POOLED);
            if vector != POOLED {
                bail!(
                    Unsupported,
                    "unsupported {key}: {vector:?}, expected {POOLED:?}"
                );
            }
        }
        for side in ["in", "out"] {
            let key = format!("{side}_features");
            let Some(features) = config.integer(&key)? else {
                bail!(Format, "{key} is missing");
            };
            w.set(&feature_key(arch, name, side), features);
        }
        self.count += 1;
        Ok(())
    }
}

/// Name of the pooled vector in the configuration of modules.
const POOLED: &str = "sentence_embedding";

/// Returns the path of a Dense module in its folder: `2_Dense.linear` gives `2_Dense`.
fn module_path(module: &'static str) -> &'static str {
    module.strip_suffix(".linear").unwrap_or(module)
}

/// Returns the key of the number of inputs or outputs of a Dense module.
fn feature_key(arch: &str, name: &str, side: &str) -> String {
    format!("{arch}.{name}_feat_{side}")
}

/// Returns the GGUF numbers of the pooling modes, in the order of their vectors.
fn poolings(config: &HfConfig) -> Result<Vec<u32>> {
    if config.boolean("include_prompt")? == Some(false) {
        bail!(
            Unsupported,
            "include_prompt: excluding the prompt from pooling is not supported"
        );
    }
    let named = |mode: &Value| {
        let mut all = POOLINGS.iter();
        let Some((_, _, number)) = all.find(|(_, name, _)| mode == name) else {
            bail!(
                Unsupported,
                "pooling_mode: expected {}; got {}",
                POOLINGS.map(|(_, name, _)| name).join(", "),
                shown(mode)
            );
        };
        Ok(*number)
    };
    if let Some(mode) = config.find("pooling_mode") {
        let modes = mode.as_array().map_or(slice::from_ref(mode), Vec::as_slice);
        if modes.is_empty() {
            bail!(Format, "pooling_mode is an empty list");
        }
        return modes.iter().map(named).collect();
    }
    let flags = config.flags(FLAG);
    let is_known = |flag: &&str| POOLINGS.iter().any(|(known, _, _)| known == flag);
    if let Some(flag) = flags.iter().find(|flag| !is_known(flag)) {
        bail!(Unsupported, "unsupported pooling mode {flag}");
    }
    let set = POOLINGS.iter().filter(|(flag, _, _)| flags.contains(flag));
    let set: Vec<_> = set.map(|(_, _, number)| *number).collect();
    Ok(if set.is_empty() { vec![MEAN] } else { set })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use serde_json::json;
    use tempfile::TempDir;

    /// Creates a sentence-transformers folder with these files.
    fn folder(files: &[(&str, Value)]) -> (TempDir, Folder) {
        let root = tempfile::tempdir().expect("a temporary folder");
        let path = root.path().to_path_buf();
        for (file, value) in files {
            let file = path.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, value.to_string()).unwrap();
        }
        let folder = Folder {
            path: path.clone(),
            root: path,
            config: HfConfig::parse(r#"{"model_type": "bert"}"#).unwrap(),
            generation: None,
        };
        (root, folder)
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a list of cases")]
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
            let (_root, folder) = folder(&files);
            let meta = folder.metadata()?;
            assert_eq!(meta.u32("bert.embedding_context_length")?, Some(80));
            let normalize = meta.bool("bert.embedding_normalize")?;
            let one = meta.u32("bert.pooling_type").ok().flatten();
            let numbers = match one {
                Some(number) => vec![number],
                None => meta.u32s("bert.pooling_type")?.unwrap_or_default(),
            };
            Ok::<_, Error>((numbers, normalize))
        };
        let flags = json!({ "pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true });
        let actual = read(modules(old, "Normalize"), flags).unwrap();
        assert_eq!(actual, (vec![1], Some(true)));
        assert_eq!(read(modules(old, "Normalize"), json!({})).unwrap().0, [1]);
        let all = json!({ "pooling_mode_lasttoken": true, "pooling_mode_max_tokens": true,
            "pooling_mode_cls_token": true, "pooling_mode_mean_sqrt_len_tokens": true });
        let all = read(modules(old, "Normalize"), all).unwrap();
        assert_eq!(all.0, [2, 5, 7, 3]);
        for (mode, numbers) in [
            (json!("mean"), &[1][..]),
            (json!("cls"), &[2]),
            (json!(["lasttoken"]), &[3]),
            (json!(["max", "weightedmean"]), &[5, 6]),
            (json!("mean_sqrt_len_tokens"), &[7]),
        ] {
            let actual = read(modules(new, "Normalize"), json!({ "pooling_mode": mode }));
            assert_eq!(actual.unwrap().0, numbers);
        }
        let cls = json!({ "pooling_mode": ["cls"] });
        for (modules, pooling, part) in [
            (modules(old, "Dense"), cls.clone(), "models.Dense"),
            (modules(old, "Pooling"), cls.clone(), "models.Pooling"),
            (
                modules(old, "Normalize"),
                json!({ "pooling_mode": ["cls", "best"] }),
                "got \"best\"",
            ),
            (
                modules(old, "Normalize"),
                json!({ "pooling_mode_best_token": true }),
                "pooling_mode_best_token",
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
            let (_root, folder) = folder(&files);
            let meta = folder.metadata()?;
            let key = |side: &str| meta.u32(&format!("bert.dense_2_feat_{side}"));
            assert_eq!([key("in")?, key("out")?], [Some(4), Some(9)]);
            let activation = meta.str("bert.dense_2_activation")?;
            let after = meta.bool("bert.dense_after_pooling")?;
            Ok::<_, Error>((activation == Some("tanh"), after == Some(true)))
        };
        let identity = "linear.Identity";
        for (pooling, activation, expected) in [
            ("mean", identity, (false, false)),
            ("weightedmean", identity, (false, false)),
            ("max", identity, (false, true)),
            ("cls", "activation.Tanh", (true, true)),
        ] {
            let found = read(pooling, "2_Dense", activation).unwrap();
            assert_eq!(found, expected, "{pooling} {activation}");
        }
        for (pooling, path, activation, part) in [
            (
                "mean",
                "2_Dense",
                "activation.ReLU",
                "unsupported activation_function",
            ),
            ("mean", "3_Dense", identity, "unsupported module"),
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
            let (_root, folder) = folder(&files);
            let meta = folder.metadata();
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
        let (root, folder) = folder(&[(file, prompts)]);
        let actual = (folder.prompts().unwrap(), folder.default_prompt().unwrap());
        let pairs = [("query", "find: "), ("document", "")].map(|(a, b)| (a.into(), b.into()));
        assert_eq!(actual, (pairs.to_vec(), Some("query".into())));
        drop(root);
        assert_eq!(folder.prompts().unwrap(), []);
    }
}
