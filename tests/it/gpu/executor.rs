//! Tests of the executor: bursts, reads and writes, errors, device loss.

use super::fixture::{Fixture, TestWeights, active_rows, floats, shape};
use super::sampling::{greedy, sampler};
use super::types::matrix;
use super::{device, devices, software};
use crate::temp_folder::Folder;
use std::sync::Arc;
use tabla::dtype::DType;
use tabla::exec::gpu::{self, Device, DeviceOptions};
use tabla::exec::state::{FULL, ROWS_OFFSET, sampler_off};
use tabla::exec::{COPIES_MAX, COPY_BYTES_MAX, Program, Span};
use tabla::op::functions::Activation;
use tabla::op::params::{Row, Sampler};
use tabla::op::table::BufferId;
use tabla::plan::builder::Builder;
use tabla::{ErrorKind, plan};

#[test]
fn a_lost_device_is_a_permanent_error() {
    for device in devices(&software(), 1) {
        let mut fixture = greedy(&device, &[0.0, 3.0, 1.0]);
        fixture.state(active_rows(1), &[(0, 0)]);
        // Pending when the device is destroyed.
        fixture.executor.run(0, (0..2).into(), 400).unwrap();
        let copy = fixture
            .executor
            .copy(&[Span::new(BufferId::State, 0, 4)])
            .unwrap();
        fixture.state(active_rows(1), &[(0, 0)]);
        device.destroy();
        let lost = |result: tabla::Result<()>| {
            assert_eq!(
                result.expect_err("device loss").kind(),
                ErrorKind::DeviceLost
            );
        };
        let mut bytes = [0; 4];
        lost(fixture.executor.read(BufferId::State, 0, &mut bytes));
        lost(
            fixture
                .executor
                .copy(&[Span::new(BufferId::State, 0, 4)])
                .map(drop),
        );
        lost(fixture.executor.take(copy, &mut bytes));
        lost(fixture.executor.run(0, (0..1).into(), 1));
        lost(fixture.executor.write(BufferId::State, 0, &bytes));
    }
}

#[test]
fn loss_by_another_thread_is_an_error_and_a_new_device_works() {
    let count = devices(&software(), 1).len();
    for at in 0..count {
        let [device, next] = [(); 2].map(|()| devices(&software(), 1).swap_remove(at));
        let mut fixture = greedy(&device, &[0.0, 3.0, 1.0]);
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                device.destroy();
            });
            let mut bytes = [0; 4];
            let mut token = || {
                fixture
                    .executor
                    .write(BufferId::State, 0, bytemuck::bytes_of(&active_rows(1)))?;
                fixture.executor.run(0, (0..2).into(), 4)?;
                fixture.executor.read(BufferId::State, 0, &mut bytes)
            };
            loop {
                if let Err(error) = token() {
                    break error;
                }
            }
        });
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
        burst(&next);
    }
}

#[test]
fn ranges_over_the_cache_limit_are_recorded_again() {
    for device in devices(&software(), 1) {
        let mut fixture = Fixture::new(&device, shape(1), vec![], |b| {
            let (x, y) = (b.input("x", 8), b.input("y", 8));
            (0..12).for_each(|_| b.add(x, y, 1.0));
        });
        let (mut expected, count) = (0.0, fixture.table.cmds.len());
        fixture.put("y", &[0.0; 8]);
        fixture.put("x", &[1.0; 8]);
        for _ in 0..2 {
            for (start, end) in (0..count).flat_map(|s| (s..=count).map(move |e| (s, e))) {
                fixture.executor.run(0, (start..end).into(), 1).unwrap();
                expected += f32::from(u8::try_from(end - start).unwrap());
            }
            assert_eq!(fixture.get("y"), [expected; 8]);
        }
    }
}

