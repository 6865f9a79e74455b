//! Tests of scheduler iterations: which requests are computed in which order.

use super::{Scheduler, WAITING_MAX};
use crate::Source;
use crate::decode::burst::Burst;
use crate::decode::engine::Engine;
use crate::decode::output_queue::{OutputEvent, OutputQueue, UNREAD_MAX};
use crate::decode::outputs::Finish;
use crate::decode::request::Request;
use crate::decode::request_queue::Message;
use crate::decode::sampling::Sampling;
use crate::decode::sampling_request::SamplingRequest;
use crate::decode::sequence::Sequence;
use crate::error::ErrorKind;
use crate::load::{DeviceChoice, LoadOptions};
use std::ops::Range;
use std::sync::Arc;
use tabla_load::load_model;

const CHUNK: u32 = 32;
const CHUNKS: u32 = 7;
const STEPPING: u32 = 3;
const PROMPTS: u32 = 2;

fn scheduler() -> Scheduler {
    scheduler_of_chunks(CHUNK)
}

fn scheduler_of_chunks(tokens: u32) -> Scheduler {
    let options = LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .threads(1)
        .chunk_tokens(tokens)
        .sequences(STEPPING + PROMPTS);
    let linked = load_model(&Source::BuiltIn, &options, &mut |_| {}).expect("it loads");
    Scheduler::new(Engine::new(linked))
}

/// Creates a request of `tokens` tokens that differ from those of other sessions, and its output
/// queue.
fn request(
    session: u32,
    tokens: u32,
    sampling: Option<SamplingRequest>,
) -> (Request, Arc<OutputQueue>) {
    let first = 10 + session;
    let mut sequence = Sequence::default();
    sequence.push_prompt(&(first..first + tokens).collect::<Vec<_>>());
    let mut request = Request::of_sequence(sequence);
    request.sampling = sampling;
    let output_queue = Arc::clone(&request.output_queue);
    (request, output_queue)
}

/// Returns the session of a request of [`request`].
fn session_of(request: &Request) -> u32 {
    request.sequence.tokens()[0] - 10
}

/// Returns the number of cached tokens of each request of some sessions.
fn cached(scheduler: &Scheduler, sessions: Range<u32>) -> Vec<usize> {
    let requests = scheduler.slots.iter();
    let mut cached: Vec<_> = requests
        .map(|request| (session_of(request), request.cached))
        .filter(|(session, _)| sessions.contains(session))
        .collect();
    cached.sort_unstable();
    cached.into_iter().map(|(_, cached)| cached).collect()
}

/// Requests over the limit are rejected; queued ones are unaffected.
#[test]
fn full_queue_rejects_requests() {
    let mut scheduler = scheduler();
    let requests: Vec<_> = (0..WAITING_MAX + 76)
        .map(|_| {
            let (request, output_queue) = request(0, 4, None);
            let cancel = request.cancel.clone();
            scheduler.handle(Message::Start(request));
            (output_queue, cancel)
        })
        .collect();
    let ended = |output_queue: &OutputQueue| match output_queue.try_next(None) {
        Some(OutputEvent::End(end)) => Some(end.finish.map_err(|e| e.kind())),
        _ => None,
    };
    let (waiting, refused) = requests.split_at(WAITING_MAX);
    for (output_queue, _) in refused {
        assert_eq!(ended(output_queue), Some(Err(ErrorKind::Busy)));
    }
    for (output_queue, cancel) in waiting {
        assert_eq!(ended(output_queue), None);
        cancel.cancel();
    }
    scheduler.run_iteration();
    for (output_queue, _) in waiting {
        assert_eq!(ended(output_queue), Some(Ok(Some(Finish::Cancelled))));
    }
}

