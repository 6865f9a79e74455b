// Models: loading, properties, tokenizer, tables; version and log of the library.

import XCTest

@testable import Tabla

final class ModelTests: XCTestCase {
    func testProgressReportsEveryStage() async throws {
        let received = Locked<[LoadProgress]>([])
        var options = LoadOptions()
        options.device = .cpu
        options.maxContext = 64
        let model = try await Model.load(options: options) { progress in
            received.with { $0.append(progress) }
        }
        let stages = received.with { $0 }
        XCTAssertEqual(stages.map(\.stage), Array(1...18))
        XCTAssertEqual(stages.map(\.done), stages.map(\.done).sorted())
        XCTAssertEqual(stages.last?.done, 1)
        XCTAssertTrue(stages.allSatisfy { !$0.name.isEmpty && $0.milliseconds >= 0 })
        XCTAssertEqual(model.facts.context, 64)
        XCTAssertEqual(model.facts.architecture, "llama")
        XCTAssertFalse(model.facts.isEncoder)
        XCTAssertFalse(model.facts.device.isEmpty)
    }

    func testModelInMemoryIsThatOfTheFile() async throws {
        var options = LoadOptions()
        options.device = .cpu
        let data = try Data(contentsOf: URL(fileURLWithPath: repositoryFile("models/story.gguf")))
        let model = try await Model.load(data: data, options: options)
        let story = try await Model.load(options: options)
        let (digest, expected) = (try await model.digest(), try await story.digest())
        XCTAssertEqual(digest, expected)
        do {
            _ = try await Model.load(data: data.prefix(100), options: options)
            XCTFail("a part of a file is no model")
        } catch let error as TablaError {
            XCTAssertEqual(error.code, .format)
        }
    }

    func testCancellingTheTaskCancelsLoading() async throws {
        let (stages, cancelled) = (Locked(0), DispatchSemaphore(value: 0))
        let load = Task {
            try await Model.load { _ in
                stages.with { $0 += 1 }
                cancelled.wait()
                cancelled.signal()
            }
        }
        while stages.with({ $0 }) == 0 {
            try await Task.sleep(for: .milliseconds(1))
        }
        load.cancel()
        cancelled.signal()
        await assertCancelled { _ = try await load.value }
        XCTAssertEqual(stages.with { $0 }, 1)
    }

    func testLoadErrorsNameTheCause() async throws {
        await assertFails(.io, "missing.gguf") { _ = try await Model.load("missing.gguf") }
        await assertFails(.argument, "NUL at byte 1") { _ = try await Model.load("a\0b") }
        var options = LoadOptions()
        options.device = .init(rawValue: 77)
        await assertFails(.argument, "77") { [options] in _ = try await Model.load(options: options) }
        do {
            _ = try await Model.load("missing.gguf")
        } catch {
            XCTAssertTrue(error.localizedDescription.contains("missing.gguf"), error.localizedDescription)
            XCTAssertEqual("\((error as! TablaError).code)", "TABLA_ERROR_IO")
        }
    }

    func testTokenizerRoundTrips() async throws {
        let model = try await storyModel()
        let text = "The fox laughed: \u{e9}\u{1f642}\0!"
        let tokens = try model.tokenize(text)
        XCTAssertEqual(try model.detokenize(tokens), text)
        XCTAssertEqual(try tokens.flatMap(model.bytes(of:)), Array(text.utf8))
        XCTAssertEqual(try model.tokenize(""), [])
        let whole = try model.tokenize(text, addSpecial: true)
        XCTAssertEqual(whole, [try XCTUnwrap(model.facts.bosToken)] + tokens)
        XCTAssertTrue(try model.stopTokenIDs().contains(XCTUnwrap(model.facts.eosToken)))
        await assertFails(.argument, "vocabulary") { _ = try model.bytes(of: .max) }
    }

    func testTables() async throws {
        let model = try await storyModel()
        XCTAssertTrue(try model.table().contains("embed_q8_0"))
        XCTAssertTrue(try model.table("step", tokens: 5).hasPrefix("; table step, 8 tokens"))
        let json = try model.table("step", format: .json)
        let commands = try JSONSerialization.jsonObject(with: Data(json.utf8)) as? [[String: Any]]
        XCTAssertGreaterThan(try XCTUnwrap(commands).count, 10)
        await assertFails(.argument, "nowhere") { _ = try model.table("nowhere") }
    }

    func testDigestDependsOnTheFiles() async throws {
        let (one, again) = (try await storyModel(), try await storyModel(maxContext: 64))
        let other = try await Model.load(golden("llama"))
        let digests = try await (one.digest(), again.digest(), other.digest())
        XCTAssertEqual(digests.0.count, 32)
        XCTAssertEqual(digests.0, digests.1)
        XCTAssertNotEqual(digests.0, digests.2)
    }

    func testVersionAndDevices() async throws {
        XCTAssertEqual(Library.version.split(separator: ".").count, 3)
        let json = try await Library.devices()
        let devices = try JSONSerialization.jsonObject(with: Data(json.utf8)) as? [String: Any]
        XCTAssertNotNil(try XCTUnwrap(devices)["cpu"])
    }

    func testSetLogReceivesMessages() async throws {
        let tooLong = UInt32(try await storyModel().facts.contextTrained + 1)
        let lines = Locked<[String]>([])
        try Library.setLog(.warn) { level, line in
            XCTAssertEqual(level, .warn)
            lines.with { $0.append(line) }
        }
        _ = try await storyModel(maxContext: tooLong)
        try Library.setLog(.off) { _, _ in XCTFail("message after the log was disabled") }
        let messages = lines.with { $0 }
        XCTAssertTrue(messages.contains { $0.contains("trained context length") }, "\(messages)")
        _ = try await storyModel(maxContext: tooLong)
        XCTAssertEqual(lines.with { $0 }, messages)
    }
}
