//! Tables of two devices, both CPUs, against the same tables on one.

use std::sync::Arc;
use tabla_core::device::{HostExperts, Profile};
use tabla_core::dtype::DType;
use tabla_core::error::ErrorKind;
use tabla_core::exec::{Executor, Program, SplitExecutor, SplitProgram, Tensors};
use tabla_core::op::functions::Activation;
use tabla_core::op::list::Op;
use tabla_core::op::pages::Pages;
use tabla_core::op::params::{Row, State};
use tabla_core::op::table::{BufferId, Place, Table};

use tabla_cpu::{LinkOptions, link, profile};
use tabla_plan::builder::{
    Builder, LogitRows, Router, RouterVectors, Shape, WeightInfo, Weights, X,
};
use tabla_plan::verify;
use tabla_quant::Scales;
use tabla_testkit::fill::Filling;

const DIM: u32 = 64;
const EXPERTS: u32 = 5;
const USED: u32 = 2;

const WEIGHTS: [(&str, DType, [u32; 2]); 5] = [
    ("embd", DType::F16, [16, DIM]),
    ("n", DType::F32, [1, DIM]),
    ("router", DType::F32, [EXPERTS, DIM]),
    ("up", DType::Q8_0, [EXPERTS * DIM, DIM]),
    ("down", DType::Q4_0, [EXPERTS * DIM, DIM]),
];

/// Random tensors.
struct Moe(Vec<Filling>);

impl Moe {
    fn new() -> Arc<Self> {
        let fillings = WEIGHTS.iter();
        let fillings = fillings.map(|(name, dtype, shape)| Filling::random(name, *dtype, *shape));
        Arc::new(Self(fillings.collect()))
    }
}

impl Tensors for Moe {
    fn weight(&self, index: u32) -> &[u8] {
        &self.0[index as usize].bytes
    }
    fn scales(&self, index: u32) -> Option<Scales<'_>> {
        self.0[index as usize].scales()
    }
    fn constant(&self, _: u32) -> &[u8] {
        &[]
    }
}

impl Weights for Moe {
    fn find(&self, name: &str) -> Option<WeightInfo> {
        let index = WEIGHTS.iter().position(|(known, ..)| *known == name)?;
        let (_, dtype, [rows, cols]) = WEIGHTS[index];
        Some(WeightInfo {
            index: u32::try_from(index).expect("few tensors"),
            dtype,
            rows,
            cols,
            scale: None,
        })
    }
}

/// `h += experts(norm h)`
fn layer(b: &mut Builder<'_>, h: X) {
    let (n, router) = (b.vector("n", DIM), b.weight("router", EXPERTS, DIM));
    let [up, down] = ["up", "down"].map(|name| b.weight(name, EXPERTS * DIM, DIM));
    let x = b.rms_norm(h, n, 1e-5);
    let logits = b.mat("logits", router, x);
    let (routes, weights) = b.route(logits, Router::softmax(USED), RouterVectors::default());
    let f = b.experts("up", up, x, routes);
    b.activate(Activation::Silu, f);
    let f = b.experts("down", down, f, routes);
    b.combine(f, weights, h);
    b.end_of_layer(h);
}

/// Compiles a table of two layers, of which `layers` have experts on the host. The output is in
/// [`BufferId::Hidden`].
fn table(model: &Moe, tokens: u32, layers: u32) -> Table {
    let shape = Shape {
        name: "moe",
        tokens,
        logits: LogitRows::All,
        sequences: 1,
        context: 64,
        pages: Pages::new(1, 64, &[], tokens),
        cache: DType::F32,
        part: 0,
    };
    let mut b = Builder::new(model, shape);
    let embd = b.weight("embd", 16, DIM);
    let h = b.embed(embd);
    layer(&mut b, h);
    layer(&mut b, h);
    let n = b.vector("n", DIM);
    b.rms_norm(h, n, 1e-5);
    let profile = Profile {
        host_experts: Some(HostExperts {
            layers,
            cpu: "test".into(),
        }),
        ..profile(&options()).expect("an available level")
    };
    let draft = b.finish().expect("the shapes match");
    let mut table = tabla_plan::compile(draft, &profile).expect("there are kernels");
    verify::check(&table, &profile).expect("the table is valid");
    let last = *table.cmds[table.cmds.len() - 1]
        .slots
        .get(2)
        .expect("rms_norm has an output");
    table.slots[usize::from(last.0)].buffer = BufferId::Hidden;
    table
}

fn options() -> LinkOptions {
    LinkOptions::default().threads(2).packed_bytes(u64::MAX)
}

fn program(model: &Arc<Moe>, tables: Vec<Table>) -> Program {
    Program {
        tables: tables.into(),
        tensors: model.clone(),
    }
}

