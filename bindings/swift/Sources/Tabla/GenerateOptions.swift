// Options of sampling and generation.

internal import CTabla

// One line for each field:
// swift-format-ignore
/// Options of sampling and generation. The defaults are those of the library; docs/sampling.md has
/// the formulas and the order of samplers. A call with a value outside its range throws an error.
///
/// `@unchecked Sendable`: the C struct has pointers, but they are NULL outside `withC`.
public struct GenerateOptions: @unchecked Sendable {
    private var c = TablaGenerateOptions()

    public init() {
        let status = tabla_generate_options_init(&c, MemoryLayout.size(ofValue: c))
        precondition(status == TABLA_OK, "\(TablaError.Code(rawValue: status))")
    }

    /// Maximum number of tokens to generate; 0: until a stop token or a full context.
    public var maxTokens: UInt32 { get { c.max_tokens } set { c.max_tokens = newValue } }
    /// Minimum number of tokens before a stop token is allowed.
    public var minTokens: UInt32 { get { c.min_tokens } set { c.min_tokens = newValue } }
    /// Divisor of the logits; 0: always the likeliest token.
    public var temperature: Float { get { c.temperature } set { c.temperature = newValue } }
    /// Number of likeliest tokens that are kept; 0: off.
    public var topK: UInt32 { get { c.top_k } set { c.top_k = newValue } }
    /// Probability mass of the likeliest tokens that are kept; 1: off.
    public var topP: Float { get { c.top_p } set { c.top_p = newValue } }
    /// Minimum probability of a token relative to the likeliest one; 0: off.
    public var minP: Float { get { c.min_p } set { c.min_p = newValue } }
    /// Probability mass of the most typical tokens that are kept (locally typical sampling); 1:
    /// off.
    public var typicalP: Float { get { c.typical_p } set { c.typical_p = newValue } }
    /// Maximum distance of a logit from the largest one, in standard deviations; 0: off.
    public var topNSigma: Float { get { c.top_n_sigma } set { c.top_n_sigma = newValue } }
    /// Seed of the random numbers; the same seed gives the same tokens.
    public var seed: UInt64 { get { c.seed } set { c.seed = newValue } }
    /// Penalty of tokens among the last `repeatLastN`; 1: off.
    public var repetitionPenalty: Float { get { c.repetition_penalty } set { c.repetition_penalty = newValue } }
    /// Number of recent tokens that the penalties apply to, at most 1024.
    public var repeatLastN: UInt32 { get { c.repeat_last_n } set { c.repeat_last_n = newValue } }
    /// Amount subtracted from the logit of a token for each occurrence among the last `repeatLastN`.
    public var frequencyPenalty: Float { get { c.frequency_penalty } set { c.frequency_penalty = newValue } }
    /// Amount subtracted once from the logit of a token that occurs among the last `repeatLastN`.
    public var presencePenalty: Float { get { c.presence_penalty } set { c.presence_penalty = newValue } }
    /// Maximum change of the temperature with the entropy, in both directions; 0: off.
    public var dynatempRange: Float { get { c.dynatemp_range } set { c.dynatemp_range = newValue } }
    /// Exponent of the entropy in the dynamic temperature.
    public var dynatempExponent: Float { get { c.dynatemp_exponent } set { c.dynatemp_exponent = newValue } }
    /// Probability of removing all tokens above `xtcThreshold` except the least likely of them
    /// (XTC); 0: off.
    public var xtcProbability: Float { get { c.xtc_probability } set { c.xtc_probability = newValue } }
    /// Minimum probability of the tokens that XTC removes.
    public var xtcThreshold: Float { get { c.xtc_threshold } set { c.xtc_threshold = newValue } }
    /// Penalty of a token that extends a repetition (DRY); 0: off.
    public var dryMultiplier: Float { get { c.dry_multiplier } set { c.dry_multiplier = newValue } }
    /// Growth of the DRY penalty with each repeated token.
    public var dryBase: Float { get { c.dry_base } set { c.dry_base = newValue } }
    /// Length of the longest repetition without a DRY penalty, in tokens.
    public var dryAllowedLength: UInt32 { get { c.dry_allowed_length } set { c.dry_allowed_length = newValue } }
    /// Number of recent tokens that DRY searches for repetitions.
    public var dryPenaltyLastN: UInt32 { get { c.dry_penalty_last_n } set { c.dry_penalty_last_n = newValue } }
    /// Strings that end a repetition for DRY; nil: line break, `:`, `"` and `*`.
    public var drySequenceBreakers: [String]?
    /// Target surprise of a token in bits (Mirostat 2); 0: off.
    public var mirostatTau: Float { get { c.mirostat_tau } set { c.mirostat_tau = newValue } }
    /// Learning rate of Mirostat.
    public var mirostatEta: Float { get { c.mirostat_eta } set { c.mirostat_eta = newValue } }
    /// Values that are added to the logits of tokens, at most 512; minus infinity bans a token.
    public var logitBias: [UInt32: Float] = [:]
    /// Number of likeliest tokens in each `Piece`, at most 20; 0: only the log-probability of its
    /// token; less than 0: none.
    public var logprobs: Int32 { get { c.logprobs } set { c.logprobs = newValue } }
    /// Stop strings, which end the answer: at most 64, of at most 1024 bytes each. They are not
    /// part of the text.
    public var stop: [String] = []
    /// Additional stop tokens, at most 32 together with the model's own.
    public var stopTokenIDs: [UInt32] = []
    /// Do not end the answer at a stop token.
    public var ignoreEOS: Bool { get { c.ignore_eos != 0 } set { c.ignore_eos = newValue ? 1 : 0 } }
    /// When the context is full, discard the older half of the sequence instead of ending the
    /// answer.
    public var contextShift: Bool { get { c.context_shift != 0 } set { c.context_shift = newValue ? 1 : 0 } }
    /// Number of tokens at the start of the sequence that a context shift keeps, at most half of
    /// the context.
    public var nKeep: UInt32 { get { c.n_keep } set { c.n_keep = newValue } }
    /// Number of tokens in one submission to the device; 0: adaptive.
    public var burst: UInt32 { get { c.burst } set { c.burst = newValue } }
    /// Maximum number of tokens of the reasoning of a conversation; then it is closed. Less than 0: no
    /// maximum.
    public var reasoningBudget: Int64 { get { c.reasoning_budget } set { c.reasoning_budget = newValue } }
    /// Speculative decoding. It changes the speed and not the tokens.
    public var speculation = Speculation.off
    /// Grammar that constrains the answer.
    public var grammar: Grammar?

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
