//! Tests of `tabla list`, `tabla show` and `tabla rm`.

use super::hub::{COMMIT, Hub, Model, REPO, bytes};
use super::{Home, Ran, ran};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// A model file that the program can open.
fn golden() -> Vec<u8> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/llama.gguf");
    fs::read(file).expect("golden file")
}

/// Returns a cache with two quantizations of a model, which have different contents.
fn two_quantizations() -> (Hub, Home) {
    let files = [("m-Q4_K_M.gguf", golden()), ("m-Q8_0.gguf", changed())];
    let (hub, home) = (Hub::serving(Model::of(&files)), Home::new("stored"));
    for name in ["org/model:q4_k_m", "org/model:q8_0"] {
        home.run(&hub, &["pull", name]).path();
    }
    (hub, home)
}

/// Another model file: the name of the model in its metadata differs.
fn changed() -> Vec<u8> {
    let mut content = golden();
    // A byte of the last tensor.
    *content.last_mut().expect("a file") ^= 1;
    content
}

impl Home {
    /// Runs a command without a server.
    fn local(&self, args: &[&str]) -> Ran {
        ran(&mut self.command("http://127.0.0.1:1", args))
    }

    /// Returns the names of `tabla list`, sorted.
    fn names(&self) -> Vec<String> {
        let listed = self.local(&["list", "--json"]);
        assert_eq!(listed.code, Some(0), "{}", listed.stderr);
        let models: Value = serde_json::from_str(&listed.stdout).expect("valid JSON");
        let models = models.as_array().expect("an array").iter();
        let name = |model: &Value| model["name"].as_str().expect("a name").to_string();
        let mut names: Vec<String> = models.map(name).collect();
        names.sort();
        names
    }

    /// Returns all files and links below the cache, without lock files.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut folders = vec![self.0.join("hub")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let entry = entry.expect("folder entry");
                match entry.file_type().expect("a type").is_dir() {
                    true if entry.file_name() == ".locks" => {}
                    true => folders.push(entry.path()),
                    false => files.push(entry.path()),
                }
            }
        }
        files
    }
}

#[test]
fn list_has_names_for_hf() {
    let empty = Home::new("empty").local(&["list"]);
    assert_eq!((empty.code, empty.stdout.as_str()), (Some(0), ""));
    assert!(empty.stderr.contains("tabla pull"), "{}", empty.stderr);

    let (_hub, home) = two_quantizations();
    assert_eq!(home.names(), ["org/model:Q4_K_M", "org/model:Q8_0"]);
    let text = home.local(&["list"]).stdout;
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["NAME", "QUANT", "SIZE", "MODIFIED"]);
    assert_eq!(rows.len(), 3);
    assert!(
        rows[1..]
            .iter()
            .any(|row| row[..2] == ["org/model:Q8_0", "Q8_0"])
    );
    let json: Value = serde_json::from_str(&home.local(&["list", "--json"]).stdout).expect("JSON");
    for model in json.as_array().expect("an array") {
        assert_eq!(model["bytes"], golden().len());
        let path = model["path"].as_str().expect("a path");
        let name = model["name"].as_str().expect("a name");
        let pulled = home.local(&["pull", "--offline", name]).path();
        assert_eq!(pulled, Path::new(path), "the name selects the file");
        let seconds = model["modified"].as_u64().expect("seconds");
        let modified = fs::metadata(path).expect("a file").modified();
        let modified = modified
            .expect("a time")
            .duration_since(std::time::UNIX_EPOCH);
        assert_eq!(modified.expect("after 1970").as_secs(), seconds);
    }
}

#[test]
fn list_skips_what_the_program_cannot_open() {
    let files = [("m-Q8_0.gguf", golden()), ("n-Q4_0.gguf", bytes("n", 999))];
    let (hub, home) = (Hub::serving(Model::of(&files)), Home::new("other"));
    home.pull(&hub).path();
    home.run(&hub, &["pull", "org/model:Q4_0"]).path();
    // A name without an organization is not one for `-hf`.
    let copied = home.0.join("hub/models--gpt2");
    fs::create_dir_all(copied.join("snapshots").join(COMMIT)).expect("writable folder");
    fs::create_dir(copied.join("refs")).expect("writable folder");
    fs::write(copied.join("refs/main"), COMMIT).expect("writable folder");
    let file = copied.join("snapshots").join(COMMIT).join("m-Q8_0.gguf");
    fs::write(file, golden()).expect("writable folder");
    assert_eq!(home.names(), ["org/model:Q8_0"]);
    let text = home.local(&["list"]);
    assert!(text.stderr.contains("1 other model"), "{}", text.stderr);
}