fn split(program: &Program) -> SplitExecutor {
    let mut split = SplitProgram::new(program);
    let host = split.host.take().expect("experts on the host");
    let [device, host] =
        [split.device.clone(), host].map(|program| link(program, &options()).expect("it links"));
    SplitExecutor::new(split, device, host)
}

/// Writes the state of `active` rows, runs the table `index` in `parts` and returns its output.
fn run(
    executor: &mut dyn Executor,
    (index, table): (usize, &Table),
    active: u32,
    parts: usize,
) -> Vec<u8> {
    let state = State {
        active_rows: active,
        context: 64,
        ..State::default()
    };
    let mut bytes = bytemuck::bytes_of(&state).to_vec();
    for t in 0..active {
        let row = Row {
            token: (7 * t + active) % 16,
            position: t,
            ..Row::default()
        };
        bytes.extend_from_slice(bytemuck::bytes_of(&row));
    }
    executor
        .write(BufferId::State, 0, &bytes)
        .expect("in bounds");
    let end = table.cmds.len();
    for at in (0..end).step_by(parts) {
        let cmds = (at..end.min(at + parts)).into();
        executor.run(index, cmds, 1).expect("it runs");
    }
    let mut out = vec![0; (active * DIM) as usize * size_of::<f32>()];
    executor
        .read(BufferId::Hidden, 0, &mut out)
        .expect("in bounds");
    out
}

#[test]
fn split_tables_have_the_results_of_one_device() {
    let model = Moe::new();
    for layers in [1, 2] {
        let tables: Vec<Table> = [1, 3, 40]
            .map(|tokens| table(&model, tokens, layers))
            .into();
        let program = program(&model, tables.clone());
        let mut one = link(program.clone(), &options()).expect("it links");
        let mut two = split(&program);
        for (index, table) in tables.iter().enumerate() {
            for active in [table.tokens, table.tokens.div_ceil(2), table.tokens] {
                for parts in [table.cmds.len(), 1, 4] {
                    let [one, two]: [Vec<u8>; 2] = [&mut *one, &mut two as &mut dyn Executor]
                        .map(|executor| run(executor, (index, table), active, parts));
                    assert!(
                        one == two,
                        "{active} of {} rows, {parts} at once",
                        table.tokens
                    );
                }
            }
        }
    }
}

#[test]
fn added_tables_are_split() {
    let model = Moe::new();
    let [first, wide, dense] =
        [(3, 2), (40, 1), (3, 0)].map(|(tokens, layers)| table(&model, tokens, layers));
    let both = program(&model, vec![wide.clone(), first.clone()]);
    let mut one = link(both.clone(), &options()).expect("it links");
    let mut two = split(&both);
    let at = two
        .add_tables(program(&model, vec![dense, first.clone()]))
        .expect("it links");
    assert_eq!(at, 2);
    let expected = run(&mut *one, (1, &first), 3, 99);
    assert!(run(&mut two, (at + 1, &first), 3, 99) == expected);
    two.remove_tables(at).expect("they were added");
    let error = two
        .run(at + 1, (0..1).into(), 1)
        .expect_err("it was removed");
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    assert!(run(&mut two, (1, &first), 3, 99) == expected);
    let error = two.run(0, (0..999).into(), 1).expect_err("out of range");
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
}

#[test]
fn weights_are_linked_where_they_are_used() {
    let model = Moe::new();
    let split = SplitProgram::new(&program(&model, vec![table(&model, 3, 2)]));
    let weights = |tables: &[Table]| {
        let buffers = tabla_core::op::table::buffers(tables).into_keys();
        let weights = buffers.filter_map(|buffer| match buffer {
            BufferId::Weight(index, _) => Some(WEIGHTS[index as usize].0),
            _ => None,
        });
        weights.collect::<Vec<_>>()
    };
    assert_eq!(weights(&split.device.tables), ["embd", "n", "router"]);
    assert_eq!(
        weights(&split.host.expect("experts").tables),
        ["up", "down"]
    );
}

#[test]
fn commands_of_both_devices_are_timed() {
    let model = Moe::new();
    let table = table(&model, 3, 1);
    let mut executor = split(&program(&model, vec![table.clone()]));
    executor.time_commands().expect("a CPU times commands");
    for _ in 0..2 {
        run(&mut executor, (0, &table), 3, 99);
    }
    executor.end_timing();
    run(&mut executor, (0, &table), 3, 99);
    let timings = executor.command_timings(0);
    assert_eq!(timings.len(), table.cmds.len());
    assert!(timings.iter().all(|timing| timing.runs == 2), "{timings:?}");
    let transfers = table
        .cmds
        .iter()
        .filter(|cmd| cmd.kernel.op == Op::Transfer);
    let to = transfers.map(|cmd| cmd.place);
    let [host, device] = [Place::Host, Place::Device];
    assert_eq!(to.collect::<Vec<_>>(), [host, host, host, device]);
}
