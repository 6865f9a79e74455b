// Conversations as OpenAI's chat completions have them.

import Foundation

/// A message of a conversation. Its JSON is that of OpenAI's chat completions.
public struct Message: Codable, Hashable, Sendable {
    /// Who says it: `system`, `user`, `assistant`, `tool`, or what else the template knows.
    public var role: String
    public var content: String
    /// What the assistant thought before it said it.
    public var reasoning: String?
    /// What the assistant calls.
    public var toolCalls: [ToolCall]?
    /// Of a tool: the call that it answers.
    public var toolCallID: String?

    public init(role: String, content: String) {
        self.role = role
        self.content = content
    }

    public static func system(_ content: String) -> Message { Message(role: "system", content: content) }
    public static func user(_ content: String) -> Message { Message(role: "user", content: content) }
    public static func assistant(_ content: String) -> Message { Message(role: "assistant", content: content) }

    /// What a call of a tool has returned.
    public static func tool(_ content: String, answers call: ToolCall) -> Message {
        var message = Message(role: "tool", content: content)
        message.toolCallID = call.id
        return message
    }

    public init(from decoder: any Decoder) throws {
        let message = try decoder.container(keyedBy: CodingKeys.self)
        role = try message.decode(String.self, forKey: .role)
        // Beside calls it may be null.
        content = try message.decodeIfPresent(String.self, forKey: .content) ?? ""
        reasoning = try message.decodeIfPresent(String.self, forKey: .reasoning)
        toolCalls = try message.decodeIfPresent([ToolCall].self, forKey: .toolCalls)
        toolCallID = try message.decodeIfPresent(String.self, forKey: .toolCallID)
    }

    enum CodingKeys: String, CodingKey {
        case role, content
        case reasoning = "reasoning_content"
        case toolCalls = "tool_calls"
        case toolCallID = "tool_call_id"
    }
}

/// A call of a function that the chat's tools have.
public struct ToolCall: Codable, Hashable, Sendable {
    /// By which the answer names it, where the model's format has such names.
    public var id: String?
    /// The function.
    public var name: String
    /// Its arguments, a JSON object.
    public var arguments: String

    public init(id: String? = nil, name: String, arguments: String) {
        self.id = id
        self.name = name
        self.arguments = arguments
    }

    enum CodingKeys: String, CodingKey {
        case id, type, function
    }

    private struct Function: Codable {
        let name, arguments: String
    }

    public init(from decoder: any Decoder) throws {
        let call = try decoder.container(keyedBy: CodingKeys.self)
        let function = try call.decode(Function.self, forKey: .function)
        self.init(
            id: try call.decodeIfPresent(String.self, forKey: .id),
            name: function.name, arguments: function.arguments)
    }

    public func encode(to encoder: any Encoder) throws {
        var call = encoder.container(keyedBy: CodingKeys.self)
        try call.encodeIfPresent(id, forKey: .id)
        try call.encode("function", forKey: .type)
        try call.encode(Function(name: name, arguments: arguments), forKey: .function)
    }
}
