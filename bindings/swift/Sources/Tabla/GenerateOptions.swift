// How tokens are picked, and how many.

internal import CTabla

// A field is a line:
// swift-format-ignore
/// How tokens are picked, and how many. The defaults are the library's; docs/sampling.md has the formulas
/// and their order. What is out of its range is an error of the call that takes the options.
///
/// It may be sent although it holds a struct of C with pointers: these are NULL but inside `withC`.
public struct GenerateOptions: @unchecked Sendable {
    private var c = TablaGenerateOptions()

    public init() {
        let status = tabla_generate_options_init(&c, MemoryLayout.size(ofValue: c))
        precondition(status == TABLA_OK, "\(TablaError.Code(rawValue: status))")
    }

    /// Tokens at most; 0 goes on until a stop token or a full context.
    public var maxTokens: UInt32 { get { c.max_tokens } set { c.max_tokens = newValue } }
    /// So many tokens come before a stop token may.
    public var minTokens: UInt32 { get { c.min_tokens } set { c.min_tokens = newValue } }
    /// Logits are divided by it; 0 takes the likeliest token.
    public var temperature: Float { get { c.temperature } set { c.temperature = newValue } }
    /// Only the `topK` likeliest tokens; 0: off.
    public var topK: UInt32 { get { c.top_k } set { c.top_k = newValue } }
    /// Only the likeliest tokens that hold `topP` of the probability; 1: off.
    public var topP: Float { get { c.top_p } set { c.top_p = newValue } }
    /// Only tokens at least `minP` times as likely as the likeliest; 0: off.
    public var minP: Float { get { c.min_p } set { c.min_p = newValue } }
    /// Only tokens of the most typical surprise that hold so much of the probability; 1: off.
    public var typicalP: Float { get { c.typical_p } set { c.typical_p = newValue } }
    /// Only logits within so many standard deviations of the largest; 0: off.
    public var topNSigma: Float { get { c.top_n_sigma } set { c.top_n_sigma = newValue } }
    /// The same seed draws the same tokens.
    public var seed: UInt64 { get { c.seed } set { c.seed = newValue } }
    /// Weakens tokens among the last `repeatLast`; 1: off.
    public var repeatPenalty: Float { get { c.repeat_penalty } set { c.repeat_penalty = newValue } }
    /// How many tokens back the penalties reach, 1024 at most.
    public var repeatLast: UInt32 { get { c.repeat_last } set { c.repeat_last = newValue } }
    /// Taken off a token's logit as often as it stands there.
    public var frequencyPenalty: Float { get { c.frequency_penalty } set { c.frequency_penalty = newValue } }
    /// Taken off a token's logit once if it stands there.
    public var presencePenalty: Float { get { c.presence_penalty } set { c.presence_penalty = newValue } }
    /// How far the temperature goes down and up with the entropy; 0: it stays.
    public var dynatempRange: Float { get { c.dynatemp_range } set { c.dynatemp_range = newValue } }
    /// The power of the entropy that it goes by.
    public var dynatempExponent: Float { get { c.dynatemp_exponent } set { c.dynatemp_exponent = newValue } }
    /// How likely all but the last of the top choices are taken away (XTC); 0: off.
    public var xtcProbability: Float { get { c.xtc_probability } set { c.xtc_probability = newValue } }
    /// The probability from which on a token is a top choice.
    public var xtcThreshold: Float { get { c.xtc_threshold } set { c.xtc_threshold = newValue } }
    /// What a token loses that goes on with a repetition (DRY); 0: off.
    public var dryMultiplier: Float { get { c.dry_multiplier } set { c.dry_multiplier = newValue } }
    /// By how much the loss grows with each token.
    public var dryBase: Float { get { c.dry_base } set { c.dry_base = newValue } }
    /// Tokens of a repetition that cost nothing yet.
    public var dryAllowedLength: UInt32 { get { c.dry_allowed_length } set { c.dry_allowed_length = newValue } }
    /// How many tokens back DRY looks.
    public var dryLast: UInt32 { get { c.dry_last } set { c.dry_last = newValue } }
    /// What repetitions end at for DRY; nil takes the usual: line break, `:`, `"` and `*`.
    public var dryBreakers: [String]?
    /// The surprise that tokens are held to, in bits (Mirostat 2); 0: off.
    public var mirostatTau: Float { get { c.mirostat_tau } set { c.mirostat_tau = newValue } }
    /// How fast Mirostat learns.
    public var mirostatEta: Float { get { c.mirostat_eta } set { c.mirostat_eta = newValue } }
    /// What is added to the logits of tokens, 512 at most; minus infinity bans one.
    public var logitBias: [UInt32: Float] = [:]
    /// How many of the likeliest tokens `Piece` names, 20 at most; less than 0: not even how likely its own
    /// was.
    public var logProbs: Int32 { get { c.log_probs } set { c.log_probs = newValue } }
    /// Texts that end the answer, 64 at most of 1024 bytes each. No part of one comes out.
    public var stop: [String] = []
    /// Further tokens that end it, 32 at most with the model's own.
    public var stopTokens: [UInt32] = []
    /// Stop tokens are ordinary.
    public var ignoreStops: Bool { get { c.ignore_stops != 0 } set { c.ignore_stops = newValue ? 1 : 0 } }
    /// A full context does not end the answer: the older half of the sequence is forgotten.
    public var contextShift: Bool { get { c.context_shift != 0 } set { c.context_shift = newValue ? 1 : 0 } }
    /// Tokens at the front that a context shift keeps, half of the context at most.
    public var keep: UInt32 { get { c.keep } set { c.keep = newValue } }
    /// Tokens of one submission to the device; 0 adapts.
    public var chain: UInt32 { get { c.chain } set { c.chain = newValue } }
    /// Guesses at the next tokens. They change how fast tokens come and nothing else.
    public var speculation = Speculation.off
    /// What the answer follows.
    public var grammar: Grammar?

    /// Where guesses come from.
    public enum Speculation: Sendable {
        case off
        /// What followed the last tokens when they stood in the sequence before.
        case lookup
        /// What a smaller model with the same vocabulary picks.
        case draft(Model)
    }

    /// Lends the struct of C.
    func withC<R>(_ body: (UnsafePointer<TablaGenerateOptions>) throws -> R) throws -> R {
        var c = c
        switch speculation {
        case .off: c.speculate = TABLA_SPECULATE_OFF
        case .lookup: c.speculate = TABLA_SPECULATE_LOOKUP
        case .draft(let model):
            c.speculate = TABLA_SPECULATE_DRAFT
            c.draft = model.handle.pointer
        }
        c.grammar = grammar?.handle.pointer
        let breakers = dryBreakers ?? []
        let biases = logitBias.map { TablaLogitBias(token: $0.key, bias: $0.value) }
        return try withExtendedLifetime(self) {
            try withCStrings(stop + breakers) { texts in
                try stopTokens.withUnsafeBufferPointer { tokens in
                    try biases.withUnsafeBufferPointer { biases in
                        (c.stop, c.stop_count) = (texts.baseAddress, stop.count)
                        if dryBreakers != nil {
                            c.dry_breakers = texts.baseAddress.map { $0 + stop.count }
                            c.dry_breakers_count = breakers.count
                        }
                        (c.stop_tokens, c.stop_tokens_count) = (tokens.baseAddress, tokens.count)
                        (c.logit_bias, c.logit_bias_count) = (biases.baseAddress, biases.count)
                        return try body(&c)
                    }
                }
            }
        }
    }
}
