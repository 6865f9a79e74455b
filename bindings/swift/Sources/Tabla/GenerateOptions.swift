// Conversion of options of sampling and generation to C.

internal import CTabla

extension GenerateOptions {
    /// Source of draft tokens.
    public enum Speculation: Sendable {
        case off
        /// Prompt lookup: the tokens that followed an earlier occurrence of the last tokens.
        case lookup
        /// Drafting head: a head of the model, which ``LoadOptions/mtp`` or ``LoadOptions/drafterPath`` loads.
        case head
        /// Draft model: a smaller model with the same vocabulary.
        case draft(Model)
    }

    /// Calls `body` with the C struct, which is valid during the call.
    func withC<R>(_ body: (UnsafePointer<TablaGenerateOptions>) throws -> R) throws -> R {
        var c = c
        switch speculation {
        case .off: c.speculate = TABLA_SPECULATE_OFF
        case .lookup: c.speculate = TABLA_SPECULATE_LOOKUP
        case .head: c.speculate = TABLA_SPECULATE_HEAD
        case .draft(let model):
            c.speculate = TABLA_SPECULATE_DRAFT
            c.draft_model = model.handle.pointer
        }
        c.grammar = grammar?.handle.pointer
        let breakers = drySequenceBreakers ?? []
        let biases = logitBias.map { TablaLogitBias(token: $0.key, bias: $0.value) }
        return try withExtendedLifetime(self) {
            try withCStrings(stop + breakers) { texts in
                try stopTokenIDs.withUnsafeBufferPointer { tokens in
                    try biases.withUnsafeBufferPointer { biases in
                        (c.stop, c.stop_count) = (texts.baseAddress, stop.count)
                        if drySequenceBreakers != nil {
                            c.dry_sequence_breakers = texts.baseAddress.map { $0 + stop.count }
                            c.dry_sequence_breakers_count = breakers.count
                        }
                        (c.stop_token_ids, c.stop_token_ids_count) = (tokens.baseAddress, tokens.count)
                        (c.logit_bias, c.logit_bias_count) = (biases.baseAddress, biases.count)
                        return try body(&c)
                    }
                }
            }
        }
    }
}
