// Where calls of the library run. They compute and wait, for seconds at times, and Swift's own threads are
// few and must not: so a session has a queue of its own, and what belongs to none has one for all.

import Foundation

/// Runs a call that belongs to no session.
func blocking<R: Sendable>(_ call: @escaping @Sendable () throws -> R) async throws -> R {
    try await withCheckedThrowingContinuation { continuation in
        beside.async { continuation.resume(with: Result(catching: call)) }
    }
}

private let beside = DispatchQueue(label: "tabla", attributes: .concurrent)

/// The executor of an actor whose calls run on a queue of its own, one after the other.
final class QueueExecutor: SerialExecutor {
    private let queue = DispatchQueue(label: "tabla.session")

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }
}

/// A value that threads have in common. The lock is what makes it so, and the compiler does not see that.
final class Locked<Value>: @unchecked Sendable {
    private let lock = NSLock()
    private var value: Value

    init(_ value: Value) { self.value = value }

    func with<R>(_ body: (inout Value) throws -> R) rethrows -> R {
        try lock.withLock { try body(&value) }
    }
}

/// What `produce` hands out, as a stream. It keeps everything that nobody has taken yet, so that nothing is
/// lost; who leaves it cancels the task that produces.
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
