//! `tiles[i, :]` = expert id, number of pairs, and the pairs `k t + s` with `ids[t, s]` equal to
//! that expert

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::group_by_expert::{AT, COUNT};
use tabla_core::op::params::group_by_expert::Params;

impl Kernel for kind::GroupByExpert {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let ids: &[u32] = bytemuck::cast_slice(args.bytes(AT.ids));
        let ids = &ids[..args.active_rows() * p.k as usize];
        let mut tiles = args.open::<u32>(AT.tiles);
        let mut scratch = args.open::<u32>(COUNT);
        let order = &mut scratch.whole()[..ids.len()];
        sort(ids, p.experts, order);
        let expert = |pair: u32| ids[pair as usize].min(p.experts);
        let runs = order.chunk_by(|a, b| expert(*a) == expert(*b));
        let full = runs.flat_map(|run| run.chunks(p.tile as usize));
        let full = full.map(|pairs| (expert(pairs[0]), pairs));
        // Remaining tiles are empty.
        let all = full.chain(std::iter::repeat((p.experts, &[][..])));
        let rows = tiles.whole().chunks_exact_mut(2 + p.tile as usize);
        for (row, (expert, pairs)) in rows.zip(all) {
            let count = u32::try_from(pairs.len()).expect("at most the size of a tile");
            let (head, places) = row.split_at_mut(2);
            head.copy_from_slice(&[expert, count]);
            let (full, rest) = places.split_at_mut(pairs.len());
            full.copy_from_slice(pairs);
            rest.fill(0);
        }
    }
}

/// Sorts the pair indices by expert; those with an expert id out of range come last.
#[inline(always)]
pub fn sort(ids: &[u32], experts: u32, order: &mut [u32]) {
    for (place, at) in order.iter_mut().zip(0..) {
        *place = at;
    }
    // Indices are unique, so the order is deterministic.
    order.sort_unstable_by_key(|&at| (ids[at as usize].min(experts), at));
}

impl Link for kind::GroupByExpert {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        Ok(Launch {
            tokens: p.tokens as usize,
            scratch: p.tokens as usize * p.k as usize * size_of::<u32>(),
            ..request.single_thread::<Self>()
        })
    }
}
