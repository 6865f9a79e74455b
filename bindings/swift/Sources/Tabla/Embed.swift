// Embeddings, reranking and classification.

internal import CTabla

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
