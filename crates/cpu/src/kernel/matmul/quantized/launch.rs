//! Kernel and launch of products of quantized weights and int8 activations: how weights are read and packed.

use super::activations::ActivationTiles;
use super::experts::{self, ExpertProducts};
use super::products::{PanelProduct, ProductOf, ProductRows, Scratch};
use crate::descriptors::{
    ActivationFormat, ActivationShape, MatmulShape, QuantizedMatmul, WeightReader, Weights,
};
use crate::kernel::{Launch, Request};
use crate::memory::Args;
use crate::panel::affine::{Affine4Bit, Affine8Bit, Groups};
use crate::panel::{self, AffineWidth, Codes, Format, Formats, Kind, Pack, QK};
use crate::simd::rows::ROWS;
use crate::simd::{Kernel, Simd, Unpack, Uses};
use crate::work::Split;
use std::marker::PhantomData;
use tabla_core::dtype::DType;
use tabla_core::op::operands::gemm::{AT, COUNT};
use tabla_quant::Scales;

/// Product of a matrix, or of the experts that tokens select, and quantized activations.
struct CodeMatmul<C>(PhantomData<C>);

impl<C: Formats> Kernel for CodeMatmul<C> {
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
    struct LinkFormat<'a>(&'a Request<'a>, MatmulShape, DType);
    impl panel::FormatVisitor for LinkFormat<'_> {
        type Out = Launch;
        fn format<F: Format>(self) -> Launch {
            let Self(request, matmul, dtype) = self;
            if !request.packed {
                let weights = Weights::Mapped(dtype);
                return launch::<F::Codes>(request, weights, F::OFFSET, matmul);
            }
            Launch {
                pack: Some(Pack::Blocks(const { &F::LAYOUT })),
                ..launch::<F::Codes>(request, Weights::Packed(dtype), F::OFFSET, matmul)
            }
        }
    }
    let dtype = request.variant?;
    let rows = matmul.experts.map_or(matmul.rows, |experts| experts.rows);
    // One scale for all weights, or for those of an expert.
    let single = |scales: &Scales<'_>| {
        let [of_rows, of_cols] = scales.group;
        (of_rows >= matmul.rows || of_rows.is_multiple_of(rows)) && of_cols >= matmul.cols
    };
    if !request.scales.as_ref().is_none_or(single) {
        return None;
    }
    panel::visit(dtype, LinkFormat(request, matmul, dtype))
}

/// Returns the kernel for a type without panels that unpacks to integers.
pub(crate) fn link_chunks(
    request: &Request<'_>,
    (unpack, min): (Unpack, bool),
    matmul: MatmulShape,
) -> Launch {
    let packed = match request.variant {
        _ if !request.isa.panels() => None,
        Some(DType::Affine4) => link_groups::<Affine4Bit>(request, unpack, matmul),
        Some(DType::Affine8) => link_groups::<Affine8Bit>(request, unpack, matmul),
        _ => None,
    };
    if let Some(launch) = packed {
        return launch;
    }
    /// Returns whether the two halves of a block have separate scales.
    struct Halves;
    impl panel::FormatVisitor for Halves {
        type Out = bool;
        fn format<F: Format>(self) -> bool {
            F::Codes::HALVES
        }
    }
    let of_blocks = request
        .variant
        .and_then(|dtype| panel::visit(dtype, Halves));
    let halves = of_blocks.or_else(|| {
        let scales = request.scales.as_ref()?;
        // Scale groups may be whole blocks.
        Some(!scales.group[1].is_multiple_of(QK))
    });
    let launch = match (halves.unwrap_or(true), min) {
        (true, true) => launch::<Kind<128, true, true>>,
        (true, false) => launch::<Kind<128, true, false>>,
        (false, true) => launch::<Kind<128, false, true>>,
        (false, false) => launch::<Kind<128, false, false>>,
    };
    Launch {
        reader: Some(WeightReader::Ints(unpack)),
        ..launch(request, Weights::Chunks, 0, matmul)
    }
}

/// Returns the kernel for packed affine codes.
fn link_groups<W: AffineWidth>(
    request: &Request<'_>,
    unpack: Unpack,
    matmul: MatmulShape,
) -> Option<Launch> {
    let scales = request.scales.filter(|_| request.packed)?;
    let groups = Groups::of::<W>(&scales, matmul.cols)?;
    let weights = Weights::Groups(request.variant?, groups);
    Some(Launch {
        pack: Some(Pack::Affine(unpack, groups)),
        ..launch::<W::Codes>(request, weights, 0, matmul)
    })
}

fn launch<C: Formats>(
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
        ..request.launch::<CodeMatmul<C>>(Split::Units(rows.div_ceil(ROWS)), tokens)
    }
}
