//! What the library warns of, as lines on standard error.

use super::terminal;
use std::collections::BTreeSet;
use std::fmt::{Debug, Write};
use std::sync::{Mutex, PoisonError};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// From here on warnings are shown.
pub(crate) fn show() {
    // It fails where somebody else shows them, and nobody does.
    let _ = tracing::subscriber::set_global_default(Shown::default());
}

/// The lines that were said: a command may load a model or open a device more than once.
#[derive(Default)]
struct Shown(Mutex<BTreeSet<String>>);

impl Subscriber for Shown {
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= LevelFilter::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let line = terminal::one_line(&format!("warning: {}{}", line.message, line.facts));
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !said.contains(&line) {
            terminal::note(&line);
            said.insert(line);
        }
    }

    // Spans are not enabled.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// What an event says.
#[derive(Default)]
struct Line {
    message: String,
    /// `; name: value` for each.
    facts: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.facts, "; {name}: {value:?}"),
        };
    }
}
