//! `/table` and `/activations`: what a model computes.

use super::common::{Blocking, Encoding, Numbers, json_response, open, open_query, query};
use super::completions::prompts;
use crate::app::App;
use crate::bandwidth;
use crate::http::error::{ApiError, ApiResult};
use crate::http::gate::RequestContext;
use crate::models::{Kind, Loaded};
use axum::body::{Body, Bytes};
use axum::http::{Response, Uri};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use tabla::device::DeviceKind;
use tabla::exec::CommandTiming;
use tabla::op::table::{BufferId, DispatchCmd, Table};
use tabla::{CapturePositions, Captured, HookSpec, Sampling, Session};
use utoipa::ToSchema;

/// Number of tokens of the prompt and of the steps that a measurement runs.
const MEASURED_TOKENS: usize = 16;

/// Maximum number of captured values of a request. As JSON numbers they take several times the bytes.
const VALUES_MAX: usize = 16 << 20;
const NUMBERS_MAX: usize = 4 << 20;

/// Returns the tables of a model; with `time=1`, the time of each command of a decoding step.
pub(crate) async fn table(
    app: Arc<App>,
    context: RequestContext,
    uri: Uri,
) -> ApiResult<Response<Body>> {
    let lease = open_query(&app, &context, &uri).await?;
    let is_timed = query(&uri, "time") == Some("1");
    if !is_timed {
        return Ok(json_response(&describe(&lease, &HashMap::new(), None)));
    }
    if lease.kind != Kind::Text {
        return Err(ApiError::field(
            "time",
            "only models that generate text are measured",
        ));
    }
    let slot = lease.admit()?.pass_slot(context.deadline).await;
    Blocking::new(&lease)
        .run(move |model, session| {
            let timings = measure(session)?;
            let bandwidth = match model.model.profile().kind {
                DeviceKind::Cpu => bandwidth::measure(),
                DeviceKind::Gpu => None,
            };
            drop(slot);
            Ok(json_response(&describe(model, &timings, bandwidth)))
        })
        .await
}

/// Times of the commands of a table, by its index.
type Timings = HashMap<usize, Vec<CommandTiming>>;

/// Times the commands of decoding steps.
fn measure(session: &mut Session) -> ApiResult<Timings> {
    let token = session.tokenizer().bos().unwrap_or(0);
    session.prefill(&[token; MEASURED_TOKENS])?;
    session.step(&Sampling::GREEDY)?;
    session.time_commands()?;
    for _ in 0..MEASURED_TOKENS {
        session.step(&Sampling::GREEDY)?;
    }
    session.end_timing()?;
    let model = session.model().clone();
    let index = |table: &Table| {
        model
            .tables()
            .iter()
            .position(|other| std::ptr::eq(other, table))
    };
    let timings = session.command_timings()?.into_iter();
    Ok(timings
        .filter_map(|(table, times)| Some((index(table)?, times)))
        .collect())
}

fn describe(model: &Loaded, timings: &Timings, bandwidth: Option<f64>) -> Value {
    let tables = model.model.tables().iter().enumerate();
    let tables = tables.map(|(at, table)| describe_table(table, timings.get(&at)));
    json!({
        "model": model.name,
        "device": model.model.facts().device,
        "bandwidth_bytes_per_second": bandwidth,
        "tables": tables.collect::<Vec<_>>(),
    })
}

fn describe_table(table: &Table, timings: Option<&Vec<CommandTiming>>) -> Value {
    let commands: Vec<Value> = table
        .cmds
        .iter()
        .enumerate()
        .map(|(at, cmd)| {
            let timing = timings
                .and_then(|timings| timings.get(at))
                .filter(|timing| timing.runs > 0);
            let seconds = timing.map(|timing| timing.took.as_secs_f64() / f64::from(timing.runs));
            let label = table.labels.get(cmd.label as usize);
            json!({
                "index": at,
                "label": label.map_or(cmd.kernel.op.name(), String::as_str),
                "op": cmd.kernel.op.name(),
                "kernel": cmd.kernel.name(),
                "grid": cmd.grid,
                "bytes": bytes(table, cmd),
                "flops": table.cost(cmd).flops,
                "layer": table.layer_of(at),
                "stage": table.stage_of(at).map(|stage| stage.name()),
                "seconds": seconds,
            })
        })
        .collect();
    let sum = |name: &str| -> u64 { commands.iter().filter_map(|cmd| cmd[name].as_u64()).sum() };
    json!({
        "name": table.name,
        "tokens": table.tokens,
        "bytes": sum("bytes"),
        "flops": sum("flops"),
        "commands": commands,
    })
}

