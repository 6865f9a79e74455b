//! How the arguments of a command name a model of the Hub.

use crate::hub::{self, Reach, Wanted};
use crate::output::Failure;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// Which model of the Hugging Face Hub.
#[derive(Args, Debug)]
pub(crate) struct HubArg {
    /// Model of the Hugging Face Hub, fetched once: a file, a quantisation, or what suits most
    /// [short: -hf]
    #[arg(long, value_name = "ORG/REPO[:QUANT]")]
    hf_repo: Option<Wanted>,
    #[command(flatten)]
    offline: OfflineArg,
}

/// Whether the network may be used.
#[derive(Args, Debug)]
pub(crate) struct OfflineArg {
    /// Takes models of the Hub from the cache alone
    #[arg(long)]
    offline: bool,
}

impl HubArg {
    /// The path of the model, if there is to be one of the Hub.
    pub(crate) fn locate(&self, say: fn(&str)) -> Result<Option<PathBuf>, Failure> {
        let wanted = self.hf_repo.as_ref();
        let path = wanted.map(|wanted| hub::locate(wanted, self.offline.reach(), say));
        path.transpose()
    }
}

impl OfflineArg {
    /// How far to look for a model of the Hub.
    pub(crate) fn reach(&self) -> Reach {
        if self.offline {
            Reach::Cache
        } else {
            Reach::from_env()
        }
    }
}

/// Short forms of llama.cpp that are several letters long, and what they stand for.
const SPELT_OUT: [(&str, &str); 3] = [
    ("-hf", "--hf-repo"),
    ("-npl", "--n-parallel"),
    ("-ntg", "--n-gen"),
];

/// The arguments with long options for short forms of several letters.
pub(crate) fn spelt_out(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut options = true;
    args.map(|arg| {
        options &= arg != "--";
        let found = SPELT_OUT.iter().find(|(short, _)| arg == *short);
        match found.filter(|_| options) {
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
    fn hf_is_one_option_and_not_two() {
        let parse = |args: &[&str]| {
            let args = args.iter().map(OsString::from);
            Cli::try_parse_from(spelt_out(args)).expect("it parses")
        };
        let cli = parse(&["tabla", "-hf", "org/model:Q8_0", "-p", "hi"]);
        let wanted = "org/model:Q8_0".parse().expect("it is well formed");
        assert_eq!(cli.run.model.hub.hf_repo, Some(wanted));
        let cli = parse(&["tabla", "tokenize", "--", "-hf"]);
        let Some(Command::Tokenize(args)) = cli.command else {
            panic!("{cli:?}");
        };
        assert_eq!(args.text.as_deref(), Some("-hf"));
    }
}
