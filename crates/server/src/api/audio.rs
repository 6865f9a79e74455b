//! `POST /v1/audio/transcriptions` and `/v1/audio/translations`.

use super::common::lease;
use crate::app::App;
use crate::engine::admission::{PassSlot, Ticket};
use crate::engine::blocking::{CancelOnDrop, blocking};
use crate::http::deadline::Deadline;
use crate::http::error::{ApiError, ApiResult, Dialect};
use crate::http::gate::RequestContext;
use crate::http::sse::{self, EventSource, EventWriter};
use crate::metrics::ModelMetrics;
use crate::models::{Kind, Loaded};
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, Multipart};
use axum::http::{HeaderMap, HeaderValue, Request, Response, header};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tabla::audio::AudioReader;
use tabla::speech::{Format, Header, Language, Segment, Task, Transcript, WordTimes};
use tabla::{Cancel, ErrorKind, TranscribeOptions, Transcription};
use tokio::sync::mpsc;

/// Number of samples that are decoded at once: 10 seconds.
const SAMPLES: usize = 160_000;
/// Number of segments that wait for the client.
const CHANNEL_SEGMENTS: usize = 8;
/// Maximum number of bytes of a text field.
const FIELD_BYTES: usize = 16 << 10;

/// Transcribes audio.
pub(crate) async fn transcribe(
    app: Arc<App>,
    context: RequestContext,
    headers: HeaderMap,
    body: Bytes,
) -> ApiResult<Response<Body>> {
    answer(
        app,
        context,
        Form::parse(headers, body).await?,
        Task::Transcribe,
    )
    .await
}

/// Translates audio to English text.
pub(crate) async fn translate(
    app: Arc<App>,
    context: RequestContext,
    headers: HeaderMap,
    body: Bytes,
) -> ApiResult<Response<Body>> {
    answer(
        app,
        context,
        Form::parse(headers, body).await?,
        Task::Translate,
    )
    .await
}

/// Fields of a request. Unknown fields are ignored.
#[derive(Default)]
struct Form {
    file: Option<Bytes>,
    model: Option<String>,
    language: Option<String>,
    prompt: Option<String>,
    format: Option<String>,
    temperature: Option<f64>,
    words: WordTimes,
    is_stream: bool,
}

impl Form {
    async fn parse(headers: HeaderMap, body: Bytes) -> ApiResult<Self> {
        let mut request = Request::new(Body::from(body));
        *request.headers_mut() = headers;
        // The body was read and its length checked.
        DefaultBodyLimit::disable().apply(&mut request);
        let invalid = |error: &dyn std::fmt::Display| {
            ApiError::invalid(format!("expected multipart/form-data: {error}"))
        };
        let multipart = Multipart::from_request(request, &()).await;
        let mut multipart = multipart.map_err(|error| invalid(&error.body_text()))?;
        let mut form = Self::default();
        while let Some(field) = multipart
            .next_field()
            .await
            .map_err(|e| invalid(&e.body_text()))?
        {
            let name = field.name().unwrap_or_default().to_string();
            let bytes = field.bytes().await.map_err(|e| invalid(&e.body_text()))?;
            if name == "file" {
                form.file = Some(bytes);
                continue;
            }
            if bytes.len() > FIELD_BYTES {
                return Err(ApiError::field(
                    name,
                    format!("exceeds {FIELD_BYTES} bytes"),
                ));
            }
            let text = String::from_utf8(bytes.to_vec());
            let text = text.map_err(|_| ApiError::field(&name, "is not valid UTF-8"))?;
            form.set(&name, text)?;
        }
        Ok(form)
    }

    fn set(&mut self, name: &str, text: String) -> ApiResult<()> {
        match name {
            "model" => self.model = Some(text),
            "language" => self.language = Some(text).filter(|text| !text.is_empty()),
            "prompt" => self.prompt = Some(text).filter(|text| !text.is_empty()),
            "response_format" => self.format = Some(text),
            "temperature" => {
                let value = text
                    .parse()
                    .ok()
                    .filter(|value| (0.0..=1.0).contains(value));
                let message = "expected a number from 0 to 1";
                self.temperature = Some(value.ok_or_else(|| ApiError::field(name, message))?);
            }
            "timestamp_granularities[]" | "timestamp_granularities" => match text.as_str() {
                "word" => self.words = WordTimes::On,
                "segment" => {}
                _ => return Err(ApiError::field(name, "expected word or segment")),
            },
            "stream" => self.is_stream = text == "true" || text == "1",
            _ => {}
        }
        Ok(())
    }
}

/// Format of the answer: a JSON object with the text, or a format of the library.
#[derive(Clone, Copy)]
enum AnswerFormat {
    Json,
    Other(Format),
}

