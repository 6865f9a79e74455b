// Conversations: rendered by the model's template, answered, and the answer taken apart.

internal import CTabla
import Foundation

/// How a conversation is rendered.
public struct ChatOptions: Sendable {
    /// The name of a template or the source of one; nil takes the model's own. Never take one from a user.
    public var template: String?
    /// A JSON array of tools.
    public var tools: String?
    /// A JSON array of documents.
    public var documents: String?
    /// A JSON object of further variables, like `{"enable_thinking": false}`.
    public var variables: String?
    /// The text ends with what begins the assistant's answer.
    public var generationPrompt = true

    public init() {}

    /// Lends the struct of C.
    func withC<R>(_ body: (UnsafePointer<TablaChatOptions>) throws -> R) throws -> R {
        var c = TablaChatOptions()
        c.struct_size = UInt32(MemoryLayout.size(ofValue: c))
        c.no_generation_prompt = generationPrompt ? 0 : 1
        return try withCStrings([template, tools, documents, variables]) { texts in
            c.chat_template = texts[0]
            c.tools = texts[1]
            c.documents = texts[2]
            c.variables = texts[3]
            return try body(&c)
        }
    }
}

extension Model {
    /// The text of a conversation, for showing: special tokens and those that a message spells look alike.
    public func applyChatTemplate(
        _ messages: [Message], chat: ChatOptions = ChatOptions()
    ) throws -> String {
        try withCString(json(messages)) { messages in
            try chat.withC { chat in
                try String(filled { tabla_apply_chat_template(handle.pointer, messages, chat, $0, $1, $2) })
            }
        }
    }

    /// The ids of a conversation. Special tokens come from the template alone.
    public func tokenize(_ messages: [Message], chat: ChatOptions = ChatOptions()) throws -> [UInt32] {
        try withCString(json(messages)) { messages in
            try chat.withC { chat in
                try filled { tabla_encode_chat(handle.pointer, messages, chat, $0, $1, $2) }
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
    /// What the model thinks, in front of what it says.
    case reasoning(String)
    /// A call, whole.
    case toolCall(ToolCall)
    /// The last part: why the answer ended.
    case end(Finish)
}

extension Session {
    /// Makes the sequence a conversation and returns the model's answer: what it says, thinks and calls.
    /// What the sequence has of the conversation already is not computed again.
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

    /// `respond`, part by part; as with `stream`, leaving it ends the answer.
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

/// What takes an answer apart while it comes.
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
        let added = try JSONDecoder().decode([Added].self, from: Data(String(cString: text!).utf8))
        return added.compactMap(\.part)
    }

    /// A part as the library writes it.
    private struct Added: Decodable {
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
