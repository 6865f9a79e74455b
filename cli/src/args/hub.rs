//! Options that name a model on the Hugging Face Hub.

use crate::hub::{self, Access, HubModel};
use crate::output::Failure;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// A model on the Hugging Face Hub.
#[derive(Args, Debug)]
pub(crate) struct HubArg {
    /// Model on the Hugging Face Hub, downloaded on first use [short: -hf]
    #[arg(help_heading = "Model", long, value_name = "ORG/REPO[:QUANT]")]
    hf_repo: Option<HubModel>,
    /// Use cached models only, without network access
    #[arg(help_heading = "Model", long)]
    offline: bool,
}

impl HubArg {
    /// Whether the option is given.
    pub(crate) fn is_given(&self) -> bool {
        self.hf_repo.is_some()
    }

    /// Returns the local path of a model whose name is given by position.
    pub(crate) fn locate_named(
        &self,
        model: &HubModel,
        report: fn(&str),
    ) -> Result<PathBuf, Failure> {
        hub::locate(model, Access::new(self.offline), report)
    }

    /// Returns the local path of the model, downloaded if needed, or `None` if the option is absent.
    pub(crate) fn locate(&self, report: fn(&str)) -> Result<Option<PathBuf>, Failure> {
        let model = self.hf_repo.as_ref();
        let path = model.map(|model| hub::locate(model, Access::new(self.offline), report));
        path.transpose()
    }
}

/// Short options of llama.cpp with several letters, which clap does not support, and their long forms.
pub(crate) const SHORT_OPTIONS: [(&str, &str); 3] = [
    ("-hf", "--hf-repo"),
    ("-npl", "--n-parallel"),
    ("-ntg", "--n-gen"),
];

/// Replaces short options of several letters by their long forms.
pub(crate) fn expand_short_options(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut options = true;
    args.map(|arg| {
        options &= arg != "--";
        let known = SHORT_OPTIONS.iter().find(|(short, _)| arg == *short);
        match known.filter(|_| options) {
            Some((_, long)) => long.into(),
            None => arg,
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{Cli, Command};
    use clap::Parser;

    #[test]
    fn expands_short_options_of_several_letters() {
        let parse = |args: &[&str]| {
            let args = args.iter().map(OsString::from);
            Cli::try_parse_from(expand_short_options(args)).expect("valid arguments")
        };
        let cli = parse(&["tabla", "-hf", "org/model:Q8_0", "-p", "hi"]);
        let expected = "org/model:Q8_0".parse().expect("valid model name");
        assert_eq!(cli.run.model.hub.hf_repo, Some(expected));
        let cli = parse(&["tabla", "tokenize", "--", "-hf"]);
        let Some(Command::Tokenize(args)) = cli.command else {
            panic!("{cli:?}");
        };
        assert_eq!(args.text.as_deref(), Some("-hf"));
    }
}