impl AnswerFormat {
    fn find(name: Option<&str>) -> ApiResult<Self> {
        Ok(match name {
            None | Some("json") => Self::Json,
            Some("text") => Self::Other(Format::Text),
            Some("srt") => Self::Other(Format::Srt),
            Some("vtt") => Self::Other(Format::Vtt),
            Some("verbose_json") => Self::Other(Format::VerboseJson),
            Some(other) => {
                let message =
                    format!("expected json, text, srt, vtt or verbose_json, got {other:?}");
                return Err(ApiError::field("response_format", message));
            }
        })
    }
}

async fn answer(
    app: Arc<App>,
    context: RequestContext,
    form: Form,
    task: Task,
) -> ApiResult<Response<Body>> {
    let Some(file) = form.file.filter(|file| !file.is_empty()) else {
        return Err(ApiError::field("file", "is missing"));
    };
    let format = AnswerFormat::find(form.format.as_deref())?;
    let lease = lease(&app, &context, form.model.as_deref()).await?;
    if lease.kind != Kind::Speech {
        let message = format!("the model {} is no speech model", lease.name);
        return Err(ApiError::unsupported(message));
    }
    let words = form.words;
    let cancel = Cancel::new();
    let guard = CancelOnDrop(cancel.clone());
    let language = form.language.as_deref().map(Language::find).transpose();
    let language = language.map_err(|error| ApiError::in_field("language", error))?;
    let options = TranscribeOptions::default()
        .language(form.language)
        .task(task)
        .initial_prompt(form.prompt)
        .temperature(form.temperature.unwrap_or(0.0))
        .word_timestamps(words == WordTimes::On)
        .max_duration(Some(app.limits.audio_time.as_secs_f64()))
        .cancel(Some(cancel));
    let ticket = lease.admit()?;
    let (sender, receiver) = mpsc::channel(CHANNEL_SEGMENTS);
    let begun = {
        let (model, file) = (lease.model(), file.clone());
        // Errors of the file and of the options are found before the answer begins.
        blocking(move || begin(&model, file, &options, language)).await?
    };
    let deadline = context.deadline.clone();
    tokio::spawn(async move {
        let work = transcribe_in_turn(begun, ticket, deadline, &sender);
        tokio::select! {
            result = work => if let Err(error) = result {
                let _ = sender.send(Err(lease.explain(error))).await;
            },
            // Dropping the source cancels the transcription, whose thread then ends.
            () = sender.closed() => {}
        }
        drop(lease);
    });
    let source = Source {
        receiver,
        context,
        _guard: guard,
    };
    if form.is_stream {
        return Ok(sse::response(source, Writer::default()));
    }
    let header = |language| Header {
        task,
        language,
        words,
    };
    whole(source, format, header).await
}

/// Opens the audio and prepares the transcription.
fn begin(
    model: &Loaded,
    file: Bytes,
    options: &TranscribeOptions,
    language: Option<&'static Language>,
) -> ApiResult<Begun> {
    let transcription = Transcription::new(&model.model, options).map_err(|error| {
        let field = match error.kind() {
            ErrorKind::Unsupported if options.task == Task::Transcribe => "language",
            ErrorKind::Unsupported | ErrorKind::State => "model",
            ErrorKind::Argument => "temperature",
            _ => "prompt",
        };
        ApiError::in_field(field, error)
    })?;
    // A model of one language transcribes every language as this one.
    if let (Some(given), Some(actual)) = (language, transcription.language())
        && given.code != actual.code
    {
        let message = format!(
            "the model {} transcribes {} only, expected {:?}, got {:?}",
            model.name, actual.name, actual.code, given.code
        );
        return Err(ApiError::field("language", message));
    }
    let invalid = |error: tabla::Error| ApiError::field("file", error);
    let reader = AudioReader::from_bytes(file.clone()).map_err(invalid)?;
    Ok(Begun {
        metrics: Arc::clone(&model.metrics),
        transcription,
        reader,
        file,
    })
}

/// Measures and transcribes a recording, in turn with other requests.
async fn transcribe_in_turn(
    begun: Begun,
    ticket: Ticket,
    deadline: Deadline,
    sender: &SegmentSender,
) -> ApiResult<()> {
    let begun = blocking(move || begun.measure()).await?;
    let mut slot = ticket.pass_slot(deadline).await;
    let sender = sender.clone();
    blocking(move || begun.run(&sender, &mut slot)).await
}

type SegmentSender = mpsc::Sender<ApiResult<SpeechEvent>>;

struct Begun {
    metrics: Arc<ModelMetrics>,
    transcription: Transcription,
    reader: AudioReader,
    file: Bytes,
}

