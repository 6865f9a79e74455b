//! Compiles the kernels that the options select, and reports their figures.

use crate::budget::Budgets;
use crate::cards::Card;
use crate::compiler::{Compiled, Compiler};
use crate::isa::{Class, Machine, Rate, parse};
use crate::kernels::{Kernel, matches};
use crate::loops::total;
use crate::options::{Flag, Options};
use crate::roofline::{Product, roofline};
use crate::row::{Row, compared, parsed, saved, table};
use crate::workload::{self, Workload};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use tabla_core::device::KernelVariant;

const BUDGETS: &str = include_str!("../../../shaders/budgets.toml");
const WORKLOADS: &str = include_str!("../workloads.toml");

/// Statistics of Mesa and their columns: of RADV, then of NVK. Some names differ between versions in case alone;
/// spills are a sum.
const STATISTICS: [(&str, &str); 14] = [
    ("vgprs", "vgprs"),
    ("sgprs", "sgprs"),
    ("spilled sgprs", "spills"),
    ("spilled vgprs", "spills"),
    ("scratch size", "scratch_bytes"),
    ("lds size", "workgroup_bytes"),
    ("subgroups per simd", "waves"),
    ("instructions", "instructions"),
    ("latency", "latency"),
    ("inverse throughput", "inverse_throughput"),
    ("number of gprs", "vgprs"),
    ("slm size", "scratch_bytes"),
    ("instruction count", "instructions"),
    ("max warps/sm", "waves"),
];
/// Multiply-adds of f16 matrices per cycle of a SIMD, if the card is not known: RDNA 3.
const MATRIX_ADDS: f64 = 128.0;

/// The kernels that the device supports, and what is known about them.
struct Session {
    /// Number of all kernels.
    count: usize,
    /// Kernels that the device supports.
    kernels: Vec<Kernel>,
    /// Names of its kernel variants, the preferred last.
    preference: Vec<String>,
    budgets: Budgets,
    workloads: Vec<Workload>,
}

/// Runs the program in a process whose driver is a null device.
///
/// # Errors
///
/// A file, the driver, a kernel that does not compile, or kernels over their budgets.
pub(crate) fn run(
    options: &Options,
    adapter: wgpu::Adapter,
    print: &dyn Fn(&str),
) -> Result<(), String> {
    let compiler = Compiler::new(adapter)?;
    let session = Session::new(options, &compiler)?;
    let selected = session.selected(options);
    print(&format!(
        "{}: {} of {} kernels; not supported: {}\n",
        compiler.name,
        selected.len(),
        session.count,
        session.count - session.kernels.len()
    ));
    let (mut rows, mut errors) = (Vec::new(), Vec::new());
    for (kernel, compiled) in selected.iter().zip(compile_all(&compiler, &selected)) {
        let row = compiled.and_then(|compiled| {
            if options.has(Flag::Assembly) {
                print(&format!("{}\n{}\n", kernel.name, compiled.assembly));
            }
            figures(kernel, &compiled, &options.family)
        });
        match row {
            Ok(row) => rows.push(row),
            Err(error) => errors.push(format!("{}: {error}", kernel.name)),
        }
    }
    if let Some(file) = &options.save {
        std::fs::write(file, saved(&rows)).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    match &options.compare {
        Some(file) => print(&compared(&parsed(&read(file)?)?, &rows)),
        None if options.has(Flag::Check) => {}
        None => print(&table(&rows)),
    }
    print(&limits(&rows));
    session.print_workloads(&rows, print);
    if options.has(Flag::Check) {
        errors.extend(session.check(&rows, print));
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(errors.join("\n")),
    }
}

impl Session {
    fn new(options: &Options, compiler: &Compiler) -> Result<Self, String> {
        let budgets = options.shaders.read("budgets.toml");
        let mut kernels = options.shaders.kernels()?;
        let mut preference = options.shaders.variants();
        let count = kernels.len();
        let supported =
            |name: &String| known(name).is_none_or(|variant| compiler.variants.contains(&variant));
        preference.retain(supported);
        kernels.retain(|kernel| kernel.variant.as_ref().is_none_or(supported));
        Ok(Self {
            count,
            kernels,
            preference,
            budgets: Budgets::parse(budgets.as_deref().unwrap_or(BUDGETS))?,
            workloads: workload::parse(WORKLOADS)?,
        })
    }

    /// Returns the kernels that the options select.
    fn selected(&self, options: &Options) -> Vec<&Kernel> {
        let is_tested = |kernel: &Kernel| {
            let dtype = kernel.dtype.as_ref();
            dtype.is_none_or(|dtype| self.budgets.tested_types.contains(dtype))
        };
        let is_selected = |kernel: &&Kernel| {
            let names = [kernel.stem.as_str(), kernel.name.as_str()];
            let mut patterns = options.patterns.iter();
            (options.patterns.is_empty() || patterns.any(|pattern| matches(pattern, names)))
                && (!options.has(Flag::Representative) || is_tested(kernel))
        };
        self.kernels.iter().filter(is_selected).collect()
    }

    /// Prints the workloads whose kernels were all compiled.
    fn print_workloads(&self, rows: &[Row], print: &dyn Fn(&str)) {
        for workload in &self.workloads {
            let find = |name: &str| {
                let kernel = workload.preferred(name, &self.kernels, &self.preference)?;
                rows.iter().find(|row| row.name == kernel.name)
            };
            if workload.names().all(|name| find(name).is_some()) {
                print(&format!("\n{}", workload.report(&find)));
            }
        }
    }

    /// Returns what is over its budget, and what is wrong with the figures or the lists.
    fn check(&self, rows: &[Row], print: &dyn Fn(&str)) -> Vec<String> {
        print(&format!("\n{}", self.budgets.closest(rows)));
        let names = self
            .kernels
            .iter()
            .map(|k| [k.stem.as_str(), k.name.as_str()]);
        let mut findings = self.budgets.unused(&names.collect::<Vec<_>>());
        for workload in &self.workloads {
            let is_missing = |name: &&str| {
                let kernel = workload.preferred(name, &self.kernels, &self.preference);
                kernel.is_none()
            };
            let missing = workload.names().filter(is_missing);
            findings.extend(missing.map(|name| format!("workloads: {name} is not a kernel")));
        }
        findings.extend(rows.iter().filter_map(miscounted));
        findings.extend(self.budgets.exceeded(rows));
        findings
    }
}

/// Compares the number of parsed instructions with the driver's own.
fn miscounted(row: &Row) -> Option<String> {
    let counts = Class::ALL.map(|class| row.get(class.name()).unwrap_or(0.0));
    let parsed: f64 = counts.iter().sum();
    let counted = row.get("instructions")?;
    let name = &row.name;
    (parsed != counted).then(|| {
        format!("{name}: {parsed} instructions in the listing, {counted} in the statistics")
    })
}

/// Returns a line with the number of products of one token by what limits them.
fn limits(rows: &[Row]) -> String {
    let count = |name: &str| {
        rows.iter()
            .filter(|row| row.limit.starts_with(name))
            .count()
    };
    match [count("memory"), count("instructions")] {
        [0, 0] => String::new(),
        [memory, instructions] => {
            format!("limited by memory: {memory}, by instructions: {instructions}\n")
        }
    }
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))
}

