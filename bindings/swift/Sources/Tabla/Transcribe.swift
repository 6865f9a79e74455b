// Transcription of speech.

internal import CTabla
import Foundation

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
