//! What a round is: which of the requests go through the device in it.

use super::{Scheduler, WAITING_MAX};
use crate::decode::burst::Burst;
use crate::decode::cancel::Cancel;
use crate::decode::engine::Engine;
use crate::decode::output_queue::{OutputEvent, OutputQueue, UNREAD_MAX};
use crate::decode::output_request::OutputRequest;
use crate::decode::outputs::Finish;
use crate::decode::request::{IfBusy, Request};
use crate::decode::request_queue::Message;
use crate::decode::sampling::Sampling;
use crate::decode::sampling_request::SamplingRequest;
use crate::decode::sequence::Sequence;
use crate::error::ErrorKind;
use crate::load::{DeviceChoice, LoadOptions, Source, load};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const CHUNK: u32 = 32;
const CHUNKS: u32 = 7;
const STEPPING: u32 = 3;
const PROMPTS: u32 = 2;

fn scheduler() -> Scheduler {
    let options = LoadOptions {
        device: DeviceChoice::Cpu,
        threads: 1,
        chunk_tokens: CHUNK,
        sequences: STEPPING + PROMPTS,
        ..LoadOptions::default()
    };
    let linked = load(&Source::BuiltIn, &options, &mut |_| {}).expect("it loads");
    Scheduler::new(Engine::new(linked))
}

/// A request of so many tokens that are unlike those of others, and what comes of it.
fn request(
    session: u32,
    tokens: u32,
    picking: Option<SamplingRequest>,
) -> (Request, Arc<OutputQueue>) {
    let mail = Arc::new(OutputQueue::new(None));
    let first = 10 + session;
    let mut sequence = Sequence::default();
    sequence.give(&(first..first + tokens).collect::<Vec<_>>());
    let request = Request {
        session: session.into(),
        sequence,
        fed: 0,
        reusable: usize::MAX,
        computed: 0,
        picking,
        wanted: OutputRequest::Nothing,
        seat: 0,
        picked: 0,
        submitting: Duration::ZERO,
        mail: Arc::clone(&mail),
        cancel: Cancel::new(),
        if_busy: IfBusy::Wait,
        ended: false,
    };
    (request, mail)
}

/// Tokens that all requests of some sessions have in the cache.
fn fed(scheduler: &Scheduler, sessions: Range<u32>) -> Vec<usize> {
    let sessions = sessions.start.into()..sessions.end.into();
    let requests = scheduler.requests.iter();
    let mut fed: Vec<_> = requests
        .filter(|request| sessions.contains(&request.session))
        .map(|request| (request.session, request.fed))
        .collect();
    fed.sort_unstable();
    fed.into_iter().map(|(_, fed)| fed).collect()
}

/// More requests than may wait are refused, and the others are not disturbed.
#[test]
fn a_queue_has_an_end() {
    let mut scheduler = scheduler();
    let begun: Vec<_> = (0..WAITING_MAX + 76)
        .map(|_| {
            let (request, mail) = request(0, 4, None);
            let cancel = request.cancel.clone();
            scheduler.take(Message::Start(request));
            (mail, cancel)
        })
        .collect();
    let ended = |mail: &OutputQueue| match mail.try_next() {
        Some(OutputEvent::End(end)) => Some(end.finish.map_err(|e| e.kind())),
        _ => None,
    };
    let (waiting, refused) = begun.split_at(WAITING_MAX);
    for (mail, _) in refused {
        assert_eq!(ended(mail), Some(Err(ErrorKind::Busy)));
    }
    for (mail, cancel) in waiting {
        assert_eq!(ended(mail), None);
        cancel.cancel();
    }
    scheduler.round();
    for (mail, _) in waiting {
        assert_eq!(ended(mail), Some(Ok(Some(Finish::Cancelled))));
    }
}

/// Between two steps of those that go on lies one chunk of those that are fed, whoever's it is, and
/// they are fed in turns.
#[test]
fn prompts_hold_the_others_up_for_one_chunk() {
    let mut scheduler = scheduler();
    let picking = || SamplingRequest {
        limit: 1000,
        chain: Burst::new(0, 64),
        ..SamplingRequest::one(&Sampling::GREEDY)
    };
    let mut mails = Vec::new();
    for session in 0..STEPPING {
        let (request, mail) = request(session, 4, Some(picking()));
        scheduler.take(Message::Start(request));
        mails.push(mail);
    }
    while scheduler.ready.len() < STEPPING as usize {
        assert!(scheduler.round());
    }
    let prompts = STEPPING..STEPPING + PROMPTS;
    for session in prompts.clone() {
        let (request, _) = request(session, CHUNKS * CHUNK, None);
        scheduler.take(Message::Start(request));
    }
    let mut wanted = [0; PROMPTS as usize];
    let turns = (0..CHUNKS).flat_map(|_| 0..PROMPTS as usize);
    for turn in turns {
        for mail in &mails {
            // Their sessions take what comes.
            while mail.room() < UNREAD_MAX {
                assert!(matches!(mail.next(None), OutputEvent::SampledTokens(..)));
            }
        }
        let before = fed(&scheduler, 0..STEPPING);
        assert!(scheduler.round());
        let after = fed(&scheduler, 0..STEPPING);
        wanted[turn] += CHUNK as usize;
        // Who is through has ended.
        let whole = (CHUNKS * CHUNK) as usize;
        let left: Vec<_> = wanted.iter().copied().filter(|fed| *fed < whole).collect();
        assert_eq!(fed(&scheduler, prompts.clone()), left);
        let mut steps = before.iter().zip(&after).map(|(from, to)| to - from);
        if left.is_empty() {
            // Chains may be long again.
            assert!(steps.all(|steps| steps >= 1));
        } else {
            assert!(steps.eq([1; STEPPING as usize]), "prompts at {wanted:?}");
        }
    }
    assert_eq!(wanted, [(CHUNKS * CHUNK) as usize; PROMPTS as usize]);
}
