// Options: every kind of field that is passed to the C library.

import XCTest

@testable import Tabla

final class OptionsTests: XCTestCase {
    let prompt = "Once upon a time"

    func testDefaultsAreThoseOfTheLibrary() {
        let options = GenerateOptions()
        XCTAssertEqual(options.temperature, 0.8)
        XCTAssertEqual(options.topK, 40)
        XCTAssertEqual(options.logprobs, -1)
        XCTAssertEqual(options.dryPenaltyLastN, .max)
        XCTAssertFalse(options.ignoreEOS)
    }

    func testSameSeedGivesSameText() async throws {
        let model = try await storyModel()
        var options = GenerateOptions()
        options.maxTokens = 24
        options.temperature = 1.5
        func text(seed: UInt64) async throws -> String {
            options.seed = seed
            return try await Session(model).generate(prompt, options: options)
        }
        let (one, again, other) = (try await text(seed: 1), try await text(seed: 1), try await text(seed: 2))
        XCTAssertEqual(one, again)
        XCTAssertNotEqual(one, other)
    }

    func testListsArePassedToTheLibrary() async throws {
        let model = try await storyModel()
        let plain = try await Session(model).generate(prompt, options: greedy(24))
        let word = try XCTUnwrap(plain.split(separator: " ").dropFirst(3).first.map(String.init))

        var options = greedy(24)
        options.stop = ["no such text", word]
        let session = try Session(model)
        let stopped = try await session.generate(prompt, options: options)
        let stats = try await session.stats
        XCTAssertEqual(stats.finish, .stop)
        XCTAssertTrue(plain.hasPrefix(stopped))
        XCTAssertFalse(stopped.contains(word))

        let first = try XCTUnwrap(
            try model.tokenize(prompt + plain, addSpecial: true)
                .dropFirst(try model.tokenize(prompt, addSpecial: true).count).first)
        options = greedy(1)
        options.logitBias = [first: -.infinity]
        let banned = try await Session(model).generate(prompt, options: options)
        XCTAssertFalse(plain.hasPrefix(banned))

        options = greedy(24)
        options.stopTokenIDs = [first]
        let none = try await Session(model).generate(prompt, options: options)
        XCTAssertEqual(none, "")

        options.stopTokenIDs = []
        options.dryMultiplier = 2
        options.drySequenceBreakers = []
        _ = try await Session(model).generate(prompt, options: options)
        options.drySequenceBreakers = ["a\0b"]
        await assertFails(.argument, "NUL") { [options, prompt] in
            _ = try await Session(model).generate(prompt, options: options)
        }
    }

    func testLogprobs() async throws {
        let session = try Session(try await storyModel())
        var options = greedy(8)
        options.logprobs = 3
        for try await piece in session.stream(prompt, options: options) where piece.finish == nil {
            XCTAssertEqual(piece.topLogprobs.count, 3)
            XCTAssertEqual(piece.topLogprobs.first?.token, piece.token)
            XCTAssertEqual(piece.topLogprobs.first?.logprob, piece.logprob)
        }
        for try await piece in session.stream(options: greedy(2)) {
            XCTAssertNil(piece.logprob)
            XCTAssertTrue(piece.topLogprobs.isEmpty)
        }
    }

    func testSpeculationDoesNotChangeTokens() async throws {
        let model = try await storyModel()
        let plain = try await Session(model).generate(prompt, options: greedy(24))
        for speculation in [GenerateOptions.Speculation.lookup, .draft(try await storyModel())] {
            var options = greedy(24)
            options.speculation = speculation
            let text = try await Session(model).generate(prompt, options: options)
            XCTAssertEqual(text, plain)
        }
    }

    func testValueOutOfRangeIsRejected() async throws {
        let session = try Session(try await storyModel())
        var options = GenerateOptions()
        options.topP = 7
        await assertFails(.argument, "top_p") { [options] in
            _ = try await session.generate("Once", options: options)
        }
    }

    func testGrammarsConstrainAnswers() async throws {
        let model = try await storyModel()
        func answer(_ source: Grammar.Source) async throws -> String {
            var options = greedy(64)
            options.grammar = try await Grammar(model, source)
            return try await Session(model).generate("Once upon a time", options: options)
        }
        let regex = try await answer(.regex("(fox|kite)"))
        XCTAssertTrue(["fox", "kite"].contains(regex), regex)
        let gbnf = try await answer(.gbnf("root ::= \"a\" \"b\"+ \"c\""))
        XCTAssertTrue(gbnf.hasPrefix("ab"), gbnf)
        let lark = try await answer(.lark("start: \"x\" \"y\""))
        XCTAssertEqual(lark, "xy")
        let schema = try await answer(
            .jsonSchema(#"{"type": "array", "items": {"type": "boolean"}, "maxItems": 2}"#))
        XCTAssertNotNil(try JSONSerialization.jsonObject(with: Data(schema.utf8)) as? [Bool])
        let object = try await answer(.jsonObject)
        XCTAssertTrue(object.hasPrefix("{"), object)
        await assertFails(.grammar, "unclosed group") { _ = try await Grammar(model, .regex("(")) }
    }

    func testEmbeddings() async throws {
        let model = try await Model.load(golden("bert"))
        XCTAssertTrue(model.facts.isEncoder)
        let session = try Session(model)
        let texts = ["the sun", "the river", "the sun"]
        var options = EmbedOptions()
        options.pooling = .mean
        options.normalize = true
        let rows = try await session.embed(texts, options: options)
        XCTAssertEqual(
            rows.map(\.count), [model.facts.embeddingDim, model.facts.embeddingDim, model.facts.embeddingDim])
        XCTAssertEqual(rows[0], rows[2])
        XCTAssertNotEqual(rows[0], rows[1])
        for row in rows {
            XCTAssertEqual(row.reduce(0) { $0 + $1 * $1 }, 1, accuracy: 1e-4)
        }
        options.dimensions = 4
        let short = try await session.embed(["the sun"], options: options)
        XCTAssertEqual(short.map(\.count), [4])
        options.promptName = "no such prompt"
        await assertFails(.argument, "no such prompt") { [options] in
            _ = try await session.embed(["the sun"], options: options)
        }
        await assertFails(.state, "cannot rerank") { _ = try await session.rerank("sun", documents: ["the sun"]) }
        await assertFails(.state, "classification head") { _ = try await session.classify(["the sun"]) }
    }

    func testClassification() async throws {
        let path = repositoryFile("tests/golden/cross_encoder/xlm_roberta_labels/model.gguf")
        let model = try await Model.load(path)
        XCTAssertEqual(model.facts.labels, 3)
        XCTAssertEqual(try model.labelNames(), ["contradiction", "entailment", "neutral"])
        let session = try Session(model)
        let rows = try await session.classify(["the sun", "the sea"], pairs: ["the sun", "the river"])
        XCTAssertEqual(rows.map(\.count), [3, 3])
        XCTAssertEqual(rows[0].reduce(0, +), 1, accuracy: 1e-4)
        var options = ClassifyOptions()
        options.logits = true
        let logits = try await session.classify(["the sun"], pairs: ["the sun"], options: options)
        XCTAssertNotEqual(logits[0], rows[0])
        await assertFails(.argument, "second texts") {
            _ = try await session.classify(["the sun"], pairs: [])
        }
    }
}
