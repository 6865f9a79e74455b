// Transcription: options and errors. A speech model is needed for more: the environment variable TABLA_SPEECH.

import XCTest

@testable import Tabla

final class TranscribeTests: XCTestCase {
    func testDefaultsAreThoseOfTheLibrary() {
        let options = TranscribeOptions()
        XCTAssertEqual(options.beamSize, 5)
        XCTAssertEqual(options.sampleRate, 16000)
        XCTAssertEqual(options.task, .transcribe)
        XCTAssertEqual(options.temperatureIncrement, 0.2)
        XCTAssertTrue(options.timestamps)
        XCTAssertFalse(options.wordTimestamps)
        XCTAssertNil(options.vadModel)
    }

    func testOtherModelsAreRejected() async throws {
        let model = try await storyModel()
        await assertFails(.state, "no speech model") { _ = try Transcription(model) }
        await assertFails(.state, "no speech model") { _ = try await model.transcribe("speech.wav") }
        var options = TranscribeOptions()
        options.vadModel = "nowhere.bin"
        await assertFails(.io, "vad_model: nowhere.bin") { [options] in _ = try Transcription(model, options: options) }
    }

    func testSpeechIsTranscribed() async throws {
        let environment = ProcessInfo.processInfo.environment
        guard let models = environment["TABLA_SPEECH"], let data = environment["TABLA_TESTDATA"] else {
            throw XCTSkip("TABLA_SPEECH or TABLA_TESTDATA is not set")
        }
        let model = try await Model.load("\(models)/ggml-tiny.en.bin")
        var options = TranscribeOptions()
        options.beamSize = 1
        let transcript = try await model.transcribe("\(data)/audio/jfk.wav", options: options)
        XCTAssertTrue(transcript.text.hasPrefix("And so my fellow Americans"))
        XCTAssertEqual(transcript.segments.count, 2)
        XCTAssertEqual(transcript.language, "en")
        XCTAssertEqual(transcript.duration, 11)
    }
}
