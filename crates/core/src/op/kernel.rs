//! Kernels: an operation for one storage type, in one form; and the tile that each works on.

pub use super::kernel_row::Kernels;
use super::list::Op;
use super::params::KERNELS;
use crate::device::KernelVariant;
use crate::dtype::DType;

/// A kernel: an operation, the storage type that it reads, and how it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelId {
    /// The operation.
    pub op: Op,
    /// The storage type, where the operation has a kernel for each.
    pub variant: Option<DType>,
    /// The form; `None` for the plain kernel.
    pub form: Option<KernelVariant>,
}

impl KernelId {
    /// The kernels of an operation for a storage type: the plain one, then those of `forms`, the
    /// better ones last.
    pub fn all(
        op: Op,
        variant: Option<DType>,
        forms: &[KernelVariant],
    ) -> impl DoubleEndedIterator<Item = Self> {
        let rows = KERNELS.iter().filter(move |row| row.has(op, variant));
        let form = move |row: &Kernels| match row.form {
            None => Some(None),
            Some(name) => forms.iter().find(|f| f.name() == name).copied().map(Some),
        };
        rows.filter_map(form)
            .map(move |form| Self { op, variant, form })
    }

    /// The storage types that an operation has kernels for; none where one serves all.
    pub fn variants(op: Op) -> impl Iterator<Item = DType> {
        let plain = KERNELS
            .iter()
            .filter(move |row| row.op == op && row.form.is_none());
        plain.flat_map(|row| {
            row.variants
                .iter()
                .filter_map(|name| DType::from_name(name))
        })
    }

    /// Name in listings and profiles: `gemv_q4_0`, `gemv_q4_0.subgroup`.
    pub fn name(self) -> String {
        let mut name = self.op.name().to_string();
        for (mark, part) in [
            ('_', self.variant.map(DType::name)),
            ('.', self.form.map(KernelVariant::name)),
        ] {
            if let Some(part) = part {
                name.push(mark);
                name.push_str(part);
            }
        }
        name
    }

    /// Units of work and tokens of one workgroup.
    ///
    /// # Panics
    ///
    /// For a kernel that [`all`](Self::all) does not yield.
    pub fn tile(self) -> [u32; 2] {
        let form = self.form.map(KernelVariant::name);
        let row = KERNELS
            .iter()
            .find(|row| row.has(self.op, self.variant) && row.form == form);
        let row = row.unwrap_or_else(|| panic!("no kernel {}", self.name()));
        [row.units, row.tokens]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_plain_kernels_in_known_types() {
        for op in Op::ALL {
            let plain = |row: &&Kernels| row.op == *op && row.form.is_none();
            let row = KERNELS.iter().find(plain);
            let row = row.unwrap_or_else(|| panic!("{} has no shader", op.name()));
            for name in row.variants {
                assert!(DType::from_name(name).is_some(), "{}: {name}", op.name());
            }
        }
    }

    #[test]
    fn forms_are_those_that_devices_have_the_better_ones_last() {
        let rank = |name: &str| {
            let known = KernelVariant::ALL
                .iter()
                .position(|form| form.name() == name);
            known.unwrap_or_else(|| panic!("{name} is no form"))
        };
        for pair in KERNELS.windows(2).filter(|pair| pair[0].op == pair[1].op) {
            let [a, b] = [&pair[0], &pair[1]].map(|row| row.form.map(rank));
            assert!(a <= b, "{}: {:?} before {:?}", pair[0].op.name(), a, b);
        }
        for form in KernelVariant::ALL {
            let listed = KERNELS.iter().any(|row| row.form == Some(form.name()));
            assert!(listed, "{}", form.name());
        }
    }
}
