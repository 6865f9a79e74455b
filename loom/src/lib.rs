//! Tests the queues between session threads and the model's thread with loom, which runs each test in
//! every thread interleaving.
#![cfg(test)]

#[path = "../../crates/load/src/cancel.rs"]
mod cancel;
#[path = "../../src/decode/notifier.rs"]
mod notifier;
#[path = "../../src/decode/output_queue.rs"]
mod output_queue;
#[path = "../../src/decode/request_queue.rs"]
mod request_queue;
mod sync;

/// The end of a request, in place of `src/decode/end.rs`.
mod end {
    #[derive(Debug)]
    pub(super) struct End;
}

/// A request, in place of `src/decode/request.rs`.
mod request {
    use crate::end::End;
    use crate::output_queue::OutputQueue;
    use std::sync::Arc;

    /// Sends the end to its session when it is dropped.
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

mod op {
    pub(crate) mod params {
        #[derive(Debug)]
        pub(crate) struct Logprobs;
    }
}

use cancel::Cancel;
use end::End;
use loom::thread;
use notifier::Notifier;
use output_queue::{OutputEvent, OutputQueue};
use request::Request;
use request_queue::{Message, Received, RequestQueue, WaitPolicy};
use std::sync::Arc;

/// Receives all tokens until the end.
fn receive_tokens(output_queue: &OutputQueue) -> Vec<u32> {
    let mut tokens = Vec::new();
    loop {
        match output_queue.next(None) {
            OutputEvent::Token(token, _) => tokens.push(token),
            OutputEvent::Progress(_) => panic!("progress was not requested"),
            OutputEvent::End(_) => return tokens,
        }
    }
}

#[test]
fn tokens_arrive_before_the_end() {
    loom::model(|| {
        let output_queue = Arc::new(OutputQueue::new(None));
        let model = thread::spawn({
            let output_queue = Arc::clone(&output_queue);
            move || {
                output_queue.push_tokens(&[1], None);
                output_queue.report_progress(3);
                output_queue.push_tokens(&[2, 3], None);
                output_queue.end(End);
            }
        });
        assert_eq!(receive_tokens(&output_queue), [1, 2, 3]);
        model.join().expect("thread ends");
    });
}

#[test]
fn last_progress_is_received() {
    loom::model(|| {
        let output_queue = Arc::new(OutputQueue::new(None));
        let model = thread::spawn({
            let output_queue = Arc::clone(&output_queue);
            move || {
                output_queue.report_progress(1);
                output_queue.report_progress(2);
                output_queue.end(End);
            }
        });
        let mut cached = 0;
        while let OutputEvent::Progress(now) = output_queue.next(Some(cached)) {
            assert!(now > cached);
            cached = now;
        }
        assert_eq!(cached, 2);
        model.join().expect("thread ends");
    });
}

#[test]
fn stop_request_still_receives_the_end() {
    loom::model(|| {
        let output_queue = Arc::new(OutputQueue::new(None));
        let model = thread::spawn({
            let output_queue = Arc::clone(&output_queue);
            move || {
                for token in 0..2 {
                    if output_queue.is_stop_requested() {
                        break;
                    }
                    assert!(output_queue.room() > 0);
                    output_queue.push_tokens(&[token], None);
                }
                output_queue.end(End);
            }
        });
        output_queue.request_stop();
        assert!([0, 1].starts_with(&receive_tokens(&output_queue)));
        model.join().expect("thread ends");
    });
}

#[test]
fn notifier_wakes_for_every_queue() {
    loom::model(|| {
        let notifier = Arc::new(Notifier::new());
        let output_queues =
            [(); 2].map(|()| Arc::new(OutputQueue::new(Some(Arc::clone(&notifier)))));
        let model = thread::spawn({
            let output_queues = output_queues.clone();
            move || {
                output_queues[1].push_tokens(&[7], None);
                output_queues[0].end(End);
                output_queues[1].end(End);
            }
        });
        let (mut ended, mut tokens) = (0, 0);
        while ended < 2 {
            let generation = notifier.generation();
            match output_queues
                .iter()
                .find_map(|output_queue| output_queue.try_next(None))
            {
                Some(OutputEvent::End(_)) => ended += 1,
                Some(OutputEvent::Token(7, _)) => tokens += 1,
                Some(other) => panic!("unexpected event {other:?}"),
                None => notifier.wait(generation),
            }
        }
        assert_eq!(tokens, 1);
        model.join().expect("thread ends");
    });
}

#[test]
fn every_request_ends() {
    loom::model(|| {
        let request_queue = Arc::new(RequestQueue::new());
        let output_queues = [(); 2].map(|()| Arc::new(OutputQueue::new(None)));
        let message = |at: usize| Message::Start(Request(Arc::clone(&output_queues[at])));
        let sender = thread::spawn({
            let (request_queue, message) = (Arc::clone(&request_queue), message(0));
            move || request_queue.send(message)
        });
        let model = thread::spawn({
            let request_queue = Arc::clone(&request_queue);
            // Dropping a request ends it.
            move || while !matches!(request_queue.receive(WaitPolicy::Forever), Received::Closed) {}
        });
        request_queue.send(message(1));
        // The other message may be sent before or after this.
        request_queue.close();
        output_queues
            .iter()
            .for_each(|output_queue| assert!(receive_tokens(output_queue).is_empty()));
        sender.join().expect("thread ends");
        model.join().expect("thread ends");
    });
}

#[test]
fn timeout_does_not_lose_messages() {
    loom::model(|| {
        let request_queue = Arc::new(RequestQueue::new());
        let output_queue = Arc::new(OutputQueue::new(None));
        let sender = thread::spawn({
            let (request_queue, output_queue) =
                (Arc::clone(&request_queue), Arc::clone(&output_queue));
            move || request_queue.send(Message::Start(Request(output_queue)))
        });
        let first = request_queue.receive(WaitPolicy::Timeout(std::time::Duration::ZERO));
        if matches!(first, Received::Empty) {
            sender.join().expect("thread ends");
            assert!(matches!(
                request_queue.receive(WaitPolicy::NoWait),
                Received::Message(_)
            ));
        } else {
            drop(first);
            sender.join().expect("thread ends");
        }
        assert!(receive_tokens(&output_queue).is_empty());
        request_queue.send(Message::Call(Box::new(|_| {})));
        let Received::Message(Message::Call(work)) = request_queue.receive(WaitPolicy::Forever)
        else {
            panic!("message was sent");
        };
        work(&mut engine::Engine);
    });
}

#[test]
fn cancellation_is_taken_once_and_close_is_permanent() {
    loom::model(|| {
        let cancel = Cancel::new();
        let canceller = thread::spawn({
            let cancel = cancel.clone();
            move || cancel.cancel()
        });
        let mut taken = u32::from(cancel.take_pending());
        canceller.join().expect("thread ends");
        taken += u32::from(cancel.take_pending()) + u32::from(cancel.take_pending());
        assert_eq!(taken, 1);

        let canceller = thread::spawn({
            let cancel = cancel.clone();
            move || cancel.cancel()
        });
        cancel.close();
        canceller.join().expect("thread ends");
        assert!(cancel.take_pending() && cancel.take_pending());
    });
}
