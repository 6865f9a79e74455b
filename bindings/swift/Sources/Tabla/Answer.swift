// Answers to prompts: whole, or piece by piece.

internal import CTabla

/// A piece of an answer: one token.
public struct Piece: Sendable {
    /// The token; nil where text was held back to the end, and behind it.
    public let token: UInt32?
    /// The text that it completes, which is empty while a character is incomplete or a stop string may
    /// have begun.
    public let text: String
    /// Why the answer ended, in its last piece, which has no text.
    public let finish: Finish?
    /// How likely the token was, as a natural logarithm, where `GenerateOptions.logProbs` asked for it.
    public let logProb: Float?
    /// The likeliest tokens in its place, the likeliest first.
    public let likeliest: [LogProb]

    init(_ c: TablaPiece) {
        token = c.token == TABLA_NO_TOKEN ? nil : c.token
        text = String(UnsafeBufferPointer(start: c.text, count: c.text_bytes))
        finish = c.finish == TABLA_FINISH_NONE ? nil : Finish(rawValue: c.finish)
        logProb = c.log_prob.isNaN ? nil : c.log_prob
        likeliest = UnsafeBufferPointer(start: c.likeliest, count: c.likeliest_count).map {
            LogProb(token: $0.token, logProb: $0.log_prob)
        }
    }
}

/// How likely the model held a token, before biases and samplers.
public struct LogProb: Sendable {
    public let token: UInt32
    /// The natural logarithm.
    public let logProb: Float
}

/// Why an answer ended.
public struct Finish: RawRepresentable, Hashable, Sendable {
    public let rawValue: Int32
    public init(rawValue: Int32) { self.rawValue = rawValue }

    /// A stop token, a stop string, the end of the grammar.
    public static let stop = Finish(rawValue: TABLA_FINISH_STOP)
    /// `GenerateOptions.maxTokens` were picked.
    public static let length = Finish(rawValue: TABLA_FINISH_LENGTH)
    /// The context is full.
    public static let context = Finish(rawValue: TABLA_FINISH_CONTEXT)
    /// Nobody took the rest.
    public static let left = Finish(rawValue: TABLA_FINISH_CALLBACK)
    /// Someone called `Session.cancel`.
    public static let cancelled = Finish(rawValue: TABLA_FINISH_CANCELLED)
    /// It failed.
    public static let failed = Finish(rawValue: TABLA_FINISH_FAILED)
}

/// What an answer did.
public struct Stats: Sendable {
    let c: TablaStats

    /// Tokens of the prompt.
    public var promptTokens: Int { Int(c.prompt_tokens) }
    /// Milliseconds of the prompt.
    public var promptMilliseconds: Double { c.prompt_ms }
    /// Tokens that were picked.
    public var tokens: Int { Int(c.tokens) }
    /// Milliseconds of these.
    public var tokensMilliseconds: Double { c.tokens_ms }
    public var finish: Finish { Finish(rawValue: c.finish) }
    /// Guesses that were made at tokens.
    public var guesses: Int { Int(c.guesses) }
    /// Those of them that were right.
    public var guessesRight: Int { Int(c.guesses_right) }
}

extension Session {
    /// Encodes a prompt behind the sequence, runs it, and returns the answer. Without a prompt it goes on
    /// from the sequence as it is.
    public func generate(
        _ prompt: String? = nil, options: GenerateOptions = GenerateOptions()
    ) async throws -> String {
        var text = ""
        try await answer(prompt, options) { text += $0.text }
        return text
    }

    /// `generate`, piece by piece. The answer begins when the session is free and goes on whether pieces are
    /// taken or not; the last one says why it ended. Leaving the stream, or cancelling the task that reads
    /// it, ends the answer: the sequence has the tokens up to there, of which some may not have been read.
    public nonisolated func stream(
        _ prompt: String? = nil, options: GenerateOptions = GenerateOptions()
    ) -> AsyncThrowingStream<Piece, any Error> {
        streaming { each in try await self.answer(prompt, options, each) }
    }

    /// What the last answer did.
    public var stats: Stats {
        get throws {
            var c = TablaStats()
            c.struct_size = UInt32(MemoryLayout.size(ofValue: c))
            try check(tabla_session_stats(handle.pointer, &c))
            return Stats(c: c)
        }
    }

    /// The answer to a prompt.
    private func answer(
        _ prompt: String?, _ options: GenerateOptions, _ each: (Piece) throws -> Void
    ) async throws {
        try await answer(options, each) { session, options in
            try withCString(prompt) { tabla_session_begin(session, $0, options) }
        }
    }

    /// Takes the answer that `begin` begins piece by piece, to its end.
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
