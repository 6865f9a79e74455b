//! GBNF, the grammars of llama.cpp, becomes Lark.
//!
//! GBNF goes by characters, Lark by terminals: expressions that take all that they can. What is
//! large should be a terminal, for the speed of masks. But where a terminal could take a character
//! that what follows was to have, it has to be less: rules, down to single characters if need be.
//! [`facts`] finds out where that is, [`write`] writes both. What is left of the difference: of two
//! terminals that begin at the same place the longer one is taken.

mod facts;
mod read;
mod rule;
mod set;
mod write;

use facts::Grammar;
use tabla_core::error::{Result, bail};

/// The grammar in Lark's syntax.
///
/// # Errors
/// `Grammar` with the line for what is no GBNF.
pub(super) fn to_lark(text: &str) -> Result<String> {
    let rules = read::Reader::new(text).rules()?;
    let Some(root) = rules.iter().position(|rule| rule.name == "root") else {
        bail!(Grammar, "the grammar has no rule `root`");
    };
    let mut grammar = Grammar::new(&rules)?;
    loop {
        let (text, clashes) = write::lark(&grammar, root);
        if clashes.is_empty() {
            return Ok(text);
        }
        grammar.take_apart(&clashes);
    }
}