/// Returns the bytes that a command moves, without the KV cache, of which a short context uses little.
fn bytes(table: &Table, cmd: &DispatchCmd) -> u64 {
    let slots = cmd.slots().iter().map(|slot| table.slot(*slot));
    let cached =
        slots.filter(|slot| matches!(slot.buffer, BufferId::Keys(_) | BufferId::Values(_)));
    let cached: u64 = cached.map(|slot| slot.bytes()).sum();
    table.cost(cmd).bytes.saturating_sub(cached)
}

/// Request of `/activations`.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ActivationFields {
    /// Name of the model; the default model if it is missing.
    model: Option<String>,
    /// Text or token ids.
    #[schema(value_type = Object)]
    input: Option<Value>,
    /// Patterns of points, such as `blk.*` or `blk.3.attn_output`.
    points: Option<Vec<String>>,
    /// `all` or `last`. Default all.
    positions: Option<String>,
    /// `float` or `base64`: little-endian 32-bit floats. Default float.
    encoding_format: Option<String>,
}

/// Answer with values of the forward pass.
#[derive(Serialize)]
struct Activations<'a> {
    model: &'a str,
    tokens: &'a [u32],
    positions: &'a [u32],
    points: Points<'a>,
}

/// Name, shape and values of points.
struct Points<'a> {
    encoding: Encoding,
    values: Vec<(&'a str, [usize; 2], Vec<f32>)>,
}

/// Shape and values of a point.
#[derive(Serialize)]
struct Point<'a> {
    shape: [usize; 2],
    data: Numbers<'a>,
}

impl Serialize for Points<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let points = self.values.iter().map(|(name, shape, values)| {
            let (shape, data) = (*shape, self.encoding.numbers(values));
            (name, Point { shape, data })
        });
        serializer.collect_map(points)
    }
}

/// Returns values of the forward pass.
pub(crate) async fn activations(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    let (_, parsed, lease) = open(&app, &context, bytes, |fields: &ActivationFields| {
        fields.model.as_deref()
    })
    .await?;
    let Some(points) = parsed.points.filter(|points| !points.is_empty()) else {
        return Err(ApiError::field(
            "points",
            "expected patterns of points, such as blk.*",
        ));
    };
    let positions = match parsed.positions.as_deref() {
        None | Some("all") => CapturePositions::All,
        Some("last") => CapturePositions::Last,
        Some(_) => return Err(ApiError::field("positions", "expected all or last")),
    };
    let encoding = Encoding::find(parsed.encoding_format.as_deref())?;
    let values_max = match encoding {
        Encoding::Float => NUMBERS_MAX,
        Encoding::Base64 => VALUES_MAX,
    };
    lease.check_text()?;
    let slot = lease.admit()?.pass_slot(context.deadline).await;
    Blocking::new(&lease)
        .run(move |model, session| {
            let tokens = prompts(model, "input", parsed.input.as_ref())?;
            let [tokens] = tokens.as_slice() else {
                return Err(ApiError::field(
                    "input",
                    "expected one text or one list of token ids",
                ));
            };
            let checked = model.check_length(tokens.len());
            checked.map_err(|error| error.prompt_field("input"))?;
            let spec = HookSpec::default()
                .capture(points)
                .positions(positions)
                .attention_positions(u32::try_from(tokens.len()).unwrap_or(u32::MAX));
            let captured = capture(session, tokens, &spec, values_max)?;
            drop(slot);
            let values = captured.points().iter().map(|point| {
                let rows = captured.rows(&point.name)?;
                let rows: Vec<f32> = rows.flatten().copied().collect();
                let shape = [captured.positions().len(), point.cols as usize];
                Ok((&*point.name, shape, rows))
            });
            let values = values.collect::<ApiResult<Vec<_>>>()?;
            Ok(json_response(&Activations {
                model: &model.name,
                tokens,
                positions: captured.positions(),
                points: Points { encoding, values },
            }))
        })
        .await
}

/// Captures the values of tokens.
fn capture<'s>(
    session: &'s mut Session,
    tokens: &[u32],
    spec: &HookSpec,
    values_max: usize,
) -> ApiResult<&'s Captured> {
    let hooks = session.model().hooks(spec);
    let hooks = hooks.map_err(|error| ApiError::in_field("points", error))?;
    let width: usize = hooks.points().iter().map(|point| point.cols as usize).sum();
    let values = width.saturating_mul(tokens.len());
    if values > values_max {
        let message = format!(
            "{values} values exceed the limit of {NUMBERS_MAX}, or {VALUES_MAX} with the encoding_format base64"
        );
        return Err(ApiError::field("points", message));
    }
    session.set_hooks(Some(&hooks))?;
    let captured = session.capture(tokens);
    captured.map_err(|error| ApiError::in_field("input", error))
}
