//! Expansion of shader imports, and the lists of kernels.

use std::collections::BTreeMap;

/// Storage type that kernel names omit where the word `-` of `shaders/dtypes` selects it.
const UNNAMED: &str = "f32";

/// Parses the file `shaders/dtypes`: one line per kernel that exists for several storage types. A
/// word that names an earlier line expands to its list; `-` is f32 that kernel names omit.
pub fn dtypes(text: &str) -> BTreeMap<String, Vec<Option<String>>> {
    let mut lists: BTreeMap<String, Vec<Option<String>>> = BTreeMap::new();
    let lines = text
        .lines()
        .map(|l| l.split('#').next().unwrap_or_default());
    for (name, words) in lines.filter_map(|line| line.split_once(':')) {
        let list = words.split_whitespace().flat_map(|word| {
            let one = || vec![(word != "-").then(|| word.to_string())];
            lists.get(word).cloned().unwrap_or_else(one)
        });
        let list = list.collect();
        lists.insert(name.trim().to_string(), list);
    }
    lists
}

/// A kernel variant other than the default.
#[derive(Debug)]
pub struct KernelVariant {
    /// Names of its folders in `lib`, joined by `+`.
    pub name: String,
    /// Name of the list of storage types that have the variant; `None`: all.
    pub list: Option<String>,
    /// Kernels that have the variant.
    pub stems: Vec<String>,
}

/// Parses the file `shaders/variants`: one line per kernel variant, with its kernels.
pub fn variants(text: &str) -> Vec<KernelVariant> {
    let lines = text
        .lines()
        .map(|l| l.split('#').next().unwrap_or_default());
    let variant = |(head, stems): (&str, &str)| {
        let (name, list) = match head.split_once('/') {
            Some((name, list)) => (name, Some(list.trim().to_string())),
            None => (head, None),
        };
        KernelVariant {
            name: name.trim().to_string(),
            list,
            stems: stems.split_whitespace().map(str::to_string).collect(),
        }
    };
    lines
        .filter_map(|l| l.split_once(':'))
        .map(variant)
        .collect()
}

/// A kernel to expand: operation, storage type and kernel variant.
#[derive(Clone, Copy, Debug)]
pub struct KernelSpec<'a> {
    /// Name of the operation and of its file.
    pub stem: &'a str,
    /// Storage type, if the kernel name has one.
    pub dtype: Option<&'a str>,
    /// Kernel variant; `None`: the default.
    pub variant: Option<&'a str>,
}

impl KernelSpec<'_> {
    /// Returns the kernel name: `rms_norm`, `gemv_q4_0`, `gemv_q4_0.subgroup+int8`.
    pub fn name(&self) -> String {
        let mut name = self.stem.to_string();
        for (mark, part) in [('_', self.dtype), ('.', self.variant)] {
            if let Some(part) = part {
                name.push(mark);
                name.push_str(part);
            }
        }
        name
    }

    /// Returns the candidate files of `#import a` in order of precedence.
    fn targets<'a>(&'a self, import: &'a str) -> impl Iterator<Item = String> + 'a {
        let folders = self
            .variant
            .into_iter()
            .flat_map(|variant| variant.rsplit('+'));
        let of_variant = folders.map(move |folder| format!("lib/{folder}/{import}.wgsl"));
        let dtype = self.dtype.unwrap_or(UNNAMED);
        let plain = format!("lib/{import}.wgsl");
        of_variant.chain([plain, format!("lib/{import}/{dtype}.wgsl")])
    }
}

/// Returns the kernels of operations: for each storage type the default kernel, then its kernel
/// variants.
pub fn kernel_specs<'a>(
    stems: impl IntoIterator<Item = &'a str>,
    dtypes: &'a BTreeMap<String, Vec<Option<String>>>,
    variants: &'a [KernelVariant],
) -> Vec<KernelSpec<'a>> {
    let mut specs = Vec::new();
    for stem in stems {
        let of_stem = dtypes.get(stem).map_or(&[None][..], Vec::as_slice);
        for dtype in of_stem.iter().map(Option::as_deref) {
            let listed = |list: &String| dtypes[list].iter().any(|v| v.as_deref() == dtype);
            let has = |variant: &&KernelVariant| {
                variant.stems.iter().any(|s| s == stem) && variant.list.as_ref().is_none_or(listed)
            };
            let names = variants.iter().filter(has).map(|v| Some(v.name.as_str()));
            specs.extend(
                std::iter::once(None)
                    .chain(names)
                    .map(|variant| KernelSpec {
                        stem,
                        dtype,
                        variant,
                    }),
            );
        }
    }
    specs
}

/// Returns the text of a kernel. `#import a` includes the first existing file of `lib/<folder of
/// the kernel variant>/a.wgsl`, `lib/a.wgsl` and `lib/a/<storage type>.wgsl` (f32 without one); each file is
/// included once.
///
/// # Errors
///
/// The message names the missing file.
pub fn expand(
    kernel: KernelSpec<'_>,
    read: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut text = Text::default();
    paste(format!("{}.wgsl", kernel.stem), kernel, read, &mut text)?;
    Ok(text.enables + &text.lines)
}

/// Returns expanded text in the form that browsers accept: with `enable subgroups;`, which the WGSL specification
/// requires before subgroup built-ins and naga 30 rejects.
///
/// Kernels with cooperative matrices have no such form: their types and functions are extensions of naga.
pub fn standard(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next());
    match lines.flatten().any(uses_subgroups) {
        true => format!("enable subgroups;\n{text}"),
        false => text.to_string(),
    }
}

/// Whether code has a built-in value or function of subgroups.
fn uses_subgroups(code: &str) -> bool {
    let values = ["@builtin(subgroup_", "@builtin(num_subgroups)"];
    let functions = code.split("subgroup").skip(1);
    let mut functions = functions.filter_map(|rest| rest.chars().next());
    values.iter().any(|value| code.contains(value)) || functions.any(|c| c.is_ascii_uppercase())
}

/// Expanded text.
#[derive(Default)]
struct Text {
    /// Directives, which must precede all declarations.
    enables: String,
    lines: String,
    /// Files included so far.
    files: Vec<String>,
}

fn paste(
    file: String,
    kernel: KernelSpec<'_>,
    read: &dyn Fn(&str) -> Option<String>,
    text: &mut Text,
) -> Result<(), String> {
    if text.files.contains(&file) {
        return Ok(());
    }
    let file_text = read(&file).ok_or_else(|| format!("file {file} not found"))?;
    text.files.push(file);
    for line in file_text.lines() {
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
        let mut targets = kernel.targets(import);
        let target = targets.find(|target| read(target).is_some());
        let target = target.ok_or_else(|| {
            let last = kernel.targets(import).last().unwrap_or_default();
            format!("file {last} not found")
        })?;
        paste(target, kernel, read, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_text_enables_subgroups_if_they_are_used() {
        let enabled = |text: &str| standard(text) == format!("enable subgroups;\n{text}");
        for code in [
            "let sum = subgroupAdd(x);",
            "    @builtin(subgroup_id) subgroup: u32,",
            "    @builtin(num_subgroups) count: u32,",
        ] {
            assert!(enabled(&format!("const UNITS = 1u;\n{code}\n")), "{code}");
        }
        for code in [
            "// As subgroupAdd.",
            "let subgroup = lane / subgroup_size;",
            "let x = 1u; // subgroupAdd",
        ] {
            assert_eq!(standard(code), code);
        }
    }
}
