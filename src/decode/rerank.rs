//! Reranking. Cross-encoders score the pair of query and document by their classification head. Generative
//! rerankers answer whether a document is relevant: the prompt contains query and document, and the
//! score comes from the logits of "yes" and "no".

use super::classify::{ClassifyInput, ClassifyOptions, InputNames};
use super::embed::FailedInput;
use super::output_request::OutputRequest;
use super::rows::zeroed;
use super::session::Session;
use crate::error::{Context, Error, ErrorKind, Result, bail};
use crate::model::ScoreActivation;
use crate::text::{ChatTemplate, ChatTemplates, Conversation, EncodeOptions, TemplateTokens};
use serde_json::{Map, Value};

/// Name of the rerank prompt in model files.
const PROMPT_NAME: &str = "rerank";

/// Prompt of Qwen3-Reranker, used if the model files define none.
const DEFAULT_PROMPT: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on \
    the Query and the Instruct provided. Note that the answer can only be \"yes\" or \"no\".\
    <|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages \
    that answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n\
    <|im_start|>assistant\n<think>\n\n</think>\n\n";

/// Sentence of [`DEFAULT_PROMPT`], which identifies chat templates of rerankers that are trained with it.
const JUDGE: &str = "Judge whether the Document meets the requirements based on the Query";

/// Name of the models that are trained with [`DEFAULT_PROMPT`], in lower case and without separators.
const MODEL_NAME: &str = "qwen3reranker";

/// Special tokens that [`DEFAULT_PROMPT`] requires. A vocabulary without them belongs to another model
/// family.
const DEFAULT_PROMPT_TOKENS: [&str; 2] = ["<|im_start|>", "<|im_end|>"];

/// Placeholders of a prompt and their variables.
const PLACEHOLDERS: [(&str, &str); 3] = [
    (RerankOptions::INSTRUCTION, "instruction"),
    ("{query}", "query"),
    ("{document}", "document"),
];

/// Names of a pair.
const DOCUMENTS: InputNames = InputNames {
    each: "document",
    pair: ["query", "document"],
};

tabla_core::options! {
    /// Options of [`Session::rerank`].
    #[derive(Clone, Copy, Debug, Default)]
    pub struct RerankOptions<'a> {
        /// Query that documents are compared with.
        pub query: &'a str,
        /// Instruction that defines relevance, for generative rerankers; `None`:
        /// [`RerankOptions::INSTRUCTION`].
        pub instruction: Option<&'a str>,
        /// Whether to return logits instead of scores.
        pub logits: bool,
        /// Whether to truncate documents over the length limit, for cross-encoders. Otherwise they are an
        /// error.
        pub truncate: bool,
    }
}

impl RerankOptions<'_> {
    /// Default instruction of Qwen3-Reranker.
    pub const INSTRUCTION: &'static str =
        "Given a web search query, retrieve relevant passages that answer the query";
}

