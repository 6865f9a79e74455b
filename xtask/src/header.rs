//! Generates `include/tabla.h` with cbindgen, and adapts its comments and constants to C.

use crate::tree::{Result, root};
use cbindgen::{Builder, Config};

/// Returns the text of the header. Its order is that of the modules in `crates/capi/src/lib.rs`.
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

/// Puts negative constants in parentheses, so that `1 -TABLA_X` and similar expressions are correct.
fn parenthesize_negatives(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        match line.split_once(" -") {
            Some((name, number)) if line.starts_with("#define ") => {
                out.push_str(&format!("{name} (-{number})"));
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// Removes `# Safety` headings from comments. The text below a heading stays as a paragraph.
fn plain_comments(text: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut after_heading = false;
    for line in text.lines() {
        let comment = line
            .trim()
            .trim_start_matches("/**")
            .trim_start_matches('*');
        if comment.trim() == "# Safety" {
            after_heading = true;
            continue;
        }
        // Removes the empty line below the heading too.
        let skipped = after_heading && comment.trim().is_empty();
        after_heading = false;
        if !skipped {
            lines.push(line.trim_end());
        }
    }
    lines.join("\n") + "\n"
}

/// Puts comments with one line of text on one line.
fn one_line(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut ahead = lines.clone();
        let comment = ahead
            .next()
            .map(str::trim_start)
            .and_then(|l| l.strip_prefix("* "));
        let ends = ahead.next().is_some_and(|l| l.trim() == "*/");
        match comment {
            Some(comment) if line.trim() == "/**" && ends => {
                out.push_str(line);
                out.push(' ');
                out.push_str(comment);
                out.push_str(" */");
                lines = ahead;
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
    fn removes_safety_headings() {
        let rust =
            "/**\n * Writes.\n *\n * # Safety\n *\n * `out` is valid.\n */\nint f(int *out);";
        let c = "/**\n * Writes.\n *\n * `out` is valid.\n */\nint f(int *out);\n";
        assert_eq!(plain_comments(rust), c);
    }

    #[test]
    fn negative_constants_have_parentheses() {
        let text = "#define A -1\n#define B 2\n/** a -1 */\n";
        let expected = "#define A (-1)\n#define B 2\n/** a -1 */\n";
        assert_eq!(parenthesize_negatives(text), expected);
    }

    #[test]
    fn folds_short_comments() {
        let long = "    /**\n     * Layers.\n     */\n    int n;\n/**\n * a\n * b\n */\n";
        let short = "    /** Layers. */\n    int n;\n/**\n * a\n * b\n */\n";
        assert_eq!(one_line(long), short);
    }
}
