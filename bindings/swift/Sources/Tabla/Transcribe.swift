// Transcription of speech.

internal import CTabla
import Foundation

// One line for each field:
// swift-format-ignore
/// Options of transcriptions. The defaults are those of OpenAI's program. A call with a value outside
/// its range throws an error.
///
/// `@unchecked Sendable`: the C struct has pointers, but they are NULL outside `withC`.
public struct TranscribeOptions: @unchecked Sendable {
    private var c = TablaTranscribeOptions()

    public init() {
        let status = tabla_transcribe_options_init(&c, MemoryLayout.size(ofValue: c))
        precondition(status == TABLA_OK, "\(TablaError.Code(rawValue: status))")
    }

    /// Code or English name of the language; nil: detected in the first 30 seconds. English models
    /// ignore it.
    public var language: String?
    /// Text in the spoken language, or English text.
    public var task: SpeechTask { get { SpeechTask(rawValue: c.task) } set { c.task = newValue.rawValue } }
    /// Sample rate of samples that the program passes, in Hz.
    public var sampleRate: UInt32 { get { c.sample_rate } set { c.sample_rate = newValue } }
    /// Number of interleaved channels of samples that the program passes.
    public var channels: UInt32 { get { c.channels } set { c.channels = newValue } }
    /// Number of beams at temperature 0, 1 to 8; 1: greedy.
    public var beamSize: UInt32 { get { c.beam_size } set { c.beam_size = newValue } }
    /// Beam search ends when `beamSize * patience` texts are finished.
    public var patience: Double { get { c.patience } set { c.patience = newValue } }
    /// Exponent of the length penalty, 0 to 1; less than 0: sums are divided by lengths.
    public var lengthPenalty: Double { get { c.length_penalty } set { c.length_penalty = newValue } }
    /// Number of samples at a temperature above 0, of which the most likely is kept, 1 to 8.
    public var bestOf: UInt32 { get { c.best_of } set { c.best_of = newValue } }
    /// First temperature, 0 to 1.
    public var temperature: Double { get { c.temperature } set { c.temperature = newValue } }
    /// Increment of the temperature after each failed attempt; 0: one attempt.
    public var temperatureIncrement: Double { get { c.temperature_increment } set { c.temperature_increment = newValue } }
    /// An attempt with a higher compression ratio has failed; NaN: off.
    public var compressionRatioThreshold: Double { get { c.compression_ratio_threshold } set { c.compression_ratio_threshold = newValue } }
    /// An attempt with a lower average log-probability has failed; NaN: off.
    public var logprobThreshold: Double { get { c.logprob_threshold } set { c.logprob_threshold = newValue } }
    /// A window with a higher probability of no speech is silent, unless its average log-probability
    /// is above `logprobThreshold`; NaN: off.
    public var noSpeechThreshold: Double { get { c.no_speech_threshold } set { c.no_speech_threshold = newValue } }
    /// Use the text of earlier windows as a prompt.
    public var conditionOnPreviousText: Bool { get { c.condition_on_previous_text != 0 } set { c.condition_on_previous_text = newValue ? 1 : 0 } }
    /// Text before the recording, such as names that occur in it.
    public var initialPrompt: String?
    /// Segments have timestamps; otherwise each window of 30 seconds is one segment.
    public var timestamps: Bool { get { c.timestamps != 0 } set { c.timestamps = newValue ? 1 : 0 } }
    /// Segments have words with times.
    public var wordTimestamps: Bool { get { c.word_timestamps != 0 } set { c.word_timestamps = newValue ? 1 : 0 } }
    /// Latest start of the first segment of a window in seconds.
    public var maxInitialTimestamp: Double { get { c.max_initial_timestamp } set { c.max_initial_timestamp = newValue } }
    /// Level in dBFS below which at least 2 seconds of audio are skipped; NaN: off.
    public var silenceLevel: Double { get { c.silence_level } set { c.silence_level = newValue } }
    /// Path of a Silero model of voices, a ggml file of whisper.cpp: at least 2 seconds of audio
    /// without speech are skipped, and `silenceLevel` is ignored.
    public var vadModel: String?
    /// Seed of samples.
    public var seed: UInt64 { get { c.seed } set { c.seed = newValue } }

