//! Kernel identifiers and tile sizes.

use super::kernel_row::Kernels;
use super::list::Op;
use super::params::KERNELS;
use crate::device::KernelVariant;
use crate::dtype::DType;

/// Kernel: operation, storage type and kernel variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelId {
    /// Operation.
    pub op: Op,
    /// Storage type, if the operation has one kernel per type.
    pub dtype: Option<DType>,
    /// Kernel variant; `None` for the default kernel.
    pub variant: Option<KernelVariant>,
}

impl KernelId {
    /// Returns the kernels of an operation for a storage type: the default, then the variants in
    /// `variants`, the preferred last.
    pub fn all(
        op: Op,
        dtype: Option<DType>,
        variants: &[KernelVariant],
    ) -> impl DoubleEndedIterator<Item = Self> {
        let rows = KERNELS.iter().filter(move |row| row.has(op, dtype));
        let variant = move |row: &Kernels| match row.variant {
            None => Some(None),
            Some(name) => variants
                .iter()
                .find(|f| f.name() == name)
                .copied()
                .map(Some),
        };
        rows.filter_map(variant)
            .map(move |variant| Self { op, dtype, variant })
    }

    /// Returns the storage types that an operation has kernels for; empty if one kernel serves all.
    pub fn dtypes(op: Op) -> impl Iterator<Item = DType> {
        let plain = KERNELS
            .iter()
            .filter(move |row| row.op == op && row.variant.is_none());
        plain.flat_map(|row| row.dtypes.iter().filter_map(|name| DType::from_name(name)))
    }

    /// Returns the name in listings and profiles: `gemv_q4_0`, `gemv_q4_0.subgroup+int8`.
    pub fn name(self) -> String {
        let mut name = self.op.name().to_string();
        for (mark, part) in [
            ('_', self.dtype.map(DType::name)),
            ('.', self.variant.map(KernelVariant::name)),
        ] {
            if let Some(part) = part {
                name.push(mark);
                name.push_str(part);
            }
        }
        name
    }

    /// Returns the tile size: work units and tokens per workgroup.
    ///
    /// # Panics
    ///
    /// If the kernel does not exist.
    pub fn tile(self) -> [u32; 2] {
        let variant = self.variant.map(KernelVariant::name);
        let row = KERNELS
            .iter()
            .find(|row| row.has(self.op, self.dtype) && row.variant == variant);
        let row = row.unwrap_or_else(|| panic!("kernel {} does not exist", self.name()));
        [row.units, row.tokens]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_operations_have_default_kernels() {
        for op in Op::ALL {
            let plain = |row: &&Kernels| row.op == *op && row.variant.is_none();
            let row = KERNELS.iter().find(plain);
            let row = row.unwrap_or_else(|| panic!("{} has no shader", op.name()));
            for name in row.dtypes {
                assert!(DType::from_name(name).is_some(), "{}: {name}", op.name());
            }
        }
    }

    #[test]
    fn kernel_variants_are_known_and_in_order_of_preference() {
        let rank = |name: &str| {
            let known = KernelVariant::ALL
                .iter()
                .position(|variant| variant.name() == name);
            known.unwrap_or_else(|| panic!("unknown kernel variant {name}"))
        };
        for pair in KERNELS.windows(2).filter(|pair| pair[0].op == pair[1].op) {
            let [a, b] = [&pair[0], &pair[1]].map(|row| row.variant.map(rank));
            assert!(a <= b, "{}: {:?} before {:?}", pair[0].op.name(), a, b);
        }
        for variant in KernelVariant::ALL {
            let listed = KERNELS
                .iter()
                .any(|row| row.variant == Some(variant.name()));
            assert!(listed, "{}", variant.name());
        }
    }
}
