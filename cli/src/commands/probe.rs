//! `tabla probe`: values of the forward pass for a list of texts, as `.npy` files.

use crate::args::{ContextArg, DeviceArgs, ModelArg, text_file};
use crate::commands::common::open;
use crate::output::Failure;
use crate::output::npy::NpyFile;
use crate::output::terminal::{self, Progress};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tabla::text::EncodeOptions;
use tabla::{CapturePositions, Captured, HookSpec, Hooks, Model, Session};

/// The residual stream before the first layer and after every layer.
const RESIDUAL: [&str; 2] = ["token_embd", "blk.*"];
/// File with the residual stream, without extension.
const RESIDUAL_FILE: &str = "residual";
/// Written last: a folder without it is incomplete.
const MANIFEST: &str = "manifest.json";

#[derive(Args, Debug)]
pub(crate) struct ProbeArgs {
    /// JSON file with a list of texts: strings, or objects with a string "text"
    #[arg(value_name = "STIMULI")]
    stimuli: PathBuf,
    #[command(flatten)]
    model: ModelArg,
    /// New folder for the .npy files and manifest.json
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// Comma-separated points, each written to a file of its own; * stands for any text without a dot
    /// [default: the residual stream before the first layer and after every layer, in residual.npy]
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    points: Vec<String>,
    /// Tokens whose values are written: the last one, all, or the mean of all
    #[arg(long, value_enum, value_name = "TOKENS", default_value = "last")]
    tokens: Tokens,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tokens {
    Last,
    All,
    Mean,
}

impl Tokens {
    fn name(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::All => "all",
            Self::Mean => "mean",
        }
    }
}

/// A file, with a row per text or token.
struct Output {
    name: String,
    /// Columns of a row of captured values.
    columns: std::ops::Range<usize>,
    /// Names of the points, one after another in a row.
    points: Vec<String>,
    file: NpyFile,
}

pub(crate) fn run(args: &ProbeArgs) -> Result<(), Failure> {
    let texts = read(&args.stimuli)?;
    let source = args.model.source(terminal::note)?;
    let options = args.device.options(args.context.tokens())?;
    let loaded = open::model(&source, &options)?;
    loaded.print_notes(&source);
    let model = &loaded.model;
    let points = match args.points.is_empty() {
        true => RESIDUAL.map(String::from).to_vec(),
        false => args.points.clone(),
    };
    let positions = match args.tokens {
        Tokens::Last => CapturePositions::Last,
        Tokens::All | Tokens::Mean => CapturePositions::All,
    };
    let ids = encode(model, &texts)?;
    let longest = ids.iter().map(Vec::len).max().unwrap_or(0);
    let spec = HookSpec::default()
        .capture(points)
        .positions(positions)
        .attention_positions(u32::try_from(longest).unwrap_or(0));
    let hooks = model.hooks(&spec)?;
    std::fs::create_dir(&args.output)
        .map_err(|cause| Failure::file("create", &args.output, cause))?;
    let written = write_folder(args, model, &hooks, &texts, &ids);
    if written.is_err() {
        // The folder is new: nothing else is in it.
        let _ = std::fs::remove_dir_all(&args.output);
    }
    written
}

fn write_folder(
    args: &ProbeArgs,
    model: &Model,
    hooks: &Hooks,
    texts: &[String],
    ids: &[Vec<u32>],
) -> Result<(), Failure> {
    let rows = match args.tokens {
        Tokens::Last | Tokens::Mean => ids.len(),
        Tokens::All => ids.iter().map(Vec::len).sum(),
    };
    let mut outputs = outputs(args, hooks, rows)?;
    let mut session = Session::new(model.clone());
    session.set_hooks(Some(hooks))?;
    terminal::catch_interrupt(session.canceller())?;
    let bar = Progress::new("probing", texts.len() as u64);
    for (done, ids) in (1..).zip(ids) {
        let captured = session.capture(ids)?;
        for output in &mut outputs {
            match args.tokens {
                Tokens::Last | Tokens::All => {
                    for row in captured.values().chunks_exact(captured.width()) {
                        output.file.write(&row[output.columns.clone()])?;
                    }
                }
                Tokens::Mean => output.file.write(&mean(captured, output))?,
            }
        }
        bar.set_position(done);
    }
    drop(bar);
    let manifest = manifest(args, model, texts, ids, &outputs)?;
    for output in outputs {
        let path = args.output.join(format!("{}.npy", output.name));
        let shown = terminal::one_line(&path.display().to_string());
        terminal::note(&format!("{shown}: {:?}", output.file.shape()));
        output.file.finish()?;
    }
    let path = args.output.join(MANIFEST);
    let text = serde_json::to_string_pretty(&manifest).map_err(Failure::new)?;
    std::fs::write(&path, text + "\n").map_err(|cause| Failure::file("write", &path, cause))
}

