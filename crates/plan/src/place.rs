//! Places routed experts on the CPU of a GPU (the host), and inserts the transfers between the two.
//!
//! The host runs the products of the experts that a router selected, everything that is computed only
//! from their outputs, and the weighted sum of the outputs, so that a layer transfers the input of the
//! experts, the ids and the weights in one direction, and the sum in the other. Commands of the device
//! that do not depend on the sum, such as those of shared experts, come before the commands of the host:
//! both then run at the same time.

use crate::builder::{Graph, Node};
use std::collections::{BTreeMap, BTreeSet};
use tabla_core::dtype::DType;
use tabla_core::error::{Result, bail};
use tabla_core::op::list::{Access, Op};
use tabla_core::op::operands::{combine, experts, group_by_expert, grouped_gemm, route, transfer};
use tabla_core::op::params;
use tabla_core::op::table::{BufferId, Place, Slot, SlotInfo};

/// Places the routed experts of the first `layers` layers on the host.
pub(super) fn place(graph: &mut Graph, layers: u32) -> Result<()> {
    let ends: Vec<usize> = graph.layers.iter().map(|layer| layer.cmd).collect();
    let chosen = ends
        .len()
        .min(usize::try_from(layers).unwrap_or(usize::MAX));
    let mut nodes = std::mem::take(&mut graph.nodes).into_iter();
    let mut pass = Pass::new(&mut graph.slots);
    // Indices of commands at the ends of layers, before and after.
    let mut moved = vec![(0, 0)];
    for &end in &ends[..chosen] {
        let first = moved.last().map_or(0, |(before, _)| *before);
        for node in nodes.by_ref().take(end - first) {
            pass.add(node)?;
        }
        pass.end_segment();
        moved.push((end, pass.nodes.len()));
    }
    pass.nodes.extend(nodes);
    graph.nodes = pass.nodes;
    let index = |at: usize| {
        let known = moved.iter().rfind(|(before, _)| *before <= at);
        known.map_or(at, |(before, after)| after + (at - before))
    };
    graph
        .layers
        .iter_mut()
        .for_each(|layer| layer.cmd = index(layer.cmd));
    graph.head = index(graph.head);
    graph
        .stages
        .iter_mut()
        .flatten()
        .for_each(|stage| *stage = index(*stage));
    assign_transferred(graph);
    Ok(())
}

/// Numbers of the buffers of values that are needed in several layers.
const SEVERAL_LAYERS: u32 = 1 << 16;

/// Assigns buffers to the slots of transfers, which executors read and write: scratch buffers of added
/// tables are not accessible. Layers share buffers, unless a value is also used in another layer.
fn assign_transferred(graph: &mut Graph) {
    let mut layers = vec![None; graph.slots.len()];
    for (at, node) in graph.nodes.iter().enumerate() {
        let layer = graph.layers.iter().position(|layer| at < layer.cmd);
        for slot in &node.slots {
            let known: &mut Option<(Option<usize>, bool)> = &mut layers[usize::from(slot.0)];
            let (first, several) = known.get_or_insert((layer, false));
            *several |= *first != layer;
        }
    }
    // Number of buffers of a layer, or of several layers, by the length of their rows.
    let mut counts: BTreeMap<(Option<usize>, u32), u32> = BTreeMap::new();
    for node in graph.nodes.iter().filter(|node| node.op == Op::Transfer) {
        for at in [transfer::AT.x, transfer::AT.y] {
            let slot = usize::from(node.slots[at].0);
            let info = &mut graph.slots[slot];
            if let (BufferId::Scratch(_), Some((layer, several))) = (info.buffer, layers[slot]) {
                let layer = layer.filter(|_| !several);
                let count = counts.entry((layer, info.cols)).or_default();
                let first = layer.map_or(SEVERAL_LAYERS, |_| 0);
                info.buffer = BufferId::Transferred(info.cols, first + *count);
                *count += 1;
            }
        }
    }
}

