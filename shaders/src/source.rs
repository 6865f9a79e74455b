//! Shader text: imports and variants. Also a module of the build script, so it imports nothing.

use std::collections::BTreeMap;

/// Reads the file `shaders/variants`: a line per kernel that exists in several storage types. A
/// word that is the name of an earlier line stands for its list.
pub fn variants(text: &str) -> BTreeMap<String, Vec<Option<String>>> {
    let mut lists: BTreeMap<String, Vec<Option<String>>> = BTreeMap::new();
    let lines = text
        .lines()
        .map(|l| l.split('#').next().unwrap_or_default());
    for (name, words) in lines.filter_map(|line| line.split_once(':')) {
        let list = words.split_whitespace().flat_map(|word| {
            let one = || vec![Some(word.to_string())];
            lists.get(word).cloned().unwrap_or_else(one)
        });
        let list = list.collect();
        lists.insert(name.trim().to_string(), list);
    }
    lists
}

/// A form beside the plain one.
#[derive(Debug)]
pub struct Form {
    /// Its folders of `lib`, joined by `+`.
    pub name: String,
    /// The list of storage types that have it, if these are not all.
    pub list: Option<String>,
    /// The kernels that have it.
    pub stems: Vec<String>,
}

/// Reads the file `shaders/forms`: a line per form, with the kernels that have it.
pub fn forms(text: &str) -> Vec<Form> {
    let lines = text
        .lines()
        .map(|l| l.split('#').next().unwrap_or_default());
    let form = |(head, stems): (&str, &str)| {
        let (name, list) = match head.split_once('/') {
            Some((name, list)) => (name, Some(list.trim().to_string())),
            None => (head, None),
        };
        Form {
            name: name.trim().to_string(),
            list,
            stems: stems.split_whitespace().map(str::to_string).collect(),
        }
    };
    lines.filter_map(|l| l.split_once(':')).map(form).collect()
}

/// Which of the kernels of a stem: for this storage type, in this form.
#[derive(Clone, Copy, Debug)]
pub struct Which<'a> {
    /// Its operation, and its file.
    pub stem: &'a str,
    /// The storage type, where the operation has several.
    pub variant: Option<&'a str>,
    /// The form, if it is not the plain one.
    pub form: Option<&'a str>,
}

impl Which<'_> {
    /// The name of the kernel: `rms_norm`, `gemv_q4_0`, `gemv_q4_0.subgroup`.
    pub fn name(&self) -> String {
        let mut name = self.stem.to_string();
        for (mark, part) in [('_', self.variant), ('.', self.form)] {
            if let Some(part) = part {
                name.push(mark);
                name.push_str(part);
            }
        }
        name
    }

    /// The files that `#import a` may stand for, the first that there is.
    fn targets<'a>(&'a self, import: &'a str) -> impl Iterator<Item = String> + 'a {
        let folders = self.form.into_iter().flat_map(|form| form.rsplit('+'));
        let of_form = folders.map(move |folder| format!("lib/{folder}/{import}.wgsl"));
        let variant = self.variant.map(|v| format!("lib/{import}/{v}.wgsl"));
        let plain = format!("lib/{import}.wgsl");
        of_form.chain([plain]).chain(variant)
    }
}

/// The whole text of a kernel: `#import a` stands for `lib/<folder of the form>/a.wgsl`,
/// `lib/a.wgsl` or `lib/a/<variant>.wgsl`, the first that there is, once.
///
/// # Errors
///
/// Names the file that `read` does not have.
pub fn expand(which: Which<'_>, read: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut text = Text::default();
    paste(format!("{}.wgsl", which.stem), which, read, &mut text)?;
    Ok(text.enables + &text.lines)
}

/// A text that grows.
#[derive(Default)]
struct Text {
    /// Directives, which stand in front of everything else.
    enables: String,
    lines: String,
    /// The files that are in it.
    files: Vec<String>,
}

fn paste(
    file: String,
    which: Which<'_>,
    read: &dyn Fn(&str) -> Option<String>,
    text: &mut Text,
) -> Result<(), String> {
    if text.files.contains(&file) {
        return Ok(());
    }
    let own = read(&file).ok_or_else(|| format!("no file {file}"))?;
    text.files.push(file);
    for line in own.lines() {
        let Some(import) = line.strip_prefix("#import ") else {
            let directive = line.starts_with("enable ");
            let part = if directive {
                &mut text.enables
            } else {
                &mut text.lines
            };
            part.push_str(line);
            part.push('\n');
            continue;
        };
        let import = import.trim();
        let mut targets = which.targets(import);
        let target = targets.find(|target| read(target).is_some());
        let target = target.ok_or_else(|| format!("no file lib/{import}.wgsl"))?;
        paste(target, which, read, text)?;
    }
    Ok(())
}
