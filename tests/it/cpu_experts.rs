//! Models on a GPU whose experts are computed on the CPU, compared with the CPU alone.

use crate::common::{golden, greedy, has_gpu, picks, session, worst};
use crate::temp_folder::Folder;
use std::ops::ControlFlow;
use std::path::PathBuf;
use tabla::device::{Precision, Replay};
use tabla::load::{CpuExperts, DeviceChoice, LoadOptions};
use tabla::op::list::Op;
use tabla::op::table::{Place, Table};
use tabla::{HookSpec, Model, Session, Source};

/// Maximum difference of a logit, as between a GPU and the CPU.
const TOLERANCE: f32 = 1e-4;

/// One checkpoint for each kind of experts and layers: without and with shared experts, with biases, with a
/// first layer without experts, with recurrent layers, with a factor of the residual stream, and without
/// gates and with a narrower input.
const CHECKPOINTS: [&str; 7] = [
    "qwen3moe",
    "mixtral",
    "gpt_oss",
    "deepseek_v3",
    "qwen3_5_moe",
    "granite_hybrid_moe",
    "nemotron_h_latent",
];

fn checkpoint(name: &str) -> PathBuf {
    golden("arch").join(name).join("model.gguf")
}

fn source(name: &str) -> Source {
    Source::Path(checkpoint(name))
}

fn cpu() -> LoadOptions {
    LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .precision(Precision::Exact)
        .threads(1)
        .max_context(96)
        .chunk_tokens(32)
        .samplers(Vec::new())
}

fn gpu(experts: CpuExperts) -> LoadOptions {
    cpu().device(DeviceChoice::Gpu).cpu_experts(experts)
}

fn load(name: &str, options: &LoadOptions) -> Model {
    let model = Model::builder(source(name)).options(options.clone()).load();
    model.expect("the model loads")
}

fn tokens(session: &Session, count: u32) -> Vec<u32> {
    let vocab = session.facts().vocab;
    (0..count).map(|i| (3 + i * 7) % vocab).collect()
}

/// Logits of every row of a prompt, and of decoding its last tokens one by one.
fn logits(session: &mut Session, prompt: &[u32]) -> Vec<Vec<f32>> {
    let vocab = session.facts().vocab as usize;
    let mut all = vec![0.0; prompt.len() * vocab];
    session.reset();
    session.prefill(prompt).expect("the tokens fit");
    session.logits_all(&mut all).expect("logits");
    let mut rows: Vec<Vec<f32>> = all.chunks(vocab).map(<[f32]>::to_vec).collect();
    session.truncate(prompt.len() - 4);
    for &token in &prompt[prompt.len() - 4..] {
        session.force(token).expect("a token of the vocabulary");
        let mut row = vec![0.0; vocab];
        session.logits(&mut row).expect("logits");
        rows.push(row);
    }
    rows
}

fn check_near(what: &str, found: &[Vec<f32>], expected: &[Vec<f32>]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (row, (found, expected)) in found.iter().zip(expected).enumerate() {
        let (token, difference) = worst(found, expected);
        assert!(
            difference <= TOLERANCE,
            "{what}: {difference} in row {row}, token {token}"
        );
    }
}

/// Compares logits and greedy tokens with those of the CPU alone.
fn check(name: &str, options: &LoadOptions) {
    let mut expected = session(&checkpoint(name), &cpu());
    let mut found = session(&checkpoint(name), options);
    let what = format!("{name}, {:?}, {:?}", options.cpu_experts, options.replay);
    assert!(
        found.facts().device.contains("experts of the first"),
        "{what}: {}",
        found.facts().device
    );
    // More than a chunk.
    let prompt = tokens(&expected, 41);
    let all = logits(&mut expected, &prompt);
    check_near(&what, &logits(&mut found, &prompt), &all);
    let [expected, found] =
        [&mut expected, &mut found].map(|s| picks(s, &prompt[..9], &greedy(12)));
    assert_eq!(found, expected, "{what}");
}

#[test]
fn experts_of_all_layers_on_the_cpu() {
    if has_gpu() {
        for name in CHECKPOINTS {
            check(name, &gpu(CpuExperts::All));
        }
    }
}

#[test]
fn experts_of_the_first_layers_on_the_cpu() {
    if has_gpu() {
        check("gpt_oss", &gpu(CpuExperts::First(1)));
        // The first layer has no experts.
        check("deepseek_v3", &gpu(CpuExperts::First(2)));
    }
}

