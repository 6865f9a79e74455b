//! Candidate tables, and the tokens to run through each.

use crate::error::Result;
use crate::load::build::Build;
use crate::load::memory;
use crate::load::options::LoadOptions;
use crate::load::tuning::{CHUNKS, PARTS};
use crate::op::table::{KernelId, Table};
use std::ops::Range;
use std::time::Duration;

/// A candidate table, the positions of each forward pass through it, and the measured times.
pub(super) struct Candidate {
    pub(super) table: usize,
    pub(super) passes: Vec<Range<u32>>,
    /// Number of commands per submission.
    pub(super) step: usize,
    /// Time of each command, per round.
    pub(super) times: Vec<Vec<Duration>>,
}

impl Candidate {
    /// Returns the median over the rounds, each reduced by `sum`.
    pub(super) fn median(&self, sum: impl Fn(&[Duration]) -> Duration) -> Duration {
        median(self.times.iter().map(|times| sum(times)).collect())
    }

    /// Returns the number of tokens per round.
    pub(super) fn tokens(&self) -> u32 {
        self.passes.iter().map(|pass| pass.end - pass.start).sum()
    }
}

/// All candidates. A parameter with a single value has none.
pub(super) struct Candidates {
    /// Decode and prefill tables with each kernel variant.
    pub(super) variants: Vec<Candidate>,
    pub(super) parts: Vec<(u32, Candidate)>,
    pub(super) chunks: Vec<(u32, Candidate)>,
}

