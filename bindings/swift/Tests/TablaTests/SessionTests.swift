// Sessions: prompts, answers, cancellation, forks, files and scores.

import XCTest

@testable import Tabla

final class SessionTests: XCTestCase {
    let prompt = "Once upon a time"

    func testStreamEqualsCompleteAnswer() async throws {
        let model = try await storyModel()
        let whole = try Session(model)
        let text = try await whole.generate(prompt, options: greedy(32))
        let stats = try await whole.stats
        XCTAssertEqual(stats.tokens, 32)
        XCTAssertEqual(stats.finish, .length)
        XCTAssertEqual(stats.promptTokens, try model.tokenize(prompt, addSpecial: true).count)

        let session = try Session(model)
        var pieces: [Piece] = []
        for try await piece in session.stream(prompt, options: greedy(32)) {
            pieces.append(piece)
        }
        XCTAssertEqual(pieces.map(\.text).joined(), text)
        XCTAssertEqual(pieces.last?.finish, .length)
        XCTAssertTrue(pieces.dropLast().allSatisfy { $0.finish == nil })
        let (one, other) = (try await session.tokens, try await whole.tokens)
        XCTAssertEqual(one, other)
        XCTAssertEqual(pieces.compactMap(\.token), Array(one.suffix(32)))
    }

    func testLeavingAStreamEndsItsAnswer() async throws {
        let session = try Session(try await storyModel())
        var count = 0
        for try await _ in session.stream(prompt, options: endless) {
            count += 1
            if count == 3 { break }
        }
        // The session is idle again, and its sequence can be continued.
        let tokens = try await session.tokens
        XCTAssertGreaterThan(tokens.count, 3)
        let text = try await session.generate(options: greedy(4))
        XCTAssertFalse(text.isEmpty)
    }

    func testCancellingATaskEndsItsAnswer() async throws {
        let session = try Session(try await storyModel())
        let task = Task { [prompt] in try await session.generate(prompt, options: endless) }
        try await Task.sleep(for: .milliseconds(50))
        task.cancel()
        await assertCancelled { _ = try await task.value }
        await assertCancelled {
            let task = Task { try await session.generate(options: greedy(4)) }
            task.cancel()
            _ = try await task.value
        }
        _ = try await session.generate(options: greedy(4))
    }

    func testCancellingASessionEndsItsAnswer() async throws {
        let session = try Session(try await storyModel())
        var finish: Finish?
        for try await piece in session.stream(prompt, options: endless) {
            if piece.finish == nil { session.cancel() }
            finish = piece.finish ?? finish
        }
        XCTAssertEqual(finish, .cancelled)
    }

    func testAnswersDoNotBlockSwiftThreads() async throws {
        let model = try await storyModel(maxContext: 128, sequences: 2)
        // More tasks than threads of the cooperative pool.
        let tasks = try (0..<2 * ProcessInfo.processInfo.activeProcessorCount).map { _ in
            let session = try Session(model)
            return Task { [prompt] in try await session.generate(prompt, options: endless) }
        }
        try await Task.sleep(for: .milliseconds(50))
        for task in tasks {
            task.cancel()
            await assertCancelled { _ = try await task.value }
        }
    }

    func testConcurrentSessionsGiveTheSameAnswers() async throws {
        let model = try await storyModel(maxContext: 128, sequences: 4)
        let alone = try await Session(model).generate(prompt, options: greedy(24))
        try await withThrowingTaskGroup(of: String.self) { group in
            for _ in 0..<8 {
                group.addTask { [prompt] in
                    try await Session(model).generate(prompt, options: greedy(24))
                }
            }
            for try await text in group {
                XCTAssertEqual(text, alone)
            }
        }
    }

    func testGreedyStepPicksTheLargestLogit() async throws {
        let model = try await storyModel()
        let session = try Session(model)
        let tokens = try model.tokenize(prompt, addSpecial: true)
        try await session.prefill(tokens)
        let last = try await session.logits()
        XCTAssertEqual(last.count, model.facts.vocab)
        let all = try await session.logits(.all)
        XCTAssertEqual(all.count, tokens.count * model.facts.vocab)
        let token = try await session.step(greedy(1))
        XCTAssertEqual(Int(token), last.indices.max { last[$0] < last[$1] })
        let sequence = try await session.tokens
        XCTAssertEqual(sequence, tokens + [token])
    }

    func testTruncateForkAndSave() async throws {
        let model = try await storyModel()
        let session = try Session(model)
        _ = try await session.generate(prompt, options: greedy(8))
        let tokens = try await session.tokens
        let fork = try await session.fork()
        let path = NSTemporaryDirectory() + "tabla-\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: path) }
        try await session.save(path)
        let loaded = try await Session.load(path, for: model)
        let continued = try await session.generate(options: greedy(8))
        for other in [fork, loaded] {
            let same = try await other.tokens
            XCTAssertEqual(same, tokens)
            let text = try await other.generate(options: greedy(8))
            XCTAssertEqual(text, continued)
        }
        try await session.truncate(3)
        let cut = try await session.tokens
        XCTAssertEqual(cut, Array(tokens.prefix(3)))
        try await session.truncate()
        let empty = try await session.tokens
        XCTAssertEqual(empty, [])
        await assertFails(.argument, "-1") { try await session.truncate(-1) }
        await assertFails(.io, "no-folder") { try await session.save("no-folder/of/this/name") }
    }

    func testEmptySequenceIsAnError() async throws {
        let session = try Session(try await storyModel())
        await assertFails(.state, "empty") { _ = try await session.step() }
        await assertFails(.state, "empty") { _ = try await session.generate() }
        await assertFails(.argument, "NUL") { _ = try await session.generate("a\0b") }
    }

    func testScores() async throws {
        let model = try await storyModel()
        let session = try Session(model)
        let tokens = try model.tokenize("Once upon a time there was a fox.", addSpecial: true)
        let scores = try await session.score(tokens)
        XCTAssertEqual(scores.count, tokens.count - 1)
        XCTAssertTrue(scores.allSatisfy { $0 < 0 && $0 > -50 })
        let rest = try await session.score(tokens, from: 4)
        XCTAssertEqual(rest.count, tokens.count - 4)
        await assertFails(.argument, "0") { _ = try await session.score(tokens, from: 0) }
        await assertFails(.argument, "1") { _ = try await session.score([], from: 1) }
    }
}
