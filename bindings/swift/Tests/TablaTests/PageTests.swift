// The examples of docs/swift.md. A test of the repository checks that they are the same.

import Foundation
import Tabla
import XCTest

final class PageTests: XCTestCase {
    func testChat() async throws {
        let model = try await storyModel()
        var chat = ChatOptions()
        chat.chatTemplate = "vicuna"
        var options = GenerateOptions()
        options.maxTokens = 16

        let session = try Session(model)
        var messages: [Message] = [.system("You are brief."), .user("Who laughed?")]
        let answer = try await session.respond(to: messages, chat: chat, options: options)
        messages += [answer, .user("Why?")]
        for try await part in session.streamResponse(to: messages, chat: chat, options: options) {
            switch part {
            case .content(let text): print(text, terminator: "")
            case .reasoning(let thought): print("(\(thought))", terminator: "")
            case .toolCall(let call): print("\(call.name)(\(call.arguments))")
            case .end(let finish): print(finish == .stop ? "." : "...")
            }
        }
    }

    func testGrammar() async throws {
        let model = try await storyModel()
        let session = try Session(model)

        var options = GenerateOptions()
        options.grammar = try await Grammar(model, .jsonSchema(#"{"enum": ["fox", "kite"]}"#))
        let json = try await session.generate("It was a ", options: options)

        XCTAssertTrue(["\"fox\"", "\"kite\""].contains(json), json)
    }

    func testEmbed() async throws {
        let model = try await Model.load(golden("bert"))
        var options = EmbedOptions()
        options.pooling = .mean

        let session = try Session(model)
        let rows = try await session.embed(["the sun", "the river"], options: options)
        let similarity = zip(rows[0], rows[1]).reduce(0) { $0 + $1.0 * $1.1 }

        XCTAssertLessThan(similarity, 1)
    }

    func testHooks() async throws {
        let model = try await storyModel()
        let hooks = try await model.hooks(["token_embd", "blk.*"])
        let session = try Session(model)
        try await session.setHooks(hooks)
        let tokens = try model.tokenize("Once upon a time", addSpecial: true)
        let captured = try await session.capture(tokens)
        let last = try captured.rows("blk.\(model.facts.layers - 1)")
        let logits = try await hooks.lens(last)

        XCTAssertEqual(logits.map(\.count), tokens.map { _ in model.facts.vocab })
    }

    func testEdits() async throws {
        let model = try await storyModel()
        let hooks = try await model.hooks(["blk.*"], positions: .last)
        let session = try Session(model)
        try await session.setHooks(hooks)
        let options = greedy(8)

        let happy = try await session.capture(model.tokenize("The happy girl")).rows("blk.2")[0]
        let sad = try await session.capture(model.tokenize("The sad girl")).rows("blk.2")[0]
        let direction = zip(happy, sad).map { $0 - $1 }
        let edits: [Edit] = [
            .add("blk.2", direction, scale: 2),
            .scale("blk.4.attn", by: 0, columns: 0..<model.facts.headDim),
        ]
        try await session.setHooks(model.hooks(edits: edits))
        try await session.truncate()
        let text = try await session.generate("The girl", options: options)

        XCTAssertFalse(text.isEmpty)
    }

    func testErrors() async throws {
        do {
            _ = try await Model.load("missing.gguf")
        } catch let error as TablaError where error.code == .io {
            print("look at the file: \(error.localizedDescription)")
        }
    }

    func testCancel() async throws {
        let session = try Session(try await storyModel())
        let options = endless

        let task = Task {
            try await session.generate("Once upon a time", options: options)
        }
        task.cancel()

        await assertCancelled { _ = try await task.value }
    }
}
