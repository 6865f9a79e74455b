//! What the executor promises: chains, reads and writes, errors, a lost device.

use super::pick::{greedy, sampler};
use super::rig::{Given, Rig, floats, live, shape};
use super::types::matrix;
use super::{device, devices, software};
use crate::scratch::Folder;
use std::sync::Arc;
use tabla::dtype::DType;
use tabla::error::ErrorKind;
use tabla::exec::gpu::{self, Device, Options};
use tabla::exec::state::{FULL, ROWS_OFFSET, Row, SAMPLER_OFF, Sampler};
use tabla::exec::{COPIES_MAX, COPY_BYTES_MAX, Program, Span};
use tabla::op::builder::{Activation, Builder};
use tabla::op::table::BufferId;
use tabla::plan;

#[test]
fn a_lost_device_is_an_error_from_then_on() {
    for device in devices(&software(), 1) {
        let mut rig = greedy(&device, &[0.0, 3.0, 1.0]);
        rig.state(live(1), &[(0, 0)]);
        // Under way when the device goes.
        rig.executor.run(0, (0..2).into(), 400).unwrap();
        let copy = rig
            .executor
            .copy(&[Span::new(BufferId::State, 0, 4)])
            .unwrap();
        rig.state(live(1), &[(0, 0)]);
        device.destroy();
        let lost = |result: tabla::error::Result<()>| {
            assert_eq!(
                result.expect_err("it is lost").kind(),
                ErrorKind::DeviceLost
            );
        };
        let mut bytes = [0; 4];
        lost(rig.executor.read(BufferId::State, 0, &mut bytes));
        lost(
            rig.executor
                .copy(&[Span::new(BufferId::State, 0, 4)])
                .map(drop),
        );
        lost(rig.executor.take(copy, &mut bytes));
        lost(rig.executor.run(0, (0..1).into(), 1));
        lost(rig.executor.write(BufferId::State, 0, &bytes));
    }
}

#[test]
fn a_device_lost_by_another_thread_is_an_error_and_the_next_goes_on() {
    let count = devices(&software(), 1).len();
    for at in 0..count {
        let [device, next] = [(); 2].map(|()| devices(&software(), 1).swap_remove(at));
        let mut rig = greedy(&device, &[0.0, 3.0, 1.0]);
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                device.destroy();
            });
            let mut bytes = [0; 4];
            let mut token = || {
                rig.executor
                    .write(BufferId::State, 0, bytemuck::bytes_of(&live(1)))?;
                rig.executor.run(0, (0..2).into(), 4)?;
                rig.executor.read(BufferId::State, 0, &mut bytes)
            };
            loop {
                if let Err(error) = token() {
                    break error;
                }
            }
        });
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
        chain(&next);
    }
}

#[test]
fn ranges_are_recorded_again_when_there_were_too_many() {
    for device in devices(&software(), 1) {
        let mut rig = Rig::new(&device, shape(1), vec![], |b| {
            let (x, y) = (b.input("x", 8), b.input("y", 8));
            (0..12).for_each(|_| b.add(x, y, 1.0));
        });
        let (mut wanted, count) = (0.0, rig.table.cmds.len());
        rig.put("y", &[0.0; 8]);
        rig.put("x", &[1.0; 8]);
        for _ in 0..2 {
            for (start, end) in (0..count).flat_map(|s| (s..=count).map(move |e| (s, e))) {
                rig.executor.run(0, (start..end).into(), 1).unwrap();
                wanted += f32::from(u8::try_from(end - start).unwrap());
            }
            assert_eq!(rig.get("y"), [wanted; 8]);
        }
    }
}

