//! Kernel selection and grid computation.

use crate::builder::{Graph, Node};
use std::ops::Range;
use tabla_core::device::{KernelVariant, Profile, TunedKernel};
use tabla_core::error::{Result, bail};
use tabla_core::op::list::Op;
use tabla_core::op::params::{attention, self_attention};
use tabla_core::op::table::FEW_TOKENS;
use tabla_core::op::table::{
    DispatchCmd, KernelId, PARAMS_ALIGN, Place, SLOTS_MAX, SamplingStage, Slot, SlotInfo, Table,
    extent,
};

pub(super) fn select(graph: Graph, profile: &Profile) -> Result<Table> {
    let mut table = Table {
        name: graph.name,
        tokens: graph.tokens,
        cmds: Vec::with_capacity(graph.nodes.len()),
        params: Vec::new(),
        slots: graph.slots,
        labels: Vec::with_capacity(graph.nodes.len()),
        layers: graph.layers,
        head: graph.head,
        stages: stages(&graph.stages, graph.nodes.len()),
    };
    for node in graph.nodes {
        let cmd = command(&node, &mut table, profile)?;
        table.cmds.push(cmd);
        table.labels.push(node.label);
    }
    Ok(table)
}

/// Converts the starts of sampling stages to ranges; a stage ends where the next one begins.
fn stages(
    starts: &[Option<usize>; SamplingStage::COUNT],
    end: usize,
) -> [Range<usize>; SamplingStage::COUNT] {
    let mut stages = std::array::from_fn(|_| end..end);
    let mut next = end;
    for (stage, start) in stages.iter_mut().zip(starts).rev() {
        let start = start.unwrap_or(next);
        *stage = start..next;
        next = start;
    }
    stages
}

/// Returns whether a kernel variant supports the shape of a command, and is not too large for the device.
fn suits(variant: KernelVariant, node: &Node, profile: &Profile) -> bool {
    match (variant, node.op) {
        (KernelVariant::Tile, Op::Attention) => {
            let p: attention::Params = bytemuck::pod_read_unaligned(&node.params);
            p.tokens > 1 && p.head_dim.is_multiple_of(8) && p.head_dim <= 512
        }
        (KernelVariant::Tile, Op::SelfAttention) => {
            let p: self_attention::Params = bytemuck::pod_read_unaligned(&node.params);
            p.tokens > 1 && p.head_dim.is_multiple_of(8) && p.head_dim <= 512
        }
        (KernelVariant::Matrix8 | KernelVariant::Matrix16, Op::Attention) => {
            let p: attention::Params = bytemuck::pod_read_unaligned(&node.params);
            p.tokens > FEW_TOKENS && p.head_dim.is_multiple_of(8) && p.head_dim <= 256
        }
        // With more tokens than a workgroup has, weights would be read several times.
        (KernelVariant::Few | KernelVariant::FewInt8, _) => {
            let kernel = KernelId::all(node.op, node.dtype, &[variant]).next_back();
            kernel.is_some_and(|kernel| node.work[1] <= kernel.tile()[1])
        }
        (KernelVariant::Matrix8 | KernelVariant::Matrix16, _) => node.work[1] > FEW_TOKENS,
        (KernelVariant::LargeMatrix8, _) => {
            suits_large_tiles([variant, KernelVariant::Matrix8], node, profile)
        }
        (KernelVariant::LargeMatrix16, _) => {
            suits_large_tiles([variant, KernelVariant::Matrix16], node, profile)
        }
        _ => true,
    }
}

/// Returns whether the large tiles of a product have enough tokens, and small ones are not faster or not available.
fn suits_large_tiles([large, small]: [KernelVariant; 2], node: &Node, profile: &Profile) -> bool {
    let variants = [large];
    let mut kernels = KernelId::all(node.op, node.dtype, &variants);
    let Some(kernel) = kernels.find(|kernel| kernel.variant == Some(large)) else {
        return false;
    };
    let [units, tokens] = kernel.tile();
    let has_small = profile.variants.contains(&small);
    node.work[1] > tokens / 2
        && (!has_small || are_large_tiles_fast([units, tokens], node.work, profile.cores))
}

/// Returns whether large tiles on matrices take at most the time of small ones, of which one has half the rows and
/// half the tokens. Large ones read weights and activations half as often; small ones waste less at the edges of a
/// result, and use more cores if it is small.
///
/// The time is the number of subgroups that a quarter of a core runs one after the other: a small tile has two, a large
/// one eight.
fn are_large_tiles_fast([units, tokens]: [u32; 2], work: [u32; 2], cores: u32) -> bool {
    let tiles = |units: u32, tokens: u32| work[0].div_ceil(units) * work[1].div_ceil(tokens);
    let cores = cores.max(1);
    let small = tiles(units / 2, tokens / 2).div_ceil(2 * cores);
    let large = 2 * tiles(units, tokens).div_ceil(cores);
    large <= small
}

