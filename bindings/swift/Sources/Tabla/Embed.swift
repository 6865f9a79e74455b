// What texts mean, and how well they answer: for models that were trained to say.

internal import CTabla

/// How texts become embeddings.
public struct EmbedOptions: Sendable {
    /// How the rows of a text's tokens become one.
    public var pooling = Pooling.model
    /// Only the first so many numbers, for models that were trained for it (Matryoshka); 0: all.
    public var dimensions: UInt32 = 0
    /// Embeddings get the length 1, or stay as long as they are; nil is what the model's files say.
    public var normalize: Bool?
    /// Texts that are too long are cut instead of refused.
    public var truncate = false
    /// The name of the model's prompt in front of every text, `""` for none; nil is its default.
    public var prompt: String?

    public init() {}

    public struct Pooling: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        /// What the model's files say.
        public static let model = Pooling(rawValue: TABLA_POOLING_MODEL)
        public static let mean = Pooling(rawValue: TABLA_POOLING_MEAN)
        /// A text's first row.
        public static let cls = Pooling(rawValue: TABLA_POOLING_CLS)
        public static let last = Pooling(rawValue: TABLA_POOLING_LAST)
        /// The largest number of each column.
        public static let max = Pooling(rawValue: TABLA_POOLING_MAX)
    }

    /// Lends the struct of C.
    fileprivate func withC<R>(_ body: (UnsafePointer<TablaEmbedOptions>) throws -> R) throws -> R {
        var c = TablaEmbedOptions()
        c.struct_size = UInt32(MemoryLayout.size(ofValue: c))
        c.pooling = pooling.rawValue
        c.dimensions = dimensions
        c.normalize = normalize.map { $0 ? 1 : -1 } ?? 0
        c.truncate = truncate ? 1 : 0
        return try withCString(prompt) {
            c.prompt = $0
            return try body(&c)
        }
    }
}

extension Session {
    /// The embeddings of texts, a row for each. A model that generates text must have been loaded with
    /// `LoadOptions.embeddings`. The sequence stays as it is.
    public func embed(_ texts: [String], options: EmbedOptions = EmbedOptions()) async throws -> [[Float]] {
        let numbers: [Float] = try await cancellable { session in
            try withCStrings(texts) { texts in
                try options.withC { options in
                    try filled {
                        tabla_session_embed(
                            session, texts.baseAddress, texts.count, options, $0, $1, $2)
                    }
                }
            }
        }
        return texts.indices.map { row in
            let dim = numbers.count / texts.count
            return Array(numbers[row * dim..<(row + 1) * dim])
        }
    }

    /// How well each document answers a query, from 0 to 1, for models that were trained to rank.
    /// `instruction` says in a sentence what answers it; nil takes the usual one. The sequence stays.
    public func rerank(
        _ query: String, documents: [String], instruction: String? = nil
    ) async throws -> [Float] {
        try await cancellable { session in
            try withCStrings([query, instruction] + documents) { texts in
                try filled {
                    tabla_session_rerank(
                        session, texts[0], texts[1], texts.baseAddress! + 2, documents.count,
                        $0, $1, $2)
                }
            }
        }
    }
}
