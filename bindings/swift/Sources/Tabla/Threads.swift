// Dispatch queues for calls of the library, which block for up to seconds. They must not block the few threads
// of Swift's cooperative pool, so each session has its own queue, and all other calls share one.

import Foundation

/// Runs a call that does not belong to a session.
func blocking<R: Sendable>(_ call: @escaping @Sendable () throws -> R) async throws -> R {
    try await withCheckedThrowingContinuation { continuation in
        sharedQueue.async { continuation.resume(with: Result(catching: call)) }
    }
}

private let sharedQueue = DispatchQueue(label: "tabla", attributes: .concurrent)

/// Executor of an actor whose calls run on its own queue, one after the other.
final class QueueExecutor: SerialExecutor {
    private let queue = DispatchQueue(label: "tabla.session")

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }
}

/// A value that is protected by a lock, which the compiler cannot check.
final class Locked<Value>: @unchecked Sendable {
    private let lock = NSLock()
    private var value: Value

    init(_ value: Value) { self.value = value }

    func with<R>(_ body: (inout Value) throws -> R) rethrows -> R {
        try lock.withLock { try body(&value) }
    }
}

/// Returns the elements that `produce` yields as a stream. The buffer is unbounded, so that no element is lost.
/// Leaving the stream cancels the task that produces.
func streaming<Element: Sendable>(
    _ produce: @escaping @Sendable (@escaping @Sendable (Element) -> Void) async throws -> Void
) -> AsyncThrowingStream<Element, any Error> {
    AsyncThrowingStream(bufferingPolicy: .unbounded) { continuation in
        let task = Task {
            do {
                try await produce { continuation.yield($0) }
                continuation.finish()
            } catch {
                continuation.finish(throwing: error)
            }
        }
        continuation.onTermination = { _ in task.cancel() }
    }
}
