//! Fusion of norms and gated activations of one token into the products that read them.
//!
//! Each workgroup of a product reads all activations, so it can compute them from the inputs of the
//! preceding command. This saves a dispatch and a barrier.

use crate::builder::{Graph, Node};
use bytemuck::Pod;
use tabla_core::device::Fusion;
use tabla_core::error::Result;
use tabla_core::op::list::{Access, Op};
use tabla_core::op::operands::{ACTIVATIONS, gemv, gemv_glu, gemv_norm, glu, rms_norm};
use tabla_core::op::params;
use tabla_core::op::table::{BufferId, Slot};

/// Small operation, product that reads its result, and the fused operation.
const FUSED: [(Op, Op, Op); 3] = [
    (Op::RmsNorm, Op::Gemv, Op::GemvNorm),
    (Op::Glu, Op::Gemv, Op::GemvGlu),
    (Op::Glu, Op::GemvAdd, Op::GemvGluAdd),
];

/// Vector width of fused products in elements.
const WIDTH: u32 = 4;

pub(super) fn fuse(graph: &mut Graph, fusion: Fusion) -> Result<()> {
    let mut kept = Vec::with_capacity(graph.nodes.len());
    for at in 0..graph.nodes.len() {
        let enabled = match graph.nodes[at].op {
            Op::RmsNorm => fusion.norms(),
            _ => fusion.gates(),
        };
        let readers = enabled.then(|| readers(graph, at)).flatten();
        kept.push(readers.is_none());
        for (reader, op) in readers.into_iter().flatten() {
            graph.nodes[reader] = fused_node(&graph.nodes[at], &graph.nodes[reader], op);
        }
    }
    let mut kept = kept.into_iter();
    graph.replace(|node, nodes| {
        nodes.extend(kept.next().filter(|kept| *kept).map(|_| node));
        Ok(())
    })
}

/// Returns the products that read the result of a node, with their fused operations. `None` unless
/// all readers can be fused and the inputs of the node do not change before the last of them.
fn readers(graph: &Graph, at: usize) -> Option<Vec<(usize, Op)>> {
    let node = &graph.nodes[at];
    if !is_one_row(node) {
        return None;
    }
    let (read, y) = match node.op {
        Op::RmsNorm => ([rms_norm::AT.x, rms_norm::AT.w], rms_norm::AT.y),
        _ => ([glu::AT.gate, glu::AT.up], glu::AT.y),
    };
    let ([a, b], to) = (read.map(|i| node.slots[i]), node.slots[y]);
    let buffer = graph.slots[usize::from(to.0)].buffer;
    if !matches!(buffer, BufferId::Scratch(_)) || graph.layers.iter().any(|layer| layer.slot == to)
    {
        return None;
    }
    let mut changed = false;
    let mut readers = Vec::new();
    for (i, other) in graph.nodes.iter().enumerate().skip(at + 1) {
        changed |= writes(other, a) || writes(other, b);
        if other.slots.contains(&to) {
            let op =
                fused(node.op, other.op).filter(|_| !changed && other.slots[ACTIVATIONS] == to)?;
            readers.push((i, op));
        }
    }
    (!readers.is_empty()).then_some(readers)
}

/// Returns whether a node computes one row of a multiple of [`WIDTH`] elements from two inputs.
fn is_one_row(node: &Node) -> bool {
    match node.op {
        Op::RmsNorm => {
            let p: params::rms_norm::Params = params(node);
            [p.tokens, p.groups, p.dim % WIDTH] == [1, 1, 0]
        }
        Op::Glu => {
            let p: params::glu::Params = params(node);
            [p.tokens, p.dim % WIDTH] == [1, 0]
        }
        _ => false,
    }
}

fn fused(small: Op, product: Op) -> Option<Op> {
    let mut rows = FUSED.iter();
    let row = rows.find(|row| (row.0, row.1) == (small, product));
    row.map(|row| row.2)
}