/// State of the pass over the commands of the chosen layers.
struct Pass<'a> {
    slots: &'a mut Vec<SlotInfo>,
    /// Number of the next scratch buffer.
    scratch: u32,
    /// Finished commands.
    nodes: Vec<Node>,
    /// Ids of a router's experts, and tiles of them.
    routes: BTreeSet<BufferId>,
    /// Buffers that commands of the host write.
    computed: BTreeSet<BufferId>,
    /// Slots of the host with the current values of buffers of the device.
    on_host: BTreeMap<BufferId, Slot>,
    /// Slots of the device with the values of buffers of the host.
    on_device: BTreeMap<BufferId, Slot>,
    segment: Segment,
}

/// Commands around a run of commands on the host.
#[derive(Default)]
struct Segment {
    /// Commands of the device that do not depend on those of the host, and transfers to the host.
    before: Vec<Node>,
    host: Vec<Node>,
    /// Transfers to the device, and commands that depend on them.
    after: Vec<Node>,
    /// Buffers that commands in `after` read or write.
    read: BTreeSet<BufferId>,
    written: BTreeSet<BufferId>,
}

impl<'a> Pass<'a> {
    fn new(slots: &'a mut Vec<SlotInfo>) -> Self {
        let scratch = slots.iter().filter_map(|info| match info.buffer {
            BufferId::Scratch(number) => Some(number + 1),
            _ => None,
        });
        Self {
            scratch: scratch.max().unwrap_or(0),
            slots,
            nodes: Vec::new(),
            routes: BTreeSet::new(),
            computed: BTreeSet::new(),
            on_host: BTreeMap::new(),
            on_device: BTreeMap::new(),
            segment: Segment::default(),
        }
    }

    fn info(&self, slot: Slot) -> &SlotInfo {
        &self.slots[usize::from(slot.0)]
    }

    fn buffer(&self, slot: Slot) -> BufferId {
        self.info(slot).buffer
    }

    /// Moves the commands of the segment to the finished ones.
    fn end_segment(&mut self) {
        let Segment {
            before,
            host,
            after,
            ..
        } = std::mem::take(&mut self.segment);
        self.nodes
            .extend(before.into_iter().chain(host).chain(after));
    }

    /// Adds the next command of a layer.
    fn add(&mut self, node: Node) -> Result<()> {
        let routed = |pass: &Self, at: usize| pass.routes.contains(&pass.buffer(node.slots[at]));
        match node.op {
            Op::Route => {
                let ids = self.buffer(node.slots[route::AT.ids]);
                self.routes.insert(ids);
                self.add_to_device(node)
            }
            Op::GroupByExpert if routed(self, group_by_expert::AT.ids) => {
                let tiles = self.buffer(node.slots[group_by_expert::AT.tiles]);
                self.routes.insert(tiles);
                self.add_to_host(node)
            }
            Op::Experts if routed(self, experts::AT.ids) => self.add_to_host(node),
            Op::GroupedGemm if routed(self, grouped_gemm::AT.tiles) => self.add_to_host(node),
            Op::Combine if self.is_computed(node.slots[combine::AT.x]) => self.add_combine(node),
            _ if self.only_reads_host(&node) => self.add_to_host(node),
            _ => self.add_to_device(node),
        }
    }

    fn is_computed(&self, slot: Slot) -> bool {
        self.computed.contains(&self.buffer(slot))
    }

    /// Returns whether all activations that a command reads are on the host. Ids are not activations.
    fn only_reads_host(&self, node: &Node) -> bool {
        let operands = node.slots.iter().zip(node.op.operands());
        let read = operands.filter(|(_, operand)| operand.access != Access::Write);
        let mut activations = read
            .map(|(slot, _)| self.info(*slot))
            .filter(|info| matches!(info.buffer, BufferId::Scratch(_)) && info.dtype == DType::F32)
            .peekable();
        activations.peek().is_some() && activations.all(|info| self.computed.contains(&info.buffer))
    }

