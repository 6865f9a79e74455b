//! Reranking: how well documents answer a query, as a model says that was trained to answer yes or
//! no. It gets query and document in one prompt, and the logits of the two words are the answer.

use super::output_request::OutputRequest;
use super::session::{Session, room};
use crate::error::{Context, Error, ErrorKind, Result, bail};
use crate::text::{ChatTemplate, Conversation, EncodeOptions, SpecialTokens, TemplateTokens};
use serde_json::{Map, Value};

/// What files call the prompt that a model was trained to rank by.
const NAME: &str = "rerank";

/// That of Qwen3-Reranker, for files without it.
const USUAL: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on \
    the Query and the Instruct provided. Note that the answer can only be \"yes\" or \"no\".\
    <|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages \
    that answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n\
    <|im_start|>assistant\n<think>\n\n</think>\n\n";

/// Special tokens of that prompt: a vocabulary without them is of another family.
const USUAL_TOKENS: [&str; 2] = ["<|im_start|>", "<|im_end|>"];

/// What stands in a prompt, and what it stands for.
const PLACES: [(&str, &str); 3] = [
    (RerankOptions::INSTRUCTION, "instruction"),
    ("{query}", "query"),
    ("{document}", "document"),
];

/// What documents are ranked by.
#[derive(Clone, Copy, Debug, Default)]
pub struct RerankOptions<'a> {
    /// What they are to answer.
    pub query: &'a str,
    /// What answers it; `None` takes [`RerankOptions::INSTRUCTION`].
    pub instruction: Option<&'a str>,
}

impl RerankOptions<'_> {
    /// What Qwen3-Reranker is told where nobody says another thing.
    pub const INSTRUCTION: &'static str =
        "Given a web search query, retrieve relevant passages that answer the query";
}

impl Session {
    /// How well each of some documents answers a query, from 0 to 1: the probability of "yes" against
    /// "no" behind a prompt with both. The prompt is the one that the model's files call `rerank`,
    /// else that of Qwen3-Reranker. Special tokens that query or documents spell are text. `progress`
    /// hears how many of how many documents are done.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the model's vocabulary has not the words or the special tokens for it,
    /// `Argument` for an instruction that its prompt has no place for, `TooLarge` for a document that
    /// does not fit the context, `State` for an encoder. `Cancelled` after
    /// [`Cancel::cancel`](crate::Cancel::cancel).
    pub fn rerank<T: AsRef<str>>(
        &mut self,
        by: &RerankOptions<'_>,
        documents: &[T],
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<f32>> {
        let labels = [self.word("yes")?, self.word("no")?];
        let template = self.rerank_template(by)?;
        let (total, vocab) = (documents.len(), self.facts().vocab as usize);
        let mut scores = room(total)?;
        for (at, document) in documents.iter().enumerate() {
            if self.cancelled() {
                bail!(Cancelled, "cancelled after {at} of {total} documents");
            }
            let variables: Map<String, Value> = [
                (
                    "instruction",
                    by.instruction.unwrap_or(RerankOptions::INSTRUCTION),
                ),
                ("query", by.query),
                ("document", document.as_ref()),
            ]
            .map(|(name, text)| (name.to_string(), text.into()))
            .into_iter()
            .collect();
            let conversation = Conversation {
                variables: Some(&variables),
                ..Conversation::new(&[])
            };
            let tokens = template.encode(&conversation, self.tokenizer());
            let named = format_args!("document {at}");
            let mut session = self.beside(&tokens.context(named)?).context(named)?;
            let logits = session.feed(OutputRequest::Logits(room(vocab)?), &mut |_, _| {})?;
            let [yes, no] = labels.map(|label| f64::from(logits[label as usize]));
            #[expect(
                clippy::cast_possible_truncation,
                reason = "rounded to what logits have"
            )]
            let score = (1.0 / (1.0 + (no - yes).exp())) as f32;
            scores[at] = score;
            progress(at + 1, total);
        }
        Ok(scores)
    }

    /// The token that is a word by itself.
    fn word(&self, word: &str) -> Result<u32> {
        let alone = EncodeOptions {
            add_special: false,
            specials: SpecialTokens::Text,
        };
        match self.tokenizer().encode(word, alone)?[..] {
            [token] => Ok(token),
            _ => bail!(
                Unsupported,
                "the vocabulary has no token {word:?}: the model cannot rank by it"
            ),
        }
    }

    /// The prompt as a template of its places.
    fn rerank_template(&self, by: &RerankOptions<'_>) -> Result<ChatTemplate> {
        let own = self.chat_templates().get(NAME);
        let known = |token: &&str| self.tokenizer().special_id(token).is_some();
        if own.is_none() && !USUAL_TOKENS.iter().all(known) {
            bail!(
                Unsupported,
                "the model names no prompt to rank by, and its vocabulary lacks the tokens of the usual one"
            );
        }
        let prompt = own.unwrap_or(USUAL);
        if by.instruction.is_some() && !prompt.contains(RerankOptions::INSTRUCTION) {
            bail!(
                Argument,
                "the model's prompt to rank by has no place for an instruction"
            );
        }
        ChatTemplate::new(&source(prompt)?, TemplateTokens::default())
    }
}

/// A template that says what a prompt says, with a variable in each of its places.
fn source(prompt: &str) -> Result<String> {
    let mut source = String::new();
    let mut rest = prompt;
    let mut missing = PLACES.to_vec();
    loop {
        let next = PLACES
            .iter()
            .filter_map(|place| Some((rest.find(place.0)?, place)));
        let next = next.min_by_key(|(at, _)| *at);
        let text = &rest[..next.map_or(rest.len(), |(at, _)| at)];
        let literal = serde_json::to_string(text)
            .map_err(|e| Error::new(ErrorKind::Internal, "a text is JSON").caused_by(e))?;
        source.push_str(&format!("{{{{ {literal} }}}}"));
        let Some((at, (place, name))) = next else {
            break;
        };
        source.push_str(&format!("{{{{ {name} }}}}"));
        missing.retain(|(other, _)| other != place);
        rest = &rest[at + place.len()..];
    }
    match missing.iter().find(|(place, _)| place.starts_with('{')) {
        Some((place, _)) => bail!(Format, "the prompt to rank by has no {place}"),
        None => Ok(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_become_templates_of_their_places() {
        let variables: Map<String, Value> = [
            ("instruction", "i"),
            ("query", "{document} {{ d }}"),
            ("document", "d\n"),
        ]
        .map(|(name, text)| (name.to_string(), text.into()))
        .into_iter()
        .collect();
        let conversation = Conversation {
            variables: Some(&variables),
            ..Conversation::new(&[])
        };
        for (prompt, expected) in [
            ("{query}: {document}\n\n", "{document} {{ d }}: d\n\n\n"),
            (
                "\"{document}\" {% if %}{query}",
                "\"d\n\" {% if %}{document} {{ d }}",
            ),
        ] {
            let source = source(prompt).expect("all places are there");
            let template =
                ChatTemplate::new(&source, TemplateTokens::default()).expect("it is a template");
            assert_eq!(
                template.render(&conversation).expect("it renders"),
                expected
            );
        }
        assert!(source("{query}").is_err() && source("{document}").is_err());
        let template = source(USUAL).expect("all places are there");
        assert!(template.contains("{{ instruction }}"), "{template}");
    }
}
