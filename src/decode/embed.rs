//! Embeddings: hidden states of texts, reduced to one vector each by pooling.

use super::pooling::Pooler;
use super::rows::zeroed;
use super::session::Session;
use crate::error::{Context, Error, ErrorKind, Result, bail};
use crate::model::{Embedding, Pooling, TableId};
use crate::op::params::Row;
use crate::op::table::Table;
use crate::text::EncodeOptions;
use std::fmt;
use std::slice::ChunksExactMut;

tabla_core::options! {
    /// Options of [`Session::embed`].
    #[derive(Clone, Copy, Debug, Default)]
    pub struct EmbedOptions<'a> {
        /// Pooling method; `None`: the method in the model files.
        pub pooling: Option<Pooling>,
        /// Number of leading dimensions to keep, for models trained with Matryoshka representation
        /// learning; 0: all.
        pub dimensions: u32,
        /// Whether to normalize embeddings to length 1; `None`: the setting in the model files, or
        /// `true`.
        pub normalize: Option<bool>,
        /// Name of the prompt to prepend to every text, `""` for none; `None`: the default prompt of
        /// the model, if there is one.
        pub prompt_name: Option<&'a str>,
        /// Whether to truncate texts over the length limit. Otherwise they are an error.
        pub truncate: bool,
    }
}

/// Input of a list that an error is about: the cause of errors of [`Session::embed`],
/// [`Session::classify`] and [`Session::rerank`], so that an application can name it in its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedInput {
    /// Index in the list.
    pub index: usize,
    /// What is wrong with it, such as `has 812 tokens, expected at most 512`.
    pub reason: String,
}

impl FailedInput {
    /// Returns the error of the input `name` `index`.
    pub(super) fn error(
        kind: ErrorKind,
        name: &str,
        index: usize,
        reason: impl fmt::Display,
    ) -> Error {
        let reason = reason.to_string();
        Error::new(kind, format_args!("{name} {index} {reason}")).caused_by(Self { index, reason })
    }
}

impl fmt::Display for FailedInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for FailedInput {}

impl Session {
    /// Returns the embedding settings of the model files.
    pub fn embedding(&self) -> &Embedding {
        self.model.embedding()
    }

    /// Returns the number of dimensions of an embedding.
    ///
    /// # Errors
    ///
    /// `State` if the model was loaded without its embedding table, `Argument` if
    /// `options.dimensions` is too large.
    pub fn embedding_dim(&self, options: &EmbedOptions<'_>) -> Result<usize> {
        self.embedding_table()?;
        let dim = self.model.dim_of_poolings(self.poolings(options).len());
        match options.dimensions as usize {
            0 => Ok(dim),
            n if n <= dim => Ok(n),
            n => bail!(Argument, "dimensions must be at most {dim}, got {n}"),
        }
    }

    /// Returns the pooling methods of the options, otherwise of the model files.
    fn poolings(&self, options: &EmbedOptions<'_>) -> Vec<Pooling> {
        match options.pooling {
            Some(pooling) => vec![pooling],
            None => self.model.embedding().pooling.clone(),
        }
    }

    fn embedding_table(&self) -> Result<&Table> {
        match self.model.table(TableId::Embed) {
            Some(table) => Ok(table),
            None if self.model.speech().is_some() => {
                bail!(State, "the model is a speech model: it transcribes audio")
            }
            None if self.model.classifier().is_some() => bail!(
                State,
                "the model is a classifier: it computes scores of texts, not embeddings"
            ),
            None => bail!(
                State,
                "embeddings are disabled: the model was loaded without its embedding table"
            ),
        }
    }

    /// Returns the maximum length of a text in tokens, including special tokens.
    pub fn embedding_max_tokens(&self) -> u32 {
        self.model.embedding_max_tokens()
    }

