//! `tabla bench`: measures prompt processing and generation, of one sequence or of several.

mod args;
mod parallel;
mod single;

use crate::output::Failure;

pub(crate) use args::BenchArgs;

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    if args.n_parallel.is_empty() {
        single::run(args)
    } else {
        parallel::run(args)
    }
}
