// Load options.

internal import CTabla

/// Options of loading a model.
public struct LoadOptions: Sendable {
    /// Device that runs the model.
    public var device = Device.auto
    /// Precision of the computation.
    public var precision = Precision.fast
    /// Number of CPU threads; 0: one for each physical core.
    public var threads: UInt32 = 0
    /// Context length in tokens; 0: the length that the model was trained with, at most 4096.
    public var maxContext: UInt32 = 0
    /// Location of weights on a CPU.
    public var weights = Weights.auto
    /// Type of the output projection (lm_head).
    public var lmHeadType = LMHeadType.asStored
    /// Type of the KV cache.
    public var cacheType = CacheType.byPrecision
    /// Enable embeddings for a model that generates text. Encoder models always support them.
    public var embeddings = false
    /// Maximum number of sequences that are computed at the same time, each of `maxContext` tokens.
    /// There may be more sessions than this: they take turns. For a speech model: number of recordings
    /// that are transcribed at the same time, at most 32.
    public var sequences: UInt32 = 1
    /// Number of prompt tokens in one batch (chunked prefill); 0: chosen for the device.
    public var chunkTokens: UInt32 = 0
    /// Enable speculative decoding on a GPU: `GenerateOptions.speculation`. A CPU always supports
    /// it.
    public var gpuSpeculation = false
    /// Load the head of the model for multi-token prediction (MTP), for `GenerateOptions.speculation`.
    public var mtp = false
    /// EAGLE-3 drafter for the model, for `GenerateOptions.speculation`: a GGUF file or a directory of Hugging Face.
    public var drafterPath: String?
    /// Additional KV cache memory for the prefix cache, in bytes; nil: no additional memory, only
    /// cache pages that active sequences do not use; 0: no prefix cache.
    public var prefixBytes: UInt64?
    /// The GPU: its number or a part of its name; nil: the best one.
    public var adapter: String?
    /// Use only GPU features that every WebGPU device supports.
    public var gpuBaseline = false
    /// Number of layers, from the first one on, whose experts are computed on the CPU while a GPU computes the
    /// rest of the model; their weights stay in host memory. `.max`: all layers.
    public var cpuExpertLayers: UInt32 = 0
    /// Names of samplers in the order of their use, separated by `;` (docs/sampling.md); nil: the
    /// default order.
    public var samplers: String?
    /// Layout of `I2_S` tensors, which files do not store: `128`, `64` or `1x4`; nil: the usual
    /// layout.
    public var i2sLayout: String?
    /// Directory of tuning files for GPUs.
    public var tuningPath: String?
    /// Directory of the GPU pipeline cache, which keeps compiled kernels for the next load.
    public var pipelineCachePath: String?
    /// Directory of shaders that override the embedded ones.
    public var shaderPath: String?

    public init() {}

    /// Calls `body` with the C struct, which is valid during the call.
    func withC<R>(_ body: (inout TablaLoadOptions) throws -> R) throws -> R {
        var c = TablaLoadOptions()
        c.struct_size = UInt32(MemoryLayout.size(ofValue: c))
        c.device = device.rawValue
        c.precision = precision.rawValue
        c.threads = threads
        c.max_context = maxContext
        c.weights = weights.rawValue
        c.lm_head_type = lmHeadType.rawValue
        c.cache_type = cacheType.rawValue
        c.embeddings = embeddings ? 1 : 0
        c.sequences = sequences
        c.chunk_tokens = chunkTokens
        c.gpu_speculation = gpuSpeculation ? 1 : 0
        c.mtp = mtp ? 1 : 0
        // In C, 0 is the default, and TABLA_PREFIX_NONE, the largest number, disables the prefix cache.
        c.prefix_bytes = prefixBytes.map { $0 == 0 ? .max : $0 } ?? 0
        c.gpu_baseline = gpuBaseline ? 1 : 0
        c.cpu_expert_layers = cpuExpertLayers
        let texts = [adapter, samplers, i2sLayout, tuningPath, pipelineCachePath, shaderPath, drafterPath]
        return try withCStrings(texts) { texts in
            c.adapter = texts[0]
            c.samplers = texts[1]
            c.i2s_layout = texts[2]
            c.tuning_path = texts[3]
            c.pipeline_cache_path = texts[4]
            c.shader_path = texts[5]
            c.drafter_path = texts[6]
            return try body(&c)
        }
    }

    public struct Device: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        /// A hardware GPU if there is one, otherwise the CPU.
        public static let auto = Device(rawValue: TABLA_DEVICE_AUTO)
        public static let cpu = Device(rawValue: TABLA_DEVICE_CPU)
        /// A GPU, including a software one. Loading fails if there is none.
        public static let gpu = Device(rawValue: TABLA_DEVICE_GPU)
    }

    public struct Precision: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        /// Activations may be int8 or bf16; the KV cache is f16.
        public static let fast = Precision(rawValue: TABLA_PRECISION_FAST)
        /// Every matrix product in f32 on dequantized weights; the KV cache is f32.
        public static let exact = Precision(rawValue: TABLA_PRECISION_EXACT)
    }

    public struct Weights: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        /// Packed if the weights fit in memory, otherwise mapped.
        public static let auto = Weights(rawValue: TABLA_WEIGHTS_AUTO)
        /// Memory-mapped from the file; processes share the pages.
        public static let mapped = Weights(rawValue: TABLA_WEIGHTS_MAPPED)
        /// Copied to memory in a layout for faster decoding.
        public static let packed = Weights(rawValue: TABLA_WEIGHTS_PACKED)
    }

    public struct LMHeadType: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        public static let asStored = LMHeadType(rawValue: TABLA_LM_HEAD_AS_STORED)
        public static let q8_0 = LMHeadType(rawValue: TABLA_LM_HEAD_Q8_0)
        public static let q6_K = LMHeadType(rawValue: TABLA_LM_HEAD_Q6_K)
    }

    public struct CacheType: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        /// f16, or f32 with `Precision.exact`.
        public static let byPrecision = CacheType(rawValue: TABLA_CACHE_DEFAULT)
        public static let f16 = CacheType(rawValue: TABLA_CACHE_F16)
        public static let f32 = CacheType(rawValue: TABLA_CACHE_F32)
        public static let q8_0 = CacheType(rawValue: TABLA_CACHE_Q8_0)
    }
}