    /// Adds a command of the host, after transfers of what it reads.
    fn add_to_host(&mut self, mut node: Node) -> Result<()> {
        node.place = Place::Host;
        for (at, operand) in node.op.operands().iter().enumerate() {
            let (slot, buffer) = (node.slots[at], self.buffer(node.slots[at]));
            if operand.access != Access::Read {
                self.on_device.remove(&buffer);
            }
            match (buffer, operand.access) {
                (BufferId::Scratch(_), Access::Write) => {
                    self.computed.insert(buffer);
                }
                (BufferId::Scratch(_), Access::Read) if !self.computed.contains(&buffer) => {
                    node.slots[at] = self.host_copy(slot, &node)?;
                }
                (BufferId::Scratch(_), _) if self.computed.contains(&buffer) => {}
                (BufferId::Weight(..) | BufferId::Constant(_) | BufferId::State, Access::Read) => {}
                _ => bail!(
                    Internal,
                    "{}: cannot run on the CPU: {} is on the GPU",
                    node.label,
                    self.info(slot).name
                ),
            }
        }
        self.segment.host.push(node);
        Ok(())
    }

    /// Returns the slot of the host with the value of a slot of the device.
    fn host_copy(&mut self, slot: Slot, reader: &Node) -> Result<Slot> {
        let buffer = self.buffer(slot);
        if let Some(copy) = self.on_host.get(&buffer) {
            return Ok(*copy);
        }
        // The value depends on earlier commands of the host.
        if self.segment.written.contains(&buffer) {
            self.end_segment();
        }
        let copy = self.copy_slot(slot)?;
        self.on_host.insert(buffer, copy);
        let mut transfer = self.transfer([slot, copy], reader);
        transfer.place = Place::Host;
        self.segment.before.push(transfer);
        Ok(copy)
    }

    /// Adds a command of the device, after transfers of what it reads from the host.
    fn add_to_device(&mut self, mut node: Node) -> Result<()> {
        let mut depends = false;
        for (at, operand) in node.op.operands().iter().enumerate() {
            let (slot, buffer) = (node.slots[at], self.buffer(node.slots[at]));
            if self.computed.contains(&buffer) {
                if operand.access != Access::Read {
                    let name = &self.info(slot).name;
                    bail!(
                        Internal,
                        "{}: cannot run on the GPU: {name} is on the CPU",
                        node.label
                    );
                }
                node.slots[at] = self.device_copy(slot, &node)?;
                depends = true;
            }
            depends |= self.segment.written.contains(&buffer);
            depends |= operand.access != Access::Read && self.segment.read.contains(&buffer);
        }
        for (slot, operand) in node.slots.iter().zip(node.op.operands()) {
            let buffer = self.buffer(*slot);
            if operand.access != Access::Read {
                self.on_host.remove(&buffer);
            }
            if depends {
                match operand.access {
                    Access::Read => self.segment.read.insert(buffer),
                    Access::Write | Access::Update => self.segment.written.insert(buffer),
                };
            }
        }
        match depends {
            true => self.segment.after.push(node),
            false => self.segment.before.push(node),
        }
        Ok(())
    }

    /// Returns the slot of the device with the value of a slot of the host.
    fn device_copy(&mut self, slot: Slot, reader: &Node) -> Result<Slot> {
        let buffer = self.buffer(slot);
        if let Some(copy) = self.on_device.get(&buffer) {
            return Ok(*copy);
        }
        let copy = self.copy_slot(slot)?;
        self.on_device.insert(buffer, copy);
        let transfer = self.transfer([slot, copy], reader);
        self.segment.after.push(transfer);
        Ok(copy)
    }

