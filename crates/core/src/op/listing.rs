//! Listings of tables as text and JSON, and the cost of commands.

use super::list::{Access, Op};
use super::operands::{
    ACTIVATIONS, WEIGHT, adapter_scale, add_bias, attention, combine, edit, embed, experts,
    grouped_gemm, mul, project_out, rope, rope_keys, rope_kv, self_attention,
    self_attention_weights,
};
use super::params;
use super::table::{BufferId, DispatchCmd, Place, SamplingStage, Slot, SlotInfo, Table};
use serde_json::{Value as Json, json};
use std::fmt;

/// Memory traffic and arithmetic of one replay of a command, with all rows active and a full
/// context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Number of bytes read and written, counting each operand once.
    pub bytes: u64,
    /// Number of floating-point operations; a multiply-add counts as two.
    pub flops: u64,
}

/// Operations that multiply all rows of W by all rows of their second operand.
const PRODUCTS: [Op; 6] = [
    Op::Gemv,
    Op::GemvAdd,
    Op::Gemm,
    Op::GemmAdd,
    Op::BitMat,
    Op::BitMatAdd,
];

/// Index of the activations that a vector changes in place.
const IN_PLACE: usize = mul::AT.y;

const _: () = assert!(
    add_bias::AT.y == IN_PLACE
        && edit::AT.y == IN_PLACE
        && project_out::AT.y == IN_PLACE
        && adapter_scale::AT.y == IN_PLACE
);

const _: () = assert!(
    self_attention_weights::AT.q == self_attention::AT.q
        && self_attention_weights::AT.k == self_attention::AT.k
);

impl Table {
    /// Returns the cost of a command.
    pub fn cost(&self, cmd: &DispatchCmd) -> Cost {
        let size = |slot: Slot| self.slot(slot).bytes();
        let state = |slot: &Slot| self.slot(*slot).buffer == BufferId::State;
        let counted = cmd.slots().iter().filter(|s| !state(s));
        let all: u64 = counted.map(|&s| size(s)).sum();
        let elements = |slot: usize| {
            let info = self.slot(cmd.slots[slot]);
            u64::from(info.rows) * u64::from(info.cols)
        };
        let row = |slot: usize| {
            let info = self.slot(cmd.slots[slot]);
            info.bytes() / u64::from(info.rows.max(1))
        };
        let tokens = u64::from(self.tokens);
        match cmd.kernel.op {
            // One row per token, not the whole matrix.
            Op::Embed | Op::EmbedAdd => Cost {
                bytes: tokens * row(WEIGHT) + size(cmd.slots[embed::AT.y]),
                flops: if cmd.kernel.op == Op::Embed {
                    0
                } else {
                    elements(embed::AT.y)
                },
            },
            Op::Combine => Cost {
                bytes: all,
                flops: 2 * elements(combine::AT.x),
            },
            op if PRODUCTS.contains(&op) => {
                let x = self.slot(cmd.slots[ACTIVATIONS]);
                Cost {
                    bytes: all,
                    flops: 2 * elements(WEIGHT) * u64::from(x.rows),
                }
            }
            // One vector for all tokens.
            Op::AddBias | Op::Mul | Op::Edit | Op::ProjectOut | Op::AdapterScale => Cost {
                bytes: all,
                flops: elements(IN_PLACE),
            },
            // The selected experts, each read at most once.
            Op::Experts | Op::GroupedGemm => {
                const { assert!(experts::AT.y == grouped_gemm::AT.y) };
                let w = self.slot(cmd.slots[WEIGHT]);
                let products = elements(experts::AT.y);
                let rows = products.min(u64::from(w.rows));
                Cost {
                    bytes: all - w.bytes() + rows * row(WEIGHT),
                    flops: 2 * products * u64::from(w.cols),
                }
            }
            Op::RopeKv | Op::RopeKeys => self.rope_cache_cost(cmd),
            Op::Rope => Cost {
                bytes: all,
                flops: 3 * elements(rope::AT.x),
            },
            Op::Attention | Op::AttendPart => self.attention_cost(cmd),
            // One multiply-add per query element and position for the score, one for the value.
            Op::SelfAttention | Op::SelfAttentionWeights => {
                let products = if cmd.kernel.op == Op::SelfAttention {
                    2
                } else {
                    1
                };
                let positions = u64::from(self.slot(cmd.slots[self_attention::AT.k]).rows);
                Cost {
                    bytes: all,
                    flops: 2 * products * elements(self_attention::AT.q) * positions,
                }
            }
            // One operation per element of the first operand.
            _ => Cost {
                bytes: all,
                flops: elements(0),
            },
        }
    }

