//! Named operand indices of each operation, generated from the list of operations.
//!
//! `rms_norm::AT.w` is the index of operand `w` of `rms_norm` in the slots and bindings of a
//! command.

use crate::for_each_op;

/// Index of the weight in operations that read a matrix of the model.
pub const WEIGHT: usize = 0;

/// Index of the (first) activations in products.
pub const ACTIVATIONS: usize = 1;

macro_rules! operands {
    ($($(#[doc = $formula:literal])+ $op:ident = $stem:ident($($operand:ident: $access:ident),+) $(per $unit:ident($($value:ident: $type:ty),*))?;)+) => {
        $(
            #[doc = concat!("Operands of `", stringify!($stem), "`.")]
            pub mod $stem {
                /// One value per operand, in the order of the list.
                #[derive(Clone, Copy, Debug)]
                pub struct Operands<T> {
                    $(
                        #[doc = concat!("`", stringify!($operand), "`: ", stringify!($access), ".")]
                        pub $operand: T,
                    )+
                }

                /// Number of operands. Additional operands of a device follow.
                pub const COUNT: usize = [$(stringify!($operand)),+].len();

                #[expect(non_camel_case_types, reason = "variants have the names of operands")]
                enum Index { $($operand,)+ }

                /// Index of each operand.
                pub const AT: Operands<usize> = Operands {
                    $($operand: Index::$operand as usize,)+
                };

                impl<T> Operands<T> {
                    /// Returns the values in the order of the list.
                    pub fn list(self) -> [T; COUNT] {
                        [$(self.$operand,)+]
                    }
                }
            }
        )+
    };
}
for_each_op!(operands);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::list::Op;
    use crate::op::table::KernelId;

    fn names(op: Op) -> Vec<&'static str> {
        op.operands().iter().map(|operand| operand.name).collect()
    }

    #[test]
    fn indices_match_the_list() {
        let all = [0, 1, 2, 3].map(|i| names(Op::Gemv)[i]);
        assert_eq!(all, ["w", "x", "y", "state"]);
        assert_eq!(gemv::AT.list(), [0, 1, 2, 3]);
        assert_eq!(gemv::COUNT, Op::Gemv.operands().len());
    }

    #[test]
    fn weight_is_first_operand_of_kernels_by_storage_type() {
        for &op in Op::ALL {
            let of_activations = matches!(op, Op::Convert | Op::Glu | Op::RmsNorm);
            let of_cache = matches!(
                op,
                Op::RopeKv
                    | Op::RopeKeys
                    | Op::Attention
                    | Op::AttendPart
                    | Op::PreviousRow
                    | Op::AttentionScores
                    | Op::AttentionWeights
            );
            if KernelId::dtypes(op).next().is_some() && !of_cache && !of_activations {
                assert_eq!(names(op)[WEIGHT], "w", "{}", op.name());
            }
        }
    }

    #[test]
    fn operations_with_shared_code_have_equal_operands() {
        let shared: [&[Op]; 4] = [
            &[Op::Gemv, Op::GemvAdd, Op::Gemm, Op::GemmAdd],
            &[Op::BitMat, Op::BitMatAdd],
            &[Op::Embed, Op::EmbedAdd],
            &[
                Op::TopNSigma,
                Op::TopK,
                Op::Typical,
                Op::TopP,
                Op::MinP,
                Op::Xtc,
                Op::DynamicTemper,
                Op::Mirostat,
            ],
        ];
        for ops in shared {
            for op in ops {
                assert_eq!(names(*op), names(ops[0]), "{}", op.name());
            }
        }
        // Shaders share the declarations of the cache.
        let [whole, part] = [Op::Attention, Op::AttendPart].map(names);
        assert_eq!(whole[..4], part[..4]);
    }
}