    /// Adds the weighted sum of expert outputs `y += sum_s w[s] x[s]`: the host computes the sum, and the
    /// device adds it to `y`.
    fn add_combine(&mut self, node: Node) -> Result<()> {
        let slot = |at: usize| node.slots[at];
        let [x, w, y, state] = combine::AT.list().map(slot);
        let params::combine::Params { tokens, k, dim } = bytemuck::pod_read_unaligned(&node.params);
        let sum = self.copy_slot(y)?;
        self.slots[usize::from(sum.0)].name = "sum".to_string();
        // Columns of the first output, times 0.
        let columns = params::columns::Params {
            tokens,
            groups: 1,
            width: k * dim,
            offset: 0,
            dim,
        };
        let zero = params::scale::Params {
            tokens,
            dim,
            factor: 0.0,
        };
        let add = params::add::Params {
            tokens,
            dim,
            scale: 1.0,
        };
        let work = [dim, tokens];
        self.add_to_host(Node::plain(Op::Columns, &[x, sum, state], &columns, work))?;
        self.add_to_host(Node::plain(Op::Scale, &[sum, state], &zero, work))?;
        let slots = combine::Operands {
            x,
            w,
            y: sum,
            state,
        };
        self.add_to_host(Node {
            slots: slots.list().to_vec(),
            ..node
        })?;
        self.add_to_device(Node::plain(Op::Add, &[sum, y, state], &add, work))
    }

    /// Creates the copy of a slot; `reader` has the step state.
    fn transfer(&self, slots: [Slot; 2], reader: &Node) -> Node {
        let info = self.info(slots[0]);
        let state = reader
            .slots
            .iter()
            .find(|slot| self.buffer(**slot) == BufferId::State);
        let state = *state.expect("every operation reads the step state");
        Node::transfer([slots[0], slots[1], state], [info.rows, info.cols])
    }

