//! Formula of the rules of transcripts: those of `tabla-speech`, which are tested with OpenAI's code.

use super::common::{rows, wide};
use super::samplers::rows_with_samplers;
use crate::rig::Outcome;
use tabla_core::op::params::speech_filter::Params;
use tabla_speech::{SpecialTokens, apply_timestamp_rules};

pub(super) fn speech_filter(o: &Outcome, live: usize) -> Vec<f32> {
    let (x, p): (_, Params) = (o.numbers("x"), o.params());
    let [masks, history] =
        ["masks", "history"].map(|name| bytemuck::pod_collect_to_vec::<u8, u32>(&o.before[name]));
    let [vocab, words, context] = ["x", "masks", "history"].map(|name| o.slots[name].cols as usize);
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
