//! `include/tabla.h`: what cbindgen makes of the C ABI, with its comments fit for C.

use crate::tree::{Result, root};
use cbindgen::{Builder, Config};

/// The header. cbindgen follows the modules of `crates/capi/src/lib.rs` in their order.
pub(crate) fn header() -> Result<String> {
    let root = root();
    let config = Config::from_file(root.join("cbindgen.toml"))?;
    let builder = Builder::new()
        .with_config(config)
        .with_src(root.join("crates/core/src/error.rs"))
        .with_src(root.join("crates/capi/src/lib.rs"));
    let mut bytes = Vec::new();
    builder.generate()?.write(&mut bytes);
    let text = String::from_utf8(bytes)?;
    Ok(one_line(&parenthesize_negatives(&plain_comments(&text))))
}

/// Takes what belongs to Rust out of the comments: the heading over what a caller owes, whose
/// sentences stay as a paragraph of their own.
fn plain_comments(text: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut after_heading = false;
    for line in text.lines() {
        let said = line
            .trim()
            .trim_start_matches("/**")
            .trim_start_matches('*');
        if said.trim() == "# Safety" {
            after_heading = true;
            continue;
        }
        // The empty line under the heading goes with it.
        let skipped = after_heading && said.trim().is_empty();
        after_heading = false;
        if !skipped {
            lines.push(line.trim_end());
        }
    }
    lines.join("\n") + "\n"
}

/// Folds a comment of one sentence into one line.
fn one_line(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut ahead = lines.clone();
        let said = ahead
            .next()
            .map(str::trim_start)
            .and_then(|l| l.strip_prefix("* "));
        let ends = ahead.next().is_some_and(|l| l.trim() == "*/");
        match said {
            Some(said) if line.trim() == "/**" && ends => {
                out.push_str(line);
                out.push(' ');
                out.push_str(said);
                out.push_str(" */");
                lines = ahead;
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// Puts negative constants in parentheses, so that expressions like `1 -TABLA_X` are correct.
fn parenthesize_negatives(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        match line.split_once(" -") {
            Some((name, number)) if line.starts_with("#define ") => {
                out.push_str(name);
                out.push_str(" (-");
                out.push_str(number);
                out.push(')');
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{one_line, parenthesize_negatives, plain_comments};

    #[test]
    fn a_caller_owes_sentences_and_no_headings() {
        let rust =
            "/**\n * Writes.\n *\n * # Safety\n *\n * `out` is a place.\n */\nint f(int *out);";
        let c = "/**\n * Writes.\n *\n * `out` is a place.\n */\nint f(int *out);\n";
        assert_eq!(plain_comments(rust), c);
    }

    #[test]
    fn a_sentence_takes_a_line() {
        let long = "    /**\n     * Layers.\n     */\n    int n;\n/**\n * a\n * b\n */\n";
        let short = "    /** Layers. */\n    int n;\n/**\n * a\n * b\n */\n";
        assert_eq!(one_line(long), short);
    }

    #[test]
    fn negative_constants_have_parentheses() {
        let text = "#define A -1\n#define B 2\n/** a -1 */\n";
        let expected = "#define A (-1)\n#define B 2\n/** a -1 */\n";
        assert_eq!(parenthesize_negatives(text), expected);
    }
}