#[test]
fn show_summarizes_a_model() {
    let (_hub, home) = two_quantizations();
    let by_name = home.local(&["show", "org/model:q8_0"]);
    let path = home.cached("snapshots").join(COMMIT).join("m-Q8_0.gguf");
    let by_path = home.local(&["show", path.to_str().expect("UTF-8 path")]);
    assert_eq!(by_name.stdout, by_path.stdout);
    // A name with a file is no path, also for other commands.
    let by_file = home.local(&["show", "org/model:m-Q8_0.gguf"]);
    assert_eq!(by_file.stdout, by_path.stdout, "{}", by_file.stderr);
    home.local(&["chat", "--offline", "-p", "Hi", "org/model:m-Q8_0.gguf"])
        .check_error(&["the model has no chat template"]);
    let row = |label: &str| {
        let found = by_name
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix(label));
        found
            .unwrap_or_else(|| panic!("{label}: {}", by_name.stdout))
            .trim()
    };
    assert_eq!(row("architecture"), "llama");
    assert_eq!(row("quantization"), "Q8_0");
    assert_eq!(row("chat template"), "no");
    // As in `tabla inspect`, which reads the same file in another way.
    let inspected = home.local(&["inspect", "--json", "-hf", "org/model:q8_0", "--offline"]);
    let json: Value = serde_json::from_str(&inspected.stdout).expect("valid JSON");
    let context = &json["metadata"]["llama.context_length"]["value"];
    assert_eq!(row("context"), format!("{context} tokens"));
    let elements = json["total"]["elements"].as_f64().expect("a number");
    assert_eq!(row("parameters"), format!("{:.2} K", elements / 1e3));
    assert!(
        by_name.stderr.contains("tabla inspect"),
        "{}",
        by_name.stderr
    );
    home.local(&["show", "org/modle:q8_0"])
        .check_error(&["nor a downloaded model", "org/model:Q8_0"]);
    // A model without its organization or file is not a name for the server.
    for command in ["show", "chat"] {
        home.local(&[command, "model"])
            .check_error(&["nor a downloaded model", "org/model:Q8_0"]);
    }
    home.local(&["show", "no/such/file.gguf"])
        .check_error(&["no/such/file.gguf"]);
}

#[test]
fn rm_deletes_one_quantization() {
    let (hub, home) = two_quantizations();
    // Without a terminal there is no question.
    let path = home.cached("snapshots").join(COMMIT);
    let file = home.local(&["rm", path.to_str().expect("UTF-8 path")]);
    assert_eq!(file.code, Some(2));
    let why = "rm deletes downloaded models only";
    assert!(file.stderr.contains(why), "{}", file.stderr);
    let unasked = home.local(&["rm", "org/model:Q8_0"]);
    assert_eq!(unasked.code, Some(2));
    assert!(unasked.stderr.contains("--yes"), "{}", unasked.stderr);
    assert_eq!(home.names().len(), 2);

    let removed = home.local(&["rm", "-y", "org/model:q8_0"]);
    assert_eq!(removed.code, Some(0), "{}", removed.stderr);
    assert!(removed.stdout.contains("KiB freed"), "{}", removed.stdout);
    assert_eq!(home.names(), ["org/model:Q4_K_M"]);
    assert_eq!(home.blobs().len(), 1);
    let left = home.cached("snapshots").join(COMMIT).join("m-Q4_K_M.gguf");
    assert_eq!(fs::read(left).expect("existing file"), golden());
    home.local(&["rm", "-y", "org/model:q8_0"])
        .check_error(&["nor a downloaded model", "org/model:Q4_K_M"]);

    // The last model is deleted with its folder. It can be downloaded again.
    home.local(&["rm", "--yes", "org/model:Q4_K_M"]);
    assert_eq!(home.files(), [""; 0].map(PathBuf::from));
    assert!(!home.cached("").exists());
    home.pull(&hub).path();
    assert_eq!(home.names(), ["org/model:Q4_K_M"]);
}

