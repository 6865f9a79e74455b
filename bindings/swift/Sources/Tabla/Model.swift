// Models: loading, properties, tokenizer and dispatch tables.

internal import CTabla
import Foundation

/// A loaded model. Any number of sessions and tasks can share it.
public final class Model: Sendable {
    /// Properties of the model.
    public let facts: Facts
    let handle: Handle

    /// Loads a model from a file or a Hugging Face folder; nil: the small built-in story model.
    /// `progress` is called at the end of every stage, on the thread that loads. Cancelling the
    /// task cancels loading at the end of a stage.
    public static func load(
        _ path: String? = nil,
        options: LoadOptions = LoadOptions(),
        progress: @escaping @Sendable (LoadProgress) -> Void = { _ in }
    ) async throws -> Model {
        try await load(options, progress) { c in
            try withCString(path) { tabla_model_load($0, c) }
        }
    }

    /// Loads a model that is in memory: a GGUF file, or a ggml file of Whisper. The data is copied.
    public static func load(
        data: Data,
        options: LoadOptions = LoadOptions(),
        progress: @escaping @Sendable (LoadProgress) -> Void = { _ in }
    ) async throws -> Model {
        try await load(options, progress) { c in
            data.withUnsafeBytes { tabla_load_memory($0.baseAddress, $0.count, nil, nil, c) }
        }
    }

    private static func load(
        _ options: LoadOptions,
        _ progress: @escaping @Sendable (LoadProgress) -> Void,
        _ call: @escaping @Sendable (UnsafeMutablePointer<TablaLoadOptions>) throws -> OpaquePointer?
    ) async throws -> Model {
        try Task.checkCancellation()
        let watch = Watch(progress)
        do {
            return try await withTaskCancellationHandler {
                try await blocking { try Model(options, watch, call) }
            } onCancel: {
                watch.cancelled.with { $0 = true }
            }
        } catch let error as TablaError where error.code == .cancelled {
            throw CancellationError()
        }
    }

    private init(
        _ options: LoadOptions, _ watch: Watch,
        _ call: (UnsafeMutablePointer<TablaLoadOptions>) throws -> OpaquePointer?
    ) throws {
        try Library.checkVersion()
        let handle = try options.withC { c in
            c.pointee.progress = { stage, name, milliseconds, done, watch in
                let watch = Unmanaged<Watch>.fromOpaque(watch!).takeUnretainedValue()
                watch.progress(
                    LoadProgress(
                        stage: Int(stage), name: String(cString: name!),
                        milliseconds: milliseconds, done: done))
                return watch.cancelled.with { $0 } ? 1 : 0
            }
            c.pointee.user_data = Unmanaged.passUnretained(watch).toOpaque()
            return try withExtendedLifetime(watch) {
                try Handle(call(c), free: { tabla_free_model($0) })
            }
        }
        var info = TablaModelInfo()
        info.struct_size = UInt32(MemoryLayout.size(ofValue: info))
        try check(tabla_model_info(handle.pointer, &info))
        self.handle = handle
        self.facts = Facts(c: info)
    }

    /// Progress function and cancellation flag of a load.
    private final class Watch: Sendable {
        let progress: @Sendable (LoadProgress) -> Void
        let cancelled = Locked(false)
        init(_ progress: @escaping @Sendable (LoadProgress) -> Void) { self.progress = progress }
    }

    /// Returns a 32-byte digest that identifies the model files.
    public func digest() async throws -> [UInt8] {
        try await blocking { [handle] in
            var bytes = [UInt8](repeating: 0, count: 32)
            try check(tabla_model_digest(handle.pointer, &bytes))
            return bytes
        }
    }

    /// Returns the token ids of a text. `addSpecial` adds the special tokens at the start or end of
    /// a text, such as BOS. `parseSpecial` parses names of special tokens; do not use it for text
    /// from users.
    public func tokenize(
        _ text: String, addSpecial: Bool = false, parseSpecial: Bool = false
    ) throws -> [UInt32] {
        let flags =
            (addSpecial ? TABLA_TOKENIZE_ADD_SPECIAL : 0) + (parseSpecial ? TABLA_TOKENIZE_PARSE_SPECIAL : 0)
        var text = text
        return try text.withUTF8 { utf8 in
            try utf8.withMemoryRebound(to: CChar.self) { bytes in
                try callForArray {
                    tabla_model_tokenize(
                        handle.pointer, bytes.baseAddress, bytes.count, UInt32(flags), $0, $1, $2)
                }
            }
        }
    }

