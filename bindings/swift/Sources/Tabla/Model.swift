// A loaded model: its facts, its tokenizer, its tables.

internal import CTabla
import Foundation

/// A loaded model, which any number of sessions and tasks share.
public final class Model: Sendable {
    /// What the model is, and what it takes.
    public let facts: Facts
    let handle: Handle

    /// Loads a model from a file, or a folder of Hugging Face; nil takes the small built-in story model.
    /// `progress` hears of every stage as it ends, on the thread that loads. Cancelling the task stops loading
    /// at the end of a stage.
    public static func load(
        _ path: String? = nil,
        options: LoadOptions = LoadOptions(),
        progress: @escaping @Sendable (LoadProgress) -> Void = { _ in }
    ) async throws -> Model {
        try Task.checkCancellation()
        let watch = Watch(progress)
        do {
            return try await withTaskCancellationHandler {
                try await blocking { try Model(path, options, watch) }
            } onCancel: {
                watch.cancelled.with { $0 = true }
            }
        } catch let error as TablaError where error.code == .cancelled {
            throw CancellationError()
        }
    }

    private init(_ path: String?, _ options: LoadOptions, _ watch: Watch) throws {
        try Library.checkVersion()
        let handle = try withCString(path) { path in
            try options.withC { c in
                c.progress = { stage, name, milliseconds, done, watch in
                    let watch = Unmanaged<Watch>.fromOpaque(watch!).takeUnretainedValue()
                    watch.progress(
                        LoadProgress(
                            stage: Int(stage), name: String(cString: name!),
                            milliseconds: milliseconds, done: done))
                    return watch.cancelled.with { $0 } ? 1 : 0
                }
                c.user_data = Unmanaged.passUnretained(watch).toOpaque()
                return try withExtendedLifetime(watch) {
                    try Handle(tabla_load_model_with(path, &c), free: { tabla_free_model($0) })
                }
            }
        }
        var info = TablaModelInfo()
        info.struct_size = UInt32(MemoryLayout.size(ofValue: info))
        try check(tabla_model_info(handle.pointer, &info))
        self.handle = handle
        self.facts = Facts(c: info)
    }

    /// Who hears of a load, and whether it is to end.
    private final class Watch: Sendable {
        let progress: @Sendable (LoadProgress) -> Void
        let cancelled = Locked(false)
        init(_ progress: @escaping @Sendable (LoadProgress) -> Void) { self.progress = progress }
    }

    /// 32 bytes that tell the files of this model from those of others.
    public func digest() async throws -> [UInt8] {
        try await blocking { [handle] in
            var bytes = [UInt8](repeating: 0, count: 32)
            try check(tabla_digest(handle.pointer, &bytes))
            return bytes
        }
    }

    /// The ids of a text. `addSpecial` adds the tokens that begin or end a text of this model;
    /// `parseSpecial` reads names of special tokens as those tokens: never for text from users.
    public func tokenize(
        _ text: String, addSpecial: Bool = false, parseSpecial: Bool = false
    ) throws -> [UInt32] {
        let flags =
            (addSpecial ? TABLA_ENCODE_ADD_SPECIAL : 0) + (parseSpecial ? TABLA_ENCODE_PARSE_SPECIAL : 0)
        var text = text
        return try text.withUTF8 { utf8 in
            try utf8.withMemoryRebound(to: CChar.self) { bytes in
                try filled {
                    tabla_encode(
                        handle.pointer, bytes.baseAddress, bytes.count, UInt32(flags), $0, $1, $2)
                }
            }
        }
    }

    /// The text of ids. Bytes that are no whole characters become U+FFFD.
    public func detokenize(_ tokens: [UInt32]) throws -> String {
        try String(filled { tabla_decode(handle.pointer, tokens, tokens.count, $0, $1, $2) })
    }

    /// The bytes of one token, which may be a part of a character.
    public func bytes(of token: UInt32) throws -> [UInt8] {
        let bytes: [CChar] = try filled { tabla_token_bytes(handle.pointer, token, $0, $1, $2) }
        return bytes.map { UInt8(truncatingIfNeeded: $0) }
    }

    /// The tokens that end an answer.
    public func stopTokens() throws -> [UInt32] {
        try filled { tabla_stop_tokens(handle.pointer, $0, $1, $2) }
    }

    /// A table of kernel launches, as `tabla table` prints it: "step", "batch" or "embed"; nil is the
    /// first one. Of several of one name it is the narrowest through which so many tokens go at once.
    public func table(_ name: String? = nil, tokens: UInt32 = 1, format: TableFormat = .text) throws
        -> String
    {
        try withCString(name) { name in
            try String(
                filled { tabla_table(handle.pointer, name, tokens, format.rawValue, $0, $1, $2) })
        }
    }

    public struct TableFormat: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        public static let text = TableFormat(rawValue: TABLA_TABLE_TEXT)
        /// An array of commands.
        public static let json = TableFormat(rawValue: TABLA_TABLE_JSON)
    }
}

/// Progress of a load: one of its 18 stages has ended. They end in the order of their numbers.
public struct LoadProgress: Sendable {
    public let stage: Int
    public let name: String
    /// How long the stage took.
    public let milliseconds: Double
    /// How much of the whole is done, from 0 to 1.
    public let done: Float
}

/// Facts about a model.
public struct Facts: Sendable {
    let c: TablaModelInfo

    /// The architecture as the file names it.
    public var architecture: String { String(field: c.architecture) }
    /// The device, in words.
    public var device: String { String(field: c.device) }
    public var layers: Int { Int(c.layers) }
    /// Width of the residual stream.
    public var dim: Int { Int(c.dim) }
    /// Query heads.
    public var heads: Int { Int(c.heads) }
    /// Key and value heads.
    public var kvHeads: Int { Int(c.kv_heads) }
    /// Elements of a head.
    public var headDim: Int { Int(c.head_dim) }
    /// Width of the feed-forward layer.
    public var ffn: Int { Int(c.ffn) }
    /// Tokens of the vocabulary: the length of a row of logits.
    public var vocab: Int { Int(c.vocab) }
    /// Positions that fit the KV cache.
    public var context: Int { Int(c.context) }
    /// Positions that the model was trained for.
    public var contextTrained: Int { Int(c.context_trained) }
    /// Sequences that go on together.
    public var sequences: Int { Int(c.sequences) }
    /// Elements of all tensors.
    public var parameters: UInt64 { c.parameters }
    /// Bytes of the file or files.
    public var fileBytes: UInt64 { c.file_bytes }
    /// Bytes of the KV cache.
    public var cacheBytes: UInt64 { c.cache_bytes }
    /// Bytes of working memory.
    public var scratchBytes: UInt64 { c.scratch_bytes }
    /// The token that begins texts.
    public var bosToken: UInt32? { c.bos_token == TABLA_NO_TOKEN ? nil : c.bos_token }
    /// The token that ends texts.
    public var eosToken: UInt32? { c.eos_token == TABLA_NO_TOKEN ? nil : c.eos_token }
    /// Numbers of an embedding; 0 if the model yields none.
    public var embeddingDim: Int { Int(c.embedding_dim) }
    /// Tokens at most of a text to embed.
    public var embeddingLength: Int { Int(c.embedding_length) }
    /// It embeds and generates no text.
    public var isEncoder: Bool { c.is_encoder != 0 }
}
