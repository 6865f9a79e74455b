//! Reranking with models trained to answer whether a document is relevant. The prompt contains
//! query and document; the score comes from the logits of "yes" and "no".

use super::output_request::OutputRequest;
use super::rows::zeroed;
use super::session::Session;
use crate::error::{Context, Error, ErrorKind, Result, bail};
use crate::text::{ChatTemplate, Conversation, EncodeOptions, TemplateTokens};
use serde_json::{Map, Value};

/// Name of the rerank prompt in model files.
const PROMPT_NAME: &str = "rerank";

/// Prompt of Qwen3-Reranker, used if the model files define none.
const DEFAULT_PROMPT: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on \
    the Query and the Instruct provided. Note that the answer can only be \"yes\" or \"no\".\
    <|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages \
    that answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n\
    <|im_start|>assistant\n<think>\n\n</think>\n\n";

/// Special tokens that [`USUAL`] requires. A vocabulary without them belongs to another model
/// family.
const DEFAULT_PROMPT_TOKENS: [&str; 2] = ["<|im_start|>", "<|im_end|>"];

/// Placeholders of a prompt and their variables.
const PLACEHOLDERS: [(&str, &str); 3] = [
    (RerankOptions::INSTRUCTION, "instruction"),
    ("{query}", "query"),
    ("{document}", "document"),
];

tabla_core::options! {
    /// Options of [`Session::rerank`].
    #[derive(Clone, Copy, Debug, Default)]
    pub struct RerankOptions<'a> {
        /// Query that documents are compared with.
        pub query: &'a str,
        /// Instruction that defines relevance; `None`: [`RerankOptions::INSTRUCTION`].
        pub instruction: Option<&'a str>,
    }
}

impl RerankOptions<'_> {
    /// Default instruction of Qwen3-Reranker.
    pub const INSTRUCTION: &'static str =
        "Given a web search query, retrieve relevant passages that answer the query";
}