/// There is one file per replay mode, which is written by one load and read by the next; a corrupt file
/// is replaced.
#[test]
fn pipeline_cache_files_are_reused() {
    let scratch = Folder::new("kernels");
    let options = software().pipeline_cache_path(scratch.0.join("cache"));
    let files = || {
        let folder = std::fs::read_dir(scratch.0.join("cache"))
            .into_iter()
            .flatten();
        let mut files: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    };
    let load = || devices(&options, 1).iter().map(burst).sum::<f64>();
    load();
    let written = files();
    let contents = || written.iter().map(|file| std::fs::read(file).unwrap());
    let first: Vec<_> = contents().collect();
    load();
    // The kernels are the same; some drivers change their order, and SwiftShader prepends a header to
    // the initial data.
    let lengths = |all: &[Vec<u8>]| all.iter().map(Vec::len).collect::<Vec<_>>();
    let second = lengths(&contents().collect::<Vec<_>>());
    let mut pairs = lengths(&first).into_iter().zip(&second);
    assert!(pairs.all(|(first, second)| *second >= first), "{second:?}");
    for file in &written {
        let mut bytes = std::fs::read(file).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(file, bytes).unwrap();
    }
    load();
    assert_eq!(files(), written);
    assert_eq!(lengths(&contents().collect::<Vec<_>>()), lengths(&first));
    let opened = devices(&options, 1);
    let supported = opened
        .iter()
        .filter(|device| device.profile().backend == "vulkan");
    assert_eq!(written.len(), supported.count(), "{written:?}");
}

