//! `tabla pull`: fetches a model into the cache and prints where it is.

use crate::args::PullArgs;
use crate::hub;
use crate::output::Failure;
use crate::output::terminal;

pub(crate) fn run(args: &PullArgs) -> Result<(), Failure> {
    let path = hub::locate(&args.model, args.offline.reach(), terminal::note)?;
    terminal::line(&path.display().to_string())
}
