//! What is tried: tables, and the tokens that go through each.

use crate::device::Fusion;
use crate::error::Result;
use crate::load::build::Build;
use crate::load::memory;
use crate::load::options::LoadOptions;
use crate::load::tuning::{CHUNKS, PARTS};
use crate::op::table::{KernelId, Table};
use std::ops::Range;
use std::time::Duration;

/// A table, the positions of each pass of tokens through it, and what its commands took.
pub(super) struct Trial {
    pub(super) table: usize,
    pub(super) passes: Vec<Range<u32>>,
    /// Whether its commands are those of the usual table, but for their kernels.
    pub(super) usual: bool,
    /// Commands that are submitted together.
    pub(super) step: usize,
    /// Of each round, for each command.
    pub(super) laps: Vec<Vec<Duration>>,
}

impl Trial {
    /// The median of the rounds, each as `of` sums it up.
    pub(super) fn median(&self, of: impl Fn(&[Duration]) -> Duration) -> Duration {
        median(self.laps.iter().map(|laps| of(laps)).collect())
    }

    /// Tokens that go through it in a round.
    pub(super) fn tokens(&self) -> u32 {
        self.passes.iter().map(|pass| pass.end - pass.start).sum()
    }
}

/// Every candidate that is tried; what is no form only where there are several.
pub(super) struct Trials {
    /// The tables of one token, fused and not, and of many in each form, the one before the other.
    pub(super) forms: Vec<Trial>,
    pub(super) fusions: Vec<(Fusion, Trial)>,
    pub(super) parts: Vec<(u32, Trial)>,
    pub(super) chunks: Vec<(u32, Trial)>,
}