fn writes(node: &Node, slot: Slot) -> bool {
    let mut operands = node.slots.iter().zip(node.op.operands());
    operands.any(|(s, operand)| *s == slot && operand.access != Access::Read)
}

/// Returns the product that also does the work of a small node.
fn fused_node(small: &Node, product: &Node, op: Op) -> Node {
    let params::gemv::Params { rows, cols, first } = params(product);
    let (w, y) = (product.slots[gemv::AT.w], product.slots[gemv::AT.y]);
    let state = product.slots[gemv::AT.state];
    let from = |i: usize| small.slots[i];
    let (slots, params) = match op {
        Op::GemvNorm => {
            let params::rms_norm::Params { eps, .. } = params(small);
            let slots = gemv_norm::Operands {
                w,
                x: from(rms_norm::AT.x),
                n: from(rms_norm::AT.w),
                y,
                state,
            };
            let params = params::gemv_norm::Params {
                rows,
                cols,
                first,
                eps,
            };
            (slots.list(), bytemuck::bytes_of(&params).to_vec())
        }
        _ => {
            let params::glu::Params { activation, .. } = params(small);
            let slots = gemv_glu::Operands {
                w,
                gate: from(glu::AT.gate),
                up: from(glu::AT.up),
                y,
                state,
            };
            let params = params::gemv_glu::Params {
                rows,
                cols,
                first,
                activation,
            };
            (slots.list(), bytemuck::bytes_of(&params).to_vec())
        }
    };
    Node {
        op,
        slots: slots.to_vec(),
        params,
        ..product.clone()
    }
}

