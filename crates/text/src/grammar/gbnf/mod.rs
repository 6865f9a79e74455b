//! Conversion of GBNF, the grammar format of llama.cpp, to Lark.
//!
//! GBNF matches characters, Lark matches terminals: regexes that match greedily. Terminals should be
//! large, so that masks are fast. But a terminal that could consume a character of the symbol that
//! follows it must be split into rules, down to single characters if necessary. [`analysis`]
//! detects these clashes, [`write`] writes rules and terminals. One difference remains: of two
//! terminals at the same position, Lark matches the longer one.

mod analysis;
mod char_set;
mod parse;
mod rule;
mod write;

use analysis::AnalyzedGrammar;
use tabla_core::error::{Result, bail};

/// Converts a grammar to Lark syntax.
///
/// # Errors
/// `Grammar` with the line of a syntax error.
pub(super) fn to_lark(text: &str) -> Result<String> {
    let rules = parse::Parser::new(text).rules()?;
    let Some(root) = rules.iter().position(|rule| rule.name == "root") else {
        bail!(Grammar, "missing rule `root`");
    };
    let mut grammar = AnalyzedGrammar::new(&rules)?;
    loop {
        let (text, clashes) = write::lark(&grammar, root);
        if clashes.is_empty() {
            return Ok(text);
        }
        grammar.demote_terminals(&clashes);
    }
}