/// A file for each way of replaying, which a load makes and the next one reads; a damaged one is
/// made anew.
#[test]
fn compiled_kernels_are_kept() {
    let scratch = Folder::new("kernels");
    let kept = Options {
        kernel_folder: Some(scratch.0.join("kept")),
        ..software()
    };
    let files = || {
        let folder = std::fs::read_dir(scratch.0.join("kept"))
            .into_iter()
            .flatten();
        let mut files: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    };
    let load = || devices(&kept, 1).iter().map(chain).sum::<f64>();
    load();
    let made = files();
    let contents = || made.iter().map(|file| std::fs::read(file).unwrap());
    let first: Vec<_> = contents().collect();
    load();
    // The same kernels; some drivers have them in another order, and SwiftShader puts a head of its own
    // in front of what it is given.
    let lengths = |all: &[Vec<u8>]| all.iter().map(Vec::len).collect::<Vec<_>>();
    let second = lengths(&contents().collect::<Vec<_>>());
    let mut pairs = lengths(&first).into_iter().zip(&second);
    assert!(pairs.all(|(first, second)| *second >= first), "{second:?}");
    for file in &made {
        let mut bytes = std::fs::read(file).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(file, bytes).unwrap();
    }
    load();
    assert_eq!(files(), made);
    assert_eq!(lengths(&contents().collect::<Vec<_>>()), lengths(&first));
    let opened = devices(&kept, 1);
    let able = opened
        .iter()
        .filter(|device| device.profile().backend == "vulkan");
    assert_eq!(made.len(), able.count(), "{made:?}");
}

