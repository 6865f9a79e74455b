//! Several recordings at once.

use crate::output::{Failure, terminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tabla::Cancel;

/// Interval at which Ctrl-C is checked.
const POLL: Duration = Duration::from_millis(50);

/// Runs `work` for each item, in order, on `threads` threads. After a failure the items that are begun
/// are finished and no others begun. Ctrl-C closes `cancel`.
///
/// # Errors
///
/// The failure of the first item that has one.
pub(super) fn run<T: Send>(
    items: impl Iterator<Item = T> + Send,
    threads: usize,
    cancel: &Cancel,
    work: impl Fn(T) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    terminal::catch_interrupt(None)?;
    let items = Mutex::new(items.enumerate());
    let has_failed = AtomicBool::new(false);
    let next = || {
        let mut items = items.lock().unwrap_or_else(PoisonError::into_inner);
        (!has_failed.load(Ordering::Relaxed))
            .then(|| items.next())
            .flatten()
    };
    let mut first = None;
    std::thread::scope(|scope| {
        let (send, failures) = channel();
        for at in 0..threads {
            let (send, next, work, has_failed) = (send.clone(), &next, &work, &has_failed);
            let run = move || {
                while let Some((at, item)) = next() {
                    if let Err(failure) = work(item) {
                        has_failed.store(true, Ordering::Relaxed);
                        // Ignore that the receiver is gone.
                        let _ = send.send((at, failure));
                    }
                }
            };
            let thread = tabla::reserve::thread("tabla-transcribe");
            if let Err(cause) = thread.and_then(|thread| thread.spawn_scoped(scope, run)) {
                // The threads that were started do its work.
                let failure = Failure::Program {
                    message: "cannot start a thread".to_string(),
                    cause: Some(cause),
                };
                first = (at == 0).then_some((0, failure));
                break;
            }
        }
        drop(send);
        loop {
            match failures.recv_timeout(POLL) {
                Ok((at, failure)) => match &first {
                    Some((before, _)) if *before < at => {}
                    _ => first = Some((at, failure)),
                },
                Err(RecvTimeoutError::Timeout) if terminal::interrupted() => cancel.close(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    first.map_or(Ok(()), |(_, failure)| Err(failure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_returned() {
        let done = Mutex::new(Vec::new());
        let work = |item: u32| {
            // The second item fails before the first one.
            std::thread::sleep(Duration::from_millis(u64::from(40 - 20 * item.min(2))));
            done.lock().expect("no panic").push(item);
            match item {
                0 | 1 => Err(Failure::new(format!("item {item}"))),
                _ => Ok(()),
            }
        };
        let error = run(0..100, 2, &Cancel::new(), work).expect_err("two items fail");
        assert!(
            matches!(&error, Failure::Program { message, .. } if message == "item 0"),
            "{error:?}"
        );
        let done = done.into_inner().expect("no panic");
        assert_eq!(done, [1, 0], "no item is begun after a failure");
        run(0..3, 8, &Cancel::new(), |_: u32| Ok(())).expect("no failure");
    }
}