#[test]
fn experts_on_the_cpu_with_encoded_replay() {
    if has_gpu() {
        check("qwen3moe", &gpu(CpuExperts::All).replay(Replay::Encoded));
    }
}

/// Returns the layers with commands on the host, and checks that only experts are there.
fn host_layers(table: &Table) -> Vec<usize> {
    let on_host = |at: &usize| table.cmds[*at].place == Place::Host;
    let mut layers: Vec<usize> = (0..table.cmds.len())
        .filter(on_host)
        .map(|at| table.layer_of(at).expect("in a layer"))
        .collect();
    layers.dedup();
    layers
}

#[test]
fn transfers_are_commands_of_the_table() {
    if !has_gpu() {
        return;
    }
    let compile = |name: &str, experts| {
        let options = gpu(experts).sequences(2);
        tabla::tools::compile(&source(name), &options).expect("it compiles")
    };
    for table in compile("qwen3moe", CpuExperts::All) {
        let layers: Vec<usize> = (0..table.layers.len()).collect();
        assert_eq!(host_layers(&table), layers, "{}", table.name);
        // To the host: the input, ids and weights; to the device: the sum.
        let transfers = |place| {
            let cmds = table.cmds.iter();
            let cmds = cmds.filter(|cmd| cmd.kernel.op == Op::Transfer && cmd.place == place);
            cmds.count()
        };
        let counts = [Place::Host, Place::Device].map(transfers);
        assert_eq!(counts, [3 * layers.len(), layers.len()], "{}", table.name);
    }
    let lists = |tables: &[Table]| tables.iter().map(host_layers).collect::<Vec<_>>();
    for (name, experts, expected) in [
        ("qwen3moe", CpuExperts::First(1), vec![0]),
        ("deepseek_v3", CpuExperts::First(1), vec![]),
        ("deepseek_v3", CpuExperts::First(2), vec![1]),
        ("qwen3moe", CpuExperts::Off, vec![]),
        ("llama", CpuExperts::All, vec![]),
    ] {
        for layers in lists(&compile(name, experts)) {
            assert_eq!(layers, expected, "{name}, {experts:?}");
        }
    }
    let options = cpu().cpu_experts(CpuExperts::All);
    let tables = tabla::tools::compile(&source("qwen3moe"), &options).expect("it compiles");
    assert!(lists(&tables).iter().all(Vec::is_empty), "on a CPU");

    let step = &compile("qwen3_5_moe", CpuExperts::First(1))[0];
    let layer = &step.cmds[..step.layers[0].cmd];
    let names: Vec<String> = layer
        .iter()
        .map(|cmd| cmd.kernel.op.name())
        .zip(layer)
        .map(|(name, cmd)| match cmd.place {
            Place::Host => format!("cpu:{name}"),
            Place::Device => name.to_string(),
        })
        .collect();
    let from = names
        .iter()
        .position(|name| name == "route")
        .expect("a router");
    // Shared experts are computed at the same time.
    let names = names[from..].iter().filter(|name| *name != "convert");
    assert!(names.eq(&LAYER), "{step}");
}

/// Commands of a layer from the router on.
const LAYER: [&str; 20] = [
    "route",
    "cpu:transfer",
    "cpu:transfer",
    "cpu:transfer",
    "gemv",
    "gemv",
    "glu",
    "gemv",
    "gemv",
    "activate",
    "cpu:experts",
    "cpu:experts",
    "cpu:glu",
    "cpu:experts",
    "cpu:columns",
    "cpu:scale",
    "cpu:combine",
    "transfer",
    "add",
    "combine",
];

#[test]
fn memory_of_the_gpu_is_that_without_experts() {
    if !has_gpu() {
        return;
    }
    let estimate =
        |experts| tabla::tools::estimate(&source("gpt_oss"), &gpu(experts)).expect("an estimate");
    let [off, first, all] = [CpuExperts::Off, CpuExperts::First(1), CpuExperts::All].map(estimate);
    let device = |estimate: tabla::tools::MemoryEstimate| estimate.device_bytes;
    assert_eq!(off.host_bytes, 0);
    assert!(first.host_bytes > 0);
    assert!(all.host_bytes > first.host_bytes);
    assert!(device(first) < device(off));
    let experts = off.weight_bytes - all.weight_bytes;
    assert!(all.host_bytes >= experts);
    assert!(device(all) + experts / 2 < device(off));

    let model = load("gpt_oss", &gpu(CpuExperts::All));
    let uploaded = model.facts().upload.expect("a GPU").bytes;
    assert!(uploaded < device(all), "{uploaded} bytes are uploaded");
    assert!(uploaded + experts / 2 < off.weight_bytes);
}

