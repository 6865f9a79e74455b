//! A test of `tabla rm` on a terminal. `tests/pull/stored.rs` has the others.

use super::chat::Terminal;
use std::fs;

#[test]
fn rm_asks_before_it_deletes() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let folder = cache.path().join("hub/models--org--model");
    let commit = "0123456789".repeat(4);
    let snapshot = folder.join("snapshots").join(&commit);
    let file = snapshot.join("m-Q8_0.gguf");
    for (path, content) in [(&file, "GGUF"), (&folder.join("refs/main"), &*commit)] {
        let parent = path.parent().expect("a folder");
        fs::create_dir_all(parent).expect("writable folder");
        fs::write(path, content).expect("writable folder");
    }
    for (answer, deleted) in [("\r", false), ("n\r", false), ("y\r", true)] {
        let args = ["rm", "org/model:Q8_0"];
        let Some(mut terminal) = Terminal::with_cache(&args, 80, cache.path()) else {
            return;
        };
        terminal.expect("Delete org/model:Q8_0 (4 B)? [y/N]");
        terminal.write(answer);
        if deleted {
            terminal.expect("deleted org/model:Q8_0, 4 B freed");
        }
        assert_eq!(terminal.code(), Some(0));
        assert_eq!(file.exists(), !deleted, "{answer:?}");
    }
}