    /// Creates a slot of the same shape in a buffer of its own.
    fn copy_slot(&mut self, slot: Slot) -> Result<Slot> {
        let Ok(index) = u16::try_from(self.slots.len()) else {
            bail!(TooLarge, "table exceeds the limit of {} slots", u16::MAX);
        };
        let info = SlotInfo {
            buffer: BufferId::Scratch(self.scratch),
            ..self.info(slot).clone()
        };
        self.scratch += 1;
        self.slots.push(info);
        Ok(Slot(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::{Builder, LogitRows, Router, RouterVectors, Shape, Weights, X};
    use crate::fixture::{F32s, shape};
    use tabla_core::op::functions::Activation;

    const DIM: u32 = 8;
    const EXPERTS: u32 = 4;

    /// Square matrices, a router, experts, and vectors `n`.
    fn moe() -> impl Weights {
        F32s(|name: &str| match name {
            "n" => [0, 1, DIM],
            "router" => [1, EXPERTS, DIM],
            "experts" => [2, EXPERTS * DIM, DIM],
            _ => [3, DIM, DIM],
        })
    }

    /// `h += experts(norm h) + shared(norm h)`
    fn layer(b: &mut Builder<'_>, h: X) {
        let [n, router] =
            [("n", 1), ("router", EXPERTS)].map(|(name, rows)| b.weight(name, rows, DIM));
        let [experts, shared] = [("experts", EXPERTS * DIM), ("shared", DIM)]
            .map(|(name, rows)| b.weight(name, rows, DIM));
        let x = b.rms_norm(h, n, 1e-5);
        let logits = b.mat("logits", router, x);
        let (routes, weights) = b.route(logits, Router::softmax(2), RouterVectors::default());
        let up = b.experts("up", experts, x, routes);
        b.activate(Activation::Silu, up);
        let down = b.experts("down", experts, up, routes);
        b.combine(down, weights, h);
        let f = b.mat("f", shared, x);
        b.activate(Activation::Silu, f);
        b.mat_add(shared, f, h);
        b.end_of_layer(h);
    }

    /// Returns a graph of two layers and the norm after them.
    fn graph(tokens: u32, layers: u32) -> Graph {
        let shape = Shape {
            logits: LogitRows::All,
            ..shape(tokens)
        };
        let moe = moe();
        let mut b = Builder::new(&moe, shape);
        let shared = b.weight("shared", DIM, DIM);
        let h = b.embed(shared);
        layer(&mut b, h);
        layer(&mut b, h);
        let h = b.logit_rows(h);
        let n = b.vector("n", DIM);
        b.rms_norm(h, n, 1e-5);
        let mut graph = b.finish().expect("the shapes match");
        graph.stages[0] = Some(graph.nodes.len() - 1);
        place(&mut graph, layers).expect("it places");
        graph
    }

    fn names(nodes: &[Node]) -> Vec<String> {
        let name = |node: &Node| match node.place {
            Place::Device => node.op.name().to_string(),
            Place::Host => format!("cpu:{}", node.op.name()),
        };
        nodes.iter().map(name).collect()
    }

    #[test]
    fn experts_are_between_transfers() {
        let graph = graph(1, 1);
        let end = graph.layers[0].cmd;
        let expected = "embed rms_norm gemv route cpu:transfer cpu:transfer cpu:transfer gemv activate \
                        cpu:experts cpu:activate cpu:experts cpu:columns cpu:scale cpu:combine \
                        transfer add gemv_add";
        assert_eq!(names(&graph.nodes[..end]).join(" "), expected);
        let second = "rms_norm gemv route experts activate experts combine gemv activate gemv_add";
        assert_eq!(
            names(&graph.nodes[end..graph.layers[1].cmd]).join(" "),
            second
        );
        assert_eq!(graph.head, graph.layers[1].cmd);
        assert_eq!(graph.stages[0], Some(graph.nodes.len() - 1));
        // The input, ids and weights.
        let shapes = |transfer: &Node| {
            let info = &graph.slots[usize::from(transfer.slots[0].0)];
            (info.dtype, info.cols)
        };
        let transfers = graph.nodes.iter().filter(|node| node.op == Op::Transfer);
        let shapes: Vec<_> = transfers.map(shapes).collect();
        let [f32, u32] = [DType::F32, DType::U32];
        assert_eq!(shapes, [(f32, DIM), (u32, 2), (f32, 2), (f32, DIM)]);
        let mut slots = graph.slots.iter();
        assert!(slots.all(|info| match info.buffer {
            BufferId::Transferred(cols, number) => cols == info.cols && number < 4,
            _ => true,
        }));
    }

    #[test]
    fn groups_of_many_tokens_are_on_the_host() {
        let graph = graph(70, 1);
        let host = names(&graph.nodes[..graph.layers[0].cmd]);
        let host: Vec<&str> = host
            .iter()
            .filter_map(|name| name.strip_prefix("cpu:"))
            .collect();
        let expected = "transfer transfer transfer group_by_expert grouped_gemm activate grouped_gemm \
                        columns scale combine";
        assert_eq!(host.join(" "), expected);
    }

    #[test]
    fn every_layer_reads_the_current_values() {
        let graph = graph(3, 9);
        // A value is read in the place that wrote it last.
        let mut last: BTreeMap<u16, Place> = BTreeMap::new();
        for (at, node) in graph.nodes.iter().enumerate() {
            let operands = node.slots.iter().zip(node.op.operands());
            let scratch = operands.filter(|(slot, _)| {
                matches!(
                    graph.slots[usize::from(slot.0)].buffer,
                    BufferId::Scratch(_)
                )
            });
            let scratch: Vec<_> = scratch.collect();
            let from = match node.op {
                Op::Transfer => node.place.other(),
                _ => node.place,
            };
            for (slot, operand) in &scratch {
                if operand.access != Access::Write {
                    assert_eq!(last.get(&slot.0), Some(&from), "{at}: {}", node.label);
                }
            }
            for (slot, operand) in scratch {
                if operand.access != Access::Read {
                    last.insert(slot.0, node.place);
                }
            }
        }
        let count = |op| graph.nodes.iter().filter(|node| node.op == op).count();
        assert_eq!([Op::Transfer, Op::Combine].map(count), [8, 2]);
    }

    #[test]
    fn matrices_of_heads_are_not_routed() {
        let shape = Shape {
            logits: LogitRows::All,
            ..shape(1)
        };
        let moe = moe();
        let mut b = Builder::new(&moe, shape);
        let experts = b.weight("experts", EXPERTS * DIM, DIM);
        let x = b.input("x", EXPERTS * DIM);
        let routes = b.head_routes(EXPERTS);
        let y = b.experts("y", experts, x, routes);
        b.end_of_layer(y);
        let mut graph = b.finish().expect("the shapes match");
        place(&mut graph, 1).expect("it places");
        assert_eq!(names(&graph.nodes), ["head_ids", "experts"]);
    }
}