#[test]
fn opens_adapters_by_index_and_name() {
    if device(1).is_none() {
        return;
    }
    let adapters = gpu::adapters();
    let first = &adapters[0];
    assert!(first.lacks.is_empty(), "{first:?}");
    let by = |adapter: &str, allow_software| {
        gpu::open(
            &DeviceOptions::default()
                .adapter(adapter.to_string())
                .allow_software(allow_software),
        )
    };
    assert!(by("0", true).expect("open the adapter").is_some());
    assert!(
        by(&first.name.to_uppercase(), true)
            .expect("open the adapter")
            .is_some()
    );
    let error = by("no such adapter", true).expect_err("no such adapter");
    assert_eq!(error.kind(), ErrorKind::Argument);
    if first.kind == "software" {
        let error = by("0", false).expect_err("a software adapter");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}

pub(super) fn burst(device: &Device) -> f64 {
    let mut fixture = greedy(device, &[0.0, 3.0, 1.0]);
    fixture.state(active_rows(1), &[(0, 505)]);
    fixture.executor.run(0, (0..2).into(), 4).unwrap();
    let (state, row) = fixture.state_now();
    assert_eq!((state.step, row.position, row.done), (4, 509, 0));
    fixture.executor.run(0, (0..2).into(), 30).unwrap();
    let (state, row) = fixture.state_now();
    assert_eq!((state.step, row.position, row.done), (7, 512, FULL));
    let history: Vec<u32> = bytemuck::pod_collect_to_vec(&fixture.bytes("history"));
    assert_eq!((history[505], &history[506..]), (0, &[1; 6][..]));
    0.0
}

/// A copy has the contents at the time of the request, independent of later work and of the time when
/// it is taken.
pub(super) fn copies(device: &Device) -> f64 {
    let mut fixture = greedy(device, &[0.0, 3.0, 1.0]);
    fixture.state(active_rows(1), &[(7, 100)]);
    let rows = Span::new(BufferId::State, ROWS_OFFSET, size_of::<Row>());
    let history = Span::new(BufferId::History, 4 * 100, 4 * 8);
    let mut pending = Vec::new();
    for _ in 0..2 * COPIES_MAX {
        pending.push(fixture.executor.copy(&[rows, history]).unwrap());
        fixture.executor.run(0, (0..2).into(), 1).unwrap();
    }
    let expired = pending.drain(..COPIES_MAX);
    let kinds = expired.map(|copy| {
        fixture
            .executor
            .take(copy, &mut [])
            .expect_err("gone")
            .kind()
    });
    assert!(kinds.eq([ErrorKind::State; COPIES_MAX]));
    for (copy, steps) in pending.into_iter().zip(COPIES_MAX..2 * COPIES_MAX).rev() {
        let mut bytes = [0; size_of::<Row>() + 4 * 8];
        fixture.executor.take(copy, &mut bytes).unwrap();
        let (row, tokens) = bytes.split_at(size_of::<Row>());
        let row: Row = bytemuck::pod_read_unaligned(row);
        let tokens: Vec<u32> = bytemuck::pod_collect_to_vec(tokens);
        assert_eq!((row.token, row.position as usize), (1, 100 + steps));
        let picked = tokens.iter().filter(|token| **token == 1).count();
        assert_eq!(picked, steps.min(7), "{tokens:?}");
    }
    let copy = fixture.executor.copy(&[rows]).unwrap();
    let mut more = [0; size_of::<Row>() + 1];
    let error = fixture
        .executor
        .take(copy, &mut more)
        .expect_err("the copy is smaller");
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    let kind = |spans: &[Span], fixture: &mut Fixture| {
        let result = fixture.executor.copy(spans);
        result.expect_err("an invalid span").kind()
    };
    for invalid in [
        Span::new(BufferId::State, 2, 4),
        Span::new(BufferId::State, 0, 6),
        Span::new(BufferId::Keys(3), 0, 4),
        Span::new(BufferId::History, 4 * 511, 8),
        Span::new(BufferId::History, 0, COPY_BYTES_MAX + 4),
        Span::new(BufferId::State, 0, 0),
    ] {
        assert_eq!(
            kind(&[invalid], &mut fixture),
            ErrorKind::Argument,
            "{invalid:?}"
        );
    }
    0.0
}

pub(super) fn no_active_rows(device: &Device) -> f64 {
    let x = floats(18, 1000);
    let mut fixture = sampler(device, 1000, &x);
    let sampler = Sampler {
        top_k: 3,
        top_p: 0.5,
        min_p: 0.5,
        temperature: 0.5,
        ..sampler_off()
    };
    fixture.sampler(0, &sampler);
    let state = active_rows(0);
    fixture.state(state, &[(5, 6)]);
    fixture.run();
    assert_eq!(fixture.get("s"), x);
    let (after, row) = fixture.state_now();
    assert_eq!((after, row.token, row.position), (state, 5, 6));
    0.0
}

pub(super) fn read_write(device: &Device) -> f64 {
    let mut fixture = Fixture::new(device, shape(1), vec![], |b| {
        let x = b.input("x", 500_000);
        b.glu(Activation::Silu, x, x);
    });
    let x = floats(19, 500_000);
    fixture.put("x", &x);
    assert_eq!(fixture.get("x"), x, "larger than the staging buffer");
    let (buffer, bytes) = fixture.buffer("x");
    let all: &[u8] = bytemuck::cast_slice(&x);
    for (at, n) in [(0, 1), (3, 2), (5, 1_500_001), (bytes - 1, 1), (7, 0)] {
        let mut out = vec![0; n];
        fixture.executor.read(buffer, at, &mut out).unwrap();
        assert_eq!(out, all[at..at + n], "{n} at {at}");
    }
    let mut moved = all.to_vec();
    for (from, to, n) in [
        (0, 4000, 3996),
        (8000, 40, 400),
        (100, 100 + 1_000_000, 999_900),
    ] {
        fixture.executor.duplicate(buffer, from, to, n).unwrap();
        moved.copy_within(from..from + n, to);
    }
    assert!(fixture.bytes("x") == moved, "copies within the buffer");
    let argument = |result: tabla::Result<()>| {
        assert_eq!(
            result.expect_err("invalid argument").kind(),
            ErrorKind::Argument
        );
    };
    argument(fixture.executor.read(buffer, bytes, &mut [0]));
    argument(fixture.executor.read(buffer, usize::MAX, &mut [0]));
    argument(fixture.executor.duplicate(buffer, 0, 8, 12));
    argument(fixture.executor.duplicate(buffer, 0, bytes - 4, 8));
    argument(fixture.executor.write(buffer, 2, &[0; 4]));
    argument(fixture.executor.write(buffer, 4, &[0; 3]));
    argument(fixture.executor.write(BufferId::Keys(3), 0, &[0; 4]));
    argument(fixture.executor.run(1, (0..1).into(), 1));
    argument(fixture.executor.run(0, (0..2).into(), 1));
    0.0
}

pub(super) fn too_large(device: &Device) -> f64 {
    // Rejected before memory is allocated. Weights are split; activations are not.
    let limit = device.profile().binding_bytes_max;
    let cols = u32::try_from(limit / 4 + 8).unwrap();
    let weights = Arc::new(TestWeights(vec![]));
    let mut builder = Builder::new(&*weights, shape(1));
    let x = builder.input("x", cols);
    builder.glu(Activation::Silu, x, x);
    let table = plan::compile(builder.finish().unwrap(), device.profile()).unwrap();
    let program = Program {
        tables: Arc::new([table]),
        tensors: weights.clone(),
    };
    let error = gpu::link(device.clone(), program).err().expect("too large");
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.message().contains(&limit.to_string()), "{error}");
    0.0
}