    /// Returns the text of token ids. Incomplete characters become U+FFFD.
    public func detokenize(_ tokens: [UInt32]) throws -> String {
        try String(callForArray { tabla_model_detokenize(handle.pointer, tokens, tokens.count, $0, $1, $2) })
    }

    /// Returns the bytes of a token, which may be a part of a character.
    public func bytes(of token: UInt32) throws -> [UInt8] {
        let bytes: [CChar] = try callForArray { tabla_model_token_bytes(handle.pointer, token, $0, $1, $2) }
        return bytes.map { UInt8(truncatingIfNeeded: $0) }
    }

    /// Returns the stop tokens, which end an answer.
    public func stopTokenIDs() throws -> [UInt32] {
        try callForArray { tabla_model_stop_token_ids(handle.pointer, $0, $1, $2) }
    }

    /// Returns a dispatch table in the format of `tabla table`: "step", "batch" or "embed"; nil:
    /// the first one. If several have the name, returns the smallest one for at least `tokens`
    /// tokens.
    public func table(_ name: String? = nil, tokens: UInt32 = 1, format: TableFormat = .text) throws
        -> String
    {
        try withCString(name) { name in
            try String(
                callForArray { tabla_model_table(handle.pointer, name, tokens, format.rawValue, $0, $1, $2) })
        }
    }

    public struct TableFormat: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        public static let text = TableFormat(rawValue: TABLA_TABLE_TEXT)
        /// A JSON array of commands.
        public static let json = TableFormat(rawValue: TABLA_TABLE_JSON)
    }
}

/// Progress of loading: one of the 18 stages is completed. Stages are completed in order.
public struct LoadProgress: Sendable {
    public let stage: Int
    public let name: String
    /// Duration of the stage.
    public let milliseconds: Double
    /// Fraction of completed stages, 0 to 1.
    public let done: Float
}

/// Properties of a model.
public struct Facts: Sendable {
    let c: TablaModelInfo

    /// Name of the architecture in the file.
    public var architecture: String { String(field: c.architecture) }
    /// Name of the device.
    public var device: String { String(field: c.device) }
    public var layers: Int { Int(c.layers) }
    /// Hidden size (width of the residual stream).
    public var dim: Int { Int(c.dim) }
    /// Number of attention heads (query heads).
    public var heads: Int { Int(c.heads) }
    /// Number of key and value heads.
    public var kvHeads: Int { Int(c.kv_heads) }
    /// Size of an attention head.
    public var headDim: Int { Int(c.head_dim) }
    /// Size of the feed-forward layer.
    public var ffn: Int { Int(c.ffn) }
    /// Vocabulary size in tokens: the length of a row of logits.
    public var vocab: Int { Int(c.vocab) }
    /// Context length of the KV cache, in tokens.
    public var context: Int { Int(c.context) }
    /// Context length that the model was trained with, in tokens.
    public var contextTrained: Int { Int(c.context_trained) }
    /// Maximum number of sequences that are computed at the same time.
    public var sequences: Int { Int(c.sequences) }
    /// Number of parameters: elements of all tensors.
    public var parameters: UInt64 { c.parameters }
    /// Size of the model file or files, in bytes.
    public var fileBytes: UInt64 { c.file_bytes }
    /// Size of the KV cache, in bytes.
    public var cacheBytes: UInt64 { c.cache_bytes }
    /// Size of the scratch buffers, in bytes.
    public var scratchBytes: UInt64 { c.scratch_bytes }
    /// Beginning-of-sequence token.
    public var bosToken: UInt32? { c.bos_token == TABLA_NO_TOKEN ? nil : c.bos_token }
    /// End-of-sequence token.
    public var eosToken: UInt32? { c.eos_token == TABLA_NO_TOKEN ? nil : c.eos_token }
    /// Number of dimensions of an embedding; 0 if embeddings are not enabled.
    public var embeddingDim: Int { Int(c.embedding_dim) }
    /// Maximum length of a text to embed or to classify, in tokens.
    public var embeddingMaxTokens: Int { Int(c.embedding_max_tokens) }
    /// Whether the model is an encoder, which only computes embeddings or classifies texts.
    public var isEncoder: Bool { c.is_encoder != 0 }
    /// Number of labels of the classification head; 0 if the model has none.
    public var labels: Int { Int(c.labels) }
}