    /// Returns the cost of [`Op::RopeKv`] and [`Op::RopeKeys`], which write one row per token and cache.
    fn rope_cache_cost(&self, cmd: &DispatchCmd) -> Cost {
        let keys_only = cmd.kernel.op == Op::RopeKeys;
        let (q, read, cache, caches) = match keys_only {
            true => {
                let at = rope_keys::AT;
                (at.q, vec![at.k, at.freqs, at.q], at.k_cache, 1)
            }
            false => {
                let at = rope_kv::AT;
                (at.q, vec![at.k, at.v, at.freqs, at.q], at.k_cache, 2)
            }
        };
        let bytes = |i: usize| self.slot(cmd.slots[i]).bytes();
        let (q, keys) = (self.slot(cmd.slots[q]), self.slot(cmd.slots[cache]));
        let row = keys.bytes() / u64::from(keys.rows.max(1));
        Cost {
            bytes: read.into_iter().map(bytes).sum::<u64>() + caches * u64::from(self.tokens) * row,
            flops: 6 * u64::from(q.rows) * u64::from(q.cols),
        }
    }

    /// Returns the cost of attention over a KV cache, assuming one sequence per token.
    fn attention_cost(&self, cmd: &DispatchCmd) -> Cost {
        let attention::Operands {
            q,
            k_cache,
            v_cache,
            pages,
            y,
            ..
        } = attention::AT;
        let caches = match cmd.slots[k_cache] == cmd.slots[v_cache] {
            true => 1,
            false => 2,
        };
        let [q, keys, pages, y] = [q, k_cache, pages, y].map(|i| self.slot(cmd.slots[i]));
        let positions = u64::from(self.window(cmd));
        let row = keys.bytes() / u64::from(keys.rows.max(1));
        let cache_bytes = caches * row * positions * u64::from(pages.rows.min(self.tokens));
        Cost {
            bytes: q.bytes() + y.bytes() + cache_bytes,
            flops: 4 * u64::from(q.rows) * u64::from(q.cols) * positions,
        }
    }

    /// Returns the maximum number of positions that a query of an attention command sees.
    pub fn window(&self, cmd: &DispatchCmd) -> u32 {
        let bytes = self.params(cmd);
        match cmd.kernel.op {
            Op::AttendPart => {
                bytemuck::pod_read_unaligned::<params::attend_part::Params>(bytes).window
            }
            _ => bytemuck::pod_read_unaligned::<params::attention::Params>(bytes).window,
        }
    }

    /// Returns the cost of the whole table.
    pub fn total(&self) -> Cost {
        self.cmds
            .iter()
            .map(|cmd| self.cost(cmd))
            .fold(Cost::default(), |a, b| Cost {
                bytes: a.bytes + b.bytes,
                flops: a.flops + b.flops,
            })
    }

    /// Returns the line of a command in the listing.
    pub fn line(&self, at: usize) -> String {
        let cmd = &self.cmds[at];
        let slots = cmd.slots().iter().map(|slot| self.slot(*slot));
        let weights = slots.filter(|info| matches!(info.buffer, BufferId::Weight(..)));
        let shapes: Vec<String> = weights
            .map(|info| format!("{}x{}", info.rows, info.cols))
            .collect();
        let Cost { bytes, flops } = self.cost(cmd);
        let line = format!(
            "{at:>4}  {:<14} {:<24} <- {:<36} {:<12} {bytes:>11} B {flops:>12} flop",
            cmd.name(),
            self.written(cmd),
            self.read(cmd),
            shapes.join(" "),
        );
        line.trim_end().to_string()
    }

    /// Returns each command as a JSON object: `table`, `index`, `stage`, `op`, `kernel`, `host`, `label`,
    /// `slots` (`operand`, `access`, `name`, `dtype`, `shape`, `place`, `bytes`), `params` in
    /// hexadecimal, `grid`, `bytes` and `flops`.
    pub fn commands_json(&self) -> impl Iterator<Item = Json> {
        let object = |(at, cmd)| self.command_json(at, cmd);
        self.cmds.iter().enumerate().map(object)
    }

    fn command_json(&self, at: usize, cmd: &DispatchCmd) -> Json {
        let operands = cmd.kernel.op.operands().iter().zip(cmd.slots());
        let slots = operands.map(|(operand, slot)| {
            let info = self.slot(*slot);
            json!({
                "operand": operand.name,
                "access": format!("{:?}", operand.access).to_lowercase(),
                "name": info.name,
                "dtype": info.dtype.name(),
                "shape": [info.rows, info.cols],
                "place": buffer_name(info.buffer),
                "bytes": info.bytes(),
            })
        });
        let Cost { bytes, flops } = self.cost(cmd);
        let params = self.params(cmd).iter();
        json!({
            "table": self.name,
            "index": at,
            "stage": self.stage_of(at).map(SamplingStage::name),
            "op": cmd.kernel.op.name(),
            "kernel": cmd.kernel.name(),
            "host": cmd.place == Place::Host,
            "label": self.labels.get(cmd.label as usize),
            "slots": slots.collect::<Vec<_>>(),
            "params": params.map(|byte| format!("{byte:02x}")).collect::<String>(),
            "grid": cmd.grid,
            "bytes": bytes,
            "flops": flops,
        })
    }