impl Session {
    /// Returns the relevance of each document to a query. Special tokens in query or documents are treated
    /// as text. `progress` receives the number of scored documents and the total.
    ///
    /// A cross-encoder, an encoder with a classification head of one label, gives the sigmoid of its
    /// logit, or the logit if its files set the identity as activation function. Generative rerankers give
    /// the probability of "yes" against "no" after a prompt with query and document: the `rerank` prompt of
    /// the model files, otherwise that of Qwen3-Reranker if the files identify the model as a reranker: by
    /// `pooling_type` 4, its name, its README or its chat template.
    ///
    /// # Errors
    ///
    /// `Unsupported` for other models, whose scores would be meaningless, if the vocabulary lacks the
    /// tokens of the prompt or of the labels, and for a classification head with several labels; `Argument`
    /// for an instruction or truncation that the
    /// model does not support; `TooLarge` for a document that exceeds the limit; `State` for an encoder
    /// without a classification head. `Cancelled` after [`Cancel::cancel`](crate::Cancel::cancel).
    pub fn rerank<T: AsRef<str>>(
        &mut self,
        options: &RerankOptions<'_>,
        documents: &[T],
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<f32>> {
        if self.model.is_encoder() {
            return self.rerank_pairs(options, documents, progress);
        }
        let template = self.rerank_template(options)?;
        if options.truncate {
            bail!(
                Argument,
                "truncate: only cross-encoders truncate documents; this model generates text"
            );
        }
        let labels = [self.label_token("yes")?, self.label_token("no")?];
        let prompts = self.rerank_prompts(&template, options, documents)?;
        let (total, vocab) = (documents.len(), self.facts().vocab as usize);
        let mut scores = zeroed(total)?;
        for (at, prompt) in prompts.iter().enumerate() {
            if self.cancelled() {
                bail!(Cancelled, "cancelled after {at} of {total} documents");
            }
            let mut session = self.detached(prompt)?;
            let logits = session.compute(OutputRequest::Logits(zeroed(vocab)?), &mut |_, _| {})?;
            self.computed += session.computed;
            let [yes, no] = labels.map(|label| logits[label as usize]);
            scores[at] = yes - no;
            self.check_finite(&format!("the score of document {at}"), &scores[at..=at])?;
            progress(at + 1, total);
        }
        if !options.logits {
            ScoreActivation::Sigmoid.apply(&mut scores);
        }
        Ok(scores)
    }

    /// Returns the tokens of the prompt of each document.
    fn rerank_prompts<T: AsRef<str>>(
        &self,
        template: &ChatTemplate,
        options: &RerankOptions<'_>,
        documents: &[T],
    ) -> Result<Vec<Vec<u32>>> {
        let instruction = options.instruction.unwrap_or(RerankOptions::INSTRUCTION);
        let context = self.facts().context as usize;
        let prompt = |(at, document): (usize, &T)| {
            if self.cancelled() {
                bail!(
                    Cancelled,
                    "cancelled after 0 of {} documents",
                    documents.len()
                );
            }
            let variables: Map<String, Value> = [
                ("instruction", instruction),
                ("query", options.query),
                ("document", document.as_ref()),
            ]
            .map(|(name, text)| (name.to_string(), text.into()))
            .into_iter()
            .collect();
            let conversation = Conversation::new(&[]).variables(&variables);
            let tokens = template.encode(&conversation, self.tokenizer());
            let tokens = tokens.context(format_args!("{} {at}", DOCUMENTS.each))?;
            if tokens.len() > context {
                let reason = format_args!(
                    "has {} tokens with the prompt, expected at most {context}: shorten it",
                    tokens.len()
                );
                return Err(FailedInput::error(
                    ErrorKind::TooLarge,
                    DOCUMENTS.each,
                    at,
                    reason,
                ));
            }
            Ok(tokens)
        };
        documents.iter().enumerate().map(prompt).collect()
    }

    /// Scores query and documents with a cross-encoder.
    fn rerank_pairs<T: AsRef<str>>(
        &mut self,
        options: &RerankOptions<'_>,
        documents: &[T],
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<f32>> {
        match self.model.classifier().map(|head| head.labels.len()) {
            Some(1) => {}
            Some(labels) => bail!(
                Unsupported,
                "reranking requires a classification head with one label, the model has {labels} labels: classify pairs of texts instead"
            ),
            None => bail!(
                State,
                "the model is an encoder without a classification head: it computes embeddings and cannot rerank"
            ),
        }
        if options.instruction.is_some() {
            bail!(
                Argument,
                "the model is a cross-encoder, which takes no instruction"
            );
        }
        let pairs = documents
            .iter()
            .map(|document| ClassifyInput::Pair(options.query, document.as_ref()));
        let pairs: Vec<_> = pairs.collect();
        let classify_options = ClassifyOptions::default()
            .logits(options.logits)
            .truncate(options.truncate);
        self.classify_named(&DOCUMENTS, &pairs, &classify_options, progress)
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

    /// Returns whether the files identify a model that is trained with [`DEFAULT_PROMPT`]. Any chat model
    /// would answer it with a meaningless score.
    fn is_reranker(&self) -> bool {
        let name = self.facts().name.to_lowercase();
        let name: String = name.chars().filter(|c| c.is_alphanumeric()).collect();
        let template = self.chat_templates().get(ChatTemplates::DEFAULT);
        self.model.embedding().is_reranker
            || name.contains(MODEL_NAME)
            || template.is_some_and(|template| template.contains(JUDGE))
    }

    /// Creates a chat template from the prompt.
    fn rerank_template(&self, options: &RerankOptions<'_>) -> Result<ChatTemplate> {
        let own = self.chat_templates().get(PROMPT_NAME);
        if own.is_none() && !self.is_reranker() {
            bail!(
                Unsupported,
                "the model is no reranker: it has no classification head, and its files define no chat template {PROMPT_NAME:?} and name no known reranker; use a reranker such as bge-reranker-v2-m3 or Qwen3-Reranker, or compare embeddings"
            );
        }
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
