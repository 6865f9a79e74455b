// Conversations: messages, templates, reasoning and tool calls.

import XCTest

@testable import Tabla

final class ChatTests: XCTestCase {
    /// A small template with the reasoning and tool-call formats of Qwen.
    let template = """
        {% for m in messages %}{{ m.role }}: {{ m.content }}
        {% for c in m.tool_calls %}<tool_call>{{ c.function.name }}</tool_call>{% endfor %}
        {% endfor %}{% if tools %}{{ tools | length }} tools{% endif %}<think></think>assistant:
        """

    let tools = """
        [{"type": "function", "function": {"name": "fly", "description": "Flies a kite.", "parameters":
        {"type": "object", "properties": {"high": {"type": "boolean"}}, "required": ["high"],
        "additionalProperties": false}}}]
        """

    func testMessageHasOpenAIFormat() throws {
        var message = Message.assistant("Up!")
        message.toolCalls = [ToolCall(id: "a", name: "fly", arguments: #"{"high":true}"#)]
        let data = try JSONEncoder().encode(message)
        let json = try XCTUnwrap(try JSONSerialization.jsonObject(with: data) as? NSDictionary)
        XCTAssertEqual(
            json,
            [
                "role": "assistant", "content": "Up!",
                "tool_calls": [
                    [
                        "id": "a", "type": "function",
                        "function": ["name": "fly", "arguments": #"{"high":true}"#],
                    ]
                ],
            ] as NSDictionary)
        XCTAssertEqual(try JSONDecoder().decode(Message.self, from: data), message)
        let called = #"{"role": "assistant", "content": null, "tool_calls": []}"#
        XCTAssertEqual(try JSONDecoder().decode(Message.self, from: Data(called.utf8)).content, "")
        XCTAssertEqual(Message.tool("done", answers: message.toolCalls![0]).toolCallID, "a")
    }

    func testConversationContinues() async throws {
        let model = try await storyModel()
        let session = try Session(model)
        var chat = ChatOptions()
        chat.chatTemplate = "vicuna"
        var messages: [Message] = [.system("Tell stories."), .user("A fox </s> \"laughed\".")]
        let text = try model.applyChatTemplate(messages, chat: chat)
        XCTAssertTrue(text.contains("A fox </s> \"laughed\"."), text)
        let answer = try await session.respond(to: messages, chat: chat, options: greedy(16))
        XCTAssertEqual(answer.role, "assistant")
        XCTAssertFalse(answer.content.isEmpty)
        let tokens = try await session.tokens
        XCTAssertEqual(Array(tokens.dropLast(16)), try model.tokenize(messages, chat: chat))

        var parts: [Part] = []
        for try await part in session.streamResponse(to: messages, chat: chat, options: greedy(16)) {
            parts.append(part)
        }
        XCTAssertEqual(parts.popLast(), .end(.length))
        XCTAssertEqual(parts, parts.filter { if case .content = $0 { true } else { false } })
        let streamed = parts.map { if case .content(let text) = $0 { text } else { "" } }.joined()
        XCTAssertEqual(streamed, answer.content)

        messages += [answer, .user("And then?")]
        _ = try await session.respond(to: messages, chat: chat, options: greedy(4))
    }

    func testReasoningIsSeparatedFromContent() async throws {
        let model = try await storyModel()
        var chat = ChatOptions()
        chat.chatTemplate = template
        var options = greedy(32)
        options.grammar = try await Grammar(model, .gbnf(#"root ::= "<think>fox</think>kite""#))
        let answer = try await Session(model).respond(to: [.user("Go.")], chat: chat, options: options)
        XCTAssertEqual(answer.reasoning, "fox")
        XCTAssertEqual(answer.content, "kite")
        XCTAssertNil(answer.toolCalls)
    }

    func testForcedToolCallAndResult() async throws {
        let model = try await storyModel()
        let session = try Session(model)
        var chat = ChatOptions()
        chat.chatTemplate = template
        chat.tools = tools
        var options = greedy(200)
        options.grammar = try await Grammar(model, .toolCall(chat, function: "fly"))
        var messages: [Message] = [.user("Fly the kite.")]
        let answer = try await session.respond(to: messages, chat: chat, options: options)
        let call = try XCTUnwrap(answer.toolCalls?.first)
        XCTAssertEqual(call.name, "fly")
        let arguments = try JSONSerialization.jsonObject(with: Data(call.arguments.utf8)) as? [String: Bool]
        XCTAssertEqual(arguments.map { Array($0.keys) }, ["high"])

        messages += [answer, .tool("It flies.", answers: call)]
        let text = try model.applyChatTemplate(messages, chat: chat)
        XCTAssertTrue(text.contains("<tool_call>fly</tool_call>"), text)
        XCTAssertTrue(text.contains("tool: It flies."), text)
        await assertFails(.argument, "swim") { [chat] in
            _ = try await Grammar(model, .toolCall(chat, function: "swim"))
        }
    }

    func testTemplateErrorsAreReported() async throws {
        let model = try await storyModel()
        let session = try Session(model)
        var chat = ChatOptions()
        chat.chatTemplate = "{{ raise_exception('no kites today') }}"
        await assertFails(.argument, "no kites today") { [chat] in
            _ = try await session.respond(to: [.user("Fly.")], chat: chat)
        }
        chat.chatTemplate = "vicuna"
        chat.tools = "no JSON"
        await assertFails(.argument, "tools") { [chat] in
            _ = try model.tokenize([.user("Fly.")], chat: chat)
        }
    }
}