impl Candidates {
    /// Plans the tables of all candidates.
    pub(super) fn plan(build: &mut Build, options: &LoadOptions) -> Result<(Vec<Table>, Self)> {
        let mut tables = Vec::new();
        let candidates = Self {
            variants: variants(build, &mut tables)?,
            parts: parts(build, &mut tables)?,
            chunks: chunks(build, &mut tables, options)?,
        };
        Ok((tables, candidates))
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Candidate> {
        let others = self.parts.iter_mut().chain(&mut self.chunks);
        let others = others.map(|(_, candidate)| candidate);
        self.variants.iter_mut().chain(others)
    }
}

fn candidate(tables: &mut Vec<Table>, table: Table, passes: Vec<Range<u32>>) -> Candidate {
    let step = table.cmds.len();
    tables.push(table);
    Candidate {
        table: tables.len() - 1,
        passes,
        step,
        times: Vec::new(),
    }
}

/// Returns one pass that fills the table with tokens, at the end of the context.
fn last(build: &Build, table: &Table) -> Vec<Range<u32>> {
    let context = build.cache.context;
    let tokens = table.tokens.min(context);
    passes(context - tokens..context, tokens)
}

/// Builds tables with the base kernels, then with each kernel variant alone. Commands are submitted
/// one by one, because overlapping commands cannot be timed separately.
fn variants(build: &mut Build, tables: &mut Vec<Table>) -> Result<Vec<Candidate>> {
    let all = build.profile.variants.clone();
    let mut candidates = Vec::new();
    for some in std::iter::once(&[][..]).chain(all.chunks(1)) {
        build.profile.variants = some.to_vec();
        for table in step(build)?.into_iter().chain([build.chunk_table()?]) {
            let passes = last(build, &table);
            candidates.push(Candidate {
                step: 1,
                ..candidate(tables, table, passes)
            });
        }
    }
    build.profile.variants = all;
    Ok(candidates)
}

/// Builds the single-token decode table; `None` for an encoder.
fn step(build: &Build) -> Result<Option<Table>> {
    let decoder = !build.arch.encoder;
    decoder.then(|| build.step(1)).transpose()
}

/// Turns decode tables into candidates if there are at least two.
fn several<T>(
    build: &Build,
    tables: &mut Vec<Table>,
    built: Vec<(T, Table)>,
) -> Vec<(T, Candidate)> {
    if built.len() < 2 {
        return Vec::new();
    }
    let of = |(value, table)| {
        let passes = last(build, &table);
        (value, candidate(tables, table, passes))
    };
    built.into_iter().map(of).collect()
}

/// Builds decode tables with other attention part sizes, without duplicates.
fn parts(build: &mut Build, tables: &mut Vec<Table>) -> Result<Vec<(u32, Candidate)>> {
    let default = build.profile.attention_part;
    let mut built: Vec<(u32, Table)> = Vec::new();
    for part in values(&PARTS, default) {
        build.profile.attention_part = part;
        let new = |table: &Table| {
            built
                .iter()
                .all(|(_, known)| !launches(known).eq(launches(table)))
        };
        let table = step(build)?.filter(new);
        built.extend(table.map(|table| (part, table)));
    }
    build.profile.attention_part = default;
    Ok(several(build, tables, built))
}

/// Returns the kernel and grid of each command of a table.
fn launches(table: &Table) -> impl Iterator<Item = (KernelId, [u32; 3])> {
    table.cmds.iter().map(|cmd| (cmd.kernel, cmd.grid))
}

/// Builds prefill tables with other chunk sizes; all run the same tokens from position 0. Empty for
/// an encoder, which processes a text in one chunk.
fn chunks(
    build: &mut Build,
    tables: &mut Vec<Table>,
    options: &LoadOptions,
) -> Result<Vec<(u32, Candidate)>> {
    let (default, default_chunk) = (build.profile.chunk_tokens, build.chunk);
    if build.arch.encoder {
        return Ok(Vec::new());
    }
    let mut built: Vec<(u32, Table)> = Vec::new();
    for chunk in values(&CHUNKS, default) {
        build.profile.chunk_tokens = chunk;
        build.chunk = chunk_of(build, options)?;
        if built.iter().all(|(_, known)| known.tokens != build.chunk) {
            built.push((chunk, build.chunk_table()?));
        }
    }
    (build.profile.chunk_tokens, build.chunk) = (default, default_chunk);
    let longest = built.iter().map(|(_, table)| table.tokens).max();
    let longest = longest.unwrap_or(0).min(build.cache.context);
    if built.len() < 2 {
        return Ok(Vec::new());
    }
    let of = |(chunk, table): (u32, Table)| {
        let passes = passes(0..longest, table.tokens);
        (chunk, candidate(tables, table, passes))
    };
    Ok(built.into_iter().map(of).collect())
}

/// Builds the decode table, run for one token at full context, and the prefill table, run for a
/// prompt.
pub(super) fn whole_tables(build: &Build, tables: &mut Vec<Table>) -> Result<Vec<Candidate>> {
    let mut candidates = Vec::new();
    if let Some(table) = step(build)? {
        let passes = last(build, &table);
        candidates.push(candidate(tables, table, passes));
    }
    let table = build.chunk_table()?;
    let prompt = build.cache.context.min(CHUNKS[CHUNKS.len() - 1]);
    let passes = passes(0..prompt, table.tokens);
    candidates.push(candidate(tables, table, passes));
    Ok(candidates)
}

/// Returns the tokens of a prefill chunk, chosen as in loading.
pub(super) fn chunk_of(build: &Build, options: &LoadOptions) -> Result<u32> {
    let Build {
        arch,
        config,
        cache,
        profile,
        ..
    } = build;
    memory::chunk(arch, config, options, cache, profile)
}

/// Returns the values to try. The default comes first, so that later duplicates are dropped.
fn values(numbers: &[u32], default: u32) -> impl Iterator<Item = u32> {
    std::iter::once(default).chain(numbers.iter().copied())
}

/// Splits positions into passes of at most `tokens` positions.
pub(super) fn passes(positions: Range<u32>, tokens: u32) -> Vec<Range<u32>> {
    let end = positions.end;
    let starts = positions.step_by(tokens as usize);
    starts.map(|start| start..end.min(start + tokens)).collect()
}

/// Returns the median, or zero for an empty list.
pub(super) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_cover_all_positions_once() {
        assert_eq!(passes(0..10, 4), [0..4, 4..8, 8..10]);
        assert_eq!(passes(7..10, 2), [7..9, 9..10]);
        assert_eq!(passes(3..3, 2), []);
    }

    #[test]
    fn median_ignores_outliers() {
        assert_eq!(
            median([9, 1, 5000].map(Duration::from_micros).to_vec()),
            Duration::from_micros(9)
        );
        assert_eq!(median(vec![]), Duration::ZERO);
    }
}