/// Event of a transcription.
enum SpeechEvent {
    Segment(Segment),
    /// The end: language and duration in seconds.
    Done(Option<&'static Language>, f64),
}

impl Begun {
    /// Decodes the whole recording once, without the model: its loudest frame scales the spectrogram.
    fn measure(mut self) -> ApiResult<Self> {
        let invalid = |error: tabla::Error| ApiError::field("file", error);
        let mut measured = AudioReader::from_bytes(self.file.clone()).map_err(invalid)?;
        self.transcription.measure(&mut measured).map_err(invalid)?;
        Ok(self)
    }

    fn run(self, sender: &SegmentSender, slot: &mut PassSlot) -> ApiResult<()> {
        let Self {
            metrics,
            mut transcription,
            mut reader,
            ..
        } = self;
        let invalid = |error: tabla::Error| ApiError::field("file", error);
        let mut samples = Vec::new();
        while reader.read(SAMPLES, &mut samples).map_err(invalid)? > 0 {
            transcription.push(&samples)?;
            samples.clear();
            send_segments(&mut transcription, sender)?;
            // The window of another recording is next.
            slot.next();
        }
        transcription.finish();
        send_segments(&mut transcription, sender)?;
        let duration = transcription.duration();
        metrics.transcribed(Duration::from_secs_f64(duration.max(0.0)));
        let done = SpeechEvent::Done(transcription.language(), duration);
        let _ = sender.blocking_send(Ok(done));
        Ok(())
    }
}

fn send_segments(transcription: &mut Transcription, sender: &SegmentSender) -> ApiResult<()> {
    while let Some(segment) = transcription.next_segment()? {
        // If the client is gone, the transcription is cancelled.
        let _ = sender.blocking_send(Ok(SpeechEvent::Segment(segment)));
    }
    Ok(())
}

/// The segments of a transcription. Dropping it cancels the transcription.
struct Source {
    receiver: mpsc::Receiver<ApiResult<SpeechEvent>>,
    context: RequestContext,
    _guard: CancelOnDrop,
}

impl EventSource for Source {
    type Event = SpeechEvent;

    async fn next(&mut self) -> Option<ApiResult<SpeechEvent>> {
        tokio::select! {
            biased;
            () = self.context.deadline.passed() => Some(Err(self.context.deadline.error())),
            event = self.receiver.recv() => event,
        }
    }

    fn try_next(&mut self) -> Option<ApiResult<SpeechEvent>> {
        self.receiver.try_recv().ok()
    }
}

/// Writer of a stream.
#[derive(Default)]
struct Writer {
    text: String,
}

impl EventWriter for Writer {
    type Event = SpeechEvent;

    fn begin(&mut self, _: &mut String) {}

    fn event(&mut self, event: SpeechEvent, out: &mut String) -> bool {
        match event {
            SpeechEvent::Segment(segment) => {
                let delta = match self.text.is_empty() {
                    true => segment.text.trim_start(),
                    false => &segment.text,
                };
                self.text.push_str(delta);
                let value = json!({ "type": "transcript.text.delta", "delta": delta });
                sse::data(out, &value);
                false
            }
            SpeechEvent::Done(_, duration) => {
                let value = json!({
                    "type": "transcript.text.done",
                    "text": self.text.trim(),
                    "usage": duration_usage(duration),
                });
                sse::data(out, &value);
                out.push_str("data: [DONE]\n\n");
                true
            }
        }
    }

    fn error(&mut self, error: &ApiError, out: &mut String) {
        sse::data(out, &error.body(Dialect::OpenAi, ""));
    }
}

fn duration_usage(seconds: f64) -> Value {
    json!({ "type": "duration", "seconds": seconds.ceil() })
}

/// Waits for the end and writes the whole transcript.
async fn whole(
    mut source: Source,
    format: AnswerFormat,
    header: impl Fn(&'static Language) -> Header,
) -> ApiResult<Response<Body>> {
    let mut segments = Vec::new();
    let mut end = None;
    while let Some(event) = source.next().await {
        match event? {
            SpeechEvent::Segment(segment) => segments.push(segment),
            SpeechEvent::Done(language, duration) => end = Some((language, duration)),
        }
    }
    let (language, duration) = end.unwrap_or_default();
    let language = match language {
        Some(language) => language,
        None => Language::find("en")?,
    };
    let transcript = Transcript {
        header: header(language),
        duration,
        segments,
    };
    let (text, kind) = match format {
        AnswerFormat::Json => {
            let value = json!({ "text": transcript.text(), "usage": duration_usage(duration) });
            (value.to_string(), "application/json")
        }
        AnswerFormat::Other(format) => (
            transcript.write(format),
            match format {
                Format::VerboseJson => "application/json",
                Format::Vtt => "text/vtt; charset=utf-8",
                _ => "text/plain; charset=utf-8",
            },
        ),
    };
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}
