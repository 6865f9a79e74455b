//! `tabla pull` and `-hf` as a user meets them, against a server of the test.

mod hub;

use hub::{COMMIT, Fault, Hub, Model, REPO, Seen, bytes, sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a run left behind.
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ran {
    /// The path that was printed.
    fn path(&self) -> PathBuf {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        PathBuf::from(self.stdout.trim_end())
    }

    /// Fails unless the run did, with all these words.
    fn refuses(&self, words: &[&str]) {
        assert_eq!(self.code, Some(1), "{}", self.stderr);
        assert_eq!(self.stdout, "");
        assert!(self.stderr.contains("error:"), "{}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} in {}", self.stderr);
        }
    }
}

/// A user's `HF_HOME`, removed at the end.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let home = folder.join(format!("hub-{}-{name}", std::process::id()));
        fs::create_dir_all(&home).expect("the scratch folder takes folders");
        Self(home)
    }

    /// The program, which asks this server.
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

    /// A path in the cache of the one model.
    fn cached(&self, below: &str) -> PathBuf {
        self.0.join("hub/models--org--model").join(below)
    }

    /// The names of the blobs, whole or not.
    fn blobs(&self) -> Vec<String> {
        let Ok(folder) = fs::read_dir(self.cached("blobs")) else {
            return Vec::new();
        };
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        folder
            .map(|entry| name(entry.expect("it is listed")))
            .collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // What is left over lies in the build's own folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn ran(command: &mut Command) -> Ran {
    let output = command.output().expect("it runs");
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

const LENGTH: usize = 1 << 20;
const FILE: &str = "m-Q4_K_M.gguf";

/// A model of one file, and that file's bytes.
fn one_file() -> (Model, Vec<u8>) {
    let content = bytes(FILE, LENGTH);
    (Model::of(&[(FILE, content.clone())]), content)
}

#[test]
fn a_pull_fills_the_cache_as_python_does() {
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
    assert_eq!(ran.stderr, format!("fetching {FILE}, 1.00 MiB\n"));
    let blob = sha256(&content);
    assert_eq!(fs::read(&path).expect("it is there"), content);
    assert_eq!(home.blobs(), std::slice::from_ref(&blob));
    let reference = fs::read_to_string(home.cached("refs/main")).expect("it is there");
    assert_eq!(reference, COMMIT);
    #[cfg(unix)]
    {
        let link = fs::read_link(&path).expect("it is a link");
        assert_eq!(link, Path::new("../../blobs").join(blob));
    }

    // Nothing of a file is asked for again.
    hub.seen();
    let again = home.pull(&hub);
    assert_eq!(again.path(), path);
    assert_eq!(again.stderr, "");
    let seen: Vec<_> = hub
        .seen()
        .into_iter()
        .map(|seen| (seen.method, seen.path))
        .collect();
    let listing = format!("/api/models/{REPO}/revision/main");
    assert_eq!(seen, [("GET".to_string(), listing)]);
}

#[test]
fn the_cache_is_where_python_looks() {
    let (model, _) = one_file();
    let (hub, home) = (Hub::serving(model), Home::new("places"));
    let below = |set: &[(&str, &str)]| {
        let mut command = home.command(&hub.endpoint, &["pull", REPO]);
        command.env_remove("HF_HOME").env_remove("XDG_CACHE_HOME");
        command.envs(set.iter().map(|(name, folder)| (name, home.0.join(folder))));
        let path = ran(&mut command).path();
        let below = path.strip_prefix(&home.0).expect("it is below the home");
        let model = below.ancestors().nth(3).expect("it is in a snapshot");
        model.to_str().expect("it has a plain name").to_string()
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
fn a_new_commit_shares_the_bytes_that_stayed() {
    let (model, _) = one_file();
    let (hub, home) = (Hub::serving(model), Home::new("commit"));
    // As an older pull left it.
    home.pull(&hub).path();
    let old = home.cached("snapshots").join("f".repeat(40));
    fs::rename(home.cached("snapshots").join(COMMIT), &old).expect("it moves");
    fs::write(home.cached("refs/main"), "f".repeat(40)).expect("it is written");
    hub.seen();
    home.pull(&hub).path();
    assert_eq!(hub.fetched().len(), 0);
    assert!(old.join(FILE).exists());
}

fn ranges(seen: &[Seen]) -> Vec<Option<&str>> {
    seen.iter().map(|seen| seen.range.as_deref()).collect()
}

#[test]
fn a_broken_connection_is_made_anew() {
    let (mut model, content) = one_file();
    model.faults.push_back(Fault::Cut(700_000));
    model.faults.push_back(Fault::Cut(100_000));
    let (hub, home) = (Hub::serving(model), Home::new("cut"));
    let path = home.pull(&hub).path();
    assert_eq!(fs::read(path).expect("it is there"), content);
    let expected = [None, Some("bytes=700000-"), Some("bytes=800000-")];
    assert_eq!(ranges(&hub.fetched()), expected);
}

#[test]
fn a_pull_goes_on_where_the_last_one_gave_up() {
    let (mut model, content) = one_file();
    model.faults.push_back(Fault::Cut(700_000));
    model.faults.extend([Fault::Cut(0); 4]);
    let (hub, home) = (Hub::serving(model), Home::new("gives-up"));
    home.pull(&hub)
        .refuses(&["683.59 KiB of 1.00 MiB", FILE, "goes on from there"]);
    assert!(!home.cached("refs/main").exists());
    hub.seen();
    let resumed = home.pull(&hub);
    let path = resumed.path();
    let said = format!("fetching {FILE}, 1.00 MiB, of which 683.59 KiB are there\n");
    assert_eq!(resumed.stderr, said);
    assert_eq!(fs::read(path).expect("it is there"), content);
    assert_eq!(ranges(&hub.fetched()), [Some("bytes=700000-")]);
    assert_eq!(home.blobs(), [sha256(&content)]);
}

#[test]
fn a_server_without_ranges_is_read_from_the_start() {
    let (mut model, content) = one_file();
    model.faults.extend([Fault::Cut(1000), Fault::Whole]);
    let (hub, home) = (Hub::serving(model), Home::new("whole"));
    let path = home.pull(&hub).path();
    assert_eq!(fs::read(path).expect("it is there"), content);
}

/// An end from outside, by a signal that shells leave alone where they start programs in the
/// background: an interrupt would be ignored there.
#[cfg(unix)]
#[test]
fn a_termination_leaves_what_is_there() {
    let (mut model, content) = one_file();
    model.faults.push_back(Fault::Stall(600_000));
    let (hub, home) = (Hub::serving(model), Home::new("terminated"));
    let mut child = home
        .command(&hub.endpoint, &["pull", REPO])
        .spawn()
        .expect("it starts");
    let partial = home
        .cached("blobs")
        .join(format!("{}.incomplete", sha256(&content)));
    let start = Instant::now();
    while fs::metadata(&partial).map_or(0, |m| m.len()) < 600_000 {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing comes");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = child.id().to_string();
    let killed = Command::new("kill")
        .args(["-TERM", &pid])
        .status()
        .expect("it runs");
    assert!(killed.success());
    assert!(!child.wait().expect("it ends").success());
    hub.seen();
    let path = home.pull(&hub).path();
    assert_eq!(fs::read(path).expect("it is there"), content);
    assert_eq!(ranges(&hub.fetched()), [Some("bytes=600000-")]);
}

#[test]
fn two_at_once_fetch_once() {
    let (mut model, content) = one_file();
    model
        .faults
        .push_back(Fault::Late(Duration::from_millis(500)));
    let (hub, home) = (Hub::serving(model), Home::new("twice"));
    let start = || {
        home.command(&hub.endpoint, &["pull", REPO])
            .spawn()
            .expect("it starts")
    };
    let both = [start(), start(), start()];
    for child in both {
        let output = child.wait_with_output().expect("it ends");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let path = String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_string();
        assert_eq!(fs::read(path).expect("it is there"), content);
    }
    assert_eq!(hub.fetched().len(), 1);
}

#[test]
fn damaged_bytes_are_refused_and_removed() {
    let (mut model, content) = one_file();
    model.faults.push_back(Fault::Wrong);
    let (hub, home) = (Hub::serving(model), Home::new("damaged"));
    home.pull(&hub)
        .refuses(&[FILE, "damaged", "removed", &sha256(&content)]);
    assert_eq!(home.blobs(), [""; 0]);
    assert!(!home.cached("refs").exists());
    assert!(!home.cached("snapshots").exists());

    // What somebody else left half-way is believed no more than the server is.
    let partial = home
        .cached("blobs")
        .join(format!("{}.incomplete", sha256(&content)));
    fs::write(&partial, bytes("other", 1000)).expect("it is written");
    home.pull(&hub).refuses(&["damaged"]);
    fs::write(&partial, vec![0; LENGTH + 1]).expect("it is written");
    assert_eq!(
        fs::read(home.pull(&hub).path()).expect("it is there"),
        content
    );
}

#[test]
fn sizes_are_promises() {
    let (mut model, content) = one_file();
    model.size = Some(u64::MAX / 2);
    let (hub, home) = (Hub::serving(model), Home::new("sizes"));
    home.pull(&hub)
        .refuses(&[FILE, "needs 8.00 EiB more", "are free"]);
    assert_eq!(hub.fetched().len(), 0);
    hub.model().size = Some(LENGTH as u64 - 1);
    home.pull(&hub)
        .refuses(&["more came than the 1048575 bytes"]);
    hub.model().size = None;
    let path = home.pull(&hub).path();
    assert_eq!(fs::read(path).expect("it is there"), content);
}

#[test]
fn offline_takes_what_is_cached() {
    let (mut model, content) = one_file();
    model
        .files
        .push(("m-Q8_0.gguf".to_string(), bytes("m-Q8_0.gguf", 99)));
    let (hub, home) = (Hub::serving(model), Home::new("offline"));
    let offline = |what: &str| home.run(&hub, &["pull", what, "--offline"]);
    offline(REPO).refuses(&[REPO, "offline", "does not hold it"]);
    let path = home.pull(&hub).path();
    hub.seen();
    assert_eq!(offline(REPO).path(), path);
    assert_eq!(offline("org/model:q4_k_m").path(), path);
    offline("org/model:Q8_0").refuses(&["offline", "no file or quantisation \"Q8_0\"", FILE]);
    offline("org/other").refuses(&["org/other", "offline"]);
    let by_env = ran(home
        .command(&hub.endpoint, &["pull", REPO])
        .env("HF_HUB_OFFLINE", "1"));
    assert_eq!(by_env.path(), path);
    assert_eq!(hub.seen().len(), 0);

    // A server that does not answer is as good as none.
    let nobody = "http://127.0.0.1:1";
    let alone = ran(&mut home.command(nobody, &["pull", REPO]));
    assert_eq!(alone.path(), path);
    assert!(alone.stderr.contains("does not answer"), "{}", alone.stderr);
    let missed = ran(&mut home.command(nobody, &["pull", "org/other"]));
    missed.refuses(&["cannot reach 127.0.0.1"]);
    hub.model().refusal = Some((503, String::new(), "Down.".to_string()));
    assert_eq!(home.pull(&hub).path(), path);
    assert_eq!(fs::read(path).expect("it is there"), content);
}

#[test]
fn refusals_say_what_to_do() {
    let (model, _) = one_file();
    let (hub, home) = (Hub::serving(model), Home::new("refusals"));
    let unknown = home.run(&hub, &["pull", "org/unknown"]);
    unknown.refuses(&["has no model org/unknown", "private", "HF_TOKEN"]);
    hub.model().gate = Some("secret".to_string());
    let terms = format!("{}/{REPO}", hub.endpoint);
    home.pull(&hub)
        .refuses(&["is gated", "agree to its terms", &terms, "HF_TOKEN"]);
    let with_token = |token| {
        ran(home
            .command(&hub.endpoint, &["pull", REPO])
            .env("HF_TOKEN", token))
    };
    with_token("other").refuses(&["is gated", "no access", &terms]);
    with_token("no\u{7f}token").refuses(&["HF_TOKEN", "letters that no token has"]);
    with_token("secret").path();
    for (status, words) in [
        (401, "does not accept your token"),
        (429, "wait some minutes"),
        (403, "answers 403"),
        (500, "answers 500"),
    ] {
        hub.model().refusal = Some((status, String::new(), "Its own words.".to_string()));
        let fresh = Home::new("refused");
        let refused = ran(fresh
            .command(&hub.endpoint, &["pull", REPO])
            .env("HF_TOKEN", "secret"));
        refused.refuses(&[words]);
    }
    for bad in ["ftp://host", "host", "http://"] {
        let refused = ran(&mut home.command(bad, &["pull", REPO]));
        refused.refuses(&["HF_ENDPOINT", bad]);
    }
    for bad in ["model", "org/model:", "../model", "a/b/c"] {
        let usage = home.run(&hub, &["pull", bad]);
        assert_eq!(usage.code, Some(2), "{bad}");
        assert!(usage.stderr.contains("ORG/REPO"), "{}", usage.stderr);
    }
}

#[test]
fn the_token_stays_with_the_endpoint() {
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
    fs::write(by_file.0.join("token"), "secret\n").expect("it is written");
    by_file.pull(&hub).path();
    by_file.run(&hub, &["pull", "org/model:config.json"]).path();
    for seen in hub.seen() {
        let expected = (!seen.elsewhere).then_some("Bearer secret");
        assert_eq!(seen.authorization.as_deref(), expected, "{seen:?}");
    }
}

#[test]
fn a_file_or_a_quantisation_can_be_named() {
    let names = ["m-Q8_0.gguf", "sub dir/m-IQ2_XS.gguf", "notes.json"];
    let files = names.map(|name| (name, bytes(name, 1000)));
    let (hub, home) = (Hub::serving(Model::of(&files)), Home::new("named"));
    let snapshot = home.cached("snapshots").join(COMMIT);
    let pull = |pick: &str| home.run(&hub, &["pull", &format!("{REPO}:{pick}")]);
    assert_eq!(pull("notes.json").path(), snapshot.join("notes.json"));
    assert_eq!(home.blobs().len(), 1);
    assert_eq!(pull("q8_0").path(), snapshot.join("m-Q8_0.gguf"));
    pull("Q8").refuses(&[
        "has no file or quantisation \"Q8\"",
        "m-Q8_0.gguf",
        "m-IQ2_XS.gguf",
    ]);
}

#[test]
fn a_split_file_comes_whole() {
    let names = ["s-Q8_0-00001-of-00002.gguf", "s-Q8_0-00002-of-00002.gguf"];
    let files = names.map(|name| (name, bytes(name, 1000)));
    let (hub, home) = (Hub::serving(Model::of(&files)), Home::new("split"));
    let first = home.run(&hub, &["pull", "org/model:q8_0"]).path();
    assert_eq!(first.file_name().expect("it has a name"), names[0]);
    for (name, content) in files {
        assert_eq!(
            fs::read(first.with_file_name(name)).expect("it is there"),
            content
        );
    }
    hub.model().files.pop();
    home.pull(&hub)
        .refuses(&[REPO, "has no s-Q8_0-00002-of-00002.gguf"]);
}

#[test]
fn safetensors_come_with_their_shards() {
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
    fs::remove_file(folder.join("b.safetensors")).expect("it is there");
    let less = home.run(&hub, &["pull", REPO, "--offline"]);
    less.refuses(&["model.safetensors.index.json", "b.safetensors", "not there"]);
    home.run(&hub, &["pull", "org/model:Q8_0"])
        .refuses(&["no file or quantisation"]);
    hub.model().files.drain(..4);
    home.pull(&hub)
        .refuses(&["neither GGUF files nor model.safetensors"]);
}

#[test]
fn names_lead_out_of_no_folder() {
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
        home.pull(&hub).refuses(&[REPO, "would leave its folder"]);
    }
    hub.model().listed.clear();
    for etag in ["../../../x", "/x", "..", "a/b", "x.incomplete", ""] {
        hub.model().etag = Some(etag.to_string());
        home.pull(&hub).refuses(&["no etag", FILE]);
    }
    for commit in ["../../x", "main", ""] {
        hub.model().commit = commit.to_string();
        home.pull(&hub).refuses(&["sent no listing of org/model"]);
    }
    assert_eq!(home.blobs(), [""; 0]);
    let left: Vec<_> = fs::read_dir(&home.0).expect("it is there").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn commands_take_a_model_of_the_hub() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/llama.gguf");
    let golden = golden.to_str().expect("the tree has a plain name");
    let content = fs::read(golden).expect("it is in the tree");
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
    let inspect = home.run(&hub, &["inspect", "-hf", REPO]);
    assert_eq!(inspect.code, Some(0), "{}", inspect.stderr);
    let both = home.run(&hub, &["inspect", golden, "-hf", REPO]);
    assert_eq!(both.code, Some(2), "{}", both.stderr);
}
