// How a model is loaded.

internal import CTabla

/// How a model is loaded. Every field has its default.
public struct LoadOptions: Sendable {
    /// Where it runs.
    public var device = Device.auto
    /// How exactly it computes.
    public var precision = Precision.fast
    /// Threads on a CPU; 0 takes one for every physical core.
    public var threads: UInt32 = 0
    /// Positions of the KV cache; 0 takes what the model was trained for, 4096 at most.
    public var maxContext: UInt32 = 0
    /// Where a CPU has the weights.
    public var weights = Weights.auto
    /// How the output matrix is stored.
    public var headType = HeadType.asStored
    /// How the KV cache is stored.
    public var cacheType = CacheType.byPrecision
    /// A model that generates text yields embeddings too. Encoders always do.
    public var embeddings = false
    /// Sequences that go on together, each of `maxContext` positions; more sessions wait for each other.
    public var sequences: UInt32 = 1
    /// Tokens of a prompt that go through the model at once; 0 takes what suits the device.
    public var chunkTokens: UInt32 = 0
    /// A GPU checks guesses at the tokens of one sequence, too: `GenerateOptions.speculation`.
    public var wideSteps = false
    /// Bytes for what was computed for sequences that have gone; nil takes what the sequences leave.
    public var prefixBytes: UInt64?
    /// The GPU, by a part of its name or its number; nil takes the best one.
    public var adapter: String?
    /// A GPU is asked for no more than every device of WebGPU has.
    public var gpuBaseline = false
    /// Names of samplers in their order, `;` between them, as of docs/sampling.md; nil takes the usual ones.
    public var samplers: String?
    /// How tensors of type `I2_S` are laid out, which no file says: `128`, `64` or `1x4`; nil is the usual.
    public var i2sLayout: String?
    /// A folder of tunings for GPUs.
    public var tuningPath: String?
    /// A folder that keeps compiled kernels of GPUs for the next load.
    public var kernelPath: String?
    /// A folder whose shaders stand in front of the embedded ones.
    public var shaderPath: String?

    public init() {}

    /// Lends the struct of C.
    func withC<R>(_ body: (inout TablaLoadOptions) throws -> R) throws -> R {
        var c = TablaLoadOptions()
        c.struct_size = UInt32(MemoryLayout.size(ofValue: c))
        c.device = device.rawValue
        c.precision = precision.rawValue
        c.threads = threads
        c.max_context = maxContext
        c.weights = weights.rawValue
        c.head_type = headType.rawValue
        c.cache_type = cacheType.rawValue
        c.embeddings = embeddings ? 1 : 0
        c.sequences = sequences
        c.chunk_tokens = chunkTokens
        c.wide_steps = wideSteps ? 1 : 0
        // In C, 0 is the default, and the largest number, TABLA_PREFIX_NONE, is none.
        c.prefix_bytes = prefixBytes.map { $0 == 0 ? .max : $0 } ?? 0
        c.gpu_baseline = gpuBaseline ? 1 : 0
        let texts = [adapter, samplers, i2sLayout, tuningPath, kernelPath, shaderPath]
        return try withCStrings(texts) { texts in
            c.adapter = texts[0]
            c.samplers = texts[1]
            c.i2s_layout = texts[2]
            c.tuning_path = texts[3]
            c.kernel_path = texts[4]
            c.shader_path = texts[5]
            return try body(&c)
        }
    }

    public struct Device: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        /// A GPU that is one, else the CPU.
        public static let auto = Device(rawValue: TABLA_DEVICE_AUTO)
        public static let cpu = Device(rawValue: TABLA_DEVICE_CPU)
        /// A GPU, be it a software one; an error where there is none.
        public static let gpu = Device(rawValue: TABLA_DEVICE_GPU)
    }

    public struct Precision: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        /// Activations may go to int8 or bf16, the KV cache is f16.
        public static let fast = Precision(rawValue: TABLA_PRECISION_FAST)
        /// Every product in f32 on decoded weights, KV cache in f32.
        public static let exact = Precision(rawValue: TABLA_PRECISION_EXACT)
    }

    public struct Weights: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        /// A CPU packs weights where they fit.
        public static let auto = Weights(rawValue: TABLA_WEIGHTS_AUTO)
        /// They stay in the file's pages, which every process shares.
        public static let mapped = Weights(rawValue: TABLA_WEIGHTS_MAPPED)
        /// They are rearranged in memory of their own; tokens come faster.
        public static let packed = Weights(rawValue: TABLA_WEIGHTS_PACKED)
    }

    public struct HeadType: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        public static let asStored = HeadType(rawValue: TABLA_HEAD_AS_STORED)
        public static let q8_0 = HeadType(rawValue: TABLA_HEAD_Q8_0)
        public static let q6_K = HeadType(rawValue: TABLA_HEAD_Q6_K)
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