impl Trials {
    /// Plans the tables of all trials.
    pub(super) fn plan(build: &mut Build, options: &LoadOptions) -> Result<(Vec<Table>, Self)> {
        let mut tables = Vec::new();
        let trials = Self {
            forms: forms(build, &mut tables)?,
            fusions: fusions(build, &mut tables)?,
            parts: parts(build, &mut tables)?,
            chunks: chunks(build, &mut tables, options)?,
        };
        Ok((tables, trials))
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Trial> {
        let numbers = self.parts.iter_mut().chain(&mut self.chunks);
        let others = self.fusions.iter_mut().map(|(_, trial)| trial);
        let others = others.chain(numbers.map(|(_, trial)| trial));
        self.forms.iter_mut().chain(others)
    }
}

fn trial(tables: &mut Vec<Table>, table: Table, passes: Vec<Range<u32>>) -> Trial {
    let step = table.cmds.len();
    tables.push(table);
    Trial {
        table: tables.len() - 1,
        passes,
        usual: true,
        step,
        laps: Vec::new(),
    }
}

/// As many tokens as go through a table, at the end of the context.
fn last(build: &Build, table: &Table) -> Vec<Range<u32>> {
    let context = build.cache.context;
    let tokens = table.tokens.min(context);
    passes(context - tokens..context, tokens)
}

/// The plain kernels, then those of each form alone. Commands run one by one: where they overlap, none has a time of its own.
fn forms(build: &mut Build, tables: &mut Vec<Table>) -> Result<Vec<Trial>> {
    let all = build.profile.forms.clone();
    let mut trials = Vec::new();
    for some in std::iter::once(&[][..]).chain(all.chunks(1)) {
        build.profile.forms = some.to_vec();
        let usual = build.profile.fusion;
        let ones = ones(build, &[Fusion::None, Fusion::Fused])?;
        let many = (usual, build.chunk_table()?);
        for (fusion, table) in ones.into_iter().chain([many]) {
            let passes = last(build, &table);
            trials.push(Trial {
                usual: fusion == usual,
                step: 1,
                ..trial(tables, table, passes)
            });
        }
    }
    build.profile.forms = all;
    Ok(trials)
}

/// The table of one token with these small commands fused, the usual ones first; none that is the
/// same as one before, none of an encoder.
fn ones(build: &mut Build, fusions: &[Fusion]) -> Result<Vec<(Fusion, Table)>> {
    let usual = build.profile.fusion;
    let mut found: Vec<(Fusion, Table)> = Vec::new();
    for fusion in std::iter::once(usual).chain(fusions.iter().copied()) {
        build.profile.fusion = fusion;
        let new = |table: &Table| {
            found
                .iter()
                .all(|(_, known)| !launches(known).eq(launches(table)))
        };
        let table = step(build)?.filter(new);
        found.extend(table.map(|table| (fusion, table)));
    }
    build.profile.fusion = usual;
    Ok(found)
}

/// The table of one token, with both its tails; none of an encoder.
fn step(build: &Build) -> Result<Option<Table>> {
    let picks = !build.arch.encoder;
    picks.then(|| build.step(1)).transpose()
}

fn fusions(build: &mut Build, tables: &mut Vec<Table>) -> Result<Vec<(Fusion, Trial)>> {
    let found = ones(build, &Fusion::ALL)?;
    Ok(several(build, tables, found))
}

/// A trial for each table of one token, where there are several.
fn several<T>(build: &Build, tables: &mut Vec<Table>, found: Vec<(T, Table)>) -> Vec<(T, Trial)> {
    if found.len() < 2 {
        return Vec::new();
    }
    let of = |(number, table)| {
        let passes = last(build, &table);
        (number, trial(tables, table, passes))
    };
    found.into_iter().map(of).collect()
}

/// Attention in parts of other sizes. What cuts no context otherwise than another is no candidate.
fn parts(build: &mut Build, tables: &mut Vec<Table>) -> Result<Vec<(u32, Trial)>> {
    let usual = build.profile.attention_part;
    let mut found: Vec<(u32, Table)> = Vec::new();
    for part in candidates(&PARTS, usual) {
        build.profile.attention_part = part;
        let new = |table: &Table| {
            found
                .iter()
                .all(|(_, known)| !launches(known).eq(launches(table)))
        };
        let table = step(build)?.filter(new);
        found.extend(table.map(|table| (part, table)));
    }
    build.profile.attention_part = usual;
    Ok(several(build, tables, found))
}

/// Which kernel each command of a table launches, and how wide.
fn launches(table: &Table) -> impl Iterator<Item = (KernelId, [u32; 3])> {
    table.cmds.iter().map(|cmd| (cmd.kernel, cmd.grid))
}

/// Prompts in chunks of other sizes, each the same tokens from the first position on. An encoder
/// takes a text in one piece.
fn chunks(
    build: &mut Build,
    tables: &mut Vec<Table>,
    options: &LoadOptions,
) -> Result<Vec<(u32, Trial)>> {
    let (usual, usual_chunk) = (build.profile.chunk_tokens, build.chunk);
    if build.arch.encoder {
        return Ok(Vec::new());
    }
    let mut found: Vec<(u32, Table)> = Vec::new();
    for chunk in candidates(&CHUNKS, usual) {
        build.profile.chunk_tokens = chunk;
        build.chunk = chunk_of(build, options)?;
        if found.iter().all(|(_, known)| known.tokens != build.chunk) {
            found.push((chunk, build.chunk_table()?));
        }
    }
    (build.profile.chunk_tokens, build.chunk) = (usual, usual_chunk);
    let longest = found.iter().map(|(_, table)| table.tokens).max();
    let longest = longest.unwrap_or(0).min(build.cache.context);
    if found.len() < 2 {
        return Ok(Vec::new());
    }
    let of = |(chunk, table): (u32, Table)| {
        let passes = passes(0..longest, table.tokens);
        (chunk, trial(tables, table, passes))
    };
    Ok(found.into_iter().map(of).collect())
}

/// The table of one token and that of a chunk, with a token behind a full context and a prompt.
pub(super) fn whole(build: &Build, tables: &mut Vec<Table>) -> Result<Vec<Trial>> {
    let mut trials = Vec::new();
    if let Some(table) = step(build)? {
        let passes = last(build, &table);
        trials.push(trial(tables, table, passes));
    }
    let table = build.chunk_table()?;
    let prompt = build.cache.context.min(CHUNKS[CHUNKS.len() - 1]);
    let passes = passes(0..prompt, table.tokens);
    trials.push(trial(tables, table, passes));
    Ok(trials)
}

/// Tokens of a chunk, as loading chooses them.
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

/// The usual number first: what is the same as it is no candidate.
fn candidates(numbers: &[u32], usual: u32) -> impl Iterator<Item = u32> {
    std::iter::once(usual).chain(numbers.iter().copied())
}

/// Positions, so many at a time.
pub(super) fn passes(positions: Range<u32>, tokens: u32) -> Vec<Range<u32>> {
    let end = positions.end;
    let starts = positions.step_by(tokens as usize);
    starts.map(|start| start..end.min(start + tokens)).collect()
}

/// The median; zero of no times.
pub(super) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_all_positions_once() {
        assert_eq!(passes(0..10, 4), [0..4, 4..8, 8..10]);
        assert_eq!(passes(7..10, 2), [7..9, 9..10]);
        assert_eq!(passes(3..3, 2), []);
    }

    #[test]
    fn a_median_is_no_outlier() {
        assert_eq!(
            median([9, 1, 5000].map(Duration::from_micros).to_vec()),
            Duration::from_micros(9)
        );
        assert_eq!(median(vec![]), Duration::ZERO);
    }
}