/// Returns the kernel variant of a name; none for a variant that is only in the folder of shaders.
fn known(name: &str) -> Option<KernelVariant> {
    let mut all = KernelVariant::ALL.iter().copied();
    all.find(|variant| variant.name() == name)
}

/// Compiles kernels with all threads of the machine.
fn compile_all(compiler: &Compiler, kernels: &[&Kernel]) -> Vec<Result<Compiled, String>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut compiled = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(kernel) = kernels.get(at) else {
                return compiled;
            };
            let variant = kernel.variant.as_deref().and_then(known);
            let result = compiler.compile(kernel.wgsl.clone(), variant, kernel.buffers);
            compiled.push((at, result));
        }
    };
    let count = thread::available_parallelism().map_or(1, usize::from);
    let mut all: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        let joined = threads
            .into_iter()
            .map(|t| t.join().expect("a thread compiles"));
        joined.flatten().collect()
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, compiled)| compiled).collect()
}

/// Returns the figures of a compiled kernel.
fn figures(kernel: &Kernel, compiled: &Compiled, family: &str) -> Result<Row, String> {
    let mut row = Row {
        name: kernel.name.clone(),
        stem: kernel.stem.clone(),
        ..Row::default()
    };
    for (name, value) in &compiled.statistics {
        let name = name.to_lowercase();
        if let Some((_, column)) = STATISTICS.iter().find(|(statistic, _)| *statistic == name) {
            *row.values.entry((*column).to_string()).or_default() += value;
        }
    }
    // Waves of 64 lanes count twice.
    let waves = row.get("waves").unwrap_or(0.0) * 32.0 / f64::from(compiled.subgroup.max(1));
    let latency = row.get("latency").filter(|_| waves > 0.0);
    let mut set = |column: &str, value: f64| row.values.insert(column.to_string(), value);
    if let Some(latency) = latency {
        set("latency_per_wave", latency / waves);
    }
    let outputs = f64::from(kernel.units * kernel.tokens);
    set("outputs", outputs * 64.0 / f64::from(kernel.lanes));
    if compiled.assembly.is_empty() {
        return Ok(row);
    }
    let card = Card::of(family);
    let matrix_adds = card.map(|card| card.multiply_adds[Rate::Matrix as usize]);
    let machine = Machine {
        lanes: compiled.subgroup,
        matrix_adds: matrix_adds
            .filter(|rate| *rate > 0.0)
            .unwrap_or(MATRIX_ADDS),
        dual_issue: family.starts_with("navi3") || family.starts_with("gfx12"),
    };
    let blocks = parse(&compiled.assembly, machine)?;
    let work = total(&blocks);
    for class in Class::ALL {
        set(class.name(), work.count(class));
    }
    let product = kernel.dtype.as_deref().filter(|_| is_product(kernel));
    let product = product.map(|dtype| Product {
        dtype,
        tokens: kernel.tokens,
        lanes: machine.lanes,
    });
    if let Some(roofline) = product.and_then(|product| roofline(&blocks, product)) {
        set("loop_valu", roofline.work.count(Class::Valu));
        set("loop_cycles", roofline.work.cycles());
        set("loaded", roofline.loaded);
        if let Some(card) = card {
            set("roofline", roofline.on(card));
            row.limit = roofline.verdict(card);
        }
    }
    Ok(row)
}

/// Returns whether a kernel multiplies rows of a weight, by the formula in its first comment.
fn is_product(kernel: &Kernel) -> bool {
    let formula = kernel
        .wgsl
        .lines()
        .find_map(|line| line.strip_prefix("// "));
    formula.is_some_and(|formula| formula.contains("W[") && formula.contains(" . "))
}