    /// Returns the names of the read-only operands, without the step state.
    fn read(&self, cmd: &DispatchCmd) -> String {
        let operands = cmd.kernel.op.operands().iter().zip(cmd.slots());
        let read = operands.filter(|(o, _)| o.access == Access::Read);
        let names = read.map(|(_, slot)| self.slot(*slot));
        let names = names
            .filter(|info| info.buffer != BufferId::State)
            .map(name);
        names.collect::<Vec<_>>().join(", ")
    }

    /// Returns the names of the written operands; `+` marks in-place updates.
    fn written(&self, cmd: &DispatchCmd) -> String {
        let operands = cmd.kernel.op.operands().iter().zip(cmd.slots());
        let written = operands.filter(|(o, _)| o.access != Access::Read);
        let names = written.map(|(o, slot)| match o.access {
            Access::Update => format!("{}+", name(self.slot(*slot))),
            _ => name(self.slot(*slot)),
        });
        names.collect::<Vec<_>>().join(", ")
    }
}

impl DispatchCmd {
    /// Returns the name in listings: that of the kernel, after `cpu:` if it runs on the CPU of a GPU.
    pub fn name(&self) -> String {
        match self.place {
            Place::Device => self.kernel.name(),
            Place::Host => format!("cpu:{}", self.kernel.name()),
        }
    }
}

/// Returns the name of a buffer: `scratch 2`.
fn buffer_name(buffer: BufferId) -> String {
    match buffer {
        BufferId::Weight(n, 0) => format!("weight {n}"),
        BufferId::Weight(n, first) => format!("weight {n} from row {first}"),
        BufferId::Constant(n) => format!("constant {n}"),
        BufferId::Keys(n) => format!("keys {n}"),
        BufferId::Values(n) => format!("values {n}"),
        BufferId::ConvState(n) => format!("conv state {n}"),
        BufferId::RecurrentState(n) => format!("recurrent state {n}"),
        BufferId::Captured(n) => format!("captured {n}"),
        BufferId::AdapterScales(n) => format!("adapter scales {n}"),
        BufferId::Residual(n) => format!("residual {n}"),
        BufferId::LensLogits(n) => format!("lens logits {n}"),
        BufferId::Transferred(cols, n) => format!("transferred {cols} {n}"),
        BufferId::Scratch(n) => format!("scratch {n}"),
        BufferId::Pages => "pages".to_string(),
        BufferId::State => "state".to_string(),
        BufferId::History => "history".to_string(),
        BufferId::Samplers => "samplers".to_string(),
        BufferId::Biases => "biases".to_string(),
        BufferId::Masks => "masks".to_string(),
        BufferId::Breakers => "breakers".to_string(),
        BufferId::Logprobs => "logprobs".to_string(),
        BufferId::Logits => "logits".to_string(),
        BufferId::Scores => "scores".to_string(),
        BufferId::Hidden => "hidden".to_string(),
        BufferId::Mel => "mel".to_string(),
        BufferId::Alignment => "alignment".to_string(),
    }
}

/// Returns the name of a slot; for scratch slots with the buffer number.
fn name(info: &SlotInfo) -> String {
    match info.buffer {
        BufferId::Scratch(n) => format!("{}@{n}", info.name),
        _ => info.name.clone(),
    }
}

/// Prints one line per command: number, kernel, written operands, read operands, weight shapes and
/// cost.
///
/// `n@2` is the scratch slot `n` in scratch buffer 2; `h@0+` is updated in place. The output of a command
/// with `cpu:` is in the memory of the CPU.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "; table {}, {} token{}, {} commands, arena {} bytes",
            self.name,
            self.tokens,
            if self.tokens == 1 { "" } else { "s" },
            self.cmds.len(),
            self.arena_bytes()
        )?;
        for at in 0..self.cmds.len() {
            for (stage, range) in SamplingStage::ALL.iter().zip(&self.stages) {
                if range.start == at && !range.is_empty() {
                    writeln!(f, "; {}", stage.name())?;
                }
            }
            writeln!(f, "{}", self.line(at))?;
        }
        let Cost { bytes, flops } = self.total();
        writeln!(f, "; total {bytes} B, {flops} flop")
    }
}
