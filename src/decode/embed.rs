//! Embeddings: texts go through the table that ends with rows, and the rows of a text become one.

use super::session::{Session, room};
use crate::error::{Context, Result, bail};
use crate::exec::state::Row;
use crate::model::{Embedding, Pooling, TableId};
use crate::op::table::Table;
use crate::text::EncodeOptions;

/// How texts become embeddings.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmbedOptions<'a> {
    /// How the rows of a text become one; `None` takes what the model's files say.
    pub pooling: Option<Pooling>,
    /// Only the first so many numbers, for models that were trained for it (Matryoshka); 0: all.
    pub dimensions: u32,
    /// Whether embeddings get the length 1; `None` takes what the model's files say, and does
    /// where they say nothing.
    pub normalize: Option<bool>,
    /// The name of the prompt in front of every text, `""` for none; `None` takes the model's
    /// default, if it has one.
    pub prompt: Option<&'a str>,
    /// Whether longer texts are cut to the limit; else they are an error.
    pub truncate: bool,
}

impl Session {
    /// What the model's files say of its embeddings.
    pub fn embedding(&self) -> &Embedding {
        self.model.embedding()
    }

    /// Numbers of an embedding.
    ///
    /// # Errors
    ///
    /// `State` for a model that was loaded without its table for embeddings, `Argument` for more
    /// dimensions than it has.
    pub fn embedding_dim(&self, options: &EmbedOptions<'_>) -> Result<usize> {
        self.embedding_table()?;
        let dim = self.model.facts().dim;
        match options.dimensions {
            0 => Ok(dim as usize),
            n if n <= dim => Ok(n as usize),
            n => bail!(
                Argument,
                "{n} dimensions: embeddings of this model have {dim}"
            ),
        }
    }

    fn embedding_table(&self) -> Result<&Table> {
        match self.model.table(TableId::EmbedOptions) {
            Some(table) => Ok(table),
            None => bail!(
                State,
                "the model was loaded without its table for embeddings"
            ),
        }
    }

    /// The longest text in tokens, its special ones among them.
    pub fn embedding_length(&self) -> usize {
        self.model.embedding_length() as usize
    }

    /// Writes the embeddings of texts to `out`, `[texts, dim]` with the dim of
    /// [`Session::embedding_dim`]. `progress` hears how many of how many texts are done.
    ///
    /// # Errors
    ///
    /// As [`Session::embed_tokens`]; `Argument` for a prompt that the model does not have.
    pub fn embed<T: AsRef<str>>(
        &mut self,
        texts: &[T],
        options: &EmbedOptions<'_>,
        out: &mut [f32],
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        let prompt = self.prompt(options.prompt)?.to_string();
        let limit = self.embedding_length();
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

    /// The same for texts that are tokens already: prompts are in front of them, special tokens
    /// among them.
    ///
    /// # Errors
    ///
    /// `State` for a model that was loaded without its table for embeddings, `Argument` where no
    /// one says a pooling, for dimensions out of range, for room of another length, and for a
    /// text without tokens or with one outside the vocabulary, `TooLarge` for a text over the
    /// limit; nothing is computed then. `Cancelled` after [`Cancel::cancel`](crate::Cancel::cancel).
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
                "embeddings of {} texts have {dim} numbers each, the room has {}",
                texts.len(),
                out.len()
            );
        }
        self.check_texts(texts)?;
        let said = self.model.embedding();
        let Some(pooling) = options.pooling.or(said.pooling) else {
            let names: Vec<_> = Pooling::ALL.iter().map(|p| p.name()).collect();
            bail!(
                Argument,
                "the model's files say no pooling: choose one of {}",
                names.join(", ")
            );
        };
        let normalize = options.normalize.or(said.normalize).unwrap_or(true);
        let mut pool = Pool {
            pooling,
            normalize,
            rows: 0,
            sum: vec![0.0; dim],
        };
        let total = texts.len();
        let mut rest = (texts, out);
        while !rest.0.is_empty() {
            let done = total - rest.0.len();
            if self.cancelled() {
                bail!(Cancelled, "cancelled after {done} of {total} texts");
            }
            let count = if self.model.is_encoder() {
                fitting(rest.0, rows)
            } else {
                1
            };
            let (pack, texts) = rest.0.split_at(count);
            let (to, out) = std::mem::take(&mut rest.1).split_at_mut(count * dim);
            self.embed_pack(pack, &mut pool, to)?;
            rest = (texts, out);
            progress(done + count, total);
        }
        Ok(())
    }

    /// Texts that fit a pass together, or one in as many as it takes.
    fn embed_pack<T: AsRef<[u32]>>(
        &mut self,
        pack: &[T],
        pool: &mut Pool,
        out: &mut [f32],
    ) -> Result<()> {
        let width = self.model.facts().dim as usize;
        let tokens: usize = pack.iter().map(|text| text.as_ref().len()).sum();
        let hidden = room(tokens * width)?;
        let hidden = match pack {
            [text] if !self.model.is_encoder() => self.hidden(text.as_ref(), hidden)?,
            _ => {
                let rows = pack.iter().flat_map(|text| (0..).zip(text.as_ref()));
                let rows = rows.map(|(position, &token)| Row {
                    token,
                    position,
                    ..Row::default()
                });
                let rows: Vec<Row> = rows.collect();
                self.model.call(move |engine| engine.embed(&rows, hidden))?
            }
        };
        let mut rows = hidden.chunks_exact(width);
        for (text, out) in pack.iter().zip(out.chunks_exact_mut(pool.sum.len())) {
            for row in rows.by_ref().take(text.as_ref().len()) {
                pool.take(row);
            }
            pool.finish(out);
        }
        Ok(())
    }

    /// The prompt of this name, or the default one.
    fn prompt(&self, name: Option<&str>) -> Result<&str> {
        let said = self.model.embedding();
        let Some(name) = name.or(said.default_prompt.as_deref()) else {
            return Ok("");
        };
        let found = said.prompts.iter().find(|(known, _)| known == name);
        match found {
            Some((_, prompt)) => Ok(prompt),
            None if name.is_empty() => Ok(""),
            None if said.prompts.is_empty() => {
                bail!(Argument, "prompt {name:?}: the model's files name none")
            }
            None => {
                let names: Vec<_> = said.prompts.iter().map(|(name, _)| name.as_str()).collect();
                bail!(
                    Argument,
                    "prompt {name:?} is not known; known are {}",
                    names.join(", ")
                )
            }
        }
    }

    /// Holds every text against the limit and the vocabulary.
    fn check_texts<T: AsRef<[u32]>>(&self, texts: &[T]) -> Result<()> {
        let (limit, vocab) = (self.embedding_length(), self.model.facts().vocab);
        for (at, text) in texts.iter().enumerate() {
            let text = text.as_ref();
            if text.is_empty() {
                bail!(Argument, "text {at} has no tokens");
            }
            if text.len() > limit {
                bail!(
                    TooLarge,
                    "text {at} has {} tokens, the limit is {limit}; truncate cuts it",
                    text.len()
                );
            }
            if let Some(bad) = text.iter().find(|token| **token >= vocab) {
                bail!(
                    Argument,
                    "text {at}: token {bad} is outside the vocabulary of {vocab}"
                );
            }
        }
        Ok(())
    }
}

