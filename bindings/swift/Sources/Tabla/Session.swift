// Sessions: a sequence of tokens on a model.

internal import CTabla
import Foundation

/// A sequence of tokens on a model, with its KV cache.
///
/// Calls run one after the other on the session's own queue. Cancelling the task of a call cancels
/// the call: during prefill at the end of a chunk, during decoding at once.
public actor Session {
    /// The model of the session.
    public nonisolated let model: Model
    nonisolated let handle: Handle
    private nonisolated let executor = QueueExecutor()
    /// Hooks of the session.
    var hooks: Hooks?

    public nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// Creates a session with an empty sequence.
    public init(_ model: Model) throws {
        self.init(model, try Self.own(tabla_session_new(model.handle.pointer)))
    }

    private init(_ model: Model, _ handle: Handle, hooks: Hooks? = nil) {
        self.model = model
        self.handle = handle
        self.hooks = hooks
    }

    private static func own(_ pointer: OpaquePointer?) throws -> Handle {
        try Handle(pointer, free: { tabla_session_free($0) })
    }

    /// Loads a session that `save` saved for the same model.
    public static func load(_ path: String, for model: Model) async throws -> Session {
        let handle = try await blocking {
            try withCString(path) { try own(tabla_session_load(model.handle.pointer, $0)) }
        }
        return Session(model, handle)
    }

    /// Saves the session to a file, including its KV cache. The file is created only when it is
    /// complete.
    public func save(_ path: String) throws {
        try withCString(path) { try check(tabla_session_save(handle.pointer, $0)) }
    }

    /// Returns a session with a copy of the sequence. Nothing is recomputed.
    public func fork() throws -> Session {
        Session(model, try Self.own(tabla_session_fork(handle.pointer)), hooks: hooks)
    }

    /// The tokens of the sequence, both prompt and generated ones.
    public var tokens: [UInt32] {
        get throws { try callForArray { tabla_session_tokens(handle.pointer, $0, $1, $2) } }
    }

    /// Removes all tokens after the first `keep` ones.
    public func truncate(_ keep: Int = 0) throws {
        guard let keep = UInt(exactly: keep) else {
            throw TablaError(code: .argument, message: "keep must not be negative, got \(keep)")
        }
        try check(tabla_session_truncate(handle.pointer, Int(keep)))
    }

    /// Appends tokens to the sequence and runs the model on them.
    public func prefill(_ tokens: [UInt32]) async throws {
        try await cancellable { try check(tabla_session_prefill($0, tokens, tokens.count)) }
    }

    /// Samples the next token and appends it to the sequence. Only the sampling options are used.
    public func step(_ options: GenerateOptions = GenerateOptions()) async throws -> UInt32 {
        try await cancellable { session in
            var token: UInt32 = 0
            try options.withC { try check(tabla_session_step(session, $0, &token)) }
            return token
        }
    }

    /// Returns logits: `[vocab]` after the last token, or `[tokens, vocab]` after every token, in
    /// row-major order.
    public func logits(_ rows: LogitRows = .last) async throws -> [Float] {
        try await cancellable { session in
            try callForArray { tabla_session_logits(session, rows.rawValue, $0, $1, $2) }
        }
    }

    public struct LogitRows: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        public static let last = LogitRows(rawValue: TABLA_LOGITS_LAST)
        public static let all = LogitRows(rawValue: TABLA_LOGITS_ALL)
    }

    /// Returns the log-probability (natural logarithm) of each token from index `from` on, given
    /// all tokens before it; `from` is at least 1. The sequence does not change.
    public func score(_ tokens: [UInt32], from: Int = 1) async throws -> [Float] {
        guard (1...max(tokens.count, 1)).contains(from) else {
            throw TablaError(
                code: .argument,
                message: "from \(from) is out of range: expected 1 to \(max(tokens.count, 1))")
        }
        return try await cancellable { session in
            try callForArray { tabla_session_score(session, tokens, tokens.count, from, $0, $1, $2) }
        }
    }

    /// Cancels the current call, from any thread; later calls are not affected. An answer ends with
    /// `Finish.cancelled`; prefill throws `TablaError.Code.cancelled`.
    public nonisolated func cancel() {
        _ = tabla_session_cancel(handle.pointer)
    }

    /// Cancels a call repeatedly until it is done, because the library ignores a cancellation
    /// before the call has started.
    private nonisolated func cancel(until isDone: Locked<Bool>) {
        let isRunning = isDone.with { done in
            if !done { cancel() }
            return !done
        }
        guard isRunning else { return }
        DispatchQueue.global().asyncAfter(deadline: .now() + .milliseconds(10)) {
            self.cancel(until: isDone)
        }
    }

    /// Runs a call on the session's pointer. Cancelling the task cancels the call.
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
