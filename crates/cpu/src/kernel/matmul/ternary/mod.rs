//! Products of ternary weights and int8 activations (`BitNet`): exact integers, the same bits on every device.
//!
//! `bit_quantize.rs` quantizes the rows of x, `bit_mat.rs` selects the kernel. `panels.rs` multiplies packed digits,
//! `amx.rs` with AMX. Packed digits are two bits each, whatever the storage type (`crate::panel::digits`):
//!
//! ```text
//! panel:  | word: columns c..c+4 of row 0 | of row 1 | ... | of row 15 | the next four columns ...
//! byte i of a word:  bits 0-1 block 0, bits 2-3 block 1, bits 4-5 block 2, bits 6-7 block 3, column c + i
//! ```

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
pub(crate) mod bit_mat;
pub(crate) mod bit_mat_add;
pub(crate) mod bit_quantize;
pub(crate) mod panels;
