//! The arguments of every command, and the groups that commands share.

use crate::chat::ChatArgs;
use crate::embed::EmbedArgs;
use crate::hub::{self, HubArg, OfflineArg, Wanted};
use crate::logits::LogitsArgs;
use crate::output::Failure;
use crate::output::{cache_folders, terminal};
use crate::perplexity::PerplexityArgs;
use crate::quantize::{self, Choice};
use crate::rerank::RerankArgs;
use crate::run::RunArgs;
use crate::trace::TraceArgs;
use crate::tune::TuneArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use tabla::dtype::DType;
use tabla::quant::i2_s::Layout;
use tabla::text::{Encode, Specials};
use tabla::{
    CACHE_TYPES, DeviceChoice, GpuFeatures, HEAD_TYPES, Mix, Options, Precision, Replay,
    SEQUENCES_MAX, Source, WeightMemory,
};

/// Runs language models from the files you have.
///
/// Without a command it continues a prompt; without a model it tells a story of its own.
#[derive(Debug, Parser)]
#[command(name = "tabla", version, args_conflicts_with_subcommands = true)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 wrong arguments, 130 interrupted.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Continues a prompt
    Run(RunArgs),
    /// Answers a message, or holds a conversation
    Chat(ChatArgs),
    /// Shows what a file holds, what it needs and whether it runs here
    Inspect(InspectArgs),
    /// Shows the dispatch tables that a file compiles to
    Table(TableArgs),
    /// Lists the devices and what each can do
    Devices(DevicesArgs),
    /// Writes the logits after a prompt into an .npy file
    Logits(LogitsArgs),
    /// Turns texts into embeddings
    Embed(EmbedArgs),
    /// Ranks documents by how well they answer a query
    Rerank(RerankArgs),
    /// Says how well a model predicts a text
    Perplexity(PerplexityArgs),
    /// Turns text into token ids
    Tokenize(TokenizeArgs),
    /// Turns token ids into text
    Detokenize(DetokenizeArgs),
    /// Measures prompt processing and generation
    Bench(BenchArgs),
    /// Writes a trace of every command, for Perfetto or Chrome, and prints a roofline table
    Trace(TraceArgs),
    /// Times the kernels that could run a model on a GPU, and keeps the choice for every command
    Tune(TuneArgs),
    /// Fetches a model from the Hugging Face Hub and prints where it is
    Pull(PullArgs),
    /// Writes a model in smaller storage types
    Quantize(QuantizeArgs),
    /// Writes a model in another format: safetensors as GGUF, GGUF as safetensors
    Convert(ConvertArgs),
}

/// Which model, as an option.
#[derive(Args, Debug)]
pub(crate) struct ModelArg {
    /// Model: a GGUF file, or a folder or file of safetensors; without one, the built-in story model
    #[arg(short, long, value_name = "FILE", conflicts_with = "hf_repo")]
    model: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) hub: HubArg,
}

/// Which model, by position or as an option.
#[derive(Args, Debug)]
pub(crate) struct FileArg {
    /// Model: a GGUF file, or a folder or file of safetensors; without one, the built-in story model
    #[arg(value_name = "FILE", conflicts_with_all = ["model", "hf_repo"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArg,
}

impl ModelArg {
    /// The model, fetched if need be; `say` hears of that.
    pub(crate) fn source(&self, say: fn(&str)) -> Result<Source, Failure> {
        let path = match &self.model {
            Some(path) => Some(path.clone()),
            None => self.hub.locate(say)?,
        };
        Ok(path.map_or(Source::BuiltIn, Source::Path))
    }
}

impl FileArg {
    /// The file, fetched if need be.
    pub(crate) fn source(&self) -> Result<Source, Failure> {
        match &self.file {
            Some(path) => Ok(Source::Path(path.clone())),
            None => self.model.source(terminal::note),
        }
    }
}

/// The file's name, for people; of a folder of the Hub's cache the model's.
pub(crate) fn source_name(source: &Source) -> String {
    match source {
        Source::Path(path) => hub::repo_of(path).unwrap_or_else(|| {
            let name = path.file_name().unwrap_or(path.as_os_str());
            name.to_string_lossy().into_owned()
        }),
        Source::BuiltIn => "built-in story model".to_string(),
    }
}

