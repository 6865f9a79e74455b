// A sequence on a model, and what can be done with it.

internal import CTabla
import Foundation

/// A sequence of tokens on a model, with what was computed for it.
///
/// Calls run one after the other on a queue of the session's own. Cancelling the task of a call stops it:
/// within a prompt at the end of a chunk, within an answer at once.
public actor Session {
    /// The model that it is on.
    public nonisolated let model: Model
    nonisolated let handle: Handle
    private nonisolated let executor = QueueExecutor()

    public nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// A session with an empty sequence.
    public init(_ model: Model) throws {
        self.init(model, try Self.own(tabla_session_new(model.handle.pointer)))
    }

    private init(_ model: Model, _ handle: Handle) {
        self.model = model
        self.handle = handle
    }

    private static func own(_ pointer: OpaquePointer?) throws -> Handle {
        try Handle(pointer, free: { tabla_session_free($0) })
    }

    /// A session that goes on as the one did that `save` wrote for the same model.
    public static func load(_ path: String, for model: Model) async throws -> Session {
        let handle = try await blocking {
            try withCString(path) { try own(tabla_session_load(model.handle.pointer, $0)) }
        }
        return Session(model, handle)
    }

    /// Writes the session to a file, with what was computed for it. The file is there when it is whole.
    public func save(_ path: String) throws {
        try withCString(path) { try check(tabla_session_save(handle.pointer, $0)) }
    }

    /// A session with the same sequence. Nothing is computed again for it.
    public func fork() throws -> Session {
        Session(model, try Self.own(tabla_session_fork(handle.pointer)))
    }

    /// The tokens of the sequence, given and picked.
    public var tokens: [UInt32] {
        get throws { try filled { tabla_session_tokens(handle.pointer, $0, $1, $2) } }
    }

    /// Forgets what stands behind the first `keep` tokens of the sequence.
    public func truncate(_ keep: Int = 0) throws {
        guard let keep = UInt(exactly: keep) else {
            throw TablaError(code: .argument, message: "\(keep) tokens cannot be kept")
        }
        try check(tabla_session_truncate(handle.pointer, Int(keep)))
    }

    /// Appends tokens to the sequence and runs them through the model.
    public func prefill(_ tokens: [UInt32]) async throws {
        try await cancellable { try check(tabla_session_prefill($0, tokens, tokens.count)) }
    }

    /// Picks the next token and appends it to the sequence. Of the options it takes those of sampling.
    public func step(_ options: GenerateOptions = GenerateOptions()) async throws -> UInt32 {
        try await cancellable { session in
            var token: UInt32 = 0
            try options.withC { try check(tabla_session_step(session, $0, &token)) }
            return token
        }
    }

    /// The logits: `[vocab]` after the last token, or `[tokens, vocab]` after each of the sequence, row
    /// behind row.
    public func logits(_ rows: LogitRows = .last) async throws -> [Float] {
        try await cancellable { session in
            try filled { tabla_session_logits(session, rows.rawValue, $0, $1, $2) }
        }
    }

    public struct LogitRows: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        public static let last = LogitRows(rawValue: TABLA_LOGITS_LAST)
        public static let all = LogitRows(rawValue: TABLA_LOGITS_ALL)
    }

    /// The natural logarithm of how likely each token from the `from`th on is, given all in front of it;
    /// `from` is 1 at least. The sequence stays as it is.
    public func score(_ tokens: [UInt32], from: Int = 1) async throws -> [Float] {
        guard (1...max(tokens.count, 1)).contains(from) else {
            throw TablaError(code: .argument, message: "there is no \(from)th of \(tokens.count) tokens")
        }
        return try await cancellable { session in
            try filled { tabla_session_score(session, tokens, tokens.count, from, $0, $1, $2) }
        }
    }

    /// Stops what the session does, from any thread; what begins later is not touched. An answer ends with
    /// `Finish.cancelled`, and a prompt throws `TablaError.Code.cancelled`.
    public nonisolated func cancel() {
        _ = tabla_session_cancel(handle.pointer)
    }

    /// Stops a call again and again: the library forgets what comes before it has begun. Once the call is
    /// done, nothing is stopped any more.
    private nonisolated func cancel(until isDone: Locked<Bool>) {
        let goesOn = isDone.with { done in
            if !done { cancel() }
            return !done
        }
        guard goesOn else { return }
        DispatchQueue.global().asyncAfter(deadline: .now() + .milliseconds(10)) {
            self.cancel(until: isDone)
        }
    }

    /// A call on the session's pointer, which ends early when its task is cancelled.
    func cancellable<R: Sendable>(_ call: (OpaquePointer) throws -> R) async throws -> R {
        try Task.checkCancellation()
        let isDone = Locked(false)
        defer { isDone.with { $0 = true } }
        do {
            return try await withTaskCancellationHandler {
                try call(handle.pointer)
            } onCancel: {
                cancel(until: isDone)
            }
        } catch let error as TablaError where error.code == .cancelled && Task.isCancelled {
            throw CancellationError()
        }
    }
}
