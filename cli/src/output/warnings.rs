//! Prints warnings of the library to standard error.

use super::terminal;
use std::collections::BTreeSet;
use std::fmt::{Debug, Write};
use std::sync::{Mutex, PoisonError};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Installs the subscriber.
pub(crate) fn enable() {
    // Fails only if a subscriber is installed, and there is no other.
    let _ = tracing::subscriber::set_global_default(Printer::default());
}

/// Prints each warning once: a command may load a model or open a device several times.
#[derive(Default)]
struct Printer(Mutex<BTreeSet<String>>);

impl Subscriber for Printer {
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= LevelFilter::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let line = terminal::one_line(&format!("warning: {}{}", line.message, line.fields));
        let mut printed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !printed.contains(&line) {
            terminal::note(&line);
            printed.insert(line);
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

/// The message and fields of an event.
#[derive(Default)]
struct Line {
    message: String,
    /// `; name: value` for each field.
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, "; {name}: {value:?}"),
        };
    }
}