/// Which device replays the tables, and how.
#[derive(Args, Debug)]
pub(crate) struct DeviceArgs {
    /// Device; auto takes a GPU where there is one, else the CPU
    #[arg(long, value_enum, default_value_t = Device::Auto)]
    device: Device,
    /// GPU, by a part of its name or its index in `tabla devices`
    #[arg(long, value_name = "NAME|INDEX")]
    adapter: Option<String>,
    /// What is asked of a GPU; baseline: no more than every device of WebGPU has
    #[arg(long, value_enum, default_value_t = Features::All)]
    gpu_features: Features,
    /// Threads on the CPU [default: every core]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,
    /// exact computes every product in f32 and keeps the KV cache in f32
    #[arg(long, value_enum, default_value_t = Exactness::Fast)]
    precision: Exactness,
    /// Where the CPU has quantised weights, and with AMX and fast BF16 ones: packed in memory of
    /// their own, which is faster, or mapped from the file; auto packs where they fit
    #[arg(long, value_enum, default_value_t = Weights::Auto)]
    weights: Weights,
    /// How the GPU replays tables: recorded once, which is for Vulkan, or encoded for every
    /// submission; auto records where it can
    #[arg(long, value_enum, default_value_t = Replays::Auto)]
    replay: Replays,
    /// Leaves what `tabla tune` measured of the model on the GPU
    #[arg(long)]
    no_tuning: bool,
    /// Folder whose WGSL files stand in front of the embedded shaders
    #[arg(long, value_name = "FOLDER")]
    shaders: Option<PathBuf>,
    #[arg(
        help = "Layout of I2_S tensors; auto is 128, the others come from other builds of bitnet.cpp"
    )]
    #[arg(long, value_name = "auto|128|64|1x4", default_value = "auto", hide_default_value = true, value_parser = i2s_layout)]
    i2s_layout: Layout,
    /// Encodes the head (output.weight, or the embedding where that is the head) anew while loading:
    /// fewer bytes for every token
    #[arg(long, value_name = "q8_0|q6_k", value_parser = |name: &str| quantize::one_of(&HEAD_TYPES, name))]
    head_type: Option<DType>,
    /// Storage type of the KV cache [default: f16; with exact precision f32]
    #[arg(long, value_name = "f16|f32|q8_0", value_parser = |name: &str| quantize::one_of(&CACHE_TYPES, name))]
    cache_type: Option<DType>,
}

fn i2s_layout(name: &str) -> Result<Layout, String> {
    match name {
        "auto" => Ok(Layout::default()),
        name => Layout::from_name(name).ok_or_else(|| "known are auto, 128, 64, 1x4".to_string()),
    }
}

