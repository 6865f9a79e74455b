// Conversations: rendering with the chat template, answering, and parsing of answers.

internal import CTabla
import Foundation

extension Model {
    /// Renders a conversation as text, for display. The text does not distinguish special tokens of
    /// the template from the same names in a message.
    public func applyChatTemplate(
        _ messages: [Message], chat: ChatOptions = ChatOptions()
    ) throws -> String {
        try withCString(json(messages)) { messages in
            try chat.withC { chat in
                try String(callForArray { tabla_model_apply_chat_template(handle.pointer, messages, chat, $0, $1, $2) })
            }
        }
    }

    /// Returns the tokens of a conversation. Only the template produces special tokens.
    public func tokenize(_ messages: [Message], chat: ChatOptions = ChatOptions()) throws -> [UInt32] {
        try withCString(json(messages)) { messages in
            try chat.withC { chat in
                try callForArray { tabla_model_tokenize_chat(handle.pointer, messages, chat, $0, $1, $2) }
            }
        }
    }
}

private func json(_ messages: [Message]) throws -> String {
    try String(decoding: JSONEncoder().encode(messages), as: UTF8.self)
}

/// A part of an answer in a conversation.
public enum Part: Sendable, Hashable {
    case content(String)
    /// Reasoning of the model, before its content.
    case reasoning(String)
    /// A complete tool call.
    case toolCall(ToolCall)
    /// The last part: the finish reason.
    case end(Finish)
}

extension Session {
    /// Replaces the sequence with a conversation and returns the model's answer: content, reasoning
    /// and tool calls. The common prefix with the previous sequence is not recomputed.
    public func respond(
        to messages: [Message], chat: ChatOptions = ChatOptions(), options: GenerateOptions = GenerateOptions()
    ) async throws -> Message {
        var message = Message.assistant("")
        try await answer(messages, chat, options) { part in
            switch part {
            case .content(let text): message.content += text
            case .reasoning(let text): message.reasoning = (message.reasoning ?? "") + text
            case .toolCall(let call): message.toolCalls = (message.toolCalls ?? []) + [call]
            case .end: break
            }
        }
        return message
    }

    /// Like `respond`, part by part. Leaving the stream ends the answer, as with `stream`.
    public nonisolated func streamResponse(
        to messages: [Message], chat: ChatOptions = ChatOptions(), options: GenerateOptions = GenerateOptions()
    ) -> AsyncThrowingStream<Part, any Error> {
        streaming { each in try await self.answer(messages, chat, options, each) }
    }

    private func answer(
        _ messages: [Message], _ chat: ChatOptions, _ options: GenerateOptions, _ each: (Part) -> Void
    ) async throws {
        let parser = try Parser(model, chat, prompt: model.applyChatTemplate(messages, chat: chat))
        try await answer(options) { piece in
            try parser.push(piece).forEach(each)
            if let finish = piece.finish {
                try parser.finish().forEach(each)
                each(.end(finish))
            }
        } begin: { session, options in
            try withCString(json(messages)) { messages in
                try chat.withC { tabla_session_begin_chat(session, messages, $0, options) }
            }
        }
    }
}

/// Streaming parser of answers.
private struct Parser {
    private let handle: Handle

    init(_ model: Model, _ chat: ChatOptions, prompt: String) throws {
        handle = try withCString(prompt) { prompt in
            try chat.withC {
                try Handle(
                    tabla_parser_new(model.handle.pointer, $0, prompt), free: { tabla_parser_free($0) })
            }
        }
    }

    func push(_ piece: Piece) throws -> [Part] {
        var text = piece.text
        return try text.withUTF8 { utf8 in
            try utf8.withMemoryRebound(to: CChar.self) { bytes in
                try parts {
                    tabla_parser_push(
                        handle.pointer, piece.token ?? TABLA_NO_TOKEN, bytes.baseAddress, bytes.count, $0)
                }
            }
        }
    }

    func finish() throws -> [Part] {
        try parts { tabla_parser_finish(handle.pointer, $0) }
    }

    private func parts(
        _ call: (UnsafeMutablePointer<UnsafePointer<CChar>?>) -> TablaStatus
    ) throws -> [Part] {
        var text: UnsafePointer<CChar>?
        try check(call(&text))
        let jsonParts = try JSONDecoder().decode([JSONPart].self, from: Data(String(cString: text!).utf8))
        return jsonParts.compactMap(\.part)
    }

    /// A part in the JSON of the library.
    private struct JSONPart: Decodable {
        let content, reasoning_content: String?
        let tool_call: Call?

        struct Call: Decodable {
            let id: String?
            let name, arguments: String
        }

        var part: Part? {
            content.map(Part.content)
                ?? reasoning_content.map(Part.reasoning)
                ?? tool_call.map { .toolCall(ToolCall(id: $0.id, name: $0.name, arguments: $0.arguments)) }
        }
    }
}