/// How many of the first texts fit so many rows together. One always does.
fn fitting<T: AsRef<[u32]>>(texts: &[T], rows: usize) -> usize {
    let mut sum = 0;
    let over = texts.iter().position(|text| {
        sum += text.as_ref().len();
        sum > rows
    });
    over.unwrap_or(texts.len()).max(1)
}

/// The rows of a text on their way to one.
struct Pool {
    pooling: Pooling,
    normalize: bool,
    /// Rows so far.
    rows: u32,
    /// Their sum, their largest numbers, or the row that counts.
    sum: Vec<f64>,
}

impl Pool {
    /// One more row; what is over the dimensions is left out.
    fn take(&mut self, row: &[f32]) {
        let row = row.iter().map(|x| f64::from(*x));
        let pairs = self.sum.iter_mut().zip(row);
        match self.pooling {
            // The first row is where every pooling begins.
            _ if self.rows == 0 => pairs.for_each(|(sum, x)| *sum = x),
            Pooling::Cls => {}
            Pooling::Last => pairs.for_each(|(sum, x)| *sum = x),
            Pooling::Mean => pairs.for_each(|(sum, x)| *sum += x),
            Pooling::Max => pairs.for_each(|(sum, x)| *sum = sum.max(x)),
        }
        self.rows += 1;
    }

    /// The embedding of the rows so far; the next one begins another text.
    fn finish(&mut self, out: &mut [f32]) {
        let mut scale = match self.pooling {
            Pooling::Mean => 1.0 / f64::from(self.rows),
            _ => 1.0,
        };
        if self.normalize {
            let squares: f64 = self.sum.iter().map(|x| x * x).sum();
            // A row of zeros has no direction and stays one.
            scale = if squares > 0.0 {
                1.0 / squares.sqrt()
            } else {
                1.0
            };
        }
        for (to, sum) in out.iter_mut().zip(&self.sum) {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "rounded to what is asked for"
            )]
            let number = (sum * scale) as f32;
            *to = number;
        }
        self.rows = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(pooling: Pooling, dim: usize) -> Pool {
        Pool {
            pooling,
            normalize: false,
            rows: 0,
            sum: vec![0.0; dim],
        }
    }

    /// What becomes of two rows, after another text's.
    fn pooled(mut pool: Pool) -> Vec<f32> {
        let mut out = vec![0.0; pool.sum.len()];
        for rows in [
            &[[9.0, 9.0, 9.0]][..],
            &[[1.0, -2.0, 5.0], [5.0, -6.0, 3.0]],
        ] {
            rows.iter().for_each(|row| pool.take(row));
            pool.finish(&mut out);
        }
        out
    }

    #[test]
    fn rows_become_one() {
        for (pooling, expected) in [
            (Pooling::Mean, [3.0, -4.0, 4.0]),
            (Pooling::Cls, [1.0, -2.0, 5.0]),
            (Pooling::Last, [5.0, -6.0, 3.0]),
            (Pooling::Max, [5.0, -2.0, 5.0]),
        ] {
            assert_eq!(pooled(pool(pooling, 3)), expected);
            assert_eq!(pooled(pool(pooling, 2)), expected[..2]);
        }
        let unit = Pool {
            normalize: true,
            ..pool(Pooling::Mean, 2)
        };
        assert_eq!(pooled(unit), [0.6, -0.8]);
    }

    #[test]
    fn zeros_stay_zeros() {
        let mut pool = Pool {
            normalize: true,
            ..pool(Pooling::Mean, 2)
        };
        let mut out = [1.0; 2];
        pool.take(&[0.0, 0.0]);
        pool.finish(&mut out);
        assert_eq!(out, [0.0, 0.0]);
    }

    #[test]
    fn texts_fill_a_pass_in_their_order() {
        let texts = [vec![0; 3], vec![0; 4], vec![0; 1], vec![0; 9]];
        let counts = [(3, 1), (7, 2), (8, 3), (16, 3), (17, 4), (99, 4)];
        for (rows, count) in counts {
            assert_eq!(fitting(&texts, rows), count, "{rows}");
        }
        assert_eq!(fitting(&texts[3..], 4), 1, "a text of several passes");
    }
}