impl Session {
    /// Returns the relevance of each document to a query, from 0 to 1: the probability of "yes"
    /// against "no" after a prompt with both. The prompt is the `rerank` prompt of the model files,
    /// otherwise that of Qwen3-Reranker. Special tokens in query or documents are treated as text.
    /// `progress` receives the number of scored documents and the total.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the vocabulary lacks the tokens of the prompt or of the labels, `Argument`
    /// for an instruction if the prompt has no placeholder for it, `TooLarge` for a document that
    /// exceeds the context, `State` for an encoder. `Cancelled` after
    /// [`Cancel::cancel`](crate::Cancel::cancel).
    pub fn rerank<T: AsRef<str>>(
        &mut self,
        options: &RerankOptions<'_>,
        documents: &[T],
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<f32>> {
        let labels = [self.label_token("yes")?, self.label_token("no")?];
        let template = self.rerank_template(options)?;
        let (total, vocab) = (documents.len(), self.facts().vocab as usize);
        let mut scores = zeroed(total)?;
        for (at, document) in documents.iter().enumerate() {
            if self.cancelled() {
                bail!(Cancelled, "cancelled after {at} of {total} documents");
            }
            let variables: Map<String, Value> = [
                (
                    "instruction",
                    options.instruction.unwrap_or(RerankOptions::INSTRUCTION),
                ),
                ("query", options.query),
                ("document", document.as_ref()),
            ]
            .map(|(name, text)| (name.to_string(), text.into()))
            .into_iter()
            .collect();
            let conversation = Conversation::new(&[]).variables(&variables);
            let tokens = template.encode(&conversation, self.tokenizer());
            let context = format_args!("document {at}");
            let mut session = self.detached(&tokens.context(context)?).context(context)?;
            let logits = session.compute(OutputRequest::Logits(zeroed(vocab)?), &mut |_, _| {})?;
            let [yes, no] = labels.map(|label| f64::from(logits[label as usize]));
            #[expect(clippy::cast_possible_truncation, reason = "scores are f32")]
            let score = (1.0 / (1.0 + (no - yes).exp())) as f32;
            scores[at] = score;
            progress(at + 1, total);
        }
        Ok(scores)
    }

    /// Returns the token of a word that is a single token.
    fn label_token(&self, word: &str) -> Result<u32> {
        let alone = EncodeOptions::default();
        match self.tokenizer().encode(word, alone)?[..] {
            [token] => Ok(token),
            _ => bail!(
                Unsupported,
                "reranking is not supported: the vocabulary has no token {word:?}"
            ),
        }
    }

    /// Creates a chat template from the prompt.
    fn rerank_template(&self, options: &RerankOptions<'_>) -> Result<ChatTemplate> {
        let own = self.chat_templates().get(PROMPT_NAME);
        let is_known = |token: &&str| self.tokenizer().special_id(token).is_some();
        if own.is_none() && !DEFAULT_PROMPT_TOKENS.iter().all(is_known) {
            bail!(
                Unsupported,
                "reranking is not supported: the model files define no rerank prompt, and the vocabulary lacks the tokens of the default prompt"
            );
        }
        let prompt = own.unwrap_or(DEFAULT_PROMPT);
        if options.instruction.is_some() && !prompt.contains(RerankOptions::INSTRUCTION) {
            bail!(
                Argument,
                "the model's rerank prompt has no placeholder for an instruction"
            );
        }
        ChatTemplate::new(&template_source(prompt)?, TemplateTokens::default())
    }
}

/// Converts a prompt to the source of a chat template, with a variable for each placeholder.
fn template_source(prompt: &str) -> Result<String> {
    let mut source = String::new();
    let mut rest = prompt;
    let mut missing = PLACEHOLDERS.to_vec();
    loop {
        let next = PLACEHOLDERS
            .iter()
            .filter_map(|placeholder| Some((rest.find(placeholder.0)?, placeholder)));
        let next = next.min_by_key(|(at, _)| *at);
        let text = &rest[..next.map_or(rest.len(), |(at, _)| at)];
        let literal = serde_json::to_string(text).map_err(|e| {
            Error::new(ErrorKind::Internal, "cannot serialize a string as JSON").caused_by(e)
        })?;
        source.push_str(&format!("{{{{ {literal} }}}}"));
        let Some((at, (placeholder, name))) = next else {
            break;
        };
        source.push_str(&format!("{{{{ {name} }}}}"));
        missing.retain(|(other, _)| other != placeholder);
        rest = &rest[at + placeholder.len()..];
    }
    match missing
        .iter()
        .find(|(placeholder, _)| placeholder.starts_with('{'))
    {
        Some((placeholder, _)) => bail!(
            Format,
            "the rerank prompt lacks the placeholder {placeholder}"
        ),
        None => Ok(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_prompts_to_templates() {
        let variables: Map<String, Value> = [
            ("instruction", "i"),
            ("query", "{document} {{ d }}"),
            ("document", "d\n"),
        ]
        .map(|(name, text)| (name.to_string(), text.into()))
        .into_iter()
        .collect();
        let conversation = Conversation::new(&[]).variables(&variables);
        for (prompt, expected) in [
            ("{query}: {document}\n\n", "{document} {{ d }}: d\n\n\n"),
            (
                "\"{document}\" {% if %}{query}",
                "\"d\n\" {% if %}{document} {{ d }}",
            ),
        ] {
            let source = template_source(prompt).expect("prompt has all placeholders");
            let template =
                ChatTemplate::new(&source, TemplateTokens::default()).expect("valid template");
            assert_eq!(
                template.render(&conversation).expect("template renders"),
                expected
            );
        }
        assert!(template_source("{query}").is_err() && template_source("{document}").is_err());
        let template = template_source(DEFAULT_PROMPT).expect("prompt has all placeholders");
        assert!(template.contains("{{ instruction }}"), "{template}");
    }
}
