//! Tests of the queue.

use super::{Admission, QueueLimits};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Requests that gave their slots away keep their threads. One that waits for a thread must not have a slot: the
/// others wait for it.
#[tokio::test]
async fn requests_without_a_thread_keep_no_slot() {
    let limits = QueueLimits {
        waiting: 8,
        threads: Arc::new(Semaphore::new(2)),
    };
    let admission = Admission::new(1, 1, limits);
    let mut first = admission.enter().unwrap().slot().await;
    first.release();
    let mut second = admission.enter().unwrap().slot().await;
    second.release();
    let third = tokio::spawn(admission.enter().unwrap().slot());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(admission.running(), 0, "a slot waits for a thread");
    let patience = Duration::from_secs(60);
    for mut slot in [first, second] {
        timeout(patience, slot.acquire(&admission)).await.unwrap();
        assert_eq!(admission.running(), 1);
    }
    timeout(patience, third).await.unwrap().unwrap();
}
