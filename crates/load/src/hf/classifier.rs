//! Classification heads: labels, activation function and pooling.

use super::Folder;
use super::config::{HfConfig, shown};
use crate::arch;
use crate::error::{Context, Result, bail};
use crate::format::write::Writer;
use crate::model::ScoreActivation;
use serde_json::Value;

/// End of the names of classes with a classification head.
const CLASS: &str = "ForSequenceClassification";
/// End of the names of classes with other heads whose tensors have the same names.
const OTHER_CLASSES: [&str; 2] = ["ForTokenClassification", "ForMultipleChoice"];

/// Keys of the activation function in files of sentence-transformers, newest first.
const ACTIVATIONS: [&str; 2] = [
    "sentence_transformers.activation_fn",
    "sbert_ce_default_activation_function",
];

/// Values of `problem_type` and their activation functions, for several labels. Other values mean the
/// default.
const PROBLEMS: [(&str, ScoreActivation); 2] = [
    ("multi_label_classification", ScoreActivation::Sigmoid),
    ("regression", ScoreActivation::Identity),
];

/// Values of `classifier_pooling` and their GGUF numbers.
const POOLINGS: [(&str, u32); 2] = [("mean", 1), ("cls", 2)];

impl Folder {
    /// Writes the keys of a classification head, and `classifier.activation`, which is Tabla's own key.
    pub(super) fn write_classifier(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let class = self.config.class().unwrap_or_default();
        if !arch::find(arch)?.encoder {
            return Ok(());
        }
        if OTHER_CLASSES.iter().any(|other| class.ends_with(other)) {
            bail!(
                Unsupported,
                "unsupported class {class}: expected an encoder or {CLASS}"
            );
        }
        if !class.ends_with(CLASS) {
            return Ok(());
        }
        let written = self.config.write_head(arch, w);
        written.context(self.path(super::CONFIG).display())
    }
}

impl HfConfig {
    fn write_head(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let labels = self.labels()?;
        if let Some(labels) = &labels {
            w.list(&format!("{arch}.classifier.output_labels"), labels);
        }
        let count = labels.map_or(0, |labels| labels.len());
        if let Some(activation) = self.score_activation(count)? {
            w.set(&format!("{arch}.classifier.activation"), activation.name());
        }
        if let Some(name) = self.text("classifier_pooling")? {
            let Some((_, number)) = POOLINGS.iter().find(|(known, _)| *known == name) else {
                bail!(Unsupported, "unsupported classifier_pooling: {name:?}");
            };
            w.set(&format!("{arch}.classifier.pooling_type"), *number);
        }
        Ok(())
    }

    /// Returns the names of the labels, in the order of the logits.
    fn labels(&self) -> Result<Option<Vec<String>>> {
        let list = |value: &Value| {
            let names = value.as_object()?;
            let name = |index: usize| Some(names.get(&index.to_string())?.as_str()?.to_string());
            (0..names.len()).map(name).collect()
        };
        self.typed("id2label", "an object of names by index from 0 on", list)
    }

    /// Returns the activation function of the logits of `count` labels; `None` if the file has none.
    fn score_activation(&self, count: usize) -> Result<Option<ScoreActivation>> {
        if let Some(key) = self.first(&ACTIVATIONS)
            && let Some(class) = self.text(key)?
        {
            // A Python class, such as `torch.nn.modules.linear.Identity`.
            let name = class.rsplit('.').next().unwrap_or(class).to_lowercase();
            let Some(activation) = ScoreActivation::named(&name) else {
                bail!(Unsupported, "unsupported {key}: {}", shown(&class.into()));
            };
            return Ok(Some(activation));
        }
        let problem = self.text("problem_type")?.filter(|_| count > 1);
        let known = PROBLEMS.iter().find(|(name, _)| problem == Some(*name));
        Ok(known.map(|(_, activation)| *activation))
    }
}
