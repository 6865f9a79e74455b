//! The objects of an answer of `/completion`.

use crate::api::common::{add_timings, logprob, timings, token_text, with_alternatives};
use crate::engine::collect::Choice;
use crate::engine::events::{
    Delta, Event, FinishReason, Finished, Output, Progress, TokenLogprob, Usage,
};
use crate::engine::extra_fields::TimedChunks;
use crate::http::error::{ApiError, Dialect};
use crate::http::record::Record;
use crate::http::sse::{self, EventWriter};
use crate::models::Loaded;
use serde_json::{Value, json};
use std::sync::Arc;
use tabla::text::{DecodeOptions, SpecialTokens};

/// Number of the slot in an answer: requests are not bound to slots.
const NO_SLOT: i64 = -1;

/// Returns the text of a prompt with its special tokens.
pub(crate) fn prompt_text(model: &Loaded, prompt: &[u32]) -> String {
    let options = DecodeOptions::default()
        .specials(SpecialTokens::Tokens)
        .from_start(true);
    let text = model.model.tokenizer().decode_lossy(prompt, options);
    // Fails only for ids outside the vocabulary, which were checked.
    text.unwrap_or_default()
}

/// What the objects of an answer have.
pub(super) struct AnswerForm {
    pub(super) model: Arc<Loaded>,
    /// The options of the generation.
    pub(super) settings: Value,
    /// The texts of the prompts.
    pub(super) prompts: Vec<String>,
    /// Number of choices of each prompt.
    pub(super) choices: u32,
    /// Whether a whole answer has its token ids.
    pub(super) has_tokens: bool,
    pub(super) timed: TimedChunks,
    /// Selected fields of the last object; empty: all.
    pub(super) fields: Vec<String>,
}

/// The end of a choice.
struct End<'a> {
    text: &'a str,
    tokens: &'a [u32],
    has_new_line: bool,
    reason: FinishReason,
    stop_string: Option<&'a str>,
    usage: &'a Usage,
}

impl AnswerForm {
    /// Returns the object of a choice.
    pub(super) fn whole(&self, index: usize, choice: &Choice) -> Value {
        let end = End {
            text: &choice.text,
            tokens: match self.has_tokens {
                true => &choice.tokens,
                false => &[],
            },
            has_new_line: choice.text.contains('\n'),
            reason: choice.reason(),
            stop_string: choice.stop_string.as_deref(),
            usage: &choice.usage,
        };
        let mut value = self.end(index, &end);
        self.add_probabilities(&mut value, &choice.logprobs);
        self.selected(value)
    }

    /// Returns the last object of a choice.
    fn end(&self, index: usize, end: &End<'_>) -> Value {
        let stop_type = match (end.stop_string, end.reason) {
            (Some(_), _) => "word",
            (None, FinishReason::Stop | FinishReason::ToolCalls) => "eos",
            (None, FinishReason::Length | FinishReason::Context) => "limit",
        };
        json!({
            "index": index,
            "content": end.text,
            "tokens": end.tokens,
            "id_slot": NO_SLOT,
            "stop": true,
            "stop_type": stop_type,
            "stopping_word": end.stop_string.unwrap_or_default(),
            "model": self.model.name,
            "tokens_predicted": end.usage.generated,
            "tokens_evaluated": end.usage.prompt.tokens,
            "tokens_cached": end.usage.prompt.cached,
            "generation_settings": self.settings,
            "prompt": self.prompts[index / self.choices as usize],
            "has_new_line": end.has_new_line,
            "truncated": self.is_truncated(end),
            "timings": timings(end.usage),
        })
    }

    /// Whether the context was full: the answer ended, or the context was shifted. A token at the end of the context
    /// is output, but is not computed.
    fn is_truncated(&self, end: &End<'_>) -> bool {
        let tokens = end.usage.prompt.tokens + end.usage.generated;
        let context = u64::from(self.model.model.facts().context);
        end.reason == FinishReason::Context || tokens > context + 1
    }

