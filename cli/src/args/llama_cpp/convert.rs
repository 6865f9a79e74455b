//! Options of llama.cpp whose meaning in Tabla depends on the value.

use serde_json::json;
use tabla::op::sampler::SamplerKind;

/// Arguments that replace an option, and the note that is printed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(super) args: Vec<String>,
    /// Argument without a name.
    pub(super) positional: Option<String>,
    /// Why the option has no effect.
    pub(super) note: Option<String>,
}

impl Change {
    fn args(args: &[&str]) -> Self {
        Self {
            args: args.iter().map(ToString::to_string).collect(),
            ..Self::default()
        }
    }

    fn note(why: &str) -> Self {
        Self {
            note: Some(why.to_string()),
            ..Self::default()
        }
    }
}

/// `-ngl`: number of layers on the GPU.
pub(super) fn gpu_layers(value: &str) -> Result<Change, String> {
    let all = "all layers run on one device, which --device selects; the default is a hardware GPU if there is one, otherwise the CPU";
    match (value, value.parse::<i64>()) {
        (_, Ok(0)) => Ok(Change::args(&["--device", "cpu"])),
        ("auto" | "all", _) | (_, Ok(_)) => Ok(Change::note(all)),
        _ => Err("expected a number, auto or all".to_string()),
    }
}

/// `--device`: kinds of Tabla, or names of llama.cpp.
pub(super) fn device(value: &str) -> Result<Change, String> {
    match value {
        "none" => Ok(Change::args(&["--device", "cpu"])),
        "auto" | "cpu" | "gpu" => Ok(Change::args(&["--device", value])),
        _ => Err(
            "expected auto, cpu or gpu; --adapter selects a GPU by its name or index".to_string(),
        ),
    }
}

/// `--load-mode`.
pub(super) fn load_mode(value: &str) -> Result<Change, String> {
    match value {
        "none" => Ok(Change::args(&["--load-mode", "read"])),
        "auto" | "mmap" | "read" => Ok(Change::args(&["--load-mode", value])),
        "mlock" | "mmap+mlock" | "dio" => Err(
            "Tabla does not lock memory or read past the page cache: use auto, mmap or read"
                .to_string(),
        ),
        _ => Err("expected auto, mmap or read".to_string()),
    }
}

/// Replaces `FILE:SCALE` by `FILE=SCALE`, for each file of a list.
fn scaled(option: &str, value: &str) -> Result<Change, String> {
    let mut args = Vec::new();
    for item in value.split(',') {
        let (path, scale) = item.rsplit_once(':').ok_or("expected FILE:SCALE")?;
        args.push(format!("{option}={path}={scale}"));
    }
    Ok(Change {
        args,
        ..Change::default()
    })
}

pub(super) fn lora_scaled(value: &str) -> Result<Change, String> {
    scaled("--lora", value)
}

pub(super) fn control_vector_scaled(value: &str) -> Result<Change, String> {
    scaled("--control-vector", value)
}

/// An option whose value is an argument without a name.
pub(super) fn positional(value: &str) -> Result<Change, String> {
    Ok(Change {
        positional: Some(value.to_string()),
        ..Change::default()
    })
}

/// `--sampler-seq`: a letter per sampler.
pub(super) fn sampler_letters(value: &str) -> Result<Change, String> {
    let kind = |letter| {
        Ok(match letter {
            'e' => SamplerKind::Penalties,
            'd' => SamplerKind::Dry,
            's' => SamplerKind::TopNSigma,
            'k' => SamplerKind::TopK,
            'y' => SamplerKind::Typical,
            'p' => SamplerKind::TopP,
            'm' => SamplerKind::MinP,
            'x' => SamplerKind::Xtc,
            't' => SamplerKind::Temperature,
            other => {
                return Err(format!(
                    "unknown sampler {other}: expected letters of edskypmxt"
                ));
            }
        })
    };
    let names: Result<Vec<&str>, String> =
        value.chars().map(|c| kind(c).map(|k| k.name())).collect();
    Ok(Change::args(&["--samplers", &names?.join(";")]))
}

/// `--spec-type`: types of drafts, of which Tabla has one at a time.
pub(super) fn spec_type(value: &str) -> Result<Change, String> {
    match value {
        "none" => Ok(Change::default()),
        "draft-mtp" => Ok(Change::args(&["--mtp"])),
        "draft-simple" | "draft-eagle3" => {
            Ok(Change::note("--model-draft FILE selects the drafter"))
        }
        ngram if ngram.starts_with("ngram-") && !ngram.contains(',') => {
            Ok(Change::args(&["--lookup"]))
        }
        _ => Err("use one of --lookup, --mtp and --model-draft FILE".to_string()),
    }
}

pub(super) fn reasoning_of_chat(value: &str) -> Result<Change, String> {
    match value {
        "off" => Ok(Change::args(&["--reasoning-effort", "none"])),
        "auto" => Ok(Change::default()),
        _ => Err("use --reasoning-effort low, medium or high".to_string()),
    }
}

pub(super) fn reasoning_of_server(value: &str) -> Result<Change, String> {
    let enabled = match value {
        "on" => true,
        "off" => false,
        "auto" => return Ok(Change::default()),
        _ => return Err("expected on, off or auto".to_string()),
    };
    let variables = json!({ "enable_thinking": enabled }).to_string();
    Ok(Change::args(&["--chat-template-kwargs", &variables]))
}

pub(super) fn effort_of_server(value: &str) -> Result<Change, String> {
    let variables = json!({ "reasoning_effort": value }).to_string();
    Ok(Change::args(&["--chat-template-kwargs", &variables]))
}

pub(super) fn reasoning_format(value: &str) -> Result<Change, String> {
    match value {
        "auto" | "deepseek" => Ok(Change::note(
            "reasoning is always separate from the content",
        )),
        _ => Err("reasoning is always separate from the content: use auto".to_string()),
    }
}

pub(super) fn idle_timeout(value: &str) -> Result<Change, String> {
    match value {
        "-1" => Ok(Change::default()),
        seconds => Ok(Change::args(&["--idle-timeout", seconds])),
    }
}

pub(super) fn normalize(value: &str) -> Result<Change, String> {
    match value {
        "2" => Ok(Change::default()),
        "-1" => Ok(Change::args(&["--no-normalize"])),
        _ => Err("embeddings have length 1 (2) or are unchanged (-1)".to_string()),
    }
}
