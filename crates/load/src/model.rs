//! A loaded model: linked tables, tokenizer and facts.

use crate::audio::MelFilters;
use crate::device::DeviceKind;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::{Executor, Program, Upload};
use crate::op::hooks::{CaptureLayout, HookSpec};
use crate::op::pages::{PageKind, Pages};
use crate::op::params::PAGE;
use crate::op::table::FEW_TOKENS;
use crate::op::table::{BufferId, SlotInfo, Table};
use crate::speech::SpecialTokens;
use crate::text::{ChatTemplates, Tokenizer};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A table of a model. Decoder models have `Step` and `Batch` tables, and an `Embed` table if they
/// were loaded with one. Encoders only have the `Embed` table, or the `Classify` table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableId {
    /// Decodes one token and samples the next one. Further tables of this name process several
    /// rows: one token of each of several sequences, or several tokens of one sequence.
    Step,
    /// Processes a chunk of tokens and computes the logits after the last one.
    Batch,
    /// Processes a chunk of tokens and outputs the hidden states of the last layer after its norm.
    Embed,
    /// Encoders with a classification head: computes the logits of the labels for texts.
    Classify,
    /// Speech models: computes the keys and values of cross-attention for a window of audio.
    Encode,
    /// Speech models: computes the attention of tokens to the window, for the times of words.
    Align,
    /// Hooks: computes logits from the residual stream of several tokens.
    Lens,
    /// Models with a drafting head: computes its keys and values for a chunk of tokens that passed through the
    /// model.
    HeadKeys,
    /// Models with a drafting head: drafts a token after that of each row.
    Draft,
}

impl TableId {
    /// Returns the name of the table in listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Batch => "batch",
            Self::Embed => "embed",
            Self::Classify => "classify",
            Self::Encode => "encode",
            Self::Align => "align",
            Self::Lens => "lens",
            Self::HeadKeys => "head_keys",
            Self::Draft => "draft",
        }
    }

    /// Returns the index of the first table of this name.
    ///
    /// # Errors
    ///
    /// `State` if there is none.
    #[doc(hidden)] // for decoding
    pub fn find(self, tables: &[Table]) -> Result<usize> {
        let at = tables.iter().position(|table| table.name == self.name());
        at.ok_or_else(|| {
            let message = match self {
                Self::Encode | Self::Align => {
                    "the model has no audio encoder: it is no speech model"
                }
                Self::Embed => {
                    "embeddings are disabled: the model was loaded without its embedding table"
                }
                Self::Classify => "the model has no classification head",
                Self::HeadKeys | Self::Draft => {
                    "the model was loaded without a drafting head (MTP or EAGLE-3)"
                }
                _ => "the model is an encoder: it computes embeddings or scores of texts and cannot generate text",
            };
            Error::new(ErrorKind::State, message)
        })
    }
}

/// Maximum number of rows of a step table.
pub const STEP_ROWS_MAX: u32 = FEW_TOKENS;

/// Minimum number of rows of the widest step table, which scores tokens and checks draft tokens of
/// one sequence.
pub(crate) const SCORE_TOKENS: u32 = 8;

/// Rows of the page table for a recording: the maximum number of beams and of samples.
pub const BEAMS_MAX: u32 = 8;