/// Chunks are short while other sequences decode, and whole otherwise.
#[test]
fn chunks_are_short_while_others_decode() {
    let mut scheduler = scheduler_of_chunks(256);
    let (alone, _) = request(0, 200, Some(SamplingRequest::one(&Sampling::GREEDY)));
    scheduler.handle(Message::Start(alone));
    assert!(scheduler.run_iteration());
    assert!(scheduler.slots.iter().all(Request::is_prefilled));
    let mut scheduler = scheduler_of_chunks(256);
    let sampling = SamplingRequest {
        limit: 1000,
        burst: Burst::new(0, 64),
        ..SamplingRequest::one(&Sampling::GREEDY)
    };
    let (decoding, _output_queue) = request(0, 4, Some(sampling));
    scheduler.handle(Message::Start(decoding));
    while scheduler.ready.is_empty() {
        assert!(scheduler.run_iteration());
    }
    let (prompt, _) = request(1, 200, None);
    scheduler.handle(Message::Start(prompt));
    for expected in [64, 128] {
        assert!(scheduler.run_iteration());
        assert_eq!(cached(&scheduler, 1..2), [expected]);
    }
    // The rest is short: 72 tokens.
    assert!(scheduler.run_iteration());
    assert!(cached(&scheduler, 1..2).is_empty());
    // Chunks are longer if several prompts wait.
    for session in 2..4 {
        let (prompt, _) = request(session, 200, None);
        scheduler.handle(Message::Start(prompt));
    }
    assert!(scheduler.run_iteration());
    assert_eq!(cached(&scheduler, 2..4), [128, 0]);
}

/// Chunks are those of the oldest and of the shortest prompt in turn.
#[test]
fn long_prompts_and_short_ones_take_turns() {
    let mut scheduler = scheduler();
    for (session, chunks) in [(0, CHUNKS), (1, 3), (2, 2)] {
        let (request, _) = request(session, chunks * CHUNK, None);
        scheduler.handle(Message::Start(request));
    }
    let mut order = Vec::new();
    while !scheduler.slots.is_empty() || order.is_empty() {
        let sessions = |scheduler: &Scheduler| {
            let requests = scheduler.slots.iter();
            let row = |r: &Request| (session_of(r), r.cached);
            requests.map(row).collect::<Vec<_>>()
        };
        let before = sessions(&scheduler);
        assert!(scheduler.run_iteration());
        let after = sessions(&scheduler);
        let is_same = |row: &&(u32, usize)| after.contains(row);
        let moved = before.iter().find(|row| !is_same(row));
        order.push(moved.map_or(0, |(session, _)| *session));
    }
    assert_eq!(order, [0, 2, 0, 2, 0, 1, 0, 1, 0, 1, 0, 0]);
}

/// Between two decode steps at most one chunk is prefilled, of equal prompts that of the oldest.
#[test]
fn prompt_delays_decoding_by_one_chunk() {
    let mut scheduler = scheduler();
    let sampling = || SamplingRequest {
        limit: 1000,
        burst: Burst::new(0, 64),
        ..SamplingRequest::one(&Sampling::GREEDY)
    };
    let mut output_queues = Vec::new();
    for session in 0..STEPPING {
        let (request, output_queue) = request(session, 4, Some(sampling()));
        scheduler.handle(Message::Start(request));
        output_queues.push(output_queue);
    }
    while scheduler.ready.len() < STEPPING as usize {
        assert!(scheduler.run_iteration());
    }
    let prompts = STEPPING..STEPPING + PROMPTS;
    for session in prompts.clone() {
        let (request, _) = request(session, CHUNKS * CHUNK, None);
        scheduler.handle(Message::Start(request));
    }
    let mut expected = [0; PROMPTS as usize];
    let turns = (0..PROMPTS as usize).flat_map(|prompt| (0..CHUNKS).map(move |_| prompt));
    for prompt in turns {
        for output_queue in &output_queues {
            // Sessions read their tokens.
            while output_queue.room() < UNREAD_MAX {
                assert!(matches!(output_queue.next(None), OutputEvent::Token(..)));
            }
        }
        let before = cached(&scheduler, 0..STEPPING);
        assert!(scheduler.run_iteration());
        let after = cached(&scheduler, 0..STEPPING);
        expected[prompt] += CHUNK as usize;
        // Completed requests have ended.
        let whole = (CHUNKS * CHUNK) as usize;
        let remaining: Vec<_> = expected
            .iter()
            .copied()
            .filter(|cached| *cached < whole)
            .collect();
        assert_eq!(cached(&scheduler, prompts.clone()), remaining);
        let mut steps = before.iter().zip(&after).map(|(from, to)| to - from);
        if remaining.is_empty() {
            // Bursts may grow again.
            assert!(steps.all(|steps| steps >= 1));
        } else {
            assert!(steps.eq([1; STEPPING as usize]), "prompts at {expected:?}");
        }
    }
    assert_eq!(expected, [(CHUNKS * CHUNK) as usize; PROMPTS as usize]);
}
