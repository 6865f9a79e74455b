//! Products of the quantized weights of selected experts and int8 activations.
//!
//! The rows of activations that select an expert are gathered into tiles and multiplied by the panels of
//! that expert as in a product with one matrix, so the result of a token has the same bits in a batch of
//! any size.

use super::activations::{self, ActivationTiles};
use super::products::{PanelProduct, ProductRows, Scratch};
use crate::descriptors::{ALIGN, ExpertShape, MatmulShape, TOKEN_WORDS, Write};
use crate::kernel::experts::group_by_expert::sort;
use crate::memory::{Args, Out};
use crate::panel::QK;
use crate::simd::rows::ROWS;
use crate::simd::{Simd, Task};
use tabla_core::op::operands::{experts, grouped_gemm};

/// Pairs of token and expert that are multiplied at once.
pub(crate) const PAIRS: usize = 32;

/// Operands that both operations have in the same place: expert ids or groups, and the output.
const IDS: usize = experts::AT.ids;
const Y: usize = experts::AT.y;
const COUNT: usize = experts::COUNT;
const _: () = assert!(
    IDS == grouped_gemm::AT.tiles && Y == grouped_gemm::AT.y && COUNT == grouped_gemm::COUNT
);

/// Bytes of gathered activations, and of the order of all pairs if they are not grouped.
pub(super) fn gathered_bytes(matmul: &MatmulShape, experts: ExpertShape) -> usize {
    let order = match experts.tile {
        None => matmul.tokens as usize * experts.k,
        Some(_) => 0,
    };
    let gathered = PAIRS * TOKEN_WORDS * (matmul.cols / QK);
    (4 * (gathered + order)).next_multiple_of(ALIGN)
}

/// Working memory and output of a thread.
struct Workspace<'a, 'b> {
    gathered: &'a mut [u32],
    products: &'a mut [u8],
    y: Out<'b, f32>,
}

/// The products of all pairs of token and expert. It is compiled once for all weights.
pub(crate) struct ExpertProducts<'a, 'b> {
    pub(crate) args: Args<'b>,
    pub(crate) experts: ExpertShape,
    /// Computes a product with the codes of the weights.
    pub(crate) multiply: &'a dyn Fn(PanelProduct<'_, '_>),
}

impl<S: Simd> Task<S> for ExpertProducts<'_, '_> {
    #[inline(always)]
    fn run(self, _: S) {
        multiply::<S>(self.args, &self.experts, self.multiply);
    }
}

/// Multiplies all pairs, expert by expert.
#[inline(always)]
fn multiply<S: Simd>(
    mut args: Args<'_>,
    experts: &ExpertShape,
    product: &dyn Fn(PanelProduct<'_, '_>),
) {
    let matmul = args.matmul();
    let mut scratch = args.open::<u8>(COUNT);
    let (first, products) = scratch
        .whole()
        .split_at_mut(gathered_bytes(matmul, *experts));
    let gathered = PAIRS * TOKEN_WORDS * (matmul.cols / QK);
    let (gathered, order) = bytemuck::cast_slice_mut(first).split_at_mut(gathered);
    let mut work = Workspace {
        gathered,
        products,
        y: args.open(Y),
    };
    let ids: &[u32] = bytemuck::cast_slice(args.bytes(IDS));
    if let Some(tile) = experts.tile {
        for tile in ids.chunks_exact(2 + tile) {
            for pairs in tile[2..][..tile[1] as usize].chunks(PAIRS) {
                multiply_pairs::<S>(&args, tile[0], pairs, &mut work, product);
            }
        }
        return;
    }
    let ids = &ids[..args.active_rows() * experts.k];
    let order = &mut order[..ids.len()];
    let count = u32::try_from(matmul.rows / experts.rows).expect("the operation stores it as u32");
    sort(ids, count, order);
    for group in order.chunk_by(|a, b| ids[*a as usize] == ids[*b as usize]) {
        for pairs in group.chunks(PAIRS) {
            let expert = ids[pairs[0] as usize];
            multiply_pairs::<S>(&args, expert, pairs, &mut work, product);
        }
    }
}

/// Multiplies at most [`PAIRS`] pairs by the panels of their expert; writes zeros if there is no such
/// expert.
#[inline(always)]
fn multiply_pairs<'b, S: Simd>(
    args: &Args<'b>,
    expert: u32,
    pairs: &[u32],
    work: &mut Workspace<'_, 'b>,
    product: &dyn Fn(PanelProduct<'_, '_>),
) {
    let matmul = args.matmul();
    let Some(experts) = matmul.experts else {
        unreachable!("the kernel has selected experts");
    };
    let (range, expert) = (args.range(), expert as usize);
    if expert >= matmul.rows / experts.rows {
        for &pair in pairs {
            let y = work
                .y
                .panels(pair as usize, experts.rows, range.clone(), ROWS);
            y.fill(0.0);
        }
        return;
    }
    let codes = args.codes();
    let all = ActivationTiles::new(args.bytes(COUNT + 1), codes.quantized);
    let blocks = matmul.cols / QK;
    let places = pairs.iter().map(|pair| {
        let pair = *pair as usize;
        let first = if experts.per_expert {
            pair % experts.k * blocks
        } else {
            0
        };
        (pair / experts.k, first..first + blocks)
    });
    let width = activations::width(pairs.len(), S::TOKENS);
    product(PanelProduct {
        args,
        origin: expert * (experts.rows / ROWS),
        panels: range,
        x: all.gather(places, width, work.gathered),
        live: pairs.len(),
        scratch: Scratch::open(work.products, codes.weights.buffer_bytes()),
        y: ProductRows {
            out: &mut work.y,
            width: experts.rows,
            rows: Some(pairs),
            write: Write::Store,
        },
    });
}
