//! Helpers of the tests of writers.

use crate::engine::events::{Delta, Event, FinishReason, Finished, Output, PromptUsage, Usage};
use crate::http::record::Record;
use axum::http::Request;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// Number of characters of a random identifier.
const ID_LEN: usize = 24;

/// Returns the record of a request.
pub(crate) fn record() -> Arc<Record> {
    let (parts, ()) = Request::new(()).into_parts();
    Arc::new(Record::new(&parts, Arc::new(|_| {})))
}

/// Returns the event of an increment.
pub(crate) fn output(delta: Delta) -> Event {
    Event::Output(Output {
        choice: 0,
        delta,
        logprobs: Vec::new(),
        tokens: Vec::new(),
        usage: Usage::default(),
    })
}

/// Returns the events of the end.
pub(crate) fn ended(reason: FinishReason, stop_string: Option<&str>) -> Vec<Event> {
    let usage = Usage {
        prompt: PromptUsage {
            tokens: 10,
            cached: 4,
        },
        generated: 3,
        reasoning: 1,
        ..Usage::default()
    };
    let finished = Finished {
        choice: 0,
        reason,
        stop_string: stop_string.map(str::to_string),
        tokens: Vec::new(),
        usage,
    };
    vec![Event::Finished(finished), Event::Done(usage)]
}

/// Parses a stream. Each event must have a name that its data repeats. Random identifiers are replaced by
/// numbers in the order of their appearance.
pub(crate) fn events(stream: &str) -> Vec<Value> {
    let mut ids = HashMap::new();
    let frames = stream.split_terminator("\n\n");
    let events = frames.map(|frame| {
        let (name, data) = frame.split_once('\n').expect("two lines");
        let data = data.strip_prefix("data: ").expect("data");
        let mut event: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(name.strip_prefix("event: "), event["type"].as_str());
        number_ids(&mut event, &mut ids);
        event
    });
    events.collect()
}

/// Replaces random identifiers.
pub(crate) fn number_ids(value: &mut Value, ids: &mut HashMap<String, usize>) {
    match value {
        Value::String(text) => {
            let random = text.rsplit_once('_').filter(|(_, id)| {
                id.len() == ID_LEN && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
            });
            if let Some((prefix, id)) = random {
                let next = ids.len();
                let number = ids.entry(id.to_string()).or_insert(next);
                *text = format!("{prefix}_{number}");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| number_ids(item, ids)),
        Value::Object(fields) => fields.values_mut().for_each(|field| number_ids(field, ids)),
        _ => {}
    }
}