#[test]
fn adapters_are_listed_and_named() {
    if device(1).is_none() {
        return;
    }
    let adapters = gpu::adapters();
    let first = &adapters[0];
    assert!(first.lacks.is_empty(), "{first:?}");
    let by = |adapter: &str, allow_software| {
        gpu::open(&Options {
            adapter: Some(adapter.to_string()),
            allow_software,
            ..Options::default()
        })
    };
    assert!(by("0", true).expect("it is there").is_some());
    assert!(
        by(&first.name.to_uppercase(), true)
            .expect("it is there")
            .is_some()
    );
    let error = by("no such adapter", true).expect_err("it is not there");
    assert_eq!(error.kind(), ErrorKind::Argument);
    if first.kind == "software" {
        let error = by("0", false).expect_err("software is not wanted");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}

pub(super) fn chain(device: &Device) -> f64 {
    let mut rig = greedy(device, &[0.0, 3.0, 1.0]);
    rig.state(live(1), &[(0, 505)]);
    rig.executor.run(0, (0..2).into(), 4).unwrap();
    let (state, row) = rig.state_now();
    assert_eq!((state.step, row.position, row.done), (4, 509, 0));
    rig.executor.run(0, (0..2).into(), 30).unwrap();
    let (state, row) = rig.state_now();
    assert_eq!((state.step, row.position, row.done), (7, 512, FULL));
    let history: Vec<u32> = bytemuck::pod_collect_to_vec(&rig.bytes("history"));
    assert_eq!((history[505], &history[506..]), (0, &[1; 6][..]));
    0.0
}

/// A copy is of the time when it was asked for, whatever runs behind it and whenever it is taken.
pub(super) fn copies(device: &Device) -> f64 {
    let mut rig = greedy(device, &[0.0, 3.0, 1.0]);
    rig.state(live(1), &[(7, 100)]);
    let rows = Span::new(BufferId::State, ROWS_OFFSET, size_of::<Row>());
    let history = Span::new(BufferId::History, 4 * 100, 4 * 8);
    let mut begun = Vec::new();
    for _ in 0..2 * COPIES_MAX {
        begun.push(rig.executor.copy(&[rows, history]).unwrap());
        rig.executor.run(0, (0..2).into(), 1).unwrap();
    }
    let forgotten = begun.drain(..COPIES_MAX);
    let kinds = forgotten.map(|copy| rig.executor.take(copy, &mut []).expect_err("gone").kind());
    assert!(kinds.eq([ErrorKind::State; COPIES_MAX]));
    for (copy, steps) in begun.into_iter().zip(COPIES_MAX..2 * COPIES_MAX).rev() {
        let mut bytes = [0; size_of::<Row>() + 4 * 8];
        rig.executor.take(copy, &mut bytes).unwrap();
        let (row, tokens) = bytes.split_at(size_of::<Row>());
        let row: Row = bytemuck::pod_read_unaligned(row);
        let tokens: Vec<u32> = bytemuck::pod_collect_to_vec(tokens);
        assert_eq!((row.token, row.position as usize), (1, 100 + steps));
        let picked = tokens.iter().filter(|token| **token == 1).count();
        assert_eq!(picked, steps.min(7), "{tokens:?}");
    }
    let copy = rig.executor.copy(&[rows]).unwrap();
    let mut more = [0; size_of::<Row>() + 1];
    let error = rig
        .executor
        .take(copy, &mut more)
        .expect_err("it has fewer");
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    let kind = |spans: &[Span], rig: &mut Rig| {
        let refused = rig.executor.copy(spans);
        refused.expect_err("it is refused").kind()
    };
    for refused in [
        Span::new(BufferId::State, 2, 4),
        Span::new(BufferId::State, 0, 6),
        Span::new(BufferId::Keys(3), 0, 4),
        Span::new(BufferId::History, 4 * 511, 8),
        Span::new(BufferId::History, 0, COPY_BYTES_MAX + 4),
        Span::new(BufferId::State, 0, 0),
    ] {
        assert_eq!(
            kind(&[refused], &mut rig),
            ErrorKind::Argument,
            "{refused:?}"
        );
    }
    0.0
}

pub(super) fn dead(device: &Device) -> f64 {
    let x = floats(18, 1000);
    let mut rig = sampler(device, 1000, &x);
    let sampler = Sampler {
        top_k: 3,
        top_p: 0.5,
        min_p: 0.5,
        temperature: 0.5,
        ..SAMPLER_OFF
    };
    rig.sampler(0, &sampler);
    let state = live(0);
    rig.state(state, &[(5, 6)]);
    rig.run();
    assert_eq!(rig.get("s"), x);
    let (after, row) = rig.state_now();
    assert_eq!((after, row.token, row.position), (state, 5, 6));
    0.0
}

pub(super) fn read_write(device: &Device) -> f64 {
    let mut rig = Rig::new(device, shape(1), vec![], |b| {
        let x = b.input("x", 500_000);
        b.glu(Activation::Silu, x, x);
    });
    let x = floats(19, 500_000);
    rig.put("x", &x);
    assert_eq!(rig.get("x"), x, "more than the staging buffer holds");
    let (place, bytes) = rig.place("x");
    let all: &[u8] = bytemuck::cast_slice(&x);
    for (at, n) in [(0, 1), (3, 2), (5, 1_500_001), (bytes - 1, 1), (7, 0)] {
        let mut out = vec![0; n];
        rig.executor.read(place, at, &mut out).unwrap();
        assert_eq!(out, all[at..at + n], "{n} at {at}");
    }
    let mut moved = all.to_vec();
    for (from, to, n) in [
        (0, 4000, 3996),
        (8000, 40, 400),
        (100, 100 + 1_000_000, 999_900),
    ] {
        rig.executor.duplicate(place, from, to, n).unwrap();
        moved.copy_within(from..from + n, to);
    }
    assert!(rig.bytes("x") == moved, "a part was copied elsewhere");
    let argument = |result: tabla::error::Result<()>| {
        assert_eq!(result.expect_err("refused").kind(), ErrorKind::Argument);
    };
    argument(rig.executor.read(place, bytes, &mut [0]));
    argument(rig.executor.read(place, usize::MAX, &mut [0]));
    argument(rig.executor.duplicate(place, 0, 8, 12));
    argument(rig.executor.duplicate(place, 0, bytes - 4, 8));
    argument(rig.executor.write(place, 2, &[0; 4]));
    argument(rig.executor.write(place, 4, &[0; 3]));
    argument(rig.executor.write(BufferId::Keys(3), 0, &[0; 4]));
    argument(rig.executor.run(1, (0..1).into(), 1));
    argument(rig.executor.run(0, (0..2).into(), 1));
    0.0
}

pub(super) fn too_large(device: &Device) -> f64 {
    // Refused before memory is asked for. A weight goes in parts; working memory does not.
    let limit = device.profile().binding_bytes_max;
    let cols = u32::try_from(limit / 4 + 8).unwrap();
    let given = Arc::new(Given(vec![]));
    let mut builder = Builder::new(&*given, shape(1));
    let x = builder.input("x", cols);
    builder.glu(Activation::Silu, x, x);
    let table = plan::compile(builder.finish().unwrap(), device.profile()).unwrap();
    let program = Program {
        tables: Arc::new([table]),
        tensors: given.clone(),
    };
    let error = gpu::link(device.clone(), program)
        .err()
        .expect("it is too large");
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.message().contains(&limit.to_string()), "{error}");
    0.0
}