/// Reads the texts.
fn read(path: &Path) -> Result<Vec<String>, Failure> {
    let text = text_file::read(path)?;
    let shown = path.display();
    let list: Vec<Value> = serde_json::from_str(&text)
        .map_err(|error| Failure::new(format!("{shown}: expected a JSON list: {error}")))?;
    if list.is_empty() {
        return Err(Failure::new(format!("{shown}: the list is empty")));
    }
    let text_of = |(at, value): (usize, &Value)| {
        let text = value.as_str().or_else(|| value.get("text")?.as_str());
        text.map(String::from).ok_or_else(|| {
            let message = "expected a string or an object with a string \"text\"";
            Failure::new(format!("{shown}: entry {at}: {message}"))
        })
    };
    list.iter().enumerate().map(text_of).collect()
}

/// Encodes the texts as prompts.
fn encode(model: &Model, texts: &[String]) -> Result<Vec<Vec<u32>>, Failure> {
    let mut all = Vec::with_capacity(texts.len());
    for (at, text) in texts.iter().enumerate() {
        let ids = model.tokenizer().encode(text, EncodeOptions::PROMPT)?;
        let (count, context) = (ids.len(), model.facts().context);
        if count == 0 || count > context as usize {
            return Err(Failure::new(format!(
                "entry {at}: the text has {}, expected 1 to {context}: -c sets the context size",
                terminal::counted(count, "token")
            )));
        }
        all.push(ids);
    }
    Ok(all)
}

/// Creates the files.
fn outputs(args: &ProbeArgs, hooks: &Hooks, rows: usize) -> Result<Vec<Output>, Failure> {
    let points = hooks.points();
    let create = |name: &str, shape: &[usize]| {
        NpyFile::create(&args.output.join(format!("{name}.npy")), shape)
    };
    if args.points.is_empty() {
        let dim = points.first().map_or(0, |point| point.cols as usize);
        let shape = [rows, points.len(), dim];
        return Ok(vec![Output {
            name: RESIDUAL_FILE.to_string(),
            columns: 0..points.len() * dim,
            points: points.iter().map(|point| point.name.clone()).collect(),
            file: create(RESIDUAL_FILE, &shape)?,
        }]);
    }
    let output = |point: &tabla::CapturedPoint| {
        let (offset, cols) = (point.offset as usize, point.cols as usize);
        Ok(Output {
            name: point.name.clone(),
            columns: offset..offset + cols,
            points: vec![point.name.clone()],
            file: create(&point.name, &[rows, cols])?,
        })
    };
    points.iter().map(output).collect()
}

/// Returns the mean of all rows, summed in f64.
#[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
fn mean(captured: &Captured, output: &Output) -> Vec<f32> {
    let mut sums = vec![0.0f64; output.columns.len()];
    let rows = captured.values().chunks_exact(captured.width());
    let count = rows.len() as f64;
    for row in rows {
        for (sum, x) in sums.iter_mut().zip(&row[output.columns.clone()]) {
            *sum += f64::from(*x);
        }
    }
    sums.iter().map(|sum| (sum / count) as f32).collect()
}

/// Describes the files.
fn manifest(
    args: &ProbeArgs,
    model: &Model,
    texts: &[String],
    ids: &[Vec<u32>],
    outputs: &[Output],
) -> Result<Value, Failure> {
    let file = |output: &Output| {
        json!({
            "file": format!("{}.npy", output.name),
            "points": output.points,
            "shape": output.file.shape(),
        })
    };
    let stimuli = texts.iter().zip(ids);
    let stimuli = stimuli.map(|(text, ids)| json!({ "text": text, "tokens": ids }));
    let facts = model.facts();
    let digest = model.digest()?;
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(json!({
        "tabla": env!("CARGO_PKG_VERSION"),
        "commit": option_env!("TABLA_COMMIT"),
        "model": facts.name,
        "architecture": facts.architecture,
        "digest": digest,
        "device": facts.device,
        "heads": facts.heads,
        "tokens": args.tokens.name(),
        "files": outputs.iter().map(file).collect::<Vec<_>>(),
        "stimuli": stimuli.collect::<Vec<_>>(),
    }))
}