/// Returns the tuned kernel for the problem size, if the device and the shape allow it, otherwise
/// the kernel of the preferred variant. Kernels of the CPU have no variants.
pub(super) fn kernel(
    node: &Node,
    slots: &[SlotInfo],
    tokens: u32,
    profile: &Profile,
) -> Option<KernelId> {
    if node.place == Place::Host {
        return KernelId::all(node.op, node.dtype, &[]).next_back();
    }
    let variants = profile
        .variants
        .iter()
        .filter(|variant| suits(**variant, node, profile));
    let variants: Vec<KernelVariant> = variants.copied().collect();
    let all = || KernelId::all(node.op, node.dtype, &variants);
    let extent = extent(slots, &node.slots);
    // Tuning does not measure decode batches; they use the same variants as one token.
    let measured = tokens == 1 || tokens > FEW_TOKENS;
    let tuned = profile
        .tuned_kernels
        .iter()
        .filter(|kernel| measured && kernel.extent == extent);
    let tuned: Vec<&TunedKernel> = tuned.collect();
    let chosen = |kernel: &KernelId| tuned.iter().any(|c| c.kernel == kernel.name());
    all().find(chosen).or_else(|| all().next_back())
}

fn command(node: &Node, table: &mut Table, profile: &Profile) -> Result<DispatchCmd> {
    let Some(kernel) = kernel(node, &table.slots, table.tokens, profile) else {
        let dtype = node.dtype.map_or("", |v| v.name());
        bail!(
            Unsupported,
            "{}: no kernel {} for {dtype}",
            node.label,
            node.op.name()
        );
    };
    let [units, tokens] = kernel.tile();
    let units = node.work[0].div_ceil(units);
    let tokens = node.work[1].div_ceil(tokens);
    let x = units.min(profile.grid_max);
    let grid = [x, tokens, units.div_ceil(x.max(1))];
    if grid.iter().any(|&n| n > profile.grid_max) {
        bail!(
            TooLarge,
            "{}: grid {grid:?} exceeds the device limit of {}",
            node.label,
            profile.grid_max
        );
    }
    let mut slots = [Slot(0); SLOTS_MAX];
    slots[..node.slots.len()].copy_from_slice(&node.slots);
    let params = table.params.len().next_multiple_of(PARAMS_ALIGN);
    table.params.resize(params, 0);
    table.params.extend_from_slice(&node.params);
    let small = |n: usize| u32::try_from(n).expect("tables are small");
    Ok(DispatchCmd {
        kernel,
        n_slots: u8::try_from(node.slots.len()).expect("at most SLOTS_MAX"),
        slots,
        params: small(params),
        params_bytes: small(node.params.len()),
        grid,
        label: small(table.labels.len()),
        place: node.place,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::{Builder, Heads, Scores, Shape, WeightInfo};
    use crate::fixture::{Same, shape};
    use tabla_core::device::ProblemSize;
    use tabla_core::dtype::DType;
    use tabla_core::op::pages::Pages;

    /// Returns the kernels of a product of 64 rows and of attention.
    fn kernels(tokens: u32, head_dim: u32, profile: &Profile) -> [String; 2] {
        kernels_of(64, tokens, head_dim, profile)
    }

    /// Returns the kernels of a product of `rows` rows and of attention.
    fn kernels_of(rows: u32, tokens: u32, head_dim: u32, profile: &Profile) -> [String; 2] {
        let matrix = Same(WeightInfo {
            index: 0,
            dtype: DType::Q8_0,
            rows,
            cols: 32,
            scale: None,
        });
        let shape = Shape {
            context: 64,
            pages: Pages::new(1, 64, &[], tokens),
            cache: DType::F16,
            ..shape(tokens)
        };
        let mut b = Builder::new(&matrix, shape);
        let w = b.weight("w", rows, 32);
        let x = b.input("x", 32);
        b.mat("y", w, x);
        let q = b.input("q", 2 * head_dim);
        let heads = Heads {
            layer: 0,
            heads: 2,
            kv_heads: 1,
            head_dim,
            window: 0,
            latent: false,
        };
        b.attention(heads, q, Scores::scaled(1.0));
        let table =
            select(b.finish().expect("the weights fit"), profile).expect("the kernels exist");
        [0, 1].map(|at| table.cmds[at].kernel.name())
    }

    /// Returns a device with these kernel variants and tuned kernels.
    fn tuned(variants: &[KernelVariant], kernels: &[(&str, [u32; 2], bool)]) -> Profile {
        let tuned_kernel = |&(kernel, shape, many): &(&str, _, _)| TunedKernel {
            kernel: kernel.to_string(),
            extent: ProblemSize {
                shape,
                multiple_tokens: many,
            },
        };
        Profile {
            variants: variants.to_vec(),
            tuned_kernels: kernels.iter().map(tuned_kernel).collect(),
            ..crate::plain_profile()
        }
    }

    #[test]
    fn tuned_kernels_override_the_preferred_variant() {
        let preferred = ["gemv_q8_0.subgroup+int8", "attention_f16"];
        let all = KernelVariant::ALL;
        assert_eq!(kernels(1, 16, &tuned(all, &[])), preferred);
        let one = |kernel, shape| kernels(1, 16, &tuned(all, &[(kernel, shape, false)]));
        let base = "gemv_q8_0";
        assert_eq!(one(base, [64, 32]), [base, preferred[1]]);
        assert_eq!(one(base, [32, 64]), preferred, "another shape");
        let many = tuned(all, &[(base, [64, 32], true)]);
        assert_eq!(kernels(1, 16, &many), preferred, "for many tokens");
        for foreign in ["gemv_q4_0", "gemm_q8_0", "gemv_q8_0.unknown", ""] {
            assert_eq!(one(foreign, [64, 32]), preferred, "{foreign}");
        }
    }

    #[test]
    fn products_of_few_tokens_have_kernels_of_their_own() {
        let profile = tuned(KernelVariant::ALL, &[]);
        let product = |tokens| kernels(tokens, 16, &profile)[0].clone();
        assert_eq!(product(2), "gemm_q8_0.subgroup+few+int8");
        assert_eq!(product(8), "gemm_q8_0.subgroup+few+int8");
        assert_eq!(product(9), "gemm_q8_0.subgroup+int8");
        assert_eq!(product(FEW_TOKENS + 1), "gemm_q8_0.subgroup+matrix+of16");
    }

    #[test]
    fn tiles_are_large_if_small_ones_take_no_less_time() {
        let profile = |cores| Profile {
            cores,
            ..tuned(KernelVariant::ALL, &[])
        };
        let [small, large] = ["", "large+"].map(|l| format!("gemm_q8_0.subgroup+matrix+{l}of16"));
        assert_eq!(kernels_of(128, 256, 16, &profile(1))[0], large);
        assert_eq!(kernels_of(128, 256, 16, &profile(4))[0], small);
        // Large tiles would compute twice as many rows.
        assert_eq!(kernels(256, 16, &profile(1))[0], small);
        let is_large =
            |rows, tokens, cores| are_large_tiles_fast([128, 128], [rows, tokens], cores);
        // As many large tiles as cores, and fewer.
        assert!(is_large(6144, 256, 96));
        assert!(!is_large(2048, 256, 96));
        // Two rounds of large tiles, or four of small ones.
        assert!(is_large(7680, 256, 60));
        // Half of the second tile of tokens: three rounds of large tiles, or four of small ones.
        assert!(!is_large(8192, 192, 60));
        // An unknown number of cores.
        assert!(is_large(2048, 256, 0));
        // A device without small tiles.
        let only_large = tuned(&[KernelVariant::LargeMatrix16], &[]);
        assert_eq!(kernels(256, 16, &only_large)[0], large);
        assert_eq!(kernels(64, 16, &only_large)[0], "gemm_q8_0");
    }

    #[test]
    fn tuned_kernels_that_do_not_apply_are_ignored() {
        // As with exact precision: variants that do not round activations.
        let exact: Vec<KernelVariant> = KernelVariant::ALL
            .iter()
            .copied()
            .filter(|f| f.exact())
            .collect();
        let int8 = [("gemv_q8_0.subgroup+int8", [64, 32], false)];
        assert_eq!(kernels(1, 16, &tuned(&exact, &int8))[0], "gemv_q8_0");
        assert_eq!(kernels(1, 16, &tuned(&[], &int8))[0], "gemv_q8_0");
        // The tile variant needs several tokens and heads of at most 512 elements.
        let tile = |many| {
            [
                ("attention_f16.tile", [1, 2 * 16], many),
                ("attention_f16.tile", [1, 2 * 520], many),
            ]
        };
        let all = KernelVariant::ALL;
        assert_eq!(
            kernels(3, 16, &tuned(all, &tile(true)))[1],
            "attention_f16.tile"
        );
        assert_eq!(
            kernels(3, 520, &tuned(all, &tile(true)))[1],
            "attention_f16"
        );
        assert_eq!(
            kernels(1, 16, &tuned(all, &tile(false)))[1],
            "attention_f16"
        );
    }
}
