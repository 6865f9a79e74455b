//! `tabla pull`: fetches a model into the cache and prints where it is.

use crate::args::PullArgs;
use crate::failure::Failure;
use crate::{hub, terminal};

pub(crate) fn run(args: &PullArgs) -> Result<(), Failure> {
    let path = hub::locate(&args.model, args.offline.reach(), terminal::note)?;
    terminal::line(&path.display().to_string())
}
