//! The kernels of a folder with the layout of `shaders/`, or of the program itself.

use std::path::{Path, PathBuf};
use tabla_shaders::{KernelSpec, SOURCES, dtypes, expand, kernel_specs, source, variants};
use wgpu::naga;

/// Where the WGSL comes from.
#[derive(Clone, Debug)]
pub(crate) enum Shaders {
    /// The files that were embedded when the program was compiled.
    Embedded,
    /// A folder.
    Folder(PathBuf),
}

/// A kernel: its names and its text.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// Name, as in listings.
    pub(crate) name: String,
    /// Operation.
    pub(crate) stem: String,
    /// Storage type, if the operation has kernels for several.
    pub(crate) dtype: Option<String>,
    /// Kernel variant; `None`: the default.
    pub(crate) variant: Option<String>,
    /// Expanded text.
    pub(crate) wgsl: String,
    /// Number of storage buffers.
    pub(crate) buffers: usize,
    /// Rows or elements per workgroup.
    pub(crate) units: u32,
    /// Tokens per workgroup.
    pub(crate) tokens: u32,
    /// Lanes per workgroup.
    pub(crate) lanes: u32,
}

impl Shaders {
    /// Returns the text of a file.
    pub(crate) fn read(&self, file: &str) -> Option<String> {
        match self {
            Self::Embedded => source(file).map(str::to_string),
            Self::Folder(folder) => std::fs::read_to_string(folder.join(file)).ok(),
        }
    }

    fn stems(&self) -> Result<Vec<String>, String> {
        let mut names: Vec<String> = match self {
            Self::Embedded => SOURCES
                .iter()
                .map(|(name, _)| (*name).to_string())
                .collect(),
            Self::Folder(folder) => files(folder)?,
        };
        names.retain(|name| !name.contains('/'));
        names.sort();
        let stems = names.iter().filter_map(|name| name.strip_suffix(".wgsl"));
        Ok(stems.map(str::to_string).collect())
    }

    /// Returns all kernels.
    ///
    /// # Errors
    ///
    /// If a file is missing.
    pub(crate) fn kernels(&self) -> Result<Vec<Kernel>, String> {
        let list = |name| {
            self.read(name)
                .ok_or_else(|| format!("file {name} not found"))
        };
        let (dtypes, variants) = (dtypes(&list("dtypes")?), variants(&list("variants")?));
        let stems = self.stems()?;
        let specs = kernel_specs(stems.iter().map(String::as_str), &dtypes, &variants);
        specs.into_iter().map(|spec| self.kernel(spec)).collect()
    }

    fn kernel(&self, spec: KernelSpec<'_>) -> Result<Kernel, String> {
        let name = spec.name();
        let wgsl = expand(spec, &|file| self.read(file)).map_err(|e| format!("{name}: {e}"))?;
        let owned = |part: Option<&str>| part.map(str::to_string);
        let lanes = constant(&wgsl, "WG").ok_or_else(|| format!("{name}: const WG is missing"))?;
        Ok(Kernel {
            name,
            stem: spec.stem.to_string(),
            dtype: owned(spec.dtype),
            variant: owned(spec.variant),
            buffers: wgsl.matches("@binding(").count(),
            units: constant(&wgsl, "UNITS").unwrap_or(1),
            tokens: constant(&wgsl, "TOKENS").unwrap_or(1),
            lanes,
            wgsl,
        })
    }

    /// Returns the names of the kernel variants, the preferred last.
    pub(crate) fn variants(&self) -> Vec<String> {
        let text = self.read("variants").unwrap_or_default();
        variants(&text).into_iter().map(|v| v.name).collect()
    }
}

fn files(folder: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.collect())
}

/// Returns the value of a constant.
fn constant(wgsl: &str, name: &str) -> Option<u32> {
    let start = format!("const {name} = ");
    let line = wgsl.lines().find_map(|line| line.strip_prefix(&start))?;
    let literal = line
        .split_once("u;")
        .and_then(|(digits, _)| digits.parse().ok());
    literal.or_else(|| evaluated(wgsl, name))
}

/// Returns the value of a constant that other constants define.
fn evaluated(wgsl: &str, name: &str) -> Option<u32> {
    let module = naga::front::wgsl::parse_str(wgsl).ok()?;
    let mut constants = module.constants.iter();
    let (_, constant) = constants.find(|(_, constant)| constant.name.as_deref() == Some(name))?;
    match module.global_expressions[constant.init] {
        naga::Expression::Literal(naga::Literal::U32(value)) => Some(value),
        _ => None,
    }
}

/// Returns whether a kernel matches a pattern: its operation, its name without the variant, or its
/// name. A `*` stands for any text.
pub(crate) fn matches(pattern: &str, kernel: [&str; 2]) -> bool {
    let [stem, name] = kernel;
    let without = name.split('.').next().unwrap_or_default();
    [stem, without, name].iter().any(|text| fits(pattern, text))
}

fn fits(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(start) else {
        return false;
    };
    (0..=text.len()).any(|skip| text.is_char_boundary(skip) && fits(rest, &text[skip..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabla_core::op::params::KERNELS;

    #[test]
    fn patterns_match_operations_and_names() {
        let kernel = ["gemv", "gemv_q4_0.subgroup+int8"];
        for (pattern, expected) in [
            ("gemv", true),
            ("gemv_q4_0", true),
            ("gemv_q4_0.subgroup+int8", true),
            ("gemv_q4_0.subgroup", false),
            ("gemv_q4", false),
            ("*", true),
            ("gem*int8", true),
            ("*q4_k*", false),
        ] {
            assert_eq!(matches(pattern, kernel), expected, "{pattern}");
        }
    }

    #[test]
    fn kernels_of_the_program_have_buffers_and_tiles() {
        let kernels = Shaders::Embedded.kernels().expect("the files are embedded");
        let of = |name| kernels.iter().find(|k| k.name == name).expect("a kernel");
        let add = of("add");
        let operands = tabla_core::op::list::Op::Add.operands();
        assert_eq!(add.buffers, operands.len());
        assert!(kernels.iter().all(|kernel| kernel.buffers > 0));
        for kernel in &kernels {
            let dtype = kernel.dtype.as_deref();
            let known = KERNELS.iter().find(|k| {
                k.op.name() == kernel.stem
                    && k.variant == kernel.variant.as_deref()
                    && dtype.map_or(k.dtypes.is_empty(), |dtype| k.dtypes.contains(&dtype))
            });
            let known = known.expect("a kernel of the program");
            let tile = [kernel.units, kernel.tokens];
            assert_eq!(tile, [known.units, known.tokens], "{}", kernel.name);
        }
    }
}