    /// Returns an object with the selected fields.
    fn selected(&self, value: Value) -> Value {
        if self.fields.is_empty() {
            return value;
        }
        let selected = self.fields.iter().filter_map(|path| {
            let inner = path
                .split('/')
                .try_fold(&value, |value, name| value.get(name))?;
            Some((path.clone(), inner.clone()))
        });
        Value::Object(selected.collect())
    }

    /// Returns a part of a stream.
    fn part(&self, index: u32, usage: &Usage) -> Value {
        let mut value = json!({
            "index": index,
            "content": "",
            "tokens": [],
            "id_slot": NO_SLOT,
            "stop": false,
            "tokens_predicted": usage.generated,
            "tokens_evaluated": usage.prompt.tokens,
        });
        add_timings(&mut value, self.timed, usage);
        value
    }

    /// Adds the log-probabilities of tokens, if there are any.
    fn add_probabilities(&self, value: &mut Value, entries: &[TokenLogprob]) {
        if entries.is_empty() {
            return;
        }
        let tokenizer = self.model.model.tokenizer();
        let one = |token: u32, value: f32| {
            json!({
                "id": token,
                "token": token_text(tokenizer, token),
                "bytes": tokenizer.token_bytes_with_special(token),
                "logprob": logprob(value),
            })
        };
        let entries = entries.iter().map(|entry| with_alternatives(entry, one));
        value["completion_probabilities"] = entries.collect::<Vec<_>>().into();
    }
}

/// Writer of a stream, which has no `[DONE]`.
pub(super) struct Writer {
    form: AnswerForm,
    /// Whether the text of each choice has a line break.
    has_new_line: Vec<bool>,
    record: Arc<Record>,
}

impl Writer {
    pub(super) fn new(form: AnswerForm, choices: u32, record: &Arc<Record>) -> Self {
        Self {
            form,
            has_new_line: vec![false; choices as usize],
            record: Arc::clone(record),
        }
    }

    fn progress(&self, progress: Progress, out: &mut String) {
        // Times and tokens are those of the processed part.
        let mut usage = progress.usage;
        let total = std::mem::replace(&mut usage.prompt.tokens, progress.processed);
        let mut value = self.form.part(progress.choice, &usage);
        value["tokens_evaluated"] = total.into();
        value["prompt_progress"] = prompt_progress(&progress);
        sse::data(out, &value);
    }

    fn output(&mut self, output: &Output, out: &mut String) {
        let Delta::Text(text) = &output.delta else {
            return;
        };
        self.has_new_line[output.choice as usize] |= text.contains('\n');
        let mut value = self.form.part(output.choice, &output.usage);
        value["content"] = text.as_str().into();
        value["tokens"] = output.tokens.as_slice().into();
        self.form.add_probabilities(&mut value, &output.logprobs);
        sse::data(out, &value);
    }

    fn finished(&self, finished: &Finished, out: &mut String) {
        let index = finished.choice as usize;
        let end = End {
            text: "",
            tokens: &[],
            has_new_line: self.has_new_line[index],
            reason: finished.reason,
            stop_string: finished.stop_string.as_deref(),
            usage: &finished.usage,
        };
        let value = self.form.end(index, &end);
        sse::data(out, &self.form.selected(value));
    }
}

/// Returns the progress of a prompt in the format of llama.cpp.
pub(crate) fn prompt_progress(progress: &Progress) -> Value {
    let time = progress.usage.prompt_time.as_millis();
    json!({
        "total": progress.usage.prompt.tokens,
        "cache": progress.usage.prompt.cached,
        "processed": progress.processed,
        "time_ms": u64::try_from(time).unwrap_or(u64::MAX),
    })
}

impl EventWriter for Writer {
    type Event = Event;

    fn begin(&mut self, _: &mut String) {}

    fn event(&mut self, event: Event, out: &mut String) -> bool {
        match event {
            Event::Prompt(_) => {}
            Event::Progress(progress) => self.progress(progress, out),
            Event::Output(output) => self.output(&output, out),
            Event::Finished(finished) => self.finished(&finished, out),
            Event::Done(_) => return true,
        }
        false
    }

    fn error(&mut self, error: &ApiError, out: &mut String) {
        self.record.fail(error);
        sse::data(out, &error.body(Dialect::OpenAi, ""));
    }
}
