//! `tabla bench`: benchmarks of prompt processing and text generation, with one or several sequences.

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