/// Properties of a loaded model.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Name of the model in its metadata; empty if the file has none.
    pub name: String,
    /// Architecture name in the model file, such as `llama`.
    pub architecture: String,
    /// Number of layers.
    pub layers: u32,
    /// Hidden size: width of the residual stream.
    pub dim: u32,
    /// Number of query heads.
    pub heads: u32,
    /// Number of key and value heads.
    pub kv_heads: u32,
    /// Size of an attention head.
    pub head_dim: u32,
    /// Size of the feed-forward layer.
    pub ffn: u32,
    /// Number of tokens in the vocabulary, which is the length of a row of logits.
    pub vocab: u32,
    /// Number of sequences that the KV cache holds at once, or of recordings of a speech model.
    pub sequences: u32,
    /// Whether the model can check draft tokens: its multi-row step tables compute the same bits as
    /// single steps.
    pub speculates: bool,
    /// Drafting head that the model was loaded with: `MTP` or `EAGLE-3`.
    pub drafting_head: Option<&'static str>,
    /// Context length of a sequence, in tokens.
    pub context: u32,
    /// Context length that the model was trained with, in tokens.
    pub context_trained: u32,
    /// Storage type of most bytes of the weights, such as `Q4_K`.
    pub dtype: &'static str,
    /// Number of parameters.
    pub parameters: u64,
    /// Size of the model files in bytes.
    pub file_bytes: u64,
    /// Bytes of weights that decoding one token reads.
    pub token_bytes: u64,
    /// Size of the KV cache and of the recurrent states in bytes.
    pub cache_bytes: u64,
    /// Size of the recurrent state of a sequence in bytes; 0 without recurrent layers.
    pub state_bytes: u64,
    /// Size of the working memory in bytes.
    pub scratch_bytes: u64,
    /// Description of the device.
    pub device: String,
    /// Reason for the fallback to the CPU where a GPU was preferred.
    pub fallback: Option<String>,
    /// Whether the tables use the results of `tune`.
    pub tuned: Tuned,
    /// Upload to a GPU; `None` on a CPU.
    pub upload: Option<Upload>,
    /// Loading stages and their durations.
    pub stages: Vec<(&'static str, Duration)>,
}

/// Whether a tuning file was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tuned {
    /// There is no tuning file for this model and device, or no tuning folder was given.
    None,
    /// The tuning file at this path was applied.
    Applied(PathBuf),
    /// A tuning file was ignored. The text contains its path and the reason.
    Ignored(String),
}

/// Pooling: reduces the hidden states of a text to one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Mean of all tokens.
    Mean,
    /// First token.
    Cls,
    /// Last token.
    Last,
    /// Maximum of each dimension.
    Max,
    /// Mean of all tokens, weighted by their positions from 1 on. Only model files select it.
    WeightedMean,
    /// Sum of all tokens, divided by the square root of their number. Only model files select it.
    MeanSqrtLength,
}

impl Pooling {
    /// The methods that options can select.
    pub const ALL: &'static [Self] = &[Self::Mean, Self::Cls, Self::Last, Self::Max];

    /// Returns the name in sentence-transformers files and in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Cls => "cls",
            Self::Last => "last",
            Self::Max => "max",
            Self::WeightedMean => "weightedmean",
            Self::MeanSqrtLength => "mean_sqrt_len_tokens",
        }
    }
}

/// Embedding settings in the files of a model.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Embedding {
    /// Pooling methods, whose vectors are concatenated; empty if unspecified.
    pub pooling: Vec<Pooling>,
    /// Whether embeddings are normalized to length 1; `None` if unspecified.
    pub normalize: Option<bool>,
    /// Maximum length of a text in tokens; `None` if unspecified.
    pub length: Option<u32>,
    /// Prompts that are prepended to texts, such as `query` and `document`: pairs of name and text.
    pub prompts: Vec<(String, String)>,
    /// Name of the default prompt.
    pub default_prompt: Option<String>,
    /// Whether the files identify the model as a reranker, by `pooling_type` 4 or a README.
    pub is_reranker: bool,
    /// Dense modules that are computed after pooling.
    #[doc(hidden)] // for decoding
    pub dense: Vec<DenseModule>,
}

/// A Dense module of an embedding: a matrix, a bias and an activation function.
#[derive(Clone, Debug)]
pub struct DenseModule {
    /// `[out, in]`.
    pub weights: Vec<f32>,
    /// `[out]`.
    pub bias: Vec<f32>,
    /// Whether the results are passed to `tanh`.
    pub tanh: bool,
}

impl DenseModule {
    /// Returns the number of inputs.
    pub fn inputs(&self) -> usize {
        self.weights.len() / self.bias.len()
    }
}

/// Activation function of a classification head: converts the logits of a text to scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreActivation {
    /// The logits.
    Identity,
    /// `1 / (1 + exp(-x))` of each logit.
    Sigmoid,
    /// `exp(x) / sum(exp(x))` over the labels.
    Softmax,
}

impl ScoreActivation {
    const ALL: [Self; 3] = [Self::Identity, Self::Sigmoid, Self::Softmax];

