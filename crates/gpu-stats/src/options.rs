//! Arguments of the program.

use crate::kernels::Shaders;
use std::path::PathBuf;

pub(crate) const USAGE: &str = "\
gpu-stats [OPTIONS] [KERNEL-PATTERN...]
Print what RADV's compiler says about the GPU kernels, without a GPU.
A pattern is an operation, a kernel name with or without its variant; * stands for any text.

--family NAME    Processor to compile for: navi21, navi31, gfx1201 [default: navi21]
--icd FILE       Manifest of the Vulkan driver [default: RADV's in /usr/share/vulkan/icd.d]
--shaders FOLDER Read the WGSL from a folder with the layout of shaders/ instead of the embedded files
--save FILE      Write the figures to a file
--compare FILE   Print the figures next to those of a file, their ratios and the geometric means
--check          Compare with the budgets of shaders/budgets.toml
--representative Compile only the kernels that the test compiles: those of a few storage types
--assembly       Print the machine code";

/// Processor that the budgets are for.
const BUDGET_FAMILY: &str = "navi21";

/// What the program does.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) family: String,
    pub(crate) icd: Option<PathBuf>,
    pub(crate) shaders: Shaders,
    pub(crate) save: Option<PathBuf>,
    pub(crate) compare: Option<PathBuf>,
    pub(crate) flags: Vec<Flag>,
    pub(crate) patterns: Vec<String>,
}

/// An option without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flag {
    /// Compare with the budgets.
    Check,
    /// Compile the representative kernels.
    Representative,
    /// Print the machine code.
    Assembly,
}

impl Options {
    /// Parses the arguments.
    ///
    /// # Errors
    ///
    /// An unknown option or a missing value.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self {
            family: BUDGET_FAMILY.to_string(),
            icd: None,
            shaders: Shaders::Embedded,
            save: None,
            compare: None,
            flags: Vec::new(),
            patterns: Vec::new(),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--family" => options.family.clone_from(value()?),
                "--icd" => options.icd = Some(value()?.into()),
                "--shaders" => options.shaders = Shaders::Folder(value()?.into()),
                "--save" => options.save = Some(value()?.into()),
                "--compare" => options.compare = Some(value()?.into()),
                "--check" => options.flags.push(Flag::Check),
                "--representative" => options.flags.push(Flag::Representative),
                "--assembly" => options.flags.push(Flag::Assembly),
                _ if arg.starts_with('-') => {
                    return Err(format!("unknown option {arg}\n\n{USAGE}"));
                }
                pattern => options.patterns.push(pattern.to_string()),
            }
        }
        if options.has(Flag::Check) && options.family != BUDGET_FAMILY {
            return Err(format!(
                "budgets are for {BUDGET_FAMILY}, not {}",
                options.family
            ));
        }
        Ok(options)
    }

    pub(crate) fn has(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &str) -> Result<Options, String> {
        let args: Vec<_> = args.split_whitespace().map(str::to_string).collect();
        Options::parse(&args)
    }

    #[test]
    fn options_may_stand_between_patterns() {
        let options = parse("gemv --family navi31 --save a.tsv gemm").expect("valid arguments");
        assert_eq!(options.patterns, ["gemv", "gemm"]);
        assert_eq!(options.family, "navi31");
        assert_eq!(options.save, Some(PathBuf::from("a.tsv")));
        for invalid in ["--save", "--speed", "--check --family navi31"] {
            assert!(parse(invalid).is_err(), "{invalid}");
        }
    }
}
