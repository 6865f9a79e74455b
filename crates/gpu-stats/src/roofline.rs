//! The static roofline of a product: how long its inner loop occupies a SIMD for a byte of weights or
//! for a multiply-add, next to the rates of a card.

use crate::cards::Card;
use crate::isa::{Block, Rate, Work};
use crate::loops::{Aim, iteration, loops, product_loop};
use tabla_core::dtype::DType;

/// Most tokens of a workgroup of a product that is limited by its weights.
const MAT_VEC_TOKENS_MAX: u32 = 8;
/// Dimensions of a weight whose size gives the bytes per element.
const SHAPE: [usize; 2] = [4096, 4096];
/// Least number of bytes that lanes load for each byte of weights: others come from other lanes.
const LOADED_MIN: f64 = 0.8;

/// What limits a kernel on a card.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roofline {
    /// Work of one iteration of the inner loop, for one token if some parts are for more.
    pub(crate) work: Work,
    /// Cycles of a SIMD per byte of weights or per multiply-add.
    pub(crate) cost: f64,
    /// What the cost is for.
    pub(crate) per: Per,
    /// Bytes that are loaded from the buffer of weights for each byte of weights; 0 without weights.
    pub(crate) loaded: f64,
    /// Most tokens of a workgroup, and the cost for all of them, if it is per byte.
    all_tokens: Option<(u32, f64)>,
}

/// Unit of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Per {
    /// Byte of weights.
    Byte,
    /// Multiply-add of this kind.
    MultiplyAdd(Rate),
}

/// A product of weights: its type, tokens per workgroup, and lanes of a wave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product<'a> {
    pub(crate) dtype: &'a str,
    pub(crate) tokens: u32,
    pub(crate) lanes: u32,
}

/// Computes the roofline of a product; `None` if no loop of it has multiply-adds.
pub(crate) fn roofline(blocks: &[Block], product: Product<'_>) -> Option<Roofline> {
    let loops = loops(blocks);
    let of = product_loop(blocks, &loops)?;
    let lanes = f64::from(product.lanes);
    let is_mat_vec = product.tokens <= MAT_VEC_TOKENS_MAX;
    let most = iteration(blocks, &loops, of, Aim::Products).path;
    let mut work = most;
    if is_mat_vec {
        let of_weights = iteration(blocks, &loops, of, Aim::Weights).path;
        if of_weights.multiply_adds(1.0).1 > 0.0 {
            work = of_weights;
        }
    }
    let (rate, adds) = work.multiply_adds(lanes);
    if adds == 0.0 {
        return None;
    }
    let elements = elements(adds / lanes, &work, product.dtype)?;
    let bytes = elements * bytes_per_element(product.dtype)?;
    let per_byte = |work: Work| work.cycles() / (bytes * lanes);
    let (cost, per) = match is_mat_vec {
        true => (per_byte(work), Per::Byte),
        false => (work.cycles() / adds, Per::MultiplyAdd(rate)),
    };
    let has_several = is_mat_vec && product.tokens > 1;
    Some(Roofline {
        work,
        cost,
        per,
        loaded: work.weight_bytes / bytes,
        all_tokens: has_several.then(|| (product.tokens, per_byte(most))),
    })
}

/// Returns the number of weights that a lane multiplies in an iteration: a power of two near the
/// number of its multiply-adds, because scales add some, and not more than it loads, because several
/// tokens use the same weights.
fn elements(adds: f64, work: &Work, dtype: &str) -> Option<f64> {
    let of_adds = adds.log2().round().exp2();
    if work.weight_bytes == 0.0 {
        return Some(of_adds);
    }
    let of_loads = work.weight_bytes / (LOADED_MIN * bytes_per_element(dtype)?);
    Some(of_adds.min(of_loads.log2().floor().exp2()))
}

