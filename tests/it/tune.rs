//! Tuning: measurements select the kernels and parameters of the planned tables.

use crate::common::{golden, has_gpu, is_gpu_slow, session, worst};
use crate::temp_folder::Folder;
use std::path::Path;
use tabla::device::TunedKernel;
use tabla::device::{GpuFeatures, Precision, Replay};
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::op::table::{KernelId, Table};
use tabla::tools::{CommandGroup, TuneReport, Tuning};
use tabla::{ErrorKind, Model, Source, Tuned};

fn gpu(context: u32) -> LoadOptions {
    LoadOptions::default()
        .device(DeviceChoice::Gpu)
        .max_context(context)
}

/// Returns a kernel for each group.
fn choices<'a>(
    groups: impl IntoIterator<Item = &'a CommandGroup>,
    kernel: fn(&CommandGroup) -> KernelId,
) -> Vec<TunedKernel> {
    let choice = |group: &CommandGroup| TunedKernel {
        kernel: kernel(group).name().to_string(),
        extent: group.size,
    };
    groups.into_iter().map(choice).collect()
}

fn base(group: &CommandGroup) -> KernelId {
    group.times[0].0
}

/// Tunes a model and checks the report.
fn measure(source: &Source, options: &LoadOptions) -> TuneReport {
    let mut progress = Vec::new();
    let report = tabla::tools::tune(source, options, &mut |done, of| progress.push((done, of)));
    let report = report.expect("tuning succeeds");
    let (done, rounds) = *progress.last().expect("progress was reported");
    assert!(done <= rounds);
    assert!(
        progress
            .into_iter()
            .eq((1..=done).map(|done| (done, rounds)))
    );
    assert!(!report.groups.is_empty() && !report.cold);
    let slower = report.speedups.iter().filter(|s| !s.is_faster());
    let reverted = |many| slower.clone().any(|s| s.multiple_tokens == many);
    let used = report
        .groups
        .iter()
        .filter(|g| !reverted(g.size.multiple_tokens))
        .filter(|g| g.times.last().is_some_and(|(id, _)| *id != g.selected));
    assert_eq!(report.tuning.tuned_kernels, choices(used, |g| g.selected));
    for group in &report.groups {
        assert!(group.commands > 0 && group.times.len() > 1, "{group:?}");
        assert!(group.times.iter().any(|(id, _)| *id == group.selected));
        assert_eq!(base(group).variant, None, "{group:?}");
        for pair in group.times.windows(2) {
            assert!(pair[0].0 < pair[1].0, "default kernel last: {group:?}");
            assert!(
                pair[1].0.name().starts_with(&base(group).name()),
                "{group:?}"
            );
        }
    }
    assert!(report.groups.iter().any(|group| group.size.multiple_tokens));
    report
}

/// Counts commands with a chosen kernel; panics if a command uses another one.
fn count_chosen(tables: &[Table], choices: &[TunedKernel]) -> usize {
    let mut count = 0;
    // Decode tables for several sequences use the default kernels.
    for table in tables.iter().filter(|t| t.tokens == 1 || t.tokens > 16) {
        for cmd in &table.cmds {
            let extent = table.extent(cmd.slots());
            let plain = KernelId::all(cmd.kernel.op, cmd.kernel.dtype, &[]).next();
            let plain = plain.expect("every operation has one").name();
            let of = |kernel: &str| kernel.split('.').next() == Some(&plain);
            let mut choices = choices.iter();
            if let Some(choice) = choices.find(|c| c.extent == extent && of(&c.kernel)) {
                assert_eq!(cmd.kernel.name(), choice.kernel, "{}", table.name);
                count += 1;
            }
        }
    }
    count
}

#[test]
fn tables_use_the_tuning() {
    if !has_gpu() {
        return;
    }
    // Products of quantized weights and attention have several kernels.
    let mut models = vec![("quant_q8_0.gguf", 6)];
    if !is_gpu_slow() {
        models.extend([("quant_q4_0.gguf", 6), ("arch/bert/model.gguf", 1)]);
    }
    for (model, least) in models {
        let source = &Source::Path(golden(model));
        let folder = Folder::new("tunings");
        let TuneReport { groups, tuning, .. } = measure(source, &gpu(64));
        let options = gpu(64).tuning_path(folder.0.clone());
        let tuned = || {
            let model = Model::builder(source.clone())
                .options(options.clone())
                .load()
                .expect("the model loads");
            model.facts().tuned.clone()
        };
        assert_eq!(tuned(), Tuned::None);
        let path = tuning.write(&folder.0).expect("writes the tuning");
        assert_eq!(tuned(), Tuned::Applied(path.clone()));
        // Any kernel of a tuning is used: the fastest and the base kernel.
        for kernel in [|group: &CommandGroup| group.selected, base] {
            let tuning = Tuning {
                tuned_kernels: choices(&groups, kernel),
                ..tuning.clone()
            };
            assert_eq!(tuning.write(&folder.0).expect("replaces the tuning"), path);
            let tables = tabla::tools::compile(source, &options).expect("the model compiles");
            let chosen = count_chosen(&tables, &tuning.tuned_kernels);
            assert!(chosen >= least, "{model}: {chosen}");
        }

        // An invalid tuning is ignored.
        std::fs::write(&path, "{").expect("writes the file");
        let Tuned::Ignored(why) = tuned() else {
            panic!("an invalid tuning was used");
        };
        assert!(why.contains(&*path.to_string_lossy()), "{why}");
    }
}

