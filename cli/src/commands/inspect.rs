//! `tabla inspect`: metadata, tensors, tokenizer, chat templates and memory requirements of a model.
//! Reads weights only to check them.

use crate::args::{ContextArg, DeviceArgs, FileArg};
use crate::output::Failure;
use crate::output::terminal;
use clap::Args;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use tabla::Source;
use tabla::format::{Array, Directory, TensorInfo, Value};
use tabla::load::LoadOptions;
use tabla::text::{ChatTemplate, ChatTemplates, TemplateTokens, Tokenizer};
use tabla::tools::{CompiledHeader, MemoryEstimate, NotFinite, SectionSize, compiled_target};

/// Maximum number of array items in JSON output.
const ARRAY_ITEMS_MAX: usize = 16;

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) file: FileArg,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Read all weights, and fail if one is NaN or infinite; of a compiled model, check the digests of all tensors
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) context: ContextArg,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

pub(crate) fn run(args: &InspectArgs) -> Result<(), Failure> {
    let source = args.file.source()?;
    let options = args.device.options(args.context.tokens())?;
    let file = ModelFile::open(&source, &options)?;
    let is_compiled = file.compiled.is_some();
    if args.check && is_compiled {
        tabla::tools::check_digests(&file.directory)?;
    }
    let found = match args.check && !is_compiled {
        true => Some(tabla::tools::check_weights(&source)?),
        false => None,
    };
    if args.json {
        let mut json = file.json();
        if let Some(found) = &found {
            json["not_finite"] = found.iter().map(not_finite_json).collect();
        }
        terminal::line(&json.to_string())?;
    } else {
        file.print()?;
        if args.check && is_compiled {
            terminal::line("digests    all correct")?;
        }
        if let Some(found) = &found {
            print_check(found)?;
        }
    }
    match found.as_deref() {
        None | Some([]) => Ok(()),
        Some(found) => Err(Failure::new(format_args!(
            "{} with values that are not finite",
            terminal::counted(found.len(), "tensor")
        ))),
    }
}

/// Prints the tensors with values that are not finite.
fn print_check(found: &[NotFinite]) -> Result<(), Failure> {
    if found.is_empty() {
        return terminal::line("weights    all finite");
    }
    for found in found {
        terminal::line(&terminal::one_line(&found.to_string()))?;
    }
    Ok(())
}

fn not_finite_json(found: &NotFinite) -> Json {
    json!({
        "tensor": found.tensor,
        "count": found.count,
        "row": found.first[0],
        "column": found.first[1],
        "value": found.value.to_string(),
    })
}

/// The contents of a model file, without weights.
struct ModelFile {
    directory: Directory,
    compiled: Option<CompiledHeader>,
    tokenizer: tabla::Result<Tokenizer>,
    templates: ChatTemplates,
    /// Memory requirements, or the reason that the model is not supported.
    estimate: tabla::Result<MemoryEstimate>,
    totals: BTreeMap<&'static str, Total>,
}

/// Totals over the tensors of one type.
#[derive(Clone, Copy, Default)]
struct Total {
    tensors: usize,
    elements: u64,
    bytes: u64,
}