    /// Returns the name in model files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Sigmoid => "sigmoid",
            Self::Softmax => "softmax",
        }
    }

    /// Returns the function with this name.
    #[doc(hidden)] // for decoding
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Applies the function to the logits of a text.
    #[doc(hidden)] // for decoding
    pub fn apply(self, logits: &mut [f32]) {
        let largest = logits.iter().fold(f32::NEG_INFINITY, |m, x| m.max(*x));
        let exp = |x: f32| f64::from(x - largest).exp();
        let sum: f64 = logits.iter().map(|x| exp(*x)).sum();
        for x in logits {
            let score = match self {
                Self::Identity => f64::from(*x),
                Self::Sigmoid => 1.0 / (1.0 + (-f64::from(*x)).exp()),
                Self::Softmax => exp(*x) / sum,
            };
            #[expect(clippy::cast_possible_truncation, reason = "scores are f32")]
            let score = score as f32;
            *x = score;
        }
    }
}

/// Classification head of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classifier {
    /// Names of the labels, in the order of the scores; `LABEL_0` and so on if the files have none.
    pub labels: Vec<String>,
    /// Activation function in the files of sentence-transformers; otherwise sigmoid for one label, and
    /// softmax for several.
    pub activation: ScoreActivation,
}

/// Properties of a speech model that its tables do not contain.
#[derive(Clone, Debug)]
pub struct SpeechModel {
    /// Special tokens of the vocabulary.
    pub tokens: SpecialTokens,
    /// Mel filters.
    pub filters: MelFilters,
    /// Number of output rows of the encoder; a window has twice as many frames.
    pub context: u32,
    /// Number of heads that align tokens with audio.
    pub alignment_heads: usize,
}

/// A model with its tables linked to a device.
pub struct LinkedTables {
    /// Executor that replays the tables.
    pub executor: Box<dyn Executor>,
    /// The GPU, for tests of device loss.
    #[cfg(feature = "gpu")]
    pub gpu: Option<crate::exec::gpu::Device>,
    /// Tables, each named after a [`TableId`].
    pub tables: Arc<[Table]>,
    /// Page layout of the KV cache.
    pub pages: Pages,
    /// Embedding settings of the model files.
    pub embedding: Embedding,
    /// Classification head.
    pub classifier: Option<Arc<Classifier>>,
    /// Tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Chat templates of the model files.
    pub chat_templates: Arc<ChatTemplates>,
    /// Properties of a speech model.
    pub speech: Option<Arc<SpeechModel>>,
    /// Computes the digest of the model files.
    pub digest: ComputeDigest,
    /// Compiles tables with hooks.
    pub hook_compiler: Arc<dyn HookCompiler>,
    /// Description of the first weights that are not finite, once they were searched for.
    pub culprit: OnceLock<Option<String>>,
    /// Everything except the model files that affects the bits of the KV cache, as text.
    pub provenance: String,
    /// Checks that no file has changed whose pages the device reads while it computes.
    pub check_files: CheckFiles,
    /// Properties of the model.
    pub facts: Facts,
}

/// A LoRA adapter that fits the weights of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterWeights {
    /// Name of the folder, or of the file without its extension.
    pub name: String,
    /// Modules, at most one per weight; at least one.
    pub modules: Vec<AdapterModule>,
}

/// Change of one weight: the product `W x` becomes `W x + B (A x)`.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterModule {
    /// GGUF name of the weight without `.weight`, such as `blk.3.attn_q`.
    pub tensor: String,
    /// Rows of A and columns of B.
    pub rank: u32,
    /// Columns of A and of the weight.
    pub inputs: u32,
    /// Rows of B and of the weight.
    pub outputs: u32,
    /// `[rank, inputs]`.
    pub a: Vec<f32>,
    /// `[outputs, rank]`, multiplied by the scale of the adapter.
    pub b: Vec<f32>,
}

/// What a loaded model needs from loading later: adapters, and tables with hooks.
pub trait HookCompiler: Send + Sync {
    /// Compiles the tables of the model with hooks and adapters. `id` is the number of the hooks, which
    /// is unique among those of a model.
    fn compile(
        &self,
        id: u32,
        spec: &HookSpec,
        adapters: &[Arc<AdapterWeights>],
    ) -> Result<HookedTables>;