/// How many positions the KV cache has.
#[derive(Args, Debug)]
pub(crate) struct ContextArg {
    /// Positions of the KV cache [default: what the model was trained for, 4096 at most]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ctx_size: Option<u32>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Device {
    Auto,
    Cpu,
    Gpu,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Features {
    All,
    Baseline,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Exactness {
    Fast,
    Exact,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Weights {
    Auto,
    Mapped,
    Packed,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Replays {
    Auto,
    Encoded,
    Recorded,
}

impl DeviceArgs {
    /// The library's options.
    pub(crate) fn options(&self, context: u32) -> Result<Options, Failure> {
        if let Some(folder) = self.shaders.as_deref().filter(|folder| !folder.is_dir()) {
            let shown = folder.display();
            return Err(Failure::new(format!("--shaders {shown} is no folder")));
        }
        Ok(Options {
            device: match self.device {
                Device::Auto => DeviceChoice::Auto,
                Device::Cpu => DeviceChoice::Cpu,
                Device::Gpu => DeviceChoice::Gpu,
            },
            threads: self.threads.unwrap_or(0),
            context,
            precision: match self.precision {
                Exactness::Fast => Precision::Fast,
                Exactness::Exact => Precision::Exact,
            },
            weights: match self.weights {
                Weights::Auto => WeightMemory::Auto,
                Weights::Mapped => WeightMemory::Mapped,
                Weights::Packed => WeightMemory::Packed,
            },
            adapter: self.adapter.clone(),
            gpu_features: match self.gpu_features {
                Features::All => GpuFeatures::All,
                Features::Baseline => GpuFeatures::Baseline,
            },
            replay: match self.replay {
                Replays::Auto => Replay::Auto,
                Replays::Encoded => Replay::Encoded,
                Replays::Recorded => Replay::Recorded,
            },
            kernel_folder: cache_folders::kernels(),
            // What was measured is of the embedded shaders.
            tuning_folder: if self.no_tuning || self.shaders.is_some() {
                None
            } else {
                cache_folders::tunings()
            },
            shader_folder: self.shaders.clone(),
            i2s_layout: self.i2s_layout,
            head_type: self.head_type,
            cache_type: self.cache_type,
            ..Options::default()
        })
    }
}

impl ContextArg {
    /// The library's number: 0 leaves it to the model.
    pub(crate) fn positions(&self) -> u32 {
        self.ctx_size.unwrap_or(0)
    }
}

/// The text to go on from.
#[derive(Args, Debug)]
pub(crate) struct PromptArgs {
    /// The prompt; text on standard input is joined in front of it
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file")]
    pub(crate) prompt: Option<String>,
    /// Reads the prompt from a file, or from standard input for "-"
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Takes special tokens that are spelt out in the prompt for what they are
    #[arg(long)]
    special: bool,
}

impl PromptArgs {
    /// How the prompt becomes tokens: it begins a text.
    pub(crate) fn encode(&self) -> Encode {
        Encode {
            add_special: true,
            specials: if self.special {
                Specials::Tokens
            } else {
                Specials::Text
            },
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) file: FileArg,
    /// Writes one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) context: ContextArg,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct TableArgs {
    #[command(flatten)]
    pub(crate) file: FileArg,
    /// Which table [default: the step table of one row; of an encoder embed]
    #[arg(long, value_enum)]
    pub(crate) which: Option<Which>,
    /// Writes one JSON array of commands
    #[arg(long)]
    pub(crate) json: bool,
    /// Replays the tables command by command on CPU and GPU and names the first that differs
    #[arg(long, conflicts_with = "which")]
    pub(crate) compare: bool,
    #[arg(
        help = "Compares the residual stream behind every layer with that of another program, an .npy file [layers, tokens, dim], and names the first layer that differs"
    )]
    #[arg(long, value_name = "FILE", requires = "tokens", conflicts_with_all = ["which", "compare"])]
    pub(crate) reference: Option<PathBuf>,
    /// Token ids of the reference; of an encoder once for each text
    #[arg(long, value_name = "IDS", value_parser = ids, requires = "reference")]
    pub(crate) tokens: Vec<Ids>,
    #[command(flatten)]
    pub(crate) context: ContextArg,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// The tokens of a text.
#[derive(Clone, Debug)]
pub(crate) struct Ids(pub(crate) Vec<u32>);

fn ids(text: &str) -> Result<Ids, String> {
    let id = |id: &str| {
        id.trim()
            .parse()
            .map_err(|_| format!("{id:?} is no token id"))
    };
    text.split(',').map(id).collect::<Result<_, _>>().map(Ids)
}

/// Which of a model's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Which {
    /// A token in for each row, the next one out
    Step,
    /// A chunk of tokens in, the logits of the last one out
    Batch,
    /// A chunk of tokens in, the last layer's normed rows out
    Embed,
    /// Every table
    All,
}

impl Which {
    /// Whether a table of this name is meant.
    pub(crate) fn takes(self, name: &str) -> bool {
        let own = self.to_possible_value();
        self == Self::All || own.is_some_and(|value| value.get_name() == name)
    }
}

#[derive(Args, Debug)]
pub(crate) struct DevicesArgs {
    /// Writes one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct TokenizeArgs {
    /// The text; without it, standard input
    #[arg(value_name = "TEXT")]
    pub(crate) text: Option<String>,
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Writes one JSON object: ids and the text of each token
    #[arg(long)]
    pub(crate) json: bool,
    /// Takes special tokens that are spelt out in the text for what they are
    #[arg(long)]
    pub(crate) special: bool,
    /// Leaves out the token that begins a text
    #[arg(long)]
    pub(crate) no_bos: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DetokenizeArgs {
    /// The ids, separated by spaces or commas; without any, standard input
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Spells special tokens out instead of leaving them out
    #[arg(long)]
    pub(crate) special: bool,
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Lengths of prompts to process; 0: none
    #[arg(short = 'p', long, value_name = "N", value_delimiter = ',', default_values_t = [512])]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    pub(crate) n_prompt: Vec<u32>,
    /// Numbers of tokens to generate; 0: none
    #[arg(short = 'n', long, value_name = "N", value_delimiter = ',', default_values_t = [128])]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    pub(crate) n_gen: Vec<u32>,
    /// Tokens in front of each test, which are not timed
    #[arg(short = 'd', long, value_name = "N", value_delimiter = ',', default_values_t = [0])]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    pub(crate) n_depth: Vec<u32>,
    /// Numbers of sequences that generate together, each behind tokens of its own; in place of the
    /// other tests [short: -npl]
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        conflicts_with = "commands"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(SEQUENCES_MAX)))]
    pub(crate) n_parallel: Vec<u32>,
    /// Times every command of the tables, and on a CPU holds it against memory and
    /// arithmetic (not in CSV)
    #[arg(long)]
    pub(crate) commands: bool,
    /// How often each test is repeated
    #[arg(short, long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) repetitions: u32,
    /// Measures the first repetition cold
    #[arg(long)]
    pub(crate) no_warmup: bool,
    /// Form of the results
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t = Form::Md)]
    pub(crate) output: Form,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