fn params<P: Pod>(node: &Node) -> P {
    bytemuck::pod_read_unaligned(&node.params)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::{Builder, Weights};
    use crate::fixture::{F32s, shape};
    use tabla_core::op::functions::Activation;

    /// Square matrices, and a vector `n`.
    fn square(dim: u32) -> impl Weights {
        F32s(move |name: &str| match name {
            "n" => [1, 1, dim],
            _ => [0, dim, dim],
        })
    }

    type Emit = fn(&mut Builder<'_>, u32);

    /// Returns the operations of a graph before and after fusion.
    fn ops(dim: u32, tokens: u32, emit: Emit) -> [Vec<&'static str>; 2] {
        ops_with(Fusion::Fused, [dim, tokens], emit)
    }

    fn ops_with(fusion: Fusion, [dim, tokens]: [u32; 2], emit: Emit) -> [Vec<&'static str>; 2] {
        let weights = square(dim);
        let mut b = Builder::new(&weights, shape(tokens));
        emit(&mut b, dim);
        let mut graph = b.finish().expect("the weights fit");
        let before = names(&graph);
        fuse(&mut graph, fusion).expect("fusion succeeds");
        [before, names(&graph)]
    }

    /// Returns the operations of a graph for one token after full fusion.
    fn names_of(weights: &dyn Weights, emit: impl Fn(&mut Builder<'_>)) -> Vec<&'static str> {
        let mut b = Builder::new(weights, shape(1));
        emit(&mut b);
        let mut graph = b.finish().expect("the weights fit");
        fuse(&mut graph, Fusion::Fused).expect("fusion succeeds");
        names(&graph)
    }

    fn names(graph: &Graph) -> Vec<&'static str> {
        graph.nodes.iter().map(|node| node.op.name()).collect()
    }

    /// Emits a feed-forward layer.
    fn layer(b: &mut Builder<'_>, dim: u32) {
        let (w, n, h) = (
            b.weight("w", dim, dim),
            b.vector("n", dim),
            b.input("h", dim),
        );
        let x = b.rms_norm(h, n, 1e-5);
        let gate = b.mat("gate", w, x);
        let up = b.mat("up", w, x);
        let f = b.glu(Activation::Silu, gate, up);
        b.mat_add(w, f, h);
        b.end_of_layer(h);
    }

    #[test]
    fn fuses_a_layer_of_one_token() {
        let [before, after] = ops(8, 1, layer);
        assert_eq!(before, ["rms_norm", "gemv", "gemv", "glu", "gemv_add"]);
        assert_eq!(after, ["gemv_norm", "gemv_norm", "gemv_glu_add"]);
        let some = |fusion| ops_with(fusion, [8, 1], layer)[1].clone();
        assert_eq!(some(Fusion::None), before);
        let norms = ["gemv_norm", "gemv_norm", "glu", "gemv_add"];
        assert_eq!(some(Fusion::Norms), norms);
        let gates = ["rms_norm", "gemv", "gemv", "gemv_glu_add"];
        assert_eq!(some(Fusion::Gates), gates);
    }

    #[test]
    fn many_tokens_and_partial_vectors_are_not_fused() {
        for (dim, tokens) in [(8, 2), (7, 1)] {
            let [before, after] = ops(dim, tokens, layer);
            assert_eq!(before, after);
        }
    }

    #[test]
    fn results_with_other_readers_are_not_fused() {
        let [before, after] = ops(8, 1, |b, dim| {
            let (w, n, h) = (
                b.weight("w", dim, dim),
                b.vector("n", dim),
                b.input("h", dim),
            );
            let x = b.rms_norm(h, n, 1e-5);
            let y = b.mat("y", w, x);
            b.add(x, y, 1.0);
        });
        assert_eq!(before, after);
    }

    #[test]
    fn inputs_changed_before_the_product_prevent_fusion() {
        let [before, after] = ops(8, 1, |b, dim| {
            let (w, n, h) = (
                b.weight("w", dim, dim),
                b.vector("n", dim),
                b.input("h", dim),
            );
            let x = b.rms_norm(h, n, 1e-5);
            b.scale(h, 2.0);
            b.mat("y", w, x);
        });
        assert_eq!(before, after);
        // The product updates an input of the activation.
        let [before, after] = ops(8, 1, |b, dim| {
            let (w, gate, up) = (
                b.weight("w", dim, dim),
                b.input("g", dim),
                b.input("u", dim),
            );
            let f = b.glu(Activation::Gelu, gate, up);
            b.mat_add(w, f, up);
        });
        assert_eq!(before, after);
    }

    #[test]
    fn norms_per_head_are_not_fused() {
        // Two heads per row.
        let heads = F32s(|name: &str| match name {
            "n" => [1, 1, 8],
            _ => [0, 16, 16],
        });
        let norm = |b: &mut Builder<'_>| {
            let (w, n, h) = (b.weight("w", 16, 16), b.vector("n", 8), b.input("h", 16));
            let x = b.rms_norm(h, n, 1e-5);
            b.mat("y", w, x);
        };
        assert_eq!(names_of(&heads, norm), ["rms_norm", "gemv"]);
    }

    #[test]
    fn results_of_a_layer_or_table_are_not_fused() {
        let layer = |b: &mut Builder<'_>| {
            let (w, n, h) = (b.weight("w", 8, 8), b.vector("n", 8), b.input("h", 8));
            let x = b.rms_norm(h, n, 1e-5);
            b.end_of_layer(x);
            b.mat("y", w, x);
        };
        assert_eq!(names_of(&square(8), layer), ["rms_norm", "gemv"]);
        // No reader.
        let last = |b: &mut Builder<'_>| {
            let (n, h) = (b.vector("n", 8), b.input("h", 8));
            b.rms_norm(h, n, 1e-5);
        };
        assert_eq!(names_of(&square(8), last), ["rms_norm"]);
    }

    #[test]
    fn inputs_changed_between_two_products_prevent_fusion() {
        let between = |b: &mut Builder<'_>| {
            let (w, n, h) = (b.weight("w", 8, 8), b.vector("n", 8), b.input("h", 8));
            let x = b.rms_norm(h, n, 1e-5);
            b.mat("y", w, x);
            b.scale(h, 2.0);
            b.mat("z", w, x);
        };
        let names = names_of(&square(8), between);
        assert_eq!(names, ["rms_norm", "gemv", "scale", "gemv"]);
    }
}
