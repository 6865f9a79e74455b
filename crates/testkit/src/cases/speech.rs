//! Cases of the rules of transcripts.

use crate::case::{Case, PLAIN};
use tabla_plan::builder::{LogitRows, SpeechTokens};

macro_rules! speech_filter_case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal at $position:literal of $context:literal,
     first $first:literal, initial $initial:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            sequence: 1,
            position: $position,
            context: $context,
            logits: LogitRows::All,
            emit: |b| {
                let tokens = SpeechTokens {
                    blank: 3,
                    eot: 17,
                    no_timestamps: 19,
                    first_timestamp: 20,
                };
                b.speech_stages($vocab, tokens);
            },
            sampler: |s| (s.first, s.initial_timestamps) = ($first, $initial),
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// First tokens and later ones, with and without timestamps, the end of the context. Random ids of
/// the history are below 50, so that rows have all kinds of neighbours.
pub(super) const SPEECH_FILTER: &[Case] = &[
    speech_filter_case!("first", 60, 1/1 at 3 of 16, first 4, initial 5),
    speech_filter_case!("first of all timestamps", 60, 1/1 at 3 of 16, first 4, initial 1000),
    speech_filter_case!("first without timestamps", 60, 1/1 at 3 of 16, first 4, initial 0),
    speech_filter_case!("without timestamps", 60, 40/39 at 9 of 16, first 4, initial 0),
    speech_filter_case!("second", 60, 40/37 at 4 of 16, first 4, initial 5),
    speech_filter_case!("third", 60, 60/60 at 5 of 16, first 4, initial 5),
    speech_filter_case!("later", 60, 60/60 at 13 of 16, first 4, initial 5),
    speech_filter_case!("many timestamps", 3001, 20/19 at 13 of 16, first 4, initial 5),
    speech_filter_case!("end of the context", 60, 3/3 at 15 of 16, first 4, initial 5),
];
