//! Classification with encoders that have a classification head: scores of texts and of pairs of texts.

use super::embed::count_fitting;
use super::rows::zeroed;
use super::session::Session;
use crate::error::{Context, Result, bail};
use crate::model::{Classifier, TableId};
use crate::op::params::Row;
use crate::text::{EncodeOptions, EncodedPair};

/// A text to classify.
#[derive(Clone, Copy, Debug)]
pub enum ClassifyInput<'a> {
    /// A text.
    Text(&'a str),
    /// Two texts that are read together, such as premise and hypothesis, or query and document.
    Pair(&'a str, &'a str),
    /// A tokenized text, which includes special tokens.
    Tokens(&'a [u32]),
}

tabla_core::options! {
    /// Options of [`Session::classify`].
    #[derive(Clone, Copy, Debug, Default)]
    pub struct ClassifyOptions {
        /// Whether to return logits instead of scores.
        pub logits: bool,
        /// Whether to truncate texts over the length limit: of a pair only the second text. Otherwise they
        /// are an error.
        pub truncate: bool,
    }
}

/// Names of the inputs in errors.
pub(super) struct InputNames {
    /// Name of an input.
    pub(super) each: &'static str,
    /// Names of the texts of a pair.
    pub(super) pair: [&'static str; 2],
}

const TEXTS: InputNames = InputNames {
    each: "text",
    pair: ["first text", "second text"],
};

impl Session {
    /// Classifies texts: returns the scores of the labels, `[inputs, labels]`. The labels and the
    /// activation function, which converts logits to scores, are in
    /// [`Model::classifier`](crate::Model::classifier). Special tokens in texts are treated as text.
    /// `progress` receives the number of classified texts and the total.
    ///
    /// # Errors
    ///
    /// `State` if the model has no classification head; `Unsupported` for a pair if the tokenizer defines
    /// no format of pairs; `TooLarge` for a text over the limit, `Argument` for an empty text or a token
    /// outside the vocabulary, and nothing is computed then; `Cancelled` after
    /// [`Cancel::cancel`](crate::Cancel::cancel).
    pub fn classify(
        &mut self,
        inputs: &[ClassifyInput<'_>],
        options: &ClassifyOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<f32>> {
        self.classify_named(&TEXTS, inputs, options, progress)
    }

    /// As [`Self::classify`], with names of the inputs.
    pub(super) fn classify_named(
        &mut self,
        names: &InputNames,
        inputs: &[ClassifyInput<'_>],
        options: &ClassifyOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<f32>> {
        let classifier = self.classifier()?;
        let (labels, activation) = (classifier.labels.len(), classifier.activation);
        let mut texts = Vec::with_capacity(inputs.len());
        for (at, input) in inputs.iter().enumerate() {
            let text = self.encode_input(names, input, options);
            texts.push(text.context(format_args!("{} {at}", names.each))?);
        }
        let mut scores = self.classify_encoded(names, &texts, labels, progress)?;
        if !options.logits {
            let rows = scores.chunks_exact_mut(labels);
            rows.for_each(|row| activation.apply(row));
        }
        Ok(scores)
    }

    /// Returns the classification head.
    ///
    /// # Errors
    ///
    /// `State` if the model has none.
    pub fn classifier(&self) -> Result<&Classifier> {
        match self.model.classifier() {
            Some(classifier) => Ok(classifier),
            None => bail!(
                State,
                "the model has no classification head: it cannot classify texts"
            ),
        }
    }

    fn encode_input(
        &self,
        names: &InputNames,
        input: &ClassifyInput<'_>,
        options: &ClassifyOptions,
    ) -> Result<EncodedPair> {
        let limit = self.embedding_max_tokens() as usize;
        let tokenizer = self.model.tokenizer();
        let mut ids = match *input {
            ClassifyInput::Pair(first, second) => {
                let pair =
                    tokenizer.encode_pair([first, second], options.truncate.then_some(limit))?;
                if options.truncate && pair.ids.len() > limit {
                    let ([first, second], length) = (names.pair, pair.ids.len());
                    bail!(
                        TooLarge,
                        "the {first} has {length} tokens with the special tokens of a pair, expected at most {limit}: only the {second} is truncated"
                    );
                }
                return Ok(pair);
            }
            ClassifyInput::Text(text) => tokenizer.encode(text, EncodeOptions::PROMPT)?,
            ClassifyInput::Tokens(ids) => ids.to_vec(),
        };
        if options.truncate {
            tokenizer.truncate(&mut ids, limit);
        }
        let types = vec![0; ids.len()];
        Ok(EncodedPair { ids, types })
    }

    /// Computes logits, `[texts, labels]`.
    fn classify_encoded(
        &mut self,
        names: &InputNames,
        texts: &[EncodedPair],
        labels: usize,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<f32>> {
        let ids: Vec<&[u32]> = texts.iter().map(|text| &text.ids[..]).collect();
        self.check_texts(names.each, &ids)?;
        let table = self.model.table(TableId::Classify);
        let rows_max = table.map_or(0, |table| table.tokens as usize);
        let total = texts.len();
        let mut logits = zeroed(total * labels)?;
        let mut done = 0;
        while done < total {
            if self.cancelled() {
                bail!(
                    Cancelled,
                    "cancelled after {done} of {total} {}s",
                    names.each
                );
            }
            let count = count_fitting(&ids[done..], rows_max);
            let texts = &texts[done..done + count];
            let rows: Vec<Row> = texts.iter().flat_map(rows_of).collect();
            self.computed += rows.len() as u64;
            let computed = zeroed(rows.len() * labels)?;
            let computed = self.encode_rows(rows, computed)?;
            let out = &mut logits[done * labels..(done + count) * labels];
            let mut first = 0;
            for (out, text) in out.chunks_exact_mut(labels).zip(texts) {
                // The logits of a text are those of its first row.
                out.copy_from_slice(&computed[first * labels..][..labels]);
                self.check_finite(&format!("a score of a {}", names.each), out)?;
                first += text.ids.len();
            }
            done += count;
            progress(done, total);
        }
        Ok(logits)
    }
}

/// Returns the rows of a text.
fn rows_of(text: &EncodedPair) -> impl Iterator<Item = Row> {
    let tokens = (0..).zip(text.ids.iter().zip(&text.types));
    tokens.map(|(position, (&token, &token_type))| Row {
        token,
        position,
        token_type,
        ..Row::default()
    })
}
