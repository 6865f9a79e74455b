//! The files by which a session's thread and the model's meet, as they are in the library, under loom:
//! each test runs in every order that the threads can have.
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

    /// It tells its session of the end, whoever drops it.
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

/// Takes what comes until the end.
fn picked(mail: &OutputQueue) -> Vec<u32> {
    let mut picked = Vec::new();
    loop {
        match mail.next(None) {
            OutputEvent::Picked(token, _) => picked.push(token),
            OutputEvent::Fed(_) => panic!("nobody asked"),
            OutputEvent::End(_) => return picked,
        }
    }
}

#[test]
fn every_token_comes_before_the_end() {
    loom::model(|| {
        let mail = Arc::new(OutputQueue::new(None));
        let model = thread::spawn({
            let mail = Arc::clone(&mail);
            move || {
                mail.pick(&[1], None);
                mail.fed(3);
                mail.pick(&[2, 3], None);
                mail.end(End);
            }
        });
        assert_eq!(picked(&mail), [1, 2, 3]);
        model.join().expect("it ends");
    });
}

#[test]
fn who_waits_for_progress_hears_of_the_last() {
    loom::model(|| {
        let mail = Arc::new(OutputQueue::new(None));
        let model = thread::spawn({
            let mail = Arc::clone(&mail);
            move || {
                mail.fed(1);
                mail.fed(2);
                mail.end(End);
            }
        });
        let mut fed = 0;
        while let OutputEvent::Fed(now) = mail.next(Some(fed)) {
            assert!(now > fed);
            fed = now;
        }
        assert_eq!(fed, 2);
        model.join().expect("it ends");
    });
}

#[test]
fn who_has_enough_gets_the_end() {
    loom::model(|| {
        let mail = Arc::new(OutputQueue::new(None));
        let model = thread::spawn({
            let mail = Arc::clone(&mail);
            move || {
                for token in 0..2 {
                    if mail.is_enough() {
                        break;
                    }
                    assert!(mail.room() > 0);
                    mail.pick(&[token], None);
                }
                mail.end(End);
            }
        });
        mail.enough();
        assert!([0, 1].starts_with(&picked(&mail)));
        model.join().expect("it ends");
    });
}

#[test]
fn who_waits_for_two_hears_of_both() {
    loom::model(|| {
        let bell = Arc::new(Notifier::new());
        let mails = [(); 2].map(|()| Arc::new(OutputQueue::new(Some(Arc::clone(&bell)))));
        let model = thread::spawn({
            let mails = mails.clone();
            move || {
                mails[1].pick(&[7], None);
                mails[0].end(End);
                mails[1].end(End);
            }
        });
        let (mut ended, mut picked) = (0, 0);
        while ended < 2 {
            let rings = bell.rings();
            match mails.iter().find_map(|mail| mail.try_next()) {
                Some(OutputEvent::End(_)) => ended += 1,
                Some(OutputEvent::Picked(7, _)) => picked += 1,
                Some(other) => panic!("nobody sent {other:?}"),
                None => bell.wait(rings),
            }
        }
        assert_eq!(picked, 1);
        model.join().expect("it ends");
    });
}

#[test]
fn whatever_is_sent_ends() {
    loom::model(|| {
        let inbox = Arc::new(RequestQueue::new());
        let mails = [(); 2].map(|()| Arc::new(OutputQueue::new(None)));
        let message = |at: usize| Message::Start(Request(Arc::clone(&mails[at])));
        let sender = thread::spawn({
            let (inbox, message) = (Arc::clone(&inbox), message(0));
            move || inbox.send(message)
        });
        let model = thread::spawn({
            let inbox = Arc::clone(&inbox);
            // What it takes ends, as it is dropped.
            move || while !matches!(inbox.take(WaitPolicy::Endless), Found::Closed) {}
        });
        inbox.send(message(1));
        // The other message may come before and behind this.
        inbox.close();
        mails
            .iter()
            .for_each(|mail| assert!(picked(mail).is_empty()));
        sender.join().expect("it ends");
        model.join().expect("it ends");
    });
}

#[test]
fn who_sleeps_for_a_while_finds_what_came() {
    loom::model(|| {
        let inbox = Arc::new(RequestQueue::new());
        let mail = Arc::new(OutputQueue::new(None));
        let sender = thread::spawn({
            let (inbox, mail) = (Arc::clone(&inbox), Arc::clone(&mail));
            move || inbox.send(Message::Start(Request(mail)))
        });
        let first = inbox.take(WaitPolicy::Some(std::time::Duration::ZERO));
        if matches!(first, Found::Nothing) {
            sender.join().expect("it ends");
            assert!(matches!(inbox.take(WaitPolicy::None), Found::Message(_)));
        } else {
            drop(first);
            sender.join().expect("it ends");
        }
        assert!(picked(&mail).is_empty());
        inbox.send(Message::Call(Box::new(|_| {})));
        let Found::Message(Message::Call(work)) = inbox.take(WaitPolicy::Endless) else {
            panic!("it was sent");
        };
        work(&mut engine::Engine);
    });
}

#[test]
fn a_cancel_is_heeded_once_and_a_closed_session_stays_so() {
    loom::model(|| {
        let cancel = Cancel::new();
        let asking = thread::spawn({
            let cancel = cancel.clone();
            move || cancel.cancel()
        });
        let mut heeded = u32::from(cancel.heed());
        asking.join().expect("it ends");
        heeded += u32::from(cancel.heed()) + u32::from(cancel.heed());
        assert_eq!(heeded, 1);

        let asking = thread::spawn({
            let cancel = cancel.clone();
            move || cancel.cancel()
        });
        cancel.close();
        asking.join().expect("it ends");
        assert!(cancel.heed() && cancel.heed());
    });
}