#[test]
fn rm_keeps_shared_blobs() {
    // Two names of the same contents.
    let files = [("m-Q4_K_M.gguf", golden()), ("m-Q8_0.gguf", golden())];
    let (hub, home) = (Hub::serving(Model::of(&files)), Home::new("shared"));
    home.run(&hub, &["pull", "org/model:Q4_K_M"]).path();
    let other = home.run(&hub, &["pull", "org/model:Q8_0"]).path();
    let removed = home.local(&["rm", "-y", "org/model:Q4_K_M"]);
    assert!(removed.stdout.contains(" 0 B freed"), "{}", removed.stdout);
    assert!(removed.stderr.contains("stay"), "{}", removed.stderr);
    assert_eq!(fs::read(&other).expect("existing file"), golden());

    // An older snapshot keeps its blob.
    let old = home.cached("snapshots").join("f".repeat(40));
    fs::create_dir_all(&old).expect("writable folder");
    #[cfg(unix)]
    {
        let target = fs::read_link(&other).expect("a link");
        std::os::unix::fs::symlink(target, old.join("m-Q8_0.gguf")).expect("writable folder");
        home.local(&["rm", "-y", "org/model:Q8_0"]);
        assert!(!other.exists());
        assert_eq!(
            fs::read(old.join("m-Q8_0.gguf")).expect("existing file"),
            golden()
        );
    }
    // Without a quantization, all snapshots are deleted.
    let all = home.local(&["rm", "-y", REPO]);
    assert_eq!(all.code, Some(0), "{}", all.stderr);
    assert!(!home.cached("").exists());
}

#[cfg(unix)]
#[test]
fn rm_deletes_nothing_outside_of_the_cache() {
    use std::os::unix::fs::symlink;
    let (hub, home) = two_quantizations();
    let outside = home.0.join("outside");
    fs::create_dir(&outside).expect("writable folder");
    for file in ["kept.gguf", "m-F16.gguf"] {
        fs::write(outside.join(file), golden()).expect("writable folder");
    }
    // A file and a folder of the snapshot are links to other places.
    let snapshot = home.cached("snapshots").join(COMMIT);
    symlink(outside.join("kept.gguf"), snapshot.join("m-F16.gguf")).expect("writable folder");
    symlink(&outside, snapshot.join("folder")).expect("writable folder");
    let removed = home.local(&["rm", "-y", "org/model:F16", "org/model:F16"]);
    assert_eq!(removed.code, Some(0), "{}", removed.stderr);
    assert!(!snapshot.join("m-F16.gguf").exists());
    home.local(&["rm", "-y", REPO]);
    assert!(!home.cached("").exists());
    assert_eq!(fs::read_dir(&outside).expect("a folder").count(), 2);

    // The folder of the model itself is a link.
    home.pull(&hub).path();
    let moved = home.0.join("moved");
    fs::rename(home.cached(""), &moved).expect("renamed folder");
    symlink(&moved, home.0.join("hub/models--org--model")).expect("writable folder");
    home.local(&["rm", "-y", REPO]).check_error(&["is a link"]);
    assert!(
        moved
            .join("snapshots")
            .join(COMMIT)
            .join("m-Q4_K_M.gguf")
            .exists()
    );
    home.local(&["rm", "-y", "../outside"])
        .check_error(&["nor a downloaded model"]);
}

#[test]
fn rm_deletes_interrupted_downloads() {
    let home = Home::new("interrupted");
    let etag = "0123456789abcdef".repeat(4);
    let blob = home.cached("blobs").join(format!("{etag}.incomplete"));
    let locks = home.0.join("hub/.locks/models--org--model");
    for folder in [&home.cached("blobs"), &locks] {
        fs::create_dir_all(folder).expect("writable folder");
    }
    fs::write(&blob, [0; 700_000]).expect("writable folder");

    // A download that still runs holds its lock.
    let lock = fs::File::create(locks.join(format!("{etag}.lock"))).expect("writable folder");
    lock.lock().expect("no other lock");
    let running = home.local(&["rm", "--incomplete", "-y"]);
    assert!(running.stdout.contains("0 B freed"), "{}", running.stdout);
    home.local(&["rm", "-y", REPO])
        .check_error(&["another process"]);
    assert!(blob.exists());
    drop(lock);

    let unasked = home.local(&["rm", "--incomplete"]);
    assert_eq!(unasked.code, Some(2));
    assert!(unasked.stderr.contains("--yes"), "{}", unasked.stderr);
    assert!(blob.exists());
    let removed = home.local(&["rm", "--incomplete", "--yes"]);
    assert_eq!(
        removed.stdout,
        "deleted 1 interrupted download, 683.59 KiB freed\n"
    );
    assert!(!home.cached("").exists());
    assert_eq!(home.local(&["rm"]).code, Some(2));
}
