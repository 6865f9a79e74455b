//! Tests of `tabla pull`, `-hf` and the commands for downloaded models, with a local server.

mod hub;
mod stored;

use hub::{COMMIT, Fault, Hub, Model, REPO, RecordedRequest, bytes, sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The output of a run.
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ran {
    /// Returns the printed path.
    fn path(&self) -> PathBuf {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        PathBuf::from(self.stdout.trim_end())
    }

    /// Checks that the run failed with all these texts in its error.
    fn check_error(&self, words: &[&str]) {
        assert_eq!(self.code, Some(1), "{}", self.stderr);
        assert_eq!(self.stdout, "");
        assert!(self.stderr.contains("error:"), "{}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} in {}", self.stderr);
        }
    }
}

/// A temporary `HF_HOME`.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let home = TempDir::with_prefix(format!("tabla-hub-{name}-"));
        Self(home.expect("a temporary folder").keep())
    }

    /// Returns the program with this endpoint.
    fn command(&self, endpoint: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tabla"));
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if name.starts_with("HF_") || name.to_ascii_lowercase().ends_with("_proxy") {
                command.env_remove(name);
            }
        }
        command
            .args(args)
            .env("HF_HOME", &self.0)
            .env("HF_ENDPOINT", endpoint)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, hub: &Hub, args: &[&str]) -> Ran {
        ran(&mut self.command(&hub.endpoint, args))
    }

    fn pull(&self, hub: &Hub) -> Ran {
        self.run(hub, &["pull", REPO])
    }

    /// Returns a path in the cache of the model.
    fn cached(&self, below: &str) -> PathBuf {
        self.0.join("hub/models--org--model").join(below)
    }

    /// Returns the names of all blobs, complete or partial.
    fn blobs(&self) -> Vec<String> {
        let Ok(folder) = fs::read_dir(self.cached("blobs")) else {
            return Vec::new();
        };
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        folder
            .map(|entry| name(entry.expect("folder entry")))
            .collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // A folder that cannot be removed remains in the build folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn ran(command: &mut Command) -> Ran {
    let output = command.output().expect("program starts");
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

const LENGTH: usize = 1 << 20;
const FILE: &str = "m-Q4_K_M.gguf";

/// Returns a model with one file, and the contents of the file.
fn one_file() -> (Model, Vec<u8>) {
    let content = bytes(FILE, LENGTH);
    (Model::of(&[(FILE, content.clone())]), content)
}

#[test]
fn pull_fills_the_cache_like_huggingface_hub() {
    let (mut model, content) = one_file();
    model
        .files
        .push(("m-Q8_0.gguf".to_string(), bytes("m-Q8_0.gguf", 99)));
    model
        .files
        .push(("config.json".to_string(), b"{}".to_vec()));
    let (hub, home) = (Hub::serving(model), Home::new("fresh"));
    let ran = home.pull(&hub);
    let path = ran.path();
    assert_eq!(path, home.cached("snapshots").join(COMMIT).join(FILE));
    assert_eq!(ran.stderr, format!("downloading {FILE}, 1.00 MiB\n"));
    let blob = sha256(&content);
    assert_eq!(fs::read(&path).expect("existing file"), content);
    assert_eq!(home.blobs(), std::slice::from_ref(&blob));
    let reference = fs::read_to_string(home.cached("refs/main")).expect("existing file");
    assert_eq!(reference, COMMIT);
    #[cfg(unix)]
    {
        let link = fs::read_link(&path).expect("link");
        assert_eq!(link, Path::new("../../blobs").join(blob));
    }

    // No file is requested again.
    hub.take_requests();
    let again = home.pull(&hub);
    assert_eq!(again.path(), path);
    assert_eq!(again.stderr, "");
    let requests: Vec<_> = hub
        .take_requests()
        .into_iter()
        .map(|request| (request.method, request.path))
        .collect();
    let listing = format!("/api/models/{REPO}/revision/main");
    assert_eq!(requests, [("GET".to_string(), listing)]);
}

#[test]
fn cache_folder_follows_environment_variables() {
    let (model, _) = one_file();
    let (hub, home) = (Hub::serving(model), Home::new("places"));
    let below = |set: &[(&str, &str)]| {
        let mut command = home.command(&hub.endpoint, &["pull", REPO]);
        command.env_remove("HF_HOME").env_remove("XDG_CACHE_HOME");
        command.envs(set.iter().map(|(name, folder)| (name, home.0.join(folder))));
        let path = ran(&mut command).path();
        let below = path.strip_prefix(&home.0).expect("below the home folder");
        let model = below.ancestors().nth(3).expect("in a snapshot");
        model.to_str().expect("UTF-8 name").to_string()
    };
    let (hub_cache, caches) = (("HF_HUB_CACHE", "a"), ("XDG_CACHE_HOME", "b"));
    let (hf_home, user) = (("HF_HOME", "c"), ("HOME", "d"));
    let model = "models--org--model";
    assert_eq!(below(&[hub_cache, hf_home, caches]), format!("a/{model}"));
    assert_eq!(below(&[hf_home, caches]), format!("c/hub/{model}"));
    assert_eq!(below(&[caches, user]), format!("b/huggingface/hub/{model}"));
    #[cfg(unix)]
    assert_eq!(below(&[user]), format!("d/.cache/huggingface/hub/{model}"));
}

#[test]
fn new_commit_reuses_unchanged_blobs() {
    let (model, _) = one_file();
    let (hub, home) = (Hub::serving(model), Home::new("commit"));
    // The state after a pull of an older commit.
    home.pull(&hub).path();
    let old = home.cached("snapshots").join("f".repeat(40));
    fs::rename(home.cached("snapshots").join(COMMIT), &old).expect("renamed folder");
    fs::write(home.cached("refs/main"), "f".repeat(40)).expect("written file");
    hub.take_requests();
    home.pull(&hub).path();
    assert_eq!(hub.take_downloads().len(), 0);
    assert!(old.join(FILE).exists());
}

fn ranges(requests: &[RecordedRequest]) -> Vec<Option<&str>> {
    requests
        .iter()
        .map(|request| request.range.as_deref())
        .collect()
}

#[test]
fn retries_lost_connections() {
    let (mut model, content) = one_file();
    model.faults.push_back(Fault::Cut(700_000));
    model.faults.push_back(Fault::Cut(100_000));
    let (hub, home) = (Hub::serving(model), Home::new("cut"));
    let path = home.pull(&hub).path();
    assert_eq!(fs::read(path).expect("existing file"), content);
    let expected = [None, Some("bytes=700000-"), Some("bytes=800000-")];
    assert_eq!(ranges(&hub.take_downloads()), expected);
}

#[test]
fn resumes_partial_downloads() {
    let (mut model, content) = one_file();
    model.faults.push_back(Fault::Cut(700_000));
    model.faults.extend([Fault::Cut(0); 4]);
    let (hub, home) = (Hub::serving(model), Home::new("gives-up"));
    home.pull(&hub).check_error(&[
        "683.59 KiB of 1.00 MiB",
        FILE,
        "repeat the command to resume",
    ]);
    assert!(!home.cached("refs/main").exists());
    hub.take_requests();
    let resumed = home.pull(&hub);
    let path = resumed.path();
    let message = format!("downloading {FILE}, 1.00 MiB, resuming at 683.59 KiB\n");
    assert_eq!(resumed.stderr, message);
    assert_eq!(fs::read(path).expect("existing file"), content);
    assert_eq!(ranges(&hub.take_downloads()), [Some("bytes=700000-")]);
    assert_eq!(home.blobs(), [sha256(&content)]);
}

#[test]
fn restarts_without_range_support() {
    let (mut model, content) = one_file();
    model.faults.extend([Fault::Cut(1000), Fault::Whole]);
    let (hub, home) = (Hub::serving(model), Home::new("whole"));
    let path = home.pull(&hub).path();
    assert_eq!(fs::read(path).expect("existing file"), content);
}

/// Uses SIGTERM: shells that start programs in the background make them ignore SIGINT.
#[cfg(unix)]
#[test]
fn keeps_partial_downloads_after_sigterm() {
    let (mut model, content) = one_file();
    model.faults.push_back(Fault::Stall(600_000));
    let (hub, home) = (Hub::serving(model), Home::new("terminated"));
    let mut child = home
        .command(&hub.endpoint, &["pull", REPO])
        .spawn()
        .expect("program starts");
    let partial = home
        .cached("blobs")
        .join(format!("{}.incomplete", sha256(&content)));
    let start = Instant::now();
    while fs::metadata(&partial).map_or(0, |m| m.len()) < 600_000 {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "no bytes within a minute"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = child.id().to_string();
    let killed = Command::new("kill")
        .args(["-TERM", &pid])
        .status()
        .expect("program starts");
    assert!(killed.success());
    assert!(!child.wait().expect("program exits").success());
    hub.take_requests();
    let path = home.pull(&hub).path();
    assert_eq!(fs::read(path).expect("existing file"), content);
    assert_eq!(ranges(&hub.take_downloads()), [Some("bytes=600000-")]);
}

#[test]
fn concurrent_pulls_download_once() {
    let (mut model, content) = one_file();
    model
        .faults
        .push_back(Fault::Late(Duration::from_millis(500)));
    let (hub, home) = (Hub::serving(model), Home::new("twice"));
    let start = || {
        home.command(&hub.endpoint, &["pull", REPO])
            .spawn()
            .expect("program starts")
    };
    let both = [start(), start(), start()];
    for child in both {
        let output = child.wait_with_output().expect("program exits");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let path = String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_string();
        assert_eq!(fs::read(path).expect("existing file"), content);
    }
    assert_eq!(hub.take_downloads().len(), 1);
}

#[test]
fn removes_corrupt_downloads() {
    let (mut model, content) = one_file();
    model.faults.push_back(Fault::Wrong);
    let (hub, home) = (Hub::serving(model), Home::new("damaged"));
    home.pull(&hub)
        .check_error(&[FILE, "corrupt", "removed", &sha256(&content)]);
    assert_eq!(home.blobs(), [""; 0]);
    assert!(!home.cached("refs").exists());
    assert!(!home.cached("snapshots").exists());

    // Corrupt partial files are detected too.
    let partial = home
        .cached("blobs")
        .join(format!("{}.incomplete", sha256(&content)));
    fs::write(&partial, bytes("other", 1000)).expect("written file");
    home.pull(&hub).check_error(&["corrupt"]);
    fs::write(&partial, vec![0; LENGTH + 1]).expect("written file");
    assert_eq!(
        fs::read(home.pull(&hub).path()).expect("existing file"),
        content
    );
}

#[test]
fn checks_free_space_and_size() {
    let (mut model, content) = one_file();
    model.size = Some(u64::MAX / 2);
    let (hub, home) = (Hub::serving(model), Home::new("sizes"));
    home.pull(&hub)
        .check_error(&[FILE, "needs 8.00 EiB", "are free"]);
    assert_eq!(hub.take_downloads().len(), 0);
    hub.model().size = Some(LENGTH as u64 - 1);
    home.pull(&hub)
        .check_error(&["server sent more than 1048575 bytes"]);
    hub.model().size = None;
    let path = home.pull(&hub).path();
    assert_eq!(fs::read(path).expect("existing file"), content);
}

#[test]
fn offline_uses_the_cache() {
    let (mut model, content) = one_file();
    model
        .files
        .push(("m-Q8_0.gguf".to_string(), bytes("m-Q8_0.gguf", 99)));
    let (hub, home) = (Hub::serving(model), Home::new("offline"));
    let offline = |what: &str| home.run(&hub, &["pull", what, "--offline"]);
    offline(REPO).check_error(&[REPO, "offline", "has no snapshot of it"]);
    let path = home.pull(&hub).path();
    hub.take_requests();
    assert_eq!(offline(REPO).path(), path);
    assert_eq!(offline("org/model:q4_k_m").path(), path);
    offline("org/model:Q8_0").check_error(&["offline", "no file or quantization \"Q8_0\"", FILE]);
    offline("org/other").check_error(&["org/other", "offline"]);
    let by_env = ran(home
        .command(&hub.endpoint, &["pull", REPO])
        .env("HF_HUB_OFFLINE", "1"));
    assert_eq!(by_env.path(), path);
    assert_eq!(hub.take_requests().len(), 0);

    // An unreachable server has the same effect.
    let unreachable = "http://127.0.0.1:1";
    let alone = ran(&mut home.command(unreachable, &["pull", REPO]));
    assert_eq!(alone.path(), path);
    assert!(
        alone.stderr.contains("using the cached"),
        "{}",
        alone.stderr
    );
    let missed = ran(&mut home.command(unreachable, &["pull", "org/other"]));
    missed.check_error(&["cannot reach 127.0.0.1"]);
    hub.model().error = Some((503, String::new(), "Down.".to_string()));
    assert_eq!(home.pull(&hub).path(), path);
    assert_eq!(fs::read(path).expect("existing file"), content);
}

#[test]
fn errors_tell_how_to_fix_them() {
    let (model, _) = one_file();
    let (hub, home) = (Hub::serving(model), Home::new("refusals"));
    let unknown = home.run(&hub, &["pull", "org/unknown"]);
    unknown.check_error(&["has no model org/unknown", "private", "HF_TOKEN"]);
    hub.model().gate = Some("secret".to_string());
    let terms = format!("{}/{REPO}", hub.endpoint);
    home.pull(&hub)
        .check_error(&["is gated", "accept its terms", &terms, "HF_TOKEN"]);
    let with_token = |token| {
        ran(home
            .command(&hub.endpoint, &["pull", REPO])
            .env("HF_TOKEN", token))
    };
    with_token("other").check_error(&["is gated", "no access", &terms]);
    with_token("no\u{7f}token").check_error(&["HF_TOKEN", "invalid token"]);
    with_token("secret").path();
    for (status, words) in [
        (401, "rejected your token"),
        (429, "too many requests"),
        (403, "returned status 403"),
        (500, "returned status 500"),
    ] {
        hub.model().error = Some((status, String::new(), "Its own words.".to_string()));
        let fresh = Home::new("status");
        let failed = ran(fresh
            .command(&hub.endpoint, &["pull", REPO])
            .env("HF_TOKEN", "secret"));
        failed.check_error(&[words]);
    }
    for invalid in ["ftp://host", "host", "http://"] {
        let failed = ran(&mut home.command(invalid, &["pull", REPO]));
        failed.check_error(&["HF_ENDPOINT", invalid]);
    }
    for invalid in ["model", "org/model:", "../model", "a/b/c"] {
        let usage = home.run(&hub, &["pull", invalid]);
        assert_eq!(usage.code, Some(2), "{invalid}");
        assert!(usage.stderr.contains("ORG/REPO"), "{}", usage.stderr);
    }
}

#[test]
fn sends_the_token_to_the_endpoint_only() {
    let (mut model, _) = one_file();
    model.gate = Some("secret".to_string());
    model
        .files
        .push(("config.json".to_string(), b"{}".to_vec()));
    let hub = Hub::serving(model);
    let (by_env, by_file) = (Home::new("token"), Home::new("token-file"));
    ran(by_env
        .command(&hub.endpoint, &["pull", REPO])
        .env("HF_TOKEN", "secret"))
    .path();
    fs::write(by_file.0.join("token"), "secret\n").expect("written file");
    by_file.pull(&hub).path();
    by_file.run(&hub, &["pull", "org/model:config.json"]).path();
    for request in hub.take_requests() {
        let expected = (!request.redirected).then_some("Bearer secret");
        assert_eq!(request.authorization.as_deref(), expected, "{request:?}");
    }
}

#[test]
fn selects_a_file_or_a_quantization() {
    let names = ["m-Q8_0.gguf", "sub dir/m-IQ2_XS.gguf", "notes.json"];
    let files = names.map(|name| (name, bytes(name, 1000)));
    let (hub, home) = (Hub::serving(Model::of(&files)), Home::new("named"));
    let snapshot = home.cached("snapshots").join(COMMIT);
    let pull = |pick: &str| home.run(&hub, &["pull", &format!("{REPO}:{pick}")]);
    assert_eq!(pull("notes.json").path(), snapshot.join("notes.json"));
    assert_eq!(home.blobs().len(), 1);
    assert_eq!(pull("q8_0").path(), snapshot.join("m-Q8_0.gguf"));
    pull("Q8").check_error(&[
        "has no file or quantization \"Q8\"",
        "m-Q8_0.gguf",
        "m-IQ2_XS.gguf",
    ]);
}

#[test]
fn downloads_all_parts_of_a_split_file() {
    let names = ["s-Q8_0-00001-of-00002.gguf", "s-Q8_0-00002-of-00002.gguf"];
    let files = names.map(|name| (name, bytes(name, 1000)));
    let (hub, home) = (Hub::serving(Model::of(&files)), Home::new("split"));
    let first = home.run(&hub, &["pull", "org/model:q8_0"]).path();
    assert_eq!(first.file_name().expect("file name"), names[0]);
    for (name, content) in files {
        assert_eq!(
            fs::read(first.with_file_name(name)).expect("existing file"),
            content
        );
    }
    hub.model().files.pop();
    home.pull(&hub)
        .check_error(&[REPO, "has no s-Q8_0-00002-of-00002.gguf"]);
}

#[test]
fn downloads_safetensors_with_their_shards() {
    let index = r#"{"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}"#;
    let files = [
        ("a.safetensors", bytes("a", 5000)),
        ("b.safetensors", bytes("b", 7000)),
        ("other.safetensors", bytes("other", 10)),
        ("model.safetensors.index.json", index.as_bytes().to_vec()),
        ("config.json", b"{}".to_vec()),
        ("tokenizer.json", b"{ }".to_vec()),
        ("training_args.json", b"[]".to_vec()),
    ];
    let (hub, home) = (Hub::serving(Model::of(&files)), Home::new("safetensors"));
    let folder = home.pull(&hub).path();
    assert_eq!(folder, home.cached("snapshots").join(COMMIT));
    for (name, content) in &files {
        let expected = !["other.safetensors", "training_args.json"].contains(name);
        let there = fs::read(folder.join(name)).ok();
        assert_eq!(there.as_ref(), expected.then_some(content), "{name}");
    }
    assert_eq!(home.run(&hub, &["pull", REPO, "--offline"]).path(), folder);
    fs::remove_file(folder.join("b.safetensors")).expect("existing file");
    let less = home.run(&hub, &["pull", REPO, "--offline"]);
    less.check_error(&[
        "model.safetensors.index.json",
        "b.safetensors",
        "does not exist",
    ]);
    home.run(&hub, &["pull", "org/model:Q8_0"])
        .check_error(&["no file or quantization"]);
    hub.model().files.drain(..4);
    home.pull(&hub)
        .check_error(&["neither GGUF files nor model.safetensors"]);
}

#[test]
fn rejects_unsafe_names() {
    let (model, _) = one_file();
    let (hub, home) = (Hub::serving(model), Home::new("hostile"));
    for name in [
        "../x.gguf",
        "/x.gguf",
        "a/../../x.gguf",
        "a\\x.gguf",
        "C:x.gguf",
        "x\0.gguf",
        "",
    ] {
        hub.model().listed = vec![name.to_string()];
        home.pull(&hub).check_error(&[REPO, "unsafe file name"]);
    }
    hub.model().listed.clear();
    for etag in ["../../../x", "/x", "..", "a/b", "x.incomplete", ""] {
        hub.model().etag = Some(etag.to_string());
        home.pull(&hub).check_error(&["no valid etag", FILE]);
    }
    for commit in ["../../x", "main", ""] {
        hub.model().commit = commit.to_string();
        home.pull(&hub)
            .check_error(&["sent an invalid listing of org/model"]);
    }
    assert_eq!(home.blobs(), [""; 0]);
    let left: Vec<_> = fs::read_dir(&home.0).expect("existing file").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn commands_accept_hub_models() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/llama.gguf");
    let golden = golden.to_str().expect("UTF-8 path");
    let content = fs::read(golden).expect("golden file");
    let hub = Hub::serving(Model::of(&[("m-Q8_0.gguf", content)]));
    let home = Home::new("hf");
    let text = ["tokenize", "-hf", "org/model:q8_0", "a b"];
    let first = home.run(&hub, &text);
    let local = home.run(&hub, &["tokenize", "-m", golden, "a b"]);
    assert_eq!(
        (first.code, &first.stdout),
        (Some(0), &local.stdout),
        "{}",
        first.stderr
    );
    let quiet = [
        "--hf-repo",
        REPO,
        "-q",
        "-n",
        "2",
        "-p",
        "a",
        "--device",
        "cpu",
        "--offline",
    ];
    let quiet = home.run(&hub, &quiet);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));
    // By position, a path that exists is preferred.
    let chat = |model: &str| {
        let options = ["-q", "-n", "2", "-p", "a", "--device", "cpu", "--offline"];
        let mut args = vec!["chat", model, "--chat-template", "chatml"];
        args.extend(options);
        let mut command = home.command(&hub.endpoint, &args);
        ran(command.current_dir(&home.0))
    };
    let named = chat("org/model:q8_0");
    assert_eq!((named.code, named.stderr.as_str()), (Some(0), ""));
    assert!(!named.stdout.is_empty());
    fs::create_dir_all(home.0.join("org/model")).expect("writable folder");
    chat("org/model").check_error(&["org/model: a directory without a model"]);
    let inspect = home.run(&hub, &["inspect", "-hf", REPO]);
    assert_eq!(inspect.code, Some(0), "{}", inspect.stderr);
    let both = home.run(&hub, &["inspect", golden, "-hf", REPO]);
    assert_eq!(both.code, Some(2), "{}", both.stderr);
}