#[test]
fn exact_choices_stay_exact_and_compute_the_same() {
    if !has_gpu() {
        return;
    }
    exact_choices(&golden("quant_q8_0.gguf"));
    if !is_gpu_slow() {
        exact_choices(&golden("arch/gemma2/model.gguf"));
    }
}

fn exact_choices(path: &Path) {
    let folder = Folder::new("tunings");
    let exact = gpu(48).precision(Precision::Exact);
    let mut report = measure(&Source::Path(path.to_path_buf()), &exact);
    let int8 = |kernel: &str| kernel.contains("int8");
    let kernels = report.groups.iter().flat_map(|group| &group.times);
    assert!(!kernels.into_iter().any(|(kernel, _)| int8(&kernel.name())));

    let logits = |options: &LoadOptions| {
        let mut s = session(path, options);
        let prompt: Vec<u32> = (3..40).collect();
        s.prefill(&prompt).expect("the prompt fits");
        s.force(7).expect("the token fits");
        let mut logits = vec![0.0; s.facts().vocab as usize];
        s.logits(&mut logits).expect("logits are available");
        (logits, s.facts().tuned.clone())
    };
    let (default, _) = logits(&exact);
    // int8 kernels are not used with exact precision; base kernels are.
    for form in [".subgroup+int8", ""] {
        report.tuning.tuned_kernels = choices(&report.groups, base);
        for choice in &mut report.tuning.tuned_kernels {
            choice.kernel.push_str(form);
        }
        let written = report.tuning.write(&folder.0).expect("writes the tuning");
        let options = exact.clone().tuning_path(folder.0.clone());
        let (tuned, by) = logits(&options);
        assert_eq!(by, Tuned::Applied(written));
        if !form.is_empty() {
            assert_eq!(tuned, default, "kernels are unchanged");
        }
        let largest = default.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        let (at, difference) = worst(&tuned, &default);
        assert!(
            difference <= 1e-4 * largest,
            "{form}: {difference} at {at} of {largest}"
        );
        // A tuning applies only to the precision it was measured with.
        let fast = options.precision(Precision::Fast);
        assert_eq!(logits(&fast).1, Tuned::None);
    }
}

#[test]
fn tunes_parameters_with_several_candidates() {
    if !has_gpu() {
        return;
    }
    let source = Source::Path(golden("quant_q8_0.gguf"));
    let values = |times: &[(u32, std::time::Duration)]| -> Vec<u32> {
        times.iter().map(|(value, _)| *value).collect()
    };
    let report = measure(&source, &gpu(200));
    let parts = values(&report.attention_parts);
    // Longer parts are duplicates of 256, which is the whole context.
    assert_eq!(parts, [64, 128, 256]);
    assert!(parts.contains(&report.tuning.attention_part));
    let chunks = values(&report.chunks);
    assert_eq!(chunks, [128, 256]);
    assert!(chunks.contains(&report.tuning.chunk_tokens));

    let folder = Folder::new("tunings");
    let tuning = Tuning {
        attention_part: 64,
        chunk_tokens: 128,
        ..report.tuning
    };
    tuning.write(&folder.0).expect("writes the tuning");
    let options = gpu(200).tuning_path(folder.0.clone());
    let model = Model::builder(source.clone())
        .options(options.clone())
        .load()
        .expect("the model loads");
    let profile = model.profile();
    assert_eq!((profile.attention_part, profile.chunk_tokens), (64, 128));
    assert_eq!(profile.tuned_kernels, tuning.tuned_kernels);
    let batch = model.table(tabla::TableId::Batch).expect("a decoder");
    assert_eq!(batch.tokens, 128);
    // Load options override the tuning.
    let options = options.chunk_tokens(32);
    let model = Model::builder(source.clone())
        .options(options)
        .load()
        .expect("the model loads");
    let batch = model.table(tabla::TableId::Batch).expect("a decoder");
    assert_eq!(batch.tokens, 32);
}

#[test]
fn rejects_devices_that_cannot_be_tuned() {
    let rejects = |options: &LoadOptions, part: &str| {
        let error = tabla::tools::tune(&Source::BuiltIn, options, &mut |_, _| {}).expect_err(part);
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains(part), "{error}");
    };
    let cpu = LoadOptions::default().device(DeviceChoice::Cpu);
    rejects(&cpu, "requires a GPU");
    if has_gpu() {
        let baseline = gpu(16)
            .gpu_features(GpuFeatures::Baseline)
            .replay(Replay::Encoded);
        rejects(&baseline, "timestamps are not supported");
    }
}