    /// Searches the weights for values that are not finite, and describes the first ones.
    fn first_not_finite(&self) -> Option<String>;

    /// Reads an adapter for the model.
    fn read_adapter(&self, path: &Path) -> Result<AdapterWeights>;
}

/// Tables of a model with hooks, before they are linked.
#[expect(
    missing_debug_implementations,
    reason = "a program contains trait objects"
)]
pub struct HookedTables {
    /// Tables, each named after a [`TableId`], and their tensors.
    pub program: Program,
    /// Columns of the stored values.
    pub layout: CaptureLayout,
}

/// Reads the model files and computes their digest. Fails if they changed since loading.
pub type ComputeDigest = Arc<dyn Fn() -> Result<[u8; 32]> + Send + Sync>;

/// Fails with `State` and the path of a file that has another size or time than when it was opened.
pub type CheckFiles = Arc<dyn Fn() -> Result<()> + Send + Sync>;

impl LinkedTables {
    /// Returns the error for a result that is not finite, such as the logits of a pass. Names the first
    /// weights that are not finite; the first call reads all weights.
    pub fn not_finite(&self, what: impl fmt::Display) -> Error {
        let message = match self.culprit() {
            Some(culprit) => format!("{what}: {culprit}"),
            None => format!(
                "{what}, although all weights are finite: the computation exceeds the range of a float, or the \
                 options exclude every token"
            ),
        };
        Error::new(ErrorKind::Internal, message)
    }

    /// Returns whether all weights are finite; the first call reads them.
    pub fn weights_are_finite(&self) -> bool {
        self.culprit().is_none()
    }

    fn culprit(&self) -> Option<&str> {
        let search = || self.hook_compiler.first_not_finite();
        self.culprit.get_or_init(search).as_deref()
    }

    /// Returns whether step tables and chunk tables write different bits to the KV cache for the same
    /// token. On a CPU they write the same bits.
    pub fn step_bits_differ(&self) -> bool {
        self.executor.profile().kind == DeviceKind::Gpu
    }

    /// Returns the index of a table.
    ///
    /// # Errors
    ///
    /// `State` if the model does not have the table.
    pub fn table_index(&self, id: TableId) -> Result<usize> {
        id.find(&self.tables)
    }
}

/// Returns the slots of the KV cache and of the states, each once, with the bytes of a page and the kind of its
/// layer. Those of the drafting head are in its table.
pub fn paged_slots(
    tables: &[Table],
    pages: Pages,
) -> impl Iterator<Item = (&SlotInfo, usize, PageKind)> {
    let (first, others) = tables.split_at(1);
    let head = others
        .iter()
        .find(|table| table.name == TableId::Draft.name());
    let listed = |slot: &&SlotInfo| {
        first[0]
            .slots
            .iter()
            .any(|other| other.buffer == slot.buffer)
    };
    let head = head
        .into_iter()
        .flat_map(|table| &table.slots)
        .filter(move |slot| !listed(slot));
    first[0].slots.iter().chain(head).filter_map(move |slot| {
        let (bytes, kind) = page_layout(slot, pages)?;
        Some((slot, bytes, kind))
    })
}

/// Returns the bytes of a page in this buffer, and the kind of its layer; `None` if the buffer is
/// neither a KV cache nor a state.
pub fn page_layout(slot: &SlotInfo, pages: Pages) -> Option<(usize, PageKind)> {
    let (kind, rows) = match slot.buffer {
        BufferId::Keys(_) | BufferId::Values(_) => {
            let full = slot.rows == pages.whole_pool * PAGE;
            let kind = if full {
                PageKind::Full
            } else {
                PageKind::Windowed
            };
            (kind, PAGE)
        }
        BufferId::ConvState(_) | BufferId::RecurrentState(_) => (PageKind::State, 1),
        _ => return None,
    };
    let bytes = slot.dtype.bytes(u64::from(slot.cols) * u64::from(rows))?;
    Some((usize::try_from(bytes).ok()?, kind))
}

impl fmt::Debug for LinkedTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkedTables")
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}
