//! Preprocessing of a template's source: limits on the parser's recursion, and the `generation`
//! statement of `transformers`.

use super::budget::template_error;
use minijinja::Error;
use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use std::borrow::Cow;
use tabla_core::error::ErrorKind as Kind;

/// Maximum number of tokens in a tag: the parser recurses along operators, filters and attributes.
/// The longest tag of a known template has 500.
const TAG_TOKENS_MAX: usize = 4000;
/// Maximum number of `elif` branches, for the same reason.
const BRANCHES_MAX: usize = 1000;

/// Name of a variable with the value 1.
pub(super) const ONE: &str = "_one_";

/// Replaces two constructs in the source without changing line numbers.
///
/// `{% generation %}`, which marks training targets, becomes `{% if true %}`. `*` becomes
/// `*_one_*`, which prevents constant folding: the compiler multiplies constants without a budget.
pub(super) fn prepare(source: &str, syntax: SyntaxConfig) -> Result<Cow<'_, str>, Error> {
    let mut out = String::new();
    let mut done = 0;
    let (mut in_tag, mut branches) = (0, 0);
    let mut before = None;
    for token in tokenize(source, false, syntax) {
        let (token, span) = token?;
        in_tag += 1;
        let new = match (&before, &token) {
            (_, Token::BlockStart | Token::VariableStart) => {
                in_tag = 0;
                None
            }
            (Some(Token::BlockStart), Token::Ident("generation")) => Some("if true".to_string()),
            (Some(Token::BlockStart), Token::Ident("endgeneration")) => Some("endif".to_string()),
            (Some(Token::BlockStart), Token::Ident("elif")) => {
                branches += 1;
                None
            }
            // Keep the unpacking operator of `call(*list)`.
            (Some(Token::ParenOpen | Token::Comma), Token::Mul) => None,
            (_, Token::Mul) => Some(format!("*{ONE}*")),
            _ => None,
        };
        if in_tag > TAG_TOKENS_MAX || branches > BRANCHES_MAX {
            let message = format!(
                "line {}: a tag has more than {TAG_TOKENS_MAX} tokens or there are more than {BRANCHES_MAX} branches",
                span.start_line
            );
            return Err(template_error(Kind::TooLarge, &message));
        }
        if let Some(new) = new {
            let (from, to) = (span.start_offset as usize, span.end_offset as usize);
            out.push_str(source.get(done..from).unwrap_or_default());
            out.push_str(&new);
            done = to;
        }
        before = Some(token);
    }
    if done == 0 {
        return Ok(Cow::Borrowed(source));
    }
    out.push_str(source.get(done..).unwrap_or_default());
    Ok(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &str) {
        let prepared = prepare(source, SyntaxConfig::default()).expect("valid source");
        assert_eq!(prepared, expected);
    }

    #[test]
    fn replaces_only_template_syntax() {
        check("a * b {% generation %}", "a * b {% if true %}");
        check(
            "{%- endgeneration -%} generation",
            "{%- endif -%} generation",
        );
        check(
            "{{ 'x*' * 3 * n }}{# * #}",
            "{{ 'x*' *_one_* 3 *_one_* n }}{# * #}",
        );
        check("{{ f(*a, *b) ** 2 }}", "{{ f(*a, *b) ** 2 }}");
        check("{{ generation }}", "{{ generation }}");
        check("日本{{ 2*3 }}", "日本{{ 2*_one_*3 }}");
    }

    #[test]
    fn rejects_long_tags() {
        for long in ["{{ 1", "{% if 1 %}"] {
            let tail = if long.len() > 4 { "{% elif 1 %}" } else { "+1" };
            let source = format!("{long}{}", tail.repeat(TAG_TOKENS_MAX));
            assert!(prepare(&source, SyntaxConfig::default()).is_err(), "{tail}");
        }
    }
}
