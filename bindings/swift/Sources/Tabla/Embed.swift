// Embeddings, reranking and classification.

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

/// Options of classification.
public struct ClassifyOptions: Sendable {
    /// Return logits; otherwise the logits after the activation function of the model's files, or after
    /// sigmoid for one label and softmax for several.
    public var logits = false
    /// Truncate texts that are too long, of a pair only the second one, instead of throwing an error.
    public var truncate = false

    public init() {}

    /// Calls `body` with the C struct, which is valid during the call.
    fileprivate func withC<R>(_ body: (UnsafePointer<TablaClassifyOptions>) throws -> R) throws -> R {
        var c = TablaClassifyOptions()
        c.struct_size = UInt32(MemoryLayout.size(ofValue: c))
        c.logits = logits ? 1 : 0
        c.truncate = truncate ? 1 : 0
        return try body(&c)
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

    /// Returns a relevance score for each document. The sequence does not change.
    ///
    /// A cross-encoder gives the sigmoid of its logit, or the logit if its files set the identity as
    /// activation function. A generative reranker gives a score from 0 to 1; `instruction` describes the
    /// relevance criterion to it.
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

    /// Returns the scores of the labels for each text. `pairs` is a second text for each text; the model
    /// reads each pair together. The sequence does not change.
    public func classify(
        _ texts: [String], pairs: [String]? = nil, options: ClassifyOptions = ClassifyOptions()
    ) async throws -> [[Float]] {
        if let pairs, pairs.count != texts.count {
            throw TablaError(
                code: .argument, message: "\(texts.count) texts, but \(pairs.count) second texts")
        }
        let numbers: [Float] = try await cancellable { session in
            try withCStrings(texts + (pairs ?? [])) { all in
                try options.withC { options in
                    try callForArray {
                        tabla_session_classify(
                            session, all.baseAddress,
                            pairs == nil ? nil : all.baseAddress! + texts.count, texts.count, options,
                            $0, $1, $2)
                    }
                }
            }
        }
        return texts.indices.map { row in
            let labels = numbers.count / texts.count
            return Array(numbers[row * labels..<(row + 1) * labels])
        }
    }
}

extension Model {
    /// Returns the names of the labels of the classification head, in the order of the scores.
    public func labelNames() throws -> [String] {
        try (0..<UInt32(facts.labels)).map { label in
            try String(callForArray { tabla_model_label(handle.pointer, label, $0, $1, $2) })
        }
    }
}