/// What is planned is what the device gives: a buffer for each place, of as many bytes but for what
/// the driver rounds up, and what reading back takes; of wgpu's own nothing stays.
#[test]
fn buffers_take_what_was_planned() {
    /// By this much drivers round up.
    const ROUNDED: u64 = 256;
    for device in devices(&software(), 1) {
        let dtypes = [DType::F32, DType::Q8_0, DType::Q4K, DType::Q6K, DType::Iq3S];
        let weights: Vec<_> = ["a", "b", "c", "d", "e"]
            .into_iter()
            .zip(dtypes)
            .map(|(name, dtype)| matrix(name, dtype, 500, 2048).weight)
            .collect();
        let before = device.allocations().expect("Vulkan tells");
        let mut rig = Rig::new(&device, shape(7), weights, |b| {
            let x = b.input("x", 2048);
            for name in ["a", "b", "c", "d", "e"] {
                let w = b.weight(name, 500, 2048);
                b.mat(name, w, x);
            }
        });
        rig.run();
        let tables = std::slice::from_ref(&rig.table);
        let planned = gpu::planned_bytes(tables, device.profile());
        let mut all = device.allocations().expect("it told before");
        for known in &before {
            all.retain(|found| found != known);
        }
        let named = |name: &str| rig.table.slots.iter().any(|slot| slot.name == name);
        let (places, others): (Vec<_>, Vec<_>) = all.iter().partition(|(name, _)| named(name));
        let own = others.iter().filter(|(name, _)| name.contains("internal"));
        let readback = others.iter().filter(|(name, _)| name == "readback");
        assert_eq!(own.count() + readback.count(), others.len(), "{others:?}");
        assert_eq!(places.len(), tabla::op::table::places(tables).len());
        let places: u64 = places.iter().map(|(_, bytes)| bytes).sum();
        let rest = planned - (1 << 20) - (COPIES_MAX * COPY_BYTES_MAX) as u64;
        let rounded = rest + ROUNDED * all.len() as u64;
        assert!((rest..=rounded).contains(&places), "{places} of {rest}");
        drop(rig);
        let after = device.allocations().expect("it told before");
        let sum = |all: &[(String, u64)]| all.iter().map(|(_, bytes)| bytes).sum::<u64>();
        assert!(sum(&after) <= sum(&before), "{after:?}, {before:?} before");
    }
}

#[test]
fn a_folder_of_shaders_stands_in_front() {
    if device(1).is_none() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("tabla-shaders-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let source = include_str!("../../../shaders/glu.wgsl");
    let open = |text: String| {
        std::fs::write(folder.join("glu.wgsl"), text).unwrap();
        let options = Options {
            shader_folder: Some(folder.clone()),
            ..software()
        };
        gpu::open(&options).unwrap().expect("there is one")
    };
    let device = open(source.replace("* up[at]", "+ up[at]"));
    gpu::shaders(&device).unwrap();
    let mut rig = Rig::new(&device, shape(1), vec![], |b| {
        let (gate, up) = (b.input("gate", 2), b.input("up", 2));
        b.glu(Activation::Silu, gate, up);
    });
    rig.put("gate", &[0.0, 0.0]);
    rig.put("up", &[3.0, 4.0]);
    rig.run();
    assert_eq!(rig.get("f"), [3.0, 4.0]);
    for broken in [
        source.replace("let at", "let at = nothing; let"),
        source.replace("const UNITS = 256u", "const UNITS = 128u"),
        source.replace("#import grid", "#import nowhere"),
    ] {
        let error = gpu::shaders(&open(broken)).expect_err("it is broken");
        assert_eq!(error.kind(), ErrorKind::Format);
        assert!(error.message().contains("glu.wgsl"), "{error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