    public struct SpeechTask: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        /// Text in the spoken language.
        public static let transcribe = SpeechTask(rawValue: TABLA_TASK_TRANSCRIBE)
        /// English text.
        public static let translate = SpeechTask(rawValue: TABLA_TASK_TRANSLATE)
    }

    /// Calls `body` with the C struct, which is valid during the call.
    fileprivate func withC<R>(_ body: (UnsafePointer<TablaTranscribeOptions>) throws -> R) throws -> R {
        var c = c
        return try withCStrings([language, initialPrompt, vadModel]) { texts in
            (c.language, c.initial_prompt, c.vad_model) = (texts[0], texts[1], texts[2])
            return try body(&c)
        }
    }
}

/// A segment of a transcript.
public struct Segment: Sendable {
    /// Number of the segment, from 0.
    public let id: Int
    /// Start in seconds.
    public let start: Double
    /// End in seconds.
    public let end: Double
    /// Text. It starts with a space in most languages.
    public let text: String
    /// Token ids, timestamps included.
    public let tokens: [UInt32]
    /// Words, with `TranscribeOptions.wordTimestamps`.
    public let words: [Word]
    /// Temperature of its window.
    public let temperature: Double
    /// Average log-probability of the tokens of its window.
    public let avgLogprob: Double
    /// Compression ratio of the text of its window.
    public let compressionRatio: Double
    /// Probability that its window has no speech.
    public let noSpeechProb: Double

    init(_ c: TablaSegment) {
        id = Int(c.id)
        start = c.start
        end = c.end
        text = String(UnsafeBufferPointer(start: c.text, count: c.text_bytes))
        tokens = Array(UnsafeBufferPointer(start: c.tokens, count: c.tokens_count))
        words = UnsafeBufferPointer(start: c.words, count: c.words_count).map { Word($0) }
        temperature = c.temperature
        avgLogprob = c.avg_logprob
        compressionRatio = c.compression_ratio
        noSpeechProb = c.no_speech_prob
    }
}

/// A word of a segment.
public struct Word: Sendable {
    /// Text, with the space before it and with its punctuation.
    public let text: String
    /// Start in seconds.
    public let start: Double
    /// End in seconds.
    public let end: Double
    /// Mean probability of its tokens.
    public let probability: Double

    init(_ c: TablaWord) {
        text = String(UnsafeBufferPointer(start: c.text, count: c.text_bytes))
        start = c.start
        end = c.end
        probability = c.probability
    }
}

