//! Loom tests of the synchronization between session threads and the model thread, with the source
//! files of the library. Each test runs in every interleaving of its threads.
#![cfg(test)]

#[path = "../../src/decode/notifier.rs"]
mod notifier;
#[path = "../../src/decode/cancel.rs"]
mod cancel;
#[path = "../../src/decode/request_queue.rs"]
mod request_queue;
#[path = "../../src/decode/output_queue.rs"]
mod output_queue;
mod sync;

/// Stub of `src/decode/end.rs`.
mod end {
    #[derive(Debug)]
    pub(super) struct End;
}

/// Stub of `src/decode/request.rs`.
mod request {
    use crate::end::End;
    use crate::output_queue::OutputQueue;
    use std::sync::Arc;

    /// Sends the end to its session on drop.
    pub(super) struct Request(pub(super) Arc<OutputQueue>);

    impl Drop for Request {
        fn drop(&mut self) {
            self.0.end(End);
        }
    }
}

mod engine {
    pub(super) struct Engine;
}

mod exec {
    pub(crate) mod state {
        #[derive(Debug)]
        pub(crate) struct LogProbs;
    }
}

use notifier::Notifier;
use cancel::Cancel;
use end::End;
use request_queue::{Found, RequestQueue, Message, WaitPolicy};
use loom::thread;
use output_queue::{OutputQueue, OutputEvent};
use request::Request;
use std::sync::Arc;

/// Receives tokens until the end.
fn tokens(queue: &OutputQueue) -> Vec<u32> {
    let mut tokens = Vec::new();
    loop {
        match queue.next(None) {
            OutputEvent::Picked(token, _) => tokens.push(token),
            OutputEvent::Fed(_) => panic!("progress was not requested"),
            OutputEvent::End(_) => return tokens,
        }
    }
}

#[test]
fn every_token_arrives_before_the_end() {
    loom::model(|| {
        let queue = Arc::new(OutputQueue::new(None));
        let model = thread::spawn({
            let queue = Arc::clone(&queue);
            move || {
                queue.pick(&[1], None);
                queue.fed(3);
                queue.pick(&[2, 3], None);
                queue.end(End);
            }
        });
        assert_eq!(tokens(&queue), [1, 2, 3]);
        model.join().expect("join");
    });
}

#[test]
fn the_last_progress_is_received() {
    loom::model(|| {
        let queue = Arc::new(OutputQueue::new(None));
        let model = thread::spawn({
            let queue = Arc::clone(&queue);
            move || {
                queue.fed(1);
                queue.fed(2);
                queue.end(End);
            }
        });
        let mut fed = 0;
        while let OutputEvent::Fed(now) = queue.next(Some(fed)) {
            assert!(now > fed);
            fed = now;
        }
        assert_eq!(fed, 2);
        model.join().expect("join");
    });
}

#[test]
fn the_end_arrives_after_enough() {
    loom::model(|| {
        let queue = Arc::new(OutputQueue::new(None));
        let model = thread::spawn({
            let queue = Arc::clone(&queue);
            move || {
                for token in 0..2 {
                    if queue.is_enough() {
                        break;
                    }
                    assert!(queue.room() > 0);
                    queue.pick(&[token], None);
                }
                queue.end(End);
            }
        });
        queue.enough();
        assert!([0, 1].starts_with(&tokens(&queue)));
        model.join().expect("join");
    });
}

#[test]
fn a_notifier_reports_events_of_all_its_queues() {
    loom::model(|| {
        let notifier = Arc::new(Notifier::new());
        let queues = [(); 2].map(|()| Arc::new(OutputQueue::new(Some(Arc::clone(&notifier)))));
        let model = thread::spawn({
            let queues = queues.clone();
            move || {
                queues[1].pick(&[7], None);
                queues[0].end(End);
                queues[1].end(End);
            }
        });
        let (mut ended, mut picked) = (0, 0);
        while ended < 2 {
            let rings = notifier.rings();
            match queues.iter().find_map(|queue| queue.try_next()) {
                Some(OutputEvent::End(_)) => ended += 1,
                Some(OutputEvent::Picked(7, _)) => picked += 1,
                Some(other) => panic!("unexpected event {other:?}"),
                None => notifier.wait(rings),
            }
        }
        assert_eq!(picked, 1);
        model.join().expect("join");
    });
}

#[test]
fn every_request_ends_when_the_queue_closes() {
    loom::model(|| {
        let requests = Arc::new(RequestQueue::new());
        let queues = [(); 2].map(|()| Arc::new(OutputQueue::new(None)));
        let message = |at: usize| Message::Start(Request(Arc::clone(&queues[at])));
        let sender = thread::spawn({
            let (requests, message) = (Arc::clone(&requests), message(0));
            move || requests.send(message)
        });
        let model = thread::spawn({
            let requests = Arc::clone(&requests);
            // Drops the requests it takes, which ends them.
            move || while !matches!(requests.take(WaitPolicy::Endless), Found::Closed) {}
        });
        requests.send(message(1));
        // The other message may be sent before or after the queue closes.
        requests.close();
        queues
            .iter()
            .for_each(|queue| assert!(tokens(queue).is_empty()));
        sender.join().expect("join");
        model.join().expect("join");
    });
}

#[test]
fn a_timed_wait_does_not_lose_a_message() {
    loom::model(|| {
        let requests = Arc::new(RequestQueue::new());
        let queue = Arc::new(OutputQueue::new(None));
        let sender = thread::spawn({
            let (requests, queue) = (Arc::clone(&requests), Arc::clone(&queue));
            move || requests.send(Message::Start(Request(queue)))
        });
        let first = requests.take(WaitPolicy::Some(std::time::Duration::ZERO));
        if matches!(first, Found::Nothing) {
            sender.join().expect("join");
            assert!(matches!(requests.take(WaitPolicy::None), Found::Message(_)));
        } else {
            drop(first);
            sender.join().expect("join");
        }
        assert!(tokens(&queue).is_empty());
        requests.send(Message::Call(Box::new(|_| {})));
        let Found::Message(Message::Call(work)) = requests.take(WaitPolicy::Endless) else {
            panic!("the sent call is missing");
        };
        work(&mut engine::Engine);
    });
}

#[test]
fn a_cancel_is_consumed_once_and_close_is_permanent() {
    loom::model(|| {
        let cancel = Cancel::new();
        let canceller = thread::spawn({
            let cancel = cancel.clone();
            move || cancel.cancel()
        });
        let mut consumed = u32::from(cancel.heed());
        canceller.join().expect("join");
        consumed += u32::from(cancel.heed()) + u32::from(cancel.heed());
        assert_eq!(consumed, 1);

        let canceller = thread::spawn({
            let cancel = cancel.clone();
            move || cancel.cancel()
        });
        cancel.close();
        canceller.join().expect("join");
        assert!(cancel.heed() && cancel.heed());
    });
}
