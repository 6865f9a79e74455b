//! Cases of the rules of transcripts.

use super::common::{rows, wide};
use super::samplers::rows_with_samplers;
use super::{Expected, Tested};
use crate::case::Case;
use crate::rig::Outcome;
use tabla_core::op::kind;
use tabla_core::op::params::speech_filter::Params;
use tabla_plan::builder::SpeechTokens;
use tabla_speech::{SpecialTokens, apply_timestamp_rules};

macro_rules! speech_filter_case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal at $position:literal of $context:literal,
     first $first:literal, initial $initial:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let tokens = SpeechTokens {
                blank: 3,
                eot: 17,
                no_timestamps: 19,
                first_timestamp: 20,
            };
            b.speech_stages($vocab, tokens);
        })
        .at($position, $context)
        .sampled_rows()
        .sampler(|s| (s.first, s.initial_timestamps) = ($first, $initial))
        .tolerance(0.0)
    };
}

impl Tested for kind::SpeechFilter {
    /// First tokens and later ones, with and without timestamps, the end of the context. Random ids of
    /// the history are below 50, so that rows have all kinds of neighbours.
    const CASES: &'static [Case] = &[
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

    fn expected(o: &Outcome, live: usize) -> Expected {
        let (x, p): (_, Params) = (o.numbers("x"), o.params());
        let [masks, history] = ["masks", "history"]
            .map(|name| bytemuck::pod_collect_to_vec::<u8, u32>(&o.before[name]));
        let [vocab, words, context] =
            ["x", "masks", "history"].map(|name| o.slots[name].cols as usize);
        // The rules refer to these tokens only.
        let special = SpecialTokens {
            vocab: p.vocab,
            languages: 0,
            eot: p.eot,
            sot: p.eot,
            translate: p.eot,
            transcribe: p.eot,
            startoflm: p.eot,
            startofprev: p.eot,
            nospeech: p.eot,
            notimestamps: p.no_timestamps,
            first_timestamp: p.first_timestamp,
        };
        let filtered = rows_with_samplers(o, live).into_iter().enumerate();
        let filtered = filtered.map(|(t, (row, sampler))| {
            let sequence = row.sequence as usize;
            let allowed = |i: usize| masks[sequence * words + i / 32] & 1 << (i % 32) != 0;
            let logits = x[t * vocab..][..vocab].iter().enumerate();
            let logits = logits.map(|(i, x)| if allowed(i) { *x } else { f32::NEG_INFINITY });
            let mut logits: Vec<f32> = logits.collect();
            let end = row.position as usize + 1;
            let first = (sampler.first as usize).min(end);
            let generated = &history[sequence * context..][first..end];
            if generated.is_empty() {
                logits[p.blank as usize] = f32::NEG_INFINITY;
                logits[p.eot as usize] = f32::NEG_INFINITY;
            }
            if let Some(last) = sampler.initial_timestamps.checked_sub(1) {
                apply_timestamp_rules(&mut logits, generated, &special, Some(last));
            }
            logits
        });
        let filtered: Vec<Vec<f32>> = filtered.collect();
        rows(o, live, |t, i| wide(filtered[t][i]))
    }
}