/// Returns the size of an element on the device, with its part of the scales, in bytes.
pub(crate) fn bytes_per_element(dtype: &str) -> Option<f64> {
    let dtype = DType::from_name(dtype)?;
    let bytes = |shape: [usize; 2]| -> usize {
        let sections = tabla_quant::sections(dtype).into_iter();
        sections.map(|section| section.bytes(dtype, shape)).sum()
    };
    // Grids do not grow with the weight.
    let [rows, cols] = SHAPE;
    let grown = bytes([2 * rows, cols]) - bytes(SHAPE);
    Some(grown as f64 / (rows * cols) as f64)
}

impl Roofline {
    /// Time of the instructions on a card, as a multiple of the time that its memory needs for the
    /// weights, or its units for the multiply-adds.
    pub(crate) fn on(&self, card: &Card) -> f64 {
        match self.per {
            Per::Byte => self.cost * card.bytes_per_cycle(),
            Per::MultiplyAdd(rate) => self.cost * card.multiply_adds[rate as usize],
        }
    }

    /// Says what limits the kernel on a card.
    pub(crate) fn verdict(&self, card: &Card) -> String {
        let per_byte = |cost: f64| match cost * card.bytes_per_cycle() {
            ratio if ratio > 1.0 => format!("instructions {ratio:.2}"),
            ratio => format!("memory {ratio:.2}"),
        };
        match self.per {
            Per::Byte => {
                let all = self
                    .all_tokens
                    .map(|(tokens, cost)| format!("; {tokens} tokens: {}", per_byte(cost)));
                per_byte(self.cost) + &all.unwrap_or_default()
            }
            Per::MultiplyAdd(rate) => {
                let name = match rate {
                    Rate::Floats => "f32",
                    Rate::Bytes => "dot4",
                    Rate::Matrix => "matrix",
                };
                format!("{:.0} % of {name}", 100.0 / self.on(card))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::parse;
    use crate::loops::tests::{MAT_VEC, WAVE64};

    #[test]
    fn weights_of_an_iteration_follow_from_its_products() {
        let blocks = parse(MAT_VEC, WAVE64).expect("valid code");
        let product = Product {
            dtype: "q8_0",
            tokens: 1,
            lanes: 64,
        };
        let roofline = roofline(&blocks, product).expect("a loop with products");
        // 16 bytes and half of an f16 scale per lane, for which 20 bytes are loaded, in 36 cycles.
        assert_eq!(roofline.per, Per::Byte);
        assert_eq!(roofline.loaded, 20.0 / 17.0);
        assert_eq!(roofline.cost, 36.0 / (17.0 * 64.0));
        // Many tokens are limited by their products.
        let both = Product {
            dtype: "q4_0",
            tokens: 64,
            ..product
        };
        let roofline = super::roofline(&blocks, both).expect("a loop with products");
        assert_eq!(roofline.per, Per::MultiplyAdd(Rate::Bytes));
        assert_eq!(roofline.cost, 36.0 / 1024.0);
    }

    #[test]
    fn elements_have_the_sizes_of_the_layout_on_devices() {
        // 32 codes of 4 bits and an f16; 256 codes with scales and minima of 8 bytes each and two f16.
        assert_eq!(bytes_per_element("q4_0"), Some(18.0 / 32.0));
        assert_eq!(bytes_per_element("q4_k"), Some(148.0 / 256.0));
        assert_eq!(bytes_per_element("f16"), Some(2.0));
        assert_eq!(bytes_per_element("none"), None);
    }

    #[test]
    fn products_of_several_tokens_do_not_count_as_more_weights() {
        let loads = |weight_bytes| Work {
            weight_bytes,
            ..Work::default()
        };
        // A block of q8_0 for each of four rows, with five words of scales: one token, then eight.
        assert_eq!(elements(128.0, &loads(144.0), "q8_0"), Some(128.0));
        assert_eq!(elements(1024.0, &loads(144.0), "q8_0"), Some(128.0));
        // Scales and sums of the activations add a quarter.
        assert_eq!(elements(160.0, &loads(144.0), "q8_0"), Some(128.0));
        assert_eq!(elements(64.0, &loads(0.0), "q8_0"), Some(64.0));
    }
}