#[derive(Args, Debug)]
pub(crate) struct PullArgs {
    /// Model, and which of its files: by name, by quantisation, or what suits most
    #[arg(value_name = "ORG/REPO[:FILE-OR-QUANT]")]
    pub(crate) model: Wanted,
    #[command(flatten)]
    pub(crate) offline: OfflineArg,
}

#[derive(Args, Debug)]
pub(crate) struct ConvertArgs {
    /// The model: a GGUF file, or a folder of safetensors
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// What to write: a file whose name ends in .gguf, or else a new folder of safetensors
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// The type of the numbers: F16, BF16, F32, or for GGUF any that `quantize` knows [default:
    /// as they are, and F16 for those that the new format does not know]
    #[arg(long, value_name = "TYPE", value_parser = quantize::mix)]
    pub(crate) dtype: Option<&'static Mix>,
    /// Threads [default: every core]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) threads: Option<u32>,
    /// Writes one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct QuantizeArgs {
    /// The model
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// The GGUF file to write
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// What to make of it, by llama.cpp's names, like `Q4_K_M` or `F16`
    #[arg(value_name = "TYPE", value_parser = quantize::mix)]
    pub(crate) mix: &'static Mix,
    /// Importance matrix of llama.cpp's llama-imatrix, GGUF or the older form
    #[arg(long, value_name = "FILE")]
    pub(crate) imatrix: Option<PathBuf>,
    /// The type of every matrix whose name matches a regular expression; may be repeated, and the
    /// first that matches decides
    #[arg(long, value_name = "PATTERN=TYPE", value_parser = quantize::choice)]
    pub(crate) tensor_type: Vec<Choice>,
    /// The type of the output matrix
    #[arg(long, value_name = "TYPE", value_parser = quantize::storage_type)]
    pub(crate) output_tensor_type: Option<DType>,
    /// The type of the token embedding
    #[arg(long, value_name = "TYPE", value_parser = quantize::storage_type)]
    pub(crate) token_embedding_type: Option<DType>,
    /// Threads [default: every core]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) threads: Option<u32>,
    /// Writes one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Form of a benchmark's results.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Form {
    /// A Markdown table
    Md,
    /// One JSON array
    Json,
    /// A JSON object per line
    Jsonl,
    /// Comma-separated values
    Csv,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn run_is_what_happens_without_a_command() {
        let cli = Cli::try_parse_from(["tabla", "-p", "hi", "-n", "-1"]).expect("it parses");
        assert!(cli.command.is_none());
        assert_eq!(cli.run.n_predict, -1);
        assert!(Cli::try_parse_from(["tabla", "-n", "-2"]).is_err());
    }
}