    /// Computes the embeddings of texts and writes them to `out`, `[texts, dim]`, where `dim` is
    /// [`Session::embedding_dim`]. `progress` receives the number of embedded texts and the total.
    ///
    /// # Errors
    ///
    /// See [`Session::embed_tokens`]. `Argument` for an unknown prompt.
    pub fn embed<T: AsRef<str>>(
        &mut self,
        texts: &[T],
        options: &EmbedOptions<'_>,
        out: &mut [f32],
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        let prompt = self.prompt(options.prompt_name)?.to_string();
        let limit = self.embedding_max_tokens() as usize;
        let tokenizer = self.model.tokenizer();
        let mut tokens = Vec::with_capacity(texts.len());
        for (at, text) in texts.iter().enumerate() {
            let text = [&prompt, text.as_ref()].concat();
            let ids = tokenizer.encode(&text, EncodeOptions::PROMPT);
            let mut ids = ids.context(format_args!("text {at}"))?;
            if options.truncate {
                tokenizer.truncate(&mut ids, limit);
            }
            tokens.push(ids);
        }
        self.embed_tokens(&tokens, options, out, progress)
    }

    /// Computes the embeddings of tokenized texts, which include the prompt and special tokens. See
    /// [`Session::embed`].
    ///
    /// # Errors
    ///
    /// `State` if the model was loaded without its embedding table; `Argument` if no pooling is
    /// specified, for dimensions out of range, if `out` has the wrong length, and for an empty text
    /// or a token outside the vocabulary; `TooLarge` for a text over the limit. Nothing is computed
    /// then. `Cancelled` after [`Cancel::cancel`](crate::Cancel::cancel).
    pub fn embed_tokens<T: AsRef<[u32]>>(
        &mut self,
        texts: &[T],
        options: &EmbedOptions<'_>,
        out: &mut [f32],
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        let rows = self.embedding_table()?.tokens as usize;
        let dim = self.embedding_dim(options)?;
        if Some(out.len()) != texts.len().checked_mul(dim) {
            bail!(
                Argument,
                "output buffer mismatch: {} texts need {dim} numbers each, got {} in total",
                texts.len(),
                out.len()
            );
        }
        self.check_texts("text", texts)?;
        let model = self.model.clone();
        let settings = model.embedding();
        let poolings = self.poolings(options);
        if poolings.is_empty() {
            let names: Vec<_> = Pooling::ALL.iter().map(|p| p.name()).collect();
            bail!(
                Argument,
                "the model files specify no pooling: choose one of {}",
                names.join(", ")
            );
        }
        let normalize = options.normalize.or(settings.normalize).unwrap_or(true);
        let pool = Pooler::new(poolings, model.table_width(), &settings.dense)?;
        let mut pool = pool.normalized(normalize);
        let total = texts.len();
        let mut rest = (texts, out);
        while !rest.0.is_empty() {
            let done = total - rest.0.len();
            if self.cancelled() {
                bail!(Cancelled, "cancelled after {done} of {total} texts");
            }
            let count = if self.model.is_encoder() {
                count_fitting(rest.0, rows)
            } else {
                1
            };
            let (texts_of_pass, texts) = rest.0.split_at(count);
            let (to, out) = std::mem::take(&mut rest.1).split_at_mut(count * dim);
            self.embed_pack(texts_of_pass, &mut pool, to.chunks_exact_mut(dim))?;
            for (at, embedding) in (done..).zip(to.chunks_exact(dim)) {
                self.check_finite(&format!("the embedding of text {at}"), embedding)?;
            }
            rest = (texts, out);
            progress(done + count, total);
        }
        Ok(())
    }

    /// Embeds texts that fit one pass together, or one text in several passes.
    fn embed_pack<T: AsRef<[u32]>>(
        &mut self,
        texts_of_pass: &[T],
        pool: &mut Pooler<'_>,
        outs: ChunksExactMut<'_, f32>,
    ) -> Result<()> {
        let width = self.model.table_width();
        let tokens: usize = texts_of_pass.iter().map(|text| text.as_ref().len()).sum();
        let hidden = zeroed(tokens * width)?;
        let hidden = match texts_of_pass {
            [text] if !self.model.is_encoder() => self.hidden(text.as_ref(), hidden)?,
            _ => {
                let rows = texts_of_pass
                    .iter()
                    .flat_map(|text| (0..).zip(text.as_ref()));
                let rows = rows.map(|(position, &token)| Row {
                    token,
                    position,
                    ..Row::default()
                });
                self.encode_rows(rows.collect(), hidden)?
            }
        };
        let mut rows = hidden.chunks_exact(width);
        for (text, out) in texts_of_pass.iter().zip(outs) {
            for row in rows.by_ref().take(text.as_ref().len()) {
                pool.add(row);
            }
            pool.finish(out);
        }
        Ok(())
    }