/// The device allocates the planned bytes, except for rounding by the driver: one buffer per buffer id
/// and the readback buffers. wgpu's internal buffers are freed.
#[test]
fn allocations_match_the_planned_bytes() {
    /// Maximum rounding of an allocation by the driver, in bytes.
    const ROUNDED: u64 = 256;
    for device in devices(&software(), 1) {
        let dtypes = [DType::F32, DType::Q8_0, DType::Q4K, DType::Q6K, DType::Iq3S];
        let weights: Vec<_> = ["a", "b", "c", "d", "e"]
            .into_iter()
            .zip(dtypes)
            .map(|(name, dtype)| matrix(name, dtype, 500, 2048).weight)
            .collect();
        let before = device.allocations().expect("Vulkan reports allocations");
        let mut fixture = Fixture::new(&device, shape(7), weights, |b| {
            let x = b.input("x", 2048);
            for name in ["a", "b", "c", "d", "e"] {
                let w = b.weight(name, 500, 2048);
                b.mat(name, w, x);
            }
        });
        fixture.run();
        let tables = std::slice::from_ref(&fixture.table);
        let planned = gpu::planned_bytes(tables, device.profile());
        let mut all = device.allocations().expect("Vulkan reports allocations");
        for known in &before {
            all.retain(|actual| actual != known);
        }
        let named = |name: &str| fixture.table.slots.iter().any(|slot| slot.name == name);
        let (buffers, others): (Vec<_>, Vec<_>) = all.iter().partition(|(name, _)| named(name));
        let own = others.iter().filter(|(name, _)| name.contains("internal"));
        let readback = others.iter().filter(|(name, _)| name == "readback");
        assert_eq!(own.count() + readback.count(), others.len(), "{others:?}");
        assert_eq!(buffers.len(), tabla::op::table::buffers(tables).len());
        let buffers: u64 = buffers.iter().map(|(_, bytes)| bytes).sum();
        let rest = planned - (1 << 20) - (COPIES_MAX * COPY_BYTES_MAX) as u64;
        let rounded = rest + ROUNDED * all.len() as u64;
        assert!((rest..=rounded).contains(&buffers), "{buffers} of {rest}");
        drop(fixture);
        let after = device.allocations().expect("Vulkan reports allocations");
        let sum = |all: &[(String, u64)]| all.iter().map(|(_, bytes)| bytes).sum::<u64>();
        assert!(sum(&after) <= sum(&before), "{after:?}, {before:?} before");
    }
}

#[test]
fn custom_shaders_override_built_in_ones() {
    if device(1).is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = include_str!("../../../shaders/lib/glu/f32.wgsl");
    std::fs::create_dir_all(folder.path().join("lib/glu")).unwrap();
    let open = |text: String| {
        std::fs::write(folder.path().join("lib/glu/f32.wgsl"), text).unwrap();
        let options = software().shader_path(folder.path().to_path_buf());
        gpu::open(&options).unwrap().expect("an adapter")
    };
    let device = open(source.replace("* up[at]", "+ up[at]"));
    gpu::shaders(&device).unwrap();
    let mut fixture = Fixture::new(&device, shape(1), vec![], |b| {
        let (gate, up) = (b.input("gate", 2), b.input("up", 2));
        b.glu(Activation::Silu, gate, up);
    });
    fixture.put("gate", &[0.0, 0.0]);
    fixture.put("up", &[3.0, 4.0]);
    fixture.run();
    assert_eq!(fixture.get("f"), [3.0, 4.0]);
    for broken in [
        source.replace("let at", "let at = nothing; let"),
        source.replace("#import elements256", "#import elements64"),
        source.replace("#import elements256", "#import nowhere"),
    ] {
        let error = gpu::shaders(&open(broken)).expect_err("an invalid shader");
        assert_eq!(error.kind(), ErrorKind::Format);
        assert!(error.message().contains("glu.wgsl"), "{error}");
    }
}