impl Total {
    fn add(self, other: Self) -> Self {
        Self {
            tensors: self.tensors + other.tensors,
            elements: self.elements.saturating_add(other.elements),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// Returns the totals of each type.
fn totals(tensors: &[TensorInfo]) -> BTreeMap<&'static str, Total> {
    let mut totals = BTreeMap::new();
    for tensor in tensors {
        let total: &mut Total = totals.entry(tensor.dtype.name()).or_default();
        *total = total.add(Total {
            tensors: 1,
            elements: tensor.elements(),
            bytes: tensor.bytes,
        });
    }
    totals
}

impl ModelFile {
    fn open(source: &Source, options: &LoadOptions) -> Result<Self, Failure> {
        let directory = tabla::tools::open_directory(source)?;
        Ok(Self {
            totals: totals(&directory.tensors),
            compiled: CompiledHeader::read(&directory)?,
            directory,
            tokenizer: tabla::tools::load_tokenizer(source),
            templates: tabla::tools::load_chat_templates(source)?,
            estimate: tabla::tools::estimate(source, options),
        })
    }

    fn all(&self) -> Total {
        self.totals
            .values()
            .fold(Total::default(), |a, b| a.add(*b))
    }

    fn print(&self) -> Result<(), Failure> {
        let Self { directory, .. } = self;
        let name = terminal::one_line(&directory.name());
        let kind = format!("{:?}", directory.kind).to_uppercase();
        let size = terminal::bytes(directory.file_bytes());
        let version = directory.version.map(|v| format!(" version {v}"));
        let version = version.unwrap_or_default();
        terminal::line(&format!("{name}: {kind}{version}, {size}"))?;
        let files = directory.paths().count();
        if files > 1 {
            terminal::line(&format!("{files} files"))?;
        }
        self.print_compiled()?;
        self.print_metadata()?;
        self.print_tensors()?;
        self.print_templates()?;
        terminal::line("")?;
        terminal::line(&format!("tokenizer  {}", self.tokenizer_line()))?;
        terminal::line(&format!("template   {}", self.template_line()))?;
        self.print_verdict()
    }

    /// Prints the devices, the source and the parts of a compiled model.
    fn print_compiled(&self) -> Result<(), Failure> {
        let Some(header) = &self.compiled else {
            return Ok(());
        };
        let targets: Vec<_> = header
            .layouts
            .iter()
            .map(|layout| compiled_target(*layout))
            .collect();
        terminal::line(&format!(
            "compiled by version {} for {}s, from {} ({}, digest {})",
            terminal::one_line(&header.build),
            targets.join("s and "),
            terminal::one_line(&header.source),
            terminal::bytes(header.source_bytes),
            &header.source_digest()[..16]
        ))?;
        let changes = [
            ("precision", &header.precision),
            ("drafting head", &header.drafting_head),
            ("lm_head", &header.lm_head_type),
            ("merged adapters", &header.merged),
        ];
        for (what, value) in changes.into_iter().filter(|(_, value)| !value.is_empty()) {
            terminal::line(&format!("  {what}: {}", terminal::one_line(value)))?;
        }
        for section in tabla::tools::section_sizes(&self.directory) {
            let bytes = terminal::bytes(section.bytes);
            let tensors = match section.tensors {
                0 => String::new(),
                count => terminal::counted(count, "tensor"),
            };
            terminal::line(&format!("  {:<30}  {bytes:>11}  {tensors}", section.name))?;
        }
        Ok(())
    }

    fn print_metadata(&self) -> Result<(), Failure> {
        let metadata = &self.directory.metadata;
        terminal::line(&format!("\nmetadata: {} keys", metadata.len()))?;
        let longest = metadata.iter().map(|(key, _)| key.chars().count()).max();
        let width = longest.unwrap_or(0).min(48);
        for (key, value) in metadata.iter() {
            let key = terminal::one_line(key);
            let kind = value.kind().name();
            let value = terminal::one_line(&value.to_string());
            terminal::line(&format!("  {key:<width$}  {kind:<6}  {value}"))?;
        }
        Ok(())
    }

    fn print_tensors(&self) -> Result<(), Failure> {
        let tensors = &self.directory.tensors;
        terminal::line(&format!("\ntensors: {}", tensors.len()))?;
        let longest = tensors.iter().map(|t| t.name.chars().count()).max();
        let width = longest.unwrap_or(0).clamp(4, 48);
        let several = self.directory.paths().count() > 1;
        let file = |shard: String| {
            if several {
                format!("  {shard:>4}")
            } else {
                String::new()
            }
        };
        let head = format!(
            "  {:<width$}  {:<7}  {:<20}  {:>14}  {:>14}{}",
            "name",
            "type",
            "shape",
            "offset",
            "bytes",
            file("file".to_string())
        );
        terminal::line(&head)?;
        for tensor in tensors {
            let name = terminal::one_line(&tensor.name);
            let line = format!(
                "  {name:<width$}  {:<7}  {:<20}  {:>14}  {:>14}{}",
                tensor.dtype.name(),
                shape(tensor),
                tensor.offset,
                tensor.bytes,
                file((tensor.shard + 1).to_string())
            );
            terminal::line(&line)?;
        }
        terminal::line("\ntotals")?;
        let all = self.all();
        for (name, total) in self.totals.iter().chain([(&"all", &all)]) {
            let noun = if total.tensors == 1 {
                "tensor"
            } else {
                "tensors"
            };
            let line = format!(
                "  {name:<7}  {:>6} {noun:<7}  {:>10} elements  {:>11}",
                total.tensors,
                terminal::count(total.elements),
                terminal::bytes(total.bytes)
            );
            terminal::line(&line)?;
        }
        Ok(())
    }

    fn tokenizer_line(&self) -> String {
        let tokenizer = match &self.tokenizer {
            Ok(tokenizer) => tokenizer,
            Err(error) => return format!("none: {}", terminal::one_line(error.message())),
        };
        let id = |id: Option<u32>| id.map_or("none".to_string(), |id| id.to_string());
        let stops: Vec<String> = tokenizer.stops().iter().map(u32::to_string).collect();
        format!(
            "{}{}, {} tokens, BOS {}{}, EOS {}, stops at {}",
            kind(tokenizer),
            tokenizer
                .pre()
                .map_or(String::new(), |pre| format!(" {pre}")),
            tokenizer.vocab_size(),
            id(tokenizer.bos()),
            if tokenizer.adds_bos() {
                " added"
            } else {
                " not added"
            },
            id(tokenizer.eos()),
            if stops.is_empty() {
                "nothing".to_string()
            } else {
                stops.join(", ")
            }
        )
    }

    /// Prints each template in full: it comes from an untrusted file and determines the input of the
    /// model.
    fn print_templates(&self) -> Result<(), Failure> {
        for (name, source) in self.templates.iter() {
            let name = terminal::one_line(name);
            terminal::line(&format!(
                "\nchat template {name}: {} bytes, SHA-256 {}",
                source.len(),
                sha256(source)
            ))?;
            for line in source.lines() {
                terminal::line(&format!("  {}", terminal::printable(line)))?;
            }
        }
        Ok(())
    }

    fn template_line(&self) -> String {
        let Some(name) = self.default_template() else {
            return "none".to_string();
        };
        let Some(source) = self.templates.get(name) else {
            return format!("none; default {name}, by the special tokens");
        };
        match ChatTemplate::new(source, TemplateTokens::default()) {
            Ok(_) => format!("SHA-256 {}", sha256(source)),
            Err(error) => format!("invalid: {}", terminal::one_line(error.message())),
        }
    }

    fn default_template(&self) -> Option<&str> {
        let tokenizer = self.tokenizer.as_ref().ok()?;
        self.templates.default_name(tokenizer)
    }

    fn templates_json(&self) -> Json {
        let templates = self.templates.iter().map(|(name, source)| {
            let parsed = ChatTemplate::new(source, TemplateTokens::default());
            json!({
                "name": name,
                "template": source,
                "sha256": sha256(source),
                "error": parsed.err().map(|error| error.message().to_string()),
            })
        });
        templates.collect()
    }

    fn print_verdict(&self) -> Result<(), Failure> {
        let lines = match &self.estimate {
            Ok(estimate) => vec![
                format!(
                    "memory     {}: weights {} (mostly {}), KV cache for {} tokens {}, activations {}{}; tokenizer {}",
                    terminal::bytes(estimate.device_bytes),
                    terminal::bytes(estimate.weight_bytes),
                    estimate.dtype,
                    estimate.context,
                    terminal::bytes(estimate.cache_bytes),
                    terminal::bytes(estimate.scratch_bytes),
                    match estimate.host_bytes {
                        0 => String::new(),
                        bytes => format!("; experts on the CPU {}", terminal::bytes(bytes)),
                    },
                    terminal::bytes(estimate.tokenizer_bytes)
                ),
                "supported  yes".to_string(),
            ],
            Err(error) => {
                let reason = terminal::one_line(error.message());
                vec![format!("supported  no: {reason}")]
            }
        };
        lines.iter().try_for_each(|line| terminal::line(line))
    }

    fn compiled_json(&self, header: &CompiledHeader) -> Json {
        let sections = tabla::tools::section_sizes(&self.directory);
        let section = |section: SectionSize| json!({ "name": section.name, "tensors": section.tensors, "bytes": section.bytes });
        json!({
            "version": header.build,
            "layouts": header.layouts.iter().map(|layout| layout.name()).collect::<Vec<_>>(),
            "precision": header.precision,
            "drafting_head": header.drafting_head,
            "lm_head_type": header.lm_head_type,
            "merged_adapters": header.merged,
            "source": header.source,
            "source_bytes": header.source_bytes,
            "source_digest": header.source_digest(),
            "sections": sections.into_iter().map(section).collect::<Vec<_>>(),
        })
    }

    fn json(&self) -> Json {
        let Self { directory, .. } = self;
        let metadata = directory.metadata.iter();
        let metadata: Map<String, Json> = metadata
            .map(|(key, value)| {
                (
                    key.to_string(),
                    json!({ "type": value.kind().name(), "value": value_json(value) }),
                )
            })
            .collect();
        let paths: Vec<_> = directory
            .paths()
            .map(|path| path.to_string_lossy())
            .collect();
        let tensors: Vec<Json> = directory.tensors.iter().map(tensor_json).collect();
        let totals: Map<String, Json> = self
            .totals
            .iter()
            .map(|(name, total)| ((*name).to_string(), total_json(total)))
            .collect();
        json!({
            "files": paths,
            "format": format!("{:?}", directory.kind).to_lowercase(),
            "version": directory.version,
            "file_bytes": directory.file_bytes(),
            "compiled": self.compiled.as_ref().map(|header| self.compiled_json(header)),
            "metadata": metadata,
            "tensors": tensors,
            "totals": totals,
            "total": total_json(&self.all()),
            "tokenizer": self.tokenizer_json(),
            "chat_template": self.default_template(),
            "chat_templates": self.templates_json(),
            "memory": self.estimate.as_ref().ok().map(|estimate| json!({
                "context": estimate.context,
                "dtype": estimate.dtype,
                "weight_bytes": estimate.weight_bytes,
                "cache_bytes": estimate.cache_bytes,
                "scratch_bytes": estimate.scratch_bytes,
                "device_bytes": estimate.device_bytes,
                "host_bytes": estimate.host_bytes,
                "tokenizer_bytes": estimate.tokenizer_bytes,
            })),
            "runs": self.estimate.is_ok(),
            "reason": self.estimate.as_ref().err().map(|error| error.message()),
        })
    }

    fn tokenizer_json(&self) -> Json {
        match &self.tokenizer {
            Ok(tokenizer) => json!({
                "kind": kind(tokenizer),
                "pre": tokenizer.pre(),
                "tokens": tokenizer.vocab_size(),
                "bos": tokenizer.bos(),
                "adds_bos": tokenizer.adds_bos(),
                "eos": tokenizer.eos(),
                "stops": tokenizer.stops(),
            }),
            Err(error) => json!({ "error": error.message() }),
        }
    }
}

/// Returns the SHA-256 of a template in hexadecimal, for comparison with published templates.
fn sha256(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let digits = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

/// Returns the tokenizer type by its name in GGUF files.
fn kind(tokenizer: &Tokenizer) -> String {
    format!("{:?}", tokenizer.kind()).to_lowercase()
}

/// Formats a shape: `1024 x 576`. Rows come first, as in table listings; GGUF has the reverse order.
fn shape(tensor: &TensorInfo) -> String {
    let dims: Vec<String> = tensor.dims.iter().rev().map(u64::to_string).collect();
    dims.join(" x ")
}

fn tensor_json(tensor: &TensorInfo) -> Json {
    json!({
        "name": tensor.name,
        "type": tensor.dtype.name(),
        "shape": tensor.dims.iter().rev().collect::<Vec<_>>(),
        "file": tensor.shard,
        "offset": tensor.offset,
        "bytes": tensor.bytes,
    })
}

fn total_json(total: &Total) -> Json {
    json!({ "tensors": total.tensors, "elements": total.elements, "bytes": total.bytes })
}

/// Converts a metadata value to JSON; an array becomes its length and first items.
fn value_json(value: Value<'_>) -> Json {
    match value {
        Value::String(bytes) => String::from_utf8_lossy(bytes).into(),
        Value::Bool(value) => value.into(),
        Value::F32(value) => f64::from(value).into(),
        Value::F64(value) => value.into(),
        Value::Array(items) => array_json(items),
        // All other types are integers of at most 64 bits.
        _ => match (value.integer::<i64>(), value.integer::<u64>()) {
            (Some(value), _) => value.into(),
            (None, value) => value.into(),
        },
    }
}

fn array_json(items: Array<'_>) -> Json {
    let first: Vec<Json> = items.iter().take(ARRAY_ITEMS_MAX).map(value_json).collect();
    json!({ "type": items.kind().name(), "length": items.len(), "first": first })
}
