// Embeddings and reranking.

internal import CTabla

/// Options of embeddings.
public struct EmbedOptions: Sendable {
    /// Pooling of token embeddings.
    public var pooling = Pooling.model
    /// Number of leading dimensions to return, for models trained with Matryoshka representation
    /// learning; 0: all.
    public var dimensions: UInt32 = 0
    /// Normalize embeddings to length 1; nil: as configured by the model's files.
    public var normalize: Bool?
    /// Truncate texts that are too long instead of throwing an error.
    public var truncate = false
    /// Name of the model's prompt to prepend to every text, `""` for none; nil: the model's
    /// default.
    public var promptName: String?

    public init() {}

    public struct Pooling: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        /// As configured by the model's files.
        public static let model = Pooling(rawValue: TABLA_POOLING_MODEL)
        public static let mean = Pooling(rawValue: TABLA_POOLING_MEAN)
        /// Embedding of the first token (CLS).
        public static let cls = Pooling(rawValue: TABLA_POOLING_CLS)
        public static let last = Pooling(rawValue: TABLA_POOLING_LAST)
        /// Maximum of each dimension over all tokens.
        public static let max = Pooling(rawValue: TABLA_POOLING_MAX)
    }

    /// Calls `body` with the C struct, which is valid during the call.
    fileprivate func withC<R>(_ body: (UnsafePointer<TablaEmbedOptions>) throws -> R) throws -> R {
        var c = TablaEmbedOptions()
        c.struct_size = UInt32(MemoryLayout.size(ofValue: c))
        c.pooling = pooling.rawValue
        c.dimensions = dimensions
        c.normalize = normalize.map { $0 ? 1 : -1 } ?? 0
        c.truncate = truncate ? 1 : 0
        return try withCString(promptName) {
            c.prompt_name = $0
            return try body(&c)
        }
    }
}

extension Session {
    /// Returns the embedding of each text. A model that generates text must be loaded with
    /// `LoadOptions.embeddings`. The sequence does not change.
    public func embed(_ texts: [String], options: EmbedOptions = EmbedOptions()) async throws -> [[Float]] {
        let numbers: [Float] = try await cancellable { session in
            try withCStrings(texts) { texts in
                try options.withC { options in
                    try callForArray {
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

    /// Returns a relevance score from 0 to 1 for each document, for reranker models. `instruction`
    /// describes the relevance criterion; nil: the default. The sequence does not change.
    public func rerank(
        _ query: String, documents: [String], instruction: String? = nil
    ) async throws -> [Float] {
        try await cancellable { session in
            try withCStrings([query, instruction] + documents) { texts in
                try callForArray {
                    tabla_session_rerank(
                        session, texts[0], texts[1], texts.baseAddress! + 2, documents.count,
                        $0, $1, $2)
                }
            }
        }
    }
}
