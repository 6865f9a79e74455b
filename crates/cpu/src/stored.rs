//! Panels of weights that a compiled model stores, so that linking does not pack them.

use super::launches::{Target, launches_of, weight};
use super::link::Buffers;
use super::pack::{PackSpec, PackSpecs, PackedWeights};
use super::simd::{Isa, Level};
use std::collections::BTreeSet;
use tabla_core::device::Precision;
use tabla_core::error::{Error, ErrorKind, Result};
use tabla_core::exec::Program;
use tabla_core::reserve;

/// Weights of a program that every CPU with vectors reads as panels. The kernels of all levels share the layout,
/// except that of BF16 with AMX, whose panels are made while linking.
#[derive(Debug)]
pub struct StoredPanels {
    specs: PackSpecs,
    /// Weights that a kernel also reads as in the file.
    unpacked: BTreeSet<u32>,
    threads: usize,
}

impl StoredPanels {
    /// Returns the weights of a program that is linked with this precision.
    ///
    /// # Errors
    ///
    /// `Unsupported` on a machine without vectors, and those of linking.
    pub fn of(program: &Program, precision: Precision) -> Result<Self> {
        let target = Target {
            isa: isa()?,
            precision,
            packed_bytes: u64::MAX,
            threads: reserve::threads(0),
        };
        let (launches, specs) = launches_of(program, target, &Buffers::none().panels)?;
        let mut unpacked = BTreeSet::new();
        for (table, launches) in program.tables.iter().zip(&launches) {
            for (cmd, launch) in table.cmds.iter().zip(launches) {
                let Some(index) = weight(table, cmd).filter(|_| launch.pack.is_none()) else {
                    continue;
                };
                let spec = specs.get(&index);
                if !spec.is_some_and(|spec| launch.reads_rows_of(spec.pack)) {
                    unpacked.insert(index);
                }
            }
        }
        Ok(Self {
            specs,
            unpacked,
            threads: target.threads,
        })
    }

    /// Returns the size of the panels of a weight in bytes; `None` if it is not packed.
    pub fn bytes_of(&self, weight: u32) -> Option<u64> {
        self.specs.get(&weight).map(|spec| spec.bytes() as u64)
    }

    /// Returns whether a kernel also reads the weight as in the file.
    pub fn is_also_unpacked(&self, weight: u32) -> bool {
        self.unpacked.contains(&weight)
    }

    /// Packs a weight and passes the bytes of its panels to `write`. It must be one with panels.
    ///
    /// # Errors
    ///
    /// Those of packing, and of `write`.
    pub fn pack(
        &self,
        program: &Program,
        weight: u32,
        write: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let spec = self.specs.get(&weight).copied().ok_or_else(|| {
            Error::new(
                ErrorKind::Internal,
                format_args!("weight {weight} is not packed"),
            )
        })?;
        let specs = PackSpecs::from([(weight, spec)]);
        let mut packed = PackedWeights::new(program, &specs, self.threads)?;
        write(&packed.bytes()[..PackSpec::bytes(&spec)])
    }
}

/// Returns the fastest level whose panels all other levels read, too.
fn isa() -> Result<Isa> {
    let levels = Level::available().into_iter().rev();
    let mut shared = levels.filter(|level| !matches!(level, Level::Amx | Level::Scalar));
    match shared.next() {
        Some(level) => Isa::of(level),
        None => Err(Error::new(
            ErrorKind::Unsupported,
            "this CPU has no vectors, and weights are packed only for those that have",
        )),
    }
}

/// Returns whether the kernels of a level read panels.
///
/// # Errors
///
/// `Unsupported` for a level that this machine does not support.
pub fn reads_panels(level: Level) -> Result<bool> {
    Ok(Isa::of(level)?.panels())
}
