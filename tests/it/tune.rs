//! Tuning: what is measured is what tables are planned with afterwards, and nothing else.

use crate::common::{golden, has_gpu, session, worst};
use crate::scratch::Folder;
use std::path::Path;
use tabla::device::{Fusion, TunedKernel};
use tabla::op::list::Op;
use tabla::op::table::{KernelId, Table};
use tabla::{
    DeviceChoice, ErrorKind, GpuFeatures, Group, LoadOptions, Measured, Precision, Replay, Source,
    Tuned, Tuning,
};

fn gpu(context: u32) -> LoadOptions {
    LoadOptions {
        device: DeviceChoice::Gpu,
        context,
        ..LoadOptions::default()
    }
}

/// A kernel for the commands of each group.
fn choices<'a>(
    groups: impl IntoIterator<Item = &'a Group>,
    kernel: fn(&Group) -> KernelId,
) -> Vec<TunedKernel> {
    let choice = |group: &Group| TunedKernel {
        kernel: kernel(group).name().to_string(),
        extent: group.extent,
    };
    groups.into_iter().map(choice).collect()
}

fn plain(group: &Group) -> KernelId {
    group.times[0].0
}

/// Measures, and checks what is said about it.
fn measure(source: &Source, options: &LoadOptions) -> Measured {
    let mut reports = Vec::new();
    let found = tabla::tune(source, options, &mut |done, of| reports.push((done, of)));
    let found = found.expect("it is measured");
    let (told, rounds) = *reports.last().expect("it was told");
    assert!(told <= rounds);
    assert!(
        reports
            .into_iter()
            .eq((1..=told).map(|done| (done, rounds)))
    );
    assert!(!found.groups.is_empty() && !found.cold);
    let lost = found.gains.iter().filter(|gain| !gain.pays());
    let lost = |many| lost.clone().any(|gain| gain.many == many);
    let kept = found.groups.iter().filter(|group| !lost(group.extent.many));
    assert_eq!(found.tuning.choices, choices(kept, |group| group.taken));
    for group in &found.groups {
        assert!(group.commands > 0 && group.times.len() > 1, "{group:?}");
        assert!(group.times.iter().any(|(kernel, _)| *kernel == group.taken));
        assert_eq!(plain(group).form, None, "{group:?}");
        for pair in group.times.windows(2) {
            assert!(pair[0].0 < pair[1].0, "the better ones last: {group:?}");
            assert!(
                pair[1].0.name().starts_with(&plain(group).name()),
                "{group:?}"
            );
        }
    }
    assert!(found.groups.iter().any(|group| group.extent.many));
    found
}