/// A transcription: takes audio and returns segments as they are found.
///
/// Calls run one after the other on the transcription's own queue. Cancelling the task of a call
/// cancels the call.
public actor Transcription {
    private nonisolated let handle: Handle
    private nonisolated let executor = QueueExecutor()

    public nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// Creates a transcription of samples that `push` passes.
    public init(_ model: Model, options: TranscribeOptions = TranscribeOptions()) throws {
        handle = try options.withC { try Self.own(tabla_transcription_new(model.handle.pointer, $0)) }
    }

    private init(_ handle: Handle) {
        self.handle = handle
    }

    private static func own(_ pointer: OpaquePointer?) throws -> Handle {
        try Handle(pointer, free: { tabla_transcription_free($0) })
    }

    /// Opens an audio file, which `next` reads as far as needed.
    public static func open(
        _ path: String, model: Model, options: TranscribeOptions = TranscribeOptions()
    ) async throws -> Transcription {
        let handle = try await blocking {
            try withCString(path) { path in
                try options.withC { try own(tabla_transcription_open(model.handle.pointer, path, $0)) }
            }
        }
        return Transcription(handle)
    }

    /// Opens the bytes of an audio file.
    public static func open(
        bytes: [UInt8], model: Model, options: TranscribeOptions = TranscribeOptions()
    ) async throws -> Transcription {
        let handle = try await blocking {
            try options.withC {
                try own(tabla_transcription_open_memory(model.handle.pointer, bytes, bytes.count, $0))
            }
        }
        return Transcription(handle)
    }

    /// Adds samples from -1 to 1, at the rate and with the channels of the options.
    public func push(_ samples: [Float]) throws {
        try check(tabla_transcription_push(handle.pointer, samples, samples.count))
    }

    /// Ends the recording: `next` then returns the segments of the rest.
    public func finish() throws {
        try check(tabla_transcription_finish(handle.pointer))
    }

    /// Returns the next segment; nil if more samples are needed or the recording has ended.
    public func next() async throws -> Segment? {
        try await cancellable { transcription in
            var segment = TablaSegment()
            segment.struct_size = UInt32(MemoryLayout.size(ofValue: segment))
            var found: Int32 = 0
            try check(tabla_transcription_next(transcription, &segment, &found))
            return found == 0 ? nil : Segment(segment)
        }
    }

    /// Returns the segments up to the end of the recording, or up to the last sample.
    public nonisolated func segments() -> AsyncThrowingStream<Segment, any Error> {
        streaming { each in
            while let segment = try await self.next() {
                each(segment)
            }
        }
    }

    /// Code of the language, such as `de`; empty before it is detected.
    public var language: String {
        get throws { String(cString: try info().language) }
    }

    /// Duration of the audio so far in seconds.
    public var duration: Double {
        get throws { try info().duration }
    }

    /// Position up to which the audio is transcribed, in seconds.
    public var position: Double {
        get throws { try info().position }
    }

    /// Returns the segments that were returned so far in a format: `text`, `srt`, `vtt`, `tsv`, `lrc`,
    /// `json` or `verbose_json`. The JSON formats are those of OpenAI's API.
    public func write(_ format: String) throws -> String {
        try withCString(format) { format in
            try String(callForArray { tabla_transcription_write(handle.pointer, format, $0, $1, $2) })
        }
    }

    private func info() throws -> TablaTranscriptionInfo {
        var info = TablaTranscriptionInfo()
        info.struct_size = UInt32(MemoryLayout.size(ofValue: info))
        try check(tabla_transcription_info(handle.pointer, &info))
        return info
    }

    /// Cancels the current call, from any thread: it throws `TablaError.Code.cancelled`.
    public nonisolated func cancel() {
        _ = tabla_transcription_cancel(handle.pointer)
    }

    /// Runs a call on the pointer. Cancelling the task cancels the call.
    private func cancellable<R: Sendable>(_ call: (OpaquePointer) throws -> R) async throws -> R {
        try Task.checkCancellation()
        do {
            return try await withTaskCancellationHandler {
                try call(handle.pointer)
            } onCancel: {
                // It stays pending if the call has not started.
                cancel()
            }
        } catch let error as TablaError where error.code == .cancelled && Task.isCancelled {
            throw CancellationError()
        }
    }
}

/// The transcript of a recording.
public struct Transcript: Sendable {
    /// Segments in order.
    public let segments: [Segment]
    /// Code of the language, such as `de`.
    public let language: String
    /// Duration of the audio in seconds.
    public let duration: Double

    /// Text of all segments, without white space at the ends.
    public var text: String {
        segments.map(\.text).joined().trimmingCharacters(in: .whitespacesAndNewlines)
    }

    init(_ transcription: Transcription) async throws {
        var segments: [Segment] = []
        while let segment = try await transcription.next() {
            segments.append(segment)
        }
        self.segments = segments
        language = try await transcription.language
        duration = try await transcription.duration
    }
}

extension Model {
    /// Transcribes an audio file.
    public func transcribe(
        _ path: String, options: TranscribeOptions = TranscribeOptions()
    ) async throws -> Transcript {
        try await Transcript(Transcription.open(path, model: self, options: options))
    }

    /// Transcribes samples from -1 to 1, at the rate and with the channels of the options.
    public func transcribe(
        samples: [Float], options: TranscribeOptions = TranscribeOptions()
    ) async throws -> Transcript {
        let transcription = try Transcription(self, options: options)
        try await transcription.push(samples)
        try await transcription.finish()
        return try await Transcript(transcription)
    }
}
