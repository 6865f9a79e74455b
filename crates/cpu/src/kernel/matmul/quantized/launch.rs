//! Kernel and launch of products of quantized weights and int8 activations: how weights are read and packed.

use super::activations::ActivationTiles;
use super::experts::{self, ExpertProducts};
use super::products::{PanelProduct, ProductOf, ProductRows, Scratch};
use crate::descriptors::{
    ActivationFormat, ActivationShape, IntReader, MatmulShape, QuantizedMatmul, WeightReader,
    Weights,
};
use crate::kernel::{Launch, Request};
use crate::memory::Args;
use crate::panel::affine::Groups;
use crate::panel::{
    Codes, Format, FourBitMin, Pack, QK, Signed, SignedHalves, SignedHalvesMin, SignedMin,
    with_format,
};
use crate::simd::rows::ROWS;
use crate::simd::{Kernel, Simd, Unpack, Uses};
use crate::work::Split;
use std::marker::PhantomData;
use tabla_core::dtype::DType;
use tabla_core::op::operands::gemm::{AT, COUNT};
use tabla_quant::Scales;

/// Product of a matrix, or of the experts that tokens select, and quantized activations.
struct QuantizedProduct<C>(PhantomData<C>);

impl<C: Codes> Kernel for QuantizedProduct<C> {
    const USES: Uses = Uses::ByteProducts;

    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        if const { !S::PANELS && C::MAX != 128 } {
            unreachable!("without panels, link selects the kernels of chunks");
        }
        if let Some(experts) = args.matmul().experts {
            s.outlined(ExpertProducts {
                args,
                experts,
                multiply: &|product| s.outlined(ProductOf::<C>(product, PhantomData)),
            });
            return;
        }
        let &MatmulShape { rows, write, .. } = args.matmul();
        let &QuantizedMatmul {
            weights, quantized, ..
        } = args.codes();
        let mut scratch = args.open::<u8>(COUNT);
        let mut y = args.open::<f32>(AT.y);
        let product = PanelProduct {
            args: &args,
            origin: 0,
            panels: args.range(),
            x: ActivationTiles::new(args.bytes(COUNT + 1), quantized),
            live: args.active_rows(),
            scratch: Scratch::open(scratch.whole(), weights.buffer_bytes()),
            y: ProductRows {
                out: &mut y,
                width: rows,
                rows: None,
                write,
            },
        };
        s.outlined(ProductOf::<C>(product, PhantomData));
    }
}

/// Returns the kernel of a matrix product, if the type of the weights has panels at this level.
pub(crate) fn link(request: &Request<'_>, matmul: MatmulShape) -> Option<Launch> {
    if !request.isa.panels() {
        return None;
    }
    let rows = matmul.experts.map_or(matmul.rows, |experts| experts.rows);
    // One scale for all weights, or for those of an expert.
    let single = |scales: &Scales<'_>| {
        let [of_rows, of_cols] = scales.group;
        (of_rows >= matmul.rows || of_rows.is_multiple_of(rows)) && of_cols >= matmul.cols
    };
    if !request.scales.as_ref().is_none_or(single) {
        return None;
    }
    let dtype = request.variant?;
    with_format!(dtype, |F| link_blocks::<F>(request, dtype, matmul))
}

/// Returns the kernel for blocks of a format.
fn link_blocks<F: Format>(request: &Request<'_>, dtype: DType, matmul: MatmulShape) -> Launch {
    let (weights, pack) = match request.packed {
        true => (
            Weights::Packed(dtype),
            Some(Pack::Blocks(const { &F::LAYOUT })),
        ),
        false => (Weights::Mapped(dtype), None),
    };
    Launch {
        pack,
        ..launch::<F::Codes>(request, weights, F::OFFSET, matmul)
    }
}

/// Returns the kernel for a type without panels that unpacks to integers.
pub(crate) fn link_chunks(
    request: &Request<'_>,
    IntReader { unpack, min }: IntReader,
    matmul: MatmulShape,
) -> Launch {
    let packed = match request.variant {
        _ if !request.isa.panels() => None,
        Some(DType::Affine4) => link_groups::<FourBitMin>(request, unpack, matmul, 4),
        Some(DType::Affine8) => link_groups::<SignedMin>(request, unpack, matmul, 8),
        _ => None,
    };
    if let Some(launch) = packed {
        return launch;
    }
    // Whether the two halves of a block have separate scales.
    let dtype = request.variant;
    let of_blocks = dtype.and_then(|dtype| with_format!(dtype, |F| <F as Format>::Codes::HALVES));
    let halves = of_blocks.or_else(|| {
        let scales = request.scales.as_ref()?;
        // Scale groups may be whole blocks.
        Some(!scales.group[1].is_multiple_of(QK))
    });
    let launch = match (halves.unwrap_or(true), min) {
        (true, true) => launch::<SignedHalvesMin>,
        (true, false) => launch::<SignedHalves>,
        (false, true) => launch::<SignedMin>,
        (false, false) => launch::<Signed>,
    };
    Launch {
        reader: Some(WeightReader::Ints(unpack)),
        ..launch(request, Weights::Chunks, 0, matmul)
    }
}

/// Returns the kernel for packed affine codes of this many bits.
fn link_groups<C: Codes>(
    request: &Request<'_>,
    unpack: Unpack,
    matmul: MatmulShape,
    bits: usize,
) -> Option<Launch> {
    let scales = request.scales.filter(|_| request.packed)?;
    let groups = Groups::of(bits, &scales, matmul.cols)?;
    Some(Launch {
        pack: Some(Pack::Affine(unpack, groups)),
        ..launch::<C>(request, Weights::Groups(groups), 0, matmul)
    })
}

fn launch<C: Codes>(
    request: &Request<'_>,
    weights: Weights,
    offset: i32,
    matmul: MatmulShape,
) -> Launch {
    let isa = request.isa;
    let tokens = matmul.tokens;
    let (tile, rows, scratch) = match matmul.experts {
        // Rows are gathered by expert later.
        Some(experts) => {
            let sums = experts::PAIRS.next_multiple_of(isa.tile_tokens() as usize);
            (
                1,
                experts.rows,
                (sums, experts::gathered_bytes(&matmul, experts)),
            )
        }
        None => {
            let tile = if tokens == 1 { 1 } else { isa.tile_tokens() };
            (
                tile,
                matmul.rows,
                (tokens.next_multiple_of(tile) as usize, 0),
            )
        }
    };
    let (sums_per_panel, gathered) = scratch;
    let quantized = ActivationShape {
        tokens,
        cols: matmul.columns(),
        tile,
        offset: match C::MAX {
            128 => isa.signed_offset(),
            _ => offset,
        },
        halves: u32::from(C::HALVES),
        format: ActivationFormat::Int8 as u32,
    };
    Launch {
        scratch: gathered + Scratch::bytes(sums_per_panel, weights.buffer_bytes()),
        quantize: Some(quantized),
        codes: Some(QuantizedMatmul {
            weights,
            quantized,
            #[cfg(target_arch = "x86_64")]
            amx: isa.amx(),
        }),
        ..request.launch::<QuantizedProduct<C>>(Split::Units(rows.div_ceil(ROWS)), tokens)
    }
}