#[test]
fn several_sequences_with_experts_on_the_cpu() {
    if !has_gpu() {
        return;
    }
    let results = |options: &LoadOptions| {
        let model = load("qwen3moe", &options.clone().sequences(3));
        let sessions: Vec<Session> = (0..3).map(|_| Session::new(model.clone())).collect();
        let threads = (3..).zip(sessions).map(|(seed, mut session)| {
            std::thread::spawn(move || {
                let prompt: Vec<u32> = tokens(&session, 3 * seed).split_off(seed as usize);
                // Sequences end at different steps.
                picks(&mut session, &prompt, &greedy(5 * seed))
            })
        });
        let threads: Vec<_> = threads.collect();
        let results = threads
            .into_iter()
            .map(|thread| thread.join().expect("it generates"));
        results.collect::<Vec<_>>()
    };
    assert_eq!(results(&gpu(CpuExperts::All)), results(&cpu()));
}

#[test]
fn saved_sessions_with_experts_on_the_cpu() {
    if !has_gpu() {
        return;
    }
    let folder = Folder::new("cpu-experts");
    let path = folder.0.join("session");
    let options = gpu(CpuExperts::All);
    let model = load("granite_hybrid_moe", &options);
    let mut first = Session::new(model.clone());
    let prompt = tokens(&first, 40);
    first.prefill(&prompt).expect("the tokens fit");
    first.save(&path).expect("it saves");
    let mut second = Session::load(model, &path).expect("it loads");
    let generate = |session: &mut Session| {
        session
            .generate_with(&greedy(9), |_| ControlFlow::Continue(()))
            .expect("generation succeeds");
        session.tokens().to_vec()
    };
    assert_eq!(generate(&mut second), generate(&mut first));

    // The bits of the cache depend on the device that computes experts.
    let other = load("granite_hybrid_moe", &gpu(CpuExperts::Off));
    let other = Session::load(other, &path).expect("it loads");
    assert_eq!([&second, &other].map(missing_passes), [1, 2]);
}

/// Counts the passes that compute the tokens of a session which are not in its cache.
fn missing_passes(session: &Session) -> u32 {
    let mut session = session.fork().expect("it forks");
    session.time_commands().expect("commands can be timed");
    session.prefill(&[]).expect("it computes");
    session.end_timing().expect("the model is running");
    let timings = session.command_timings().expect("the model is running");
    timings.iter().map(|(_, timings)| timings[0].runs).sum()
}

#[test]
fn hooks_with_experts_on_the_cpu() {
    if !has_gpu() {
        return;
    }
    let points = [
        "blk.0",
        "blk.0.ffn_down",
        "blk.0.ffn_experts",
        "blk.1.ffn_expert_weights",
    ];
    let spec = HookSpec::default().capture(points.map(str::to_string).into());
    let captured = |options: &LoadOptions| {
        let model = load("qwen3moe", options);
        let mut session = Session::new(model.clone());
        let prompt = tokens(&session, 37);
        let hooks = model.hooks(&spec).expect("hooks");
        session.set_hooks(Some(&hooks)).expect("its own hooks");
        let captured = session.capture(&prompt).expect("it captures").clone();
        points.map(|point| {
            let rows = captured.rows(point).expect("the point is captured");
            rows.map(<[f32]>::to_vec).collect::<Vec<_>>()
        })
    };
    let [expected, found] = [cpu(), gpu(CpuExperts::All)].map(|options| captured(&options));
    for (point, (found, expected)) in points.iter().zip(found.iter().zip(&expected)) {
        check_near(point, found, expected);
    }
}

#[test]
fn commands_of_both_devices_are_timed() {
    if !has_gpu() {
        return;
    }
    let mut session = session(&checkpoint("qwen3moe"), &gpu(CpuExperts::First(1)));
    let prompt = tokens(&session, 8);
    session.prefill(&prompt).expect("the tokens fit");
    session.time_commands().expect("commands can be timed");
    session.force(1).expect("a token of the vocabulary");
    session.prefill(&[]).expect("it computes");
    session.end_timing().expect("the model is running");
    let timings = session.command_timings().expect("the model is running");
    let ran = timings.iter().filter(|(_, timings)| timings[0].runs > 0);
    let ran: Vec<_> = ran.collect();
    assert_eq!(ran.len(), 1, "a single table runs");
    let (table, timings) = ran[0];
    for at in table.body() {
        assert_eq!(timings[at].runs, 1, "{}", table.line(at));
    }
}