    /// Runs the rows of whole texts through the table of an encoder and returns its output, for which
    /// `out` has space.
    pub(super) fn encode_rows(&self, rows: Vec<Row>, out: Vec<f32>) -> Result<Vec<f32>> {
        let (hooks, adapters) = (self.hooks.clone(), self.adapters.clone());
        self.model.call(move |engine| {
            (engine.linked.check_files)()?;
            engine.embed(hooks.as_ref(), adapters.as_ref(), &rows, out)
        })
    }

    /// Checks that all values of a result are finite.
    ///
    /// # Errors
    ///
    /// `Internal`, with the first weights that are not finite.
    pub(super) fn check_finite(&self, what: &str, values: &[f32]) -> Result<()> {
        if values.iter().all(|x| x.is_finite()) {
            return Ok(());
        }
        let what = format!("{what} is not finite");
        self.model
            .call(move |engine| Err(engine.linked.not_finite(what)))
    }

    /// Returns the prompt with this name, or the default prompt.
    fn prompt(&self, name: Option<&str>) -> Result<&str> {
        let settings = self.model.embedding();
        let Some(name) = name.or(settings.default_prompt.as_deref()) else {
            return Ok("");
        };
        let found = settings
            .prompts
            .iter()
            .find(|(known_name, _)| known_name == name);
        match found {
            Some((_, prompt)) => Ok(prompt),
            None if name.is_empty() => Ok(""),
            None if settings.prompts.is_empty() => {
                bail!(
                    Argument,
                    "unknown prompt {name:?}: the model files define no prompts"
                )
            }
            None => {
                let names: Vec<_> = settings
                    .prompts
                    .iter()
                    .map(|(name, _)| name.as_str())
                    .collect();
                bail!(
                    Argument,
                    "unknown prompt {name:?}: expected one of {}",
                    names.join(", ")
                )
            }
        }
    }

    /// Checks every text against the length limit and the vocabulary. `name` is that of a text in errors.
    pub(super) fn check_texts<T: AsRef<[u32]>>(&self, name: &str, texts: &[T]) -> Result<()> {
        let (limit, vocab) = (
            self.embedding_max_tokens() as usize,
            self.model.facts().vocab,
        );
        for (at, text) in texts.iter().enumerate() {
            let text = text.as_ref();
            let fail =
                |kind, reason: fmt::Arguments<'_>| Err(FailedInput::error(kind, name, at, reason));
            if text.is_empty() {
                return fail(ErrorKind::Argument, format_args!("is empty"));
            }
            if text.len() > limit {
                let reason = format_args!(
                    "has {} tokens, expected at most {limit}: shorten it or enable truncation",
                    text.len()
                );
                return fail(ErrorKind::TooLarge, reason);
            }
            if let Some(bad) = text.iter().find(|token| **token >= vocab) {
                let reason =
                    format_args!("has token {bad}, which is outside the vocabulary of {vocab}");
                return fail(ErrorKind::Argument, reason);
            }
        }
        Ok(())
    }
}

/// Returns the number of leading texts that fit into `rows` rows, at least 1.
pub(super) fn count_fitting<T: AsRef<[u32]>>(texts: &[T], rows: usize) -> usize {
    let mut sum = 0;
    let over = texts.iter().position(|text| {
        sum += text.as_ref().len();
        sum > rows
    });
    over.unwrap_or(texts.len()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_leading_texts_that_fit() {
        let texts = [vec![0; 3], vec![0; 4], vec![0; 1], vec![0; 9]];
        let counts = [(3, 1), (7, 2), (8, 3), (16, 3), (17, 4), (99, 4)];
        for (rows, count) in counts {
            assert_eq!(count_fitting(&texts, rows), count, "{rows}");
        }
        assert_eq!(
            count_fitting(&texts[3..], 4),
            1,
            "one text in several passes"
        );
    }
}
