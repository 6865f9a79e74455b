//! The inputs in `fuzz/corpus`, with the checks of the fuzz targets (docs/reliability.md).

#[path = "../../fuzz/src/memory.rs"]
mod memory;
#[expect(
    clippy::cast_possible_truncation,
    reason = "generators write the low bytes of numbers"
)]
#[path = "../../fuzz/src/targets/mod.rs"]
mod targets;

use std::path::Path;

/// Counts the memory of each thread.
#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

#[test]
fn corpora_pass_the_checks_of_their_targets() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (target, run) in targets::TARGETS {
        let inputs = corpus.join(target).read_dir().expect(target);
        let mut paths: Vec<_> = inputs.map(|input| input.expect(target).path()).collect();
        assert!(!paths.is_empty(), "{target} has no inputs");
        paths.sort();
        for path in paths {
            let input = std::fs::read(&path).expect(target);
            let passed = std::panic::catch_unwind(|| run(&input));
            assert!(passed.is_ok(), "{target} fails with {}", path.display());
        }
    }
}
