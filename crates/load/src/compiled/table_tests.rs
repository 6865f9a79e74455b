//! Tables of models that are written, read again, and changed in between.

use super::check::{Expected, check};
use super::stored_tables::{constants, weights};
use super::tables::{read, version, write};
use crate::build::Build;
use crate::device::{DeviceKind, KernelVariant, Profile};
use crate::error::{ErrorKind, Result};
use crate::exec::cpu;
use crate::exec::state::ROWS_OFFSET;
use crate::format::write::Writer;
use crate::format::{Metadata, open_bytes};
use crate::load::{DeviceChoice, LoadOptions};
use crate::model::TableId;
use crate::op::params::{Row, State};
use crate::op::table::{BufferId, SlotInfo, Table};
use crate::plan::builder::WeightInfo;
use crate::source::Source;
use std::path::{Path, PathBuf};

const PREFIX: &str = "compiled.0.tables";

/// Parts of a model that its tables refer to.
struct Model {
    build: Build,
    tables: Vec<Table>,
    ids: Vec<(TableId, u32)>,
    weights: Vec<WeightInfo>,
    constants: Vec<u64>,
}

impl Model {
    fn new(source: &Source, profile: Profile) -> Self {
        let options = LoadOptions::default()
            .device(DeviceChoice::Cpu)
            .max_context(64);
        let build = Build::prepare(source, &options.sequences(2), profile).expect("a model");
        let tables = build.tables().expect("its tables");
        let all = [
            TableId::Step,
            TableId::Batch,
            TableId::Embed,
            TableId::Classify,
        ];
        let more = [
            TableId::Encode,
            TableId::Align,
            TableId::HeadKeys,
            TableId::Draft,
        ];
        let id = |table: &Table| {
            let mut ids = all.into_iter().chain(more);
            let id = ids.find(|id| id.name() == table.name);
            (id.expect("a known table"), table.tokens)
        };
        Self {
            ids: tables.iter().map(id).collect(),
            weights: weights(&build.catalog),
            constants: constants(&build.catalog),
            tables,
            build,
        }
    }

    fn check(&self, tables: &[Table]) -> Result<()> {
        let expected = Expected {
            tables: &self.ids,
            weights: &self.weights,
            constants: &self.constants,
            pages: self.build.cache.pages,
            sequences: self.build.cache.rows(),
            context: self.build.cache.context,
            vocab: self.build.config.vocab,
        };
        check(tables, &expected, &self.build.profile)
    }

    fn file(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        write(&mut writer, PREFIX, &self.tables);
        writer.finish().expect("a valid file")
    }

    /// Links and runs tables; errors are allowed.
    fn run(&self, tables: Vec<Table>) -> Result<()> {
        let options = cpu::LinkOptions::default().threads(1);
        let counts: Vec<_> = tables
            .iter()
            .map(|table| (table.cmds.len(), table.tokens))
            .collect();
        let mut executor = cpu::link(self.build.program(tables.into()), &options)?;
        for (at, (cmds, tokens)) in counts.into_iter().enumerate() {
            let context = self.build.cache.context;
            let state = State {
                active_rows: tokens.min(2),
                context,
                step: 0,
            };
            executor.write(BufferId::State, 0, bytemuck::bytes_of(&state))?;
            let row = Row {
                position: 1,
                ..Row::default()
            };
            executor.write(BufferId::State, ROWS_OFFSET, bytemuck::bytes_of(&row))?;
            executor.run(at, (0..cmds).into(), 1)?;
        }
        Ok(())
    }
}

fn reread(bytes: Vec<u8>) -> Result<Vec<Table>> {
    read(&open_bytes("test", bytes)?.metadata, PREFIX)
}

fn cpu_profile() -> Profile {
    cpu::profile(&cpu::LinkOptions::default().threads(1)).expect("a CPU")
}

/// A GPU with all kernel variants and small bindings, which split weights.
fn gpu_profile() -> Profile {
    Profile {
        kind: DeviceKind::Gpu,
        binding_bytes_max: 1 << 20,
        variants: KernelVariant::ALL.to_vec(),
        attention_part: 64,
        cores: 8,
        ..cpu_profile()
    }
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden")
        .join(name)
}

/// The built-in model, and models of all architectures.
fn sources() -> Vec<Source> {
    let folders = golden("arch").read_dir().expect("a folder");
    let folders = folders.map(|folder| folder.expect("a folder").path());
    let forms = folders.filter_map(|folder| {
        let forms = ["hf", "model.gguf"].map(|form| folder.join(form));
        forms.into_iter().find(|path| path.exists())
    });
    let mut all: Vec<_> = forms.map(Source::Path).collect();
    assert!(all.len() > 40, "{}", all.len());
    all.push(Source::BuiltIn);
    all
}

#[test]
fn tables_of_all_architectures_are_equal_after_reading() {
    for source in sources() {
        for profile in [cpu_profile(), gpu_profile()] {
            let model = Model::new(&source, profile);
            let tables = reread(model.file()).expect("valid tables");
            let text = |tables: &[Table]| format!("{tables:?}");
            assert!(text(&tables) == text(&model.tables), "{source:?}");
            let kind = model.build.profile.kind;
            model
                .check(&tables)
                .unwrap_or_else(|e| panic!("{source:?} on {kind:?}: {e}"));
        }
    }
}

