// Answers to prompts, complete or piece by piece.

internal import CTabla

/// A piece of an answer: one token.
public struct Piece: Sendable {
    /// Token id; nil for text that was held back to the end, and for the end of the answer.
    public let token: UInt32?
    /// Text that the token completes. It is empty while a character is incomplete or a stop string
    /// may have started.
    public let text: String
    /// Reason why the answer ended, in its last piece, which has no text.
    public let finish: Finish?
    /// Log-probability of the token (natural logarithm), if `GenerateOptions.logprobs` requests it.
    public let logprob: Float?
    /// Log-probabilities of the likeliest tokens at this position, in descending order.
    public let topLogprobs: [Logprob]

    init(_ c: TablaPiece) {
        token = c.token == TABLA_NO_TOKEN ? nil : c.token
        text = String(UnsafeBufferPointer(start: c.text, count: c.text_bytes))
        finish = c.finish == TABLA_FINISH_NONE ? nil : Finish(rawValue: c.finish)
        logprob = c.logprob.isNaN ? nil : c.logprob
        topLogprobs = UnsafeBufferPointer(start: c.top_logprobs, count: c.top_logprobs_count).map {
            Logprob(token: $0.token, logprob: $0.logprob)
        }
    }
}

/// Log-probability of a token, before logit biases and samplers.
public struct Logprob: Sendable {
    public let token: UInt32
    /// Natural logarithm of the probability.
    public let logprob: Float
}

/// Reason why an answer ended.
public struct Finish: RawRepresentable, Hashable, Sendable {
    public let rawValue: Int32
    public init(rawValue: Int32) { self.rawValue = rawValue }

    /// A stop token, a stop string, or the end of the grammar.
    public static let stop = Finish(rawValue: TABLA_FINISH_STOP)
    /// `GenerateOptions.maxTokens` tokens were generated.
    public static let length = Finish(rawValue: TABLA_FINISH_LENGTH)
    /// The context is full.
    public static let context = Finish(rawValue: TABLA_FINISH_CONTEXT)
    /// The reader stopped reading.
    public static let ended = Finish(rawValue: TABLA_FINISH_CALLBACK)
    /// `Session.cancel` was called.
    public static let cancelled = Finish(rawValue: TABLA_FINISH_CANCELLED)
    /// An error.
    public static let failed = Finish(rawValue: TABLA_FINISH_FAILED)
}

/// Statistics of an answer.
public struct Stats: Sendable {
    let c: TablaStats

    /// Number of prompt tokens.
    public var promptTokens: Int { Int(c.prompt_tokens) }
    /// Duration of prefill, in milliseconds.
    public var promptMilliseconds: Double { c.prompt_ms }
    /// Number of generated tokens.
    public var tokens: Int { Int(c.tokens) }
    /// Duration of decoding, in milliseconds.
    public var predictedMilliseconds: Double { c.predicted_ms }
    /// Finish reason; nil while the answer runs.
    public var finish: Finish? { c.finish == TABLA_FINISH_NONE ? nil : Finish(rawValue: c.finish) }
    /// Number of draft tokens of speculative decoding.
    public var draftedTokens: Int { Int(c.drafted_tokens) }
    /// Number of accepted draft tokens.
    public var acceptedTokens: Int { Int(c.accepted_tokens) }
}

extension Session {
    /// Appends a prompt to the sequence, runs the model on it, and returns the answer. Without a
    /// prompt, continues from the sequence as it is.
    public func generate(
        _ prompt: String? = nil, options: GenerateOptions = GenerateOptions()
    ) async throws -> String {
        var text = ""
        try await answer(prompt, options) { text += $0.text }
        return text
    }

    /// Like `generate`, piece by piece. The answer starts when the session is idle, and does not
    /// wait for the reader; its last piece has the finish reason. Leaving the stream, or cancelling
    /// the task that reads it, ends the answer: the sequence has all tokens up to that point,
    /// possibly more than were read.
    public nonisolated func stream(
        _ prompt: String? = nil, options: GenerateOptions = GenerateOptions()
    ) -> AsyncThrowingStream<Piece, any Error> {
        streaming { each in try await self.answer(prompt, options, each) }
    }

    /// Statistics of the last answer.
    public var stats: Stats {
        get throws {
            var c = TablaStats()
            c.struct_size = UInt32(MemoryLayout.size(ofValue: c))
            try check(tabla_session_stats(handle.pointer, &c))
            return Stats(c: c)
        }
    }

    /// Generates the answer to a prompt.
    private func answer(
        _ prompt: String?, _ options: GenerateOptions, _ each: (Piece) throws -> Void
    ) async throws {
        try await answer(options, each) { session, options in
            try withCString(prompt) { tabla_session_begin(session, $0, options) }
        }
    }

    /// Starts an answer with `begin` and passes its pieces to `each`.
    func answer(
        _ options: GenerateOptions, _ each: (Piece) throws -> Void,
        begin: (OpaquePointer, UnsafePointer<TablaGenerateOptions>) throws -> TablaStatus
    ) async throws {
        try await cancellable { session in
            try options.withC { try check(begin(session, $0)) }
            defer { _ = tabla_session_end(session) }
            var piece = TablaPiece()
            piece.struct_size = UInt32(MemoryLayout.size(ofValue: piece))
            repeat {
                try check(tabla_session_next(session, &piece))
                try Task.checkCancellation()
                try each(Piece(piece))
            } while piece.finish == TABLA_FINISH_NONE
        }
    }
}