/// How many commands of these tables take a kernel that was chosen; none of them another.
fn followed(tables: &[Table], choices: &[TunedKernel]) -> usize {
    let mut count = 0;
    // Tables of a token of each of several sequences keep to what is usual.
    for table in tables.iter().filter(|t| t.tokens == 1 || t.tokens > 16) {
        for cmd in &table.cmds {
            let extent = table.extent(cmd.slots());
            let plain = KernelId::all(cmd.kernel.op, cmd.kernel.variant, &[]).next();
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
fn tables_follow_what_was_measured() {
    if !has_gpu() {
        return;
    }
    let sources = [
        Source::BuiltIn,
        Source::Path(golden("arch/qwen3moe/model.gguf")),
        Source::Path(golden("arch/bert/model.gguf")),
    ];
    for source in &sources {
        let folder = Folder::new("tunings");
        let Measured { groups, tuning, .. } = measure(source, &gpu(64));
        let options = LoadOptions {
            tuning_folder: Some(folder.0.clone()),
            ..gpu(64)
        };
        let tuned = || {
            let model = tabla::load(source, &options, &mut |_| {}).expect("it loads");
            model.facts().tuned.clone()
        };
        assert_eq!(tuned(), Tuned::No);
        let path = tuning.write(&folder.0).expect("it can be written");
        assert_eq!(tuned(), Tuned::By(path.clone()));
        // Whatever kernel is named for a group is taken: the best, and the plain one.
        for kernel in [|group: &Group| group.taken, plain] {
            let tuning = Tuning {
                choices: choices(&groups, kernel),
                ..tuning.clone()
            };
            assert_eq!(tuning.write(&folder.0).expect("it is replaced"), path);
            let tables = tabla::compile(source, &options).expect("it compiles");
            assert!(followed(&tables, &tuning.choices) > 5);
        }

        // What cannot be followed is left, and loading goes on.
        std::fs::write(&path, "{").expect("the folder takes files");
        let Tuned::Left(why) = tuned() else {
            panic!("a damaged file was followed");
        };
        assert!(why.contains(&*path.to_string_lossy()), "{why}");
    }
}

#[test]
fn exact_choices_stay_exact_and_compute_the_same() {
    if !has_gpu() {
        return;
    }
    // Gated activations that products add to the residual stream, and such as are normed first.
    for path in ["quant_q8_0.gguf", "arch/gemma2/model.gguf"] {
        exact_choices(&golden(path));
    }
}

fn exact_choices(path: &Path) {
    let folder = Folder::new("tunings");
    let exact = LoadOptions {
        precision: Precision::Exact,
        ..gpu(48)
    };
    let mut found = measure(&Source::Path(path.to_path_buf()), &exact);
    let int8 = |kernel: &str| kernel.contains("int8");
    let kernels = found.groups.iter().flat_map(|group| &group.times);
    assert!(!kernels.into_iter().any(|(kernel, _)| int8(&kernel.name())));

    let logits = |options: &LoadOptions| {
        let mut s = session(path, options);
        let prompt: Vec<u32> = (3..40).collect();
        s.prefill(&prompt, &mut |_, _| {}).expect("it fits");
        s.force(7).expect("it fits");
        let mut logits = vec![0.0; s.facts().vocab as usize];
        s.logits(&mut logits).expect("a sequence");
        (logits, s.facts().tuned.clone())
    };
    let (usual, _) = logits(&exact);
    // Kernels that only int8 would make different are asked for, in vain, and plain ones.
    let int8 = [(".subgroup+int8", Fusion::Apart)];
    for (form, fusion) in int8.into_iter().chain(Fusion::ALL.map(|f| ("", f))) {
        found.tuning.fusion = fusion;
        found.tuning.choices = choices(&found.groups, plain);
        for choice in &mut found.tuning.choices {
            choice.kernel.push_str(form);
        }
        let written = found.tuning.write(&folder.0).expect("it can be written");
        let options = LoadOptions {
            tuning_folder: Some(folder.0.clone()),
            ..exact.clone()
        };
        let (tuned, by) = logits(&options);
        assert_eq!(by, Tuned::By(written));
        if !form.is_empty() {
            assert_eq!(tuned, usual, "nothing changed");
        }
        let largest = usual.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        let (at, difference) = worst(&tuned, &usual);
        assert!(
            difference <= 1e-4 * largest,
            "{form}, {fusion:?}: {difference} at {at} of {largest}"
        );
        // What was measured with one precision is not followed with another.
        let fast = LoadOptions {
            precision: Precision::Fast,
            ..options
        };
        assert_eq!(logits(&fast).1, Tuned::No);
    }
}

#[test]
fn numbers_are_measured_where_there_is_a_choice() {
    if !has_gpu() {
        return;
    }
    let source = Source::Path(golden("quant_q8_0.gguf"));
    let numbers = |found: &[(u32, std::time::Duration)]| -> Vec<u32> {
        found.iter().map(|(number, _)| *number).collect()
    };
    let found = measure(&source, &gpu(200));
    let parts = numbers(&found.attention_parts);
    // Longer ones than the context are one part, as the usual 256 are.
    assert_eq!(parts, [64, 128, 256]);
    assert!(parts.contains(&found.tuning.attention_part));
    let chunks = numbers(&found.chunks);
    assert_eq!(chunks, [128, 256]);
    assert!(chunks.contains(&found.tuning.chunk_tokens));

    let fusions: Vec<Fusion> = found.fusions.iter().map(|(fusion, _)| *fusion).collect();
    assert_eq!(fusions, Fusion::ALL);
    let fuses = |model: &tabla::Model| {
        let table = model.table(tabla::TableId::Step).expect("it generates");
        table.cmds.iter().any(|cmd| cmd.kernel.op == Op::GemvNorm)
    };
    let model = tabla::load(&source, &gpu(200), &mut |_| {}).expect("it loads");
    assert!(!fuses(&model), "as is usual");

    let folder = Folder::new("tunings");
    let tuning = Tuning {
        fusion: Fusion::Fused,
        attention_part: 64,
        chunk_tokens: 128,
        ..found.tuning
    };
    tuning.write(&folder.0).expect("it can be written");
    let options = LoadOptions {
        tuning_folder: Some(folder.0.clone()),
        ..gpu(200)
    };
    let model = tabla::load(&source, &options, &mut |_| {}).expect("it loads");
    let profile = model.profile();
    assert_eq!((profile.attention_part, profile.chunk_tokens), (64, 128));
    assert_eq!(profile.choices, tuning.choices);
    assert_eq!(profile.fusion, Fusion::Fused);
    assert!(fuses(&model));
    let batch = model.table(tabla::TableId::Batch).expect("it generates");
    assert_eq!(batch.tokens, 128);
    // What the user asks for comes first.
    let options = LoadOptions {
        chunk_tokens: 32,
        ..options
    };
    let model = tabla::load(&source, &options, &mut |_| {}).expect("it loads");
    let batch = model.table(tabla::TableId::Batch).expect("it generates");
    assert_eq!(batch.tokens, 32);
}

#[test]
fn what_cannot_be_measured_says_why() {
    let refused = |options: &LoadOptions, clue: &str| {
        let error = tabla::tune(&Source::BuiltIn, options, &mut |_, _| {}).expect_err(clue);
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains(clue), "{error}");
    };
    let cpu = LoadOptions {
        device: DeviceChoice::Cpu,
        ..LoadOptions::default()
    };
    refused(&cpu, "is a CPU");
    if has_gpu() {
        let baseline = LoadOptions {
            gpu_features: GpuFeatures::Baseline,
            replay: Replay::Encoded,
            ..gpu(16)
        };
        refused(&baseline, "timestamps are not supported");
    }
}