/// A small model with most kinds of commands.
fn small() -> Model {
    Model::new(&Source::Path(golden("quant_q8_0.gguf")), cpu_profile())
}

/// Returns the file with one array shorter by an item.
fn truncated(metadata: &Metadata, key: &str) -> Vec<u8> {
    let mut writer = Writer::new();
    for (other, value) in metadata.iter() {
        match (metadata.u32s(other), metadata.strs(other)) {
            _ if other != key => writer.copy(other, value),
            (Ok(Some(words)), _) => writer.list(key, &words[..words.len() - 1]),
            (_, Ok(Some(strings))) => writer.list(key, &strings[..strings.len() - 1]),
            other => panic!("{key}: {other:?}"),
        };
    }
    writer.finish().expect("a valid file")
}

#[test]
fn truncated_and_missing_arrays_are_rejected() {
    let file = open_bytes("test", small().file()).expect("a file");
    for (key, _) in file.metadata.iter() {
        let error = reread(truncated(&file.metadata, key)).expect_err(key);
        assert!(
            error.message().contains(PREFIX) || error.message().contains("table"),
            "{error}"
        );
        let mut writer = Writer::new();
        for (other, value) in file.metadata.iter().filter(|(other, _)| *other != key) {
            writer.copy(other, value);
        }
        let error = reread(writer.finish().expect("a file")).expect_err(key);
        assert!(error.message().contains("is missing"), "{error}");
    }
}

/// Changes the step table of a model and returns the message of the error.
fn rejected(model: &Model, change: impl FnOnce(&mut Table)) -> String {
    let mut tables = model.tables.clone();
    change(&mut tables[0]);
    let error = model.check(&tables).expect_err("it does not fit");
    let kind = error.kind();
    assert!(
        matches!(kind, ErrorKind::Format | ErrorKind::TooLarge),
        "{kind:?}: {error}"
    );
    error.to_string()
}

/// Returns the first slot with a buffer of this kind.
fn slot(table: &mut Table, is_kind: impl Fn(BufferId) -> bool) -> &mut SlotInfo {
    let mut slots = table.slots.iter_mut();
    slots.find(|slot| is_kind(slot.buffer)).expect("a slot")
}

#[test]
fn tables_that_do_not_fit_the_model_are_rejected() {
    let model = small();
    let check = |words: &str, change: &dyn Fn(&mut Table)| {
        let message = rejected(&model, change);
        assert!(message.contains(words), "{message}");
    };
    let weight = |buffer| matches!(buffer, BufferId::Weight(..));
    let last = |table: &Table| table.stages[0].end - 1;
    check("expected the tables", &|t| t.tokens = 2);
    check("does not exist", &|t| {
        slot(t, weight).buffer = BufferId::Weight(999, 0);
    });
    check("expected the weight", &|t| slot(t, weight).rows -= 1);
    check("no constant 7", &|t| {
        slot(t, |b| b == BufferId::Constant(0)).buffer = BufferId::Constant(7);
    });
    check("expected the shape", &|t| {
        slot(t, |b| b == BufferId::History).cols -= 1;
    });
    check("no KV cache", &|t| {
        slot(t, |b| b == BufferId::Keys(0)).rows -= 64;
    });
    check("exceed the limit", &|t| {
        slot(t, |b| matches!(b, BufferId::Scratch(_))).cols = 1 << 30;
    });
    check("ends stages, and nothing else", &|t| {
        t.stages[0].start = t.stages[0].end;
    });
    check("invalid command range", &|t| {
        t.stages[0].start = t.stages[0].end + 1;
    });
    check("a token of an argmax", &|t| {
        let (body, advance) = (t.cmds[1], last(t));
        t.cmds[advance].slots[0] = body.slots[0];
    });
}

/// Numbers of changed files that are accepted, and of those whose tables then fail.
#[derive(Default)]
struct Outcomes {
    accepted: usize,
    failed: usize,
}

/// Changes a byte at a time, at about `count` places, and runs the tables that are accepted.
fn run_changed(model: &Model, count: usize, outcomes: &mut Outcomes) {
    let bytes = model.file();
    let mut random = 1u64;
    // Odd, so that all bytes of a word are changed.
    let step = (bytes.len() / count) | 1;
    for at in (24..bytes.len()).step_by(step) {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        for changed in [0xff, bytes[at] ^ (1 << (random >> 61))] {
            let mut bytes = bytes.clone();
            bytes[at] = changed;
            let Ok(tables) = reread(bytes) else { continue };
            if model.check(&tables).is_ok() {
                outcomes.accepted += 1;
                outcomes.failed += usize::from(model.run(tables).is_err());
            }
        }
    }
}

#[test]
fn changed_files_are_rejected_or_run_without_a_panic() {
    let mut outcomes = Outcomes::default();
    run_changed(&small(), 8000, &mut outcomes);
    for source in sources() {
        run_changed(&Model::new(&source, cpu_profile()), 100, &mut outcomes);
    }
    let Outcomes { accepted, failed } = outcomes;
    assert!(
        accepted > 1000 && failed > 100,
        "{accepted} accepted, {failed} failed"
    );
}

#[test]
fn version_has_sixteen_digits() {
    assert_eq!(version().len(), 16);
}
