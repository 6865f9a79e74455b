// Messages in the format of OpenAI chat completions.

import Foundation

/// A message of a conversation. Its JSON is in the format of OpenAI chat completions.
public struct Message: Codable, Hashable, Sendable {
    /// `system`, `user`, `assistant`, `tool`, or another role that the template supports.
    public var role: String
    public var content: String
    /// Reasoning of the assistant before the content.
    public var reasoning: String?
    /// Tool calls of the assistant.
    public var toolCalls: [ToolCall]?
    /// Id of the tool call that a `tool` message answers.
    public var toolCallID: String?

    public init(role: String, content: String) {
        self.role = role
        self.content = content
    }

    public static func system(_ content: String) -> Message { Message(role: "system", content: content) }
    public static func user(_ content: String) -> Message { Message(role: "user", content: content) }
    public static func assistant(_ content: String) -> Message { Message(role: "assistant", content: content) }

    /// The result of a tool call.
    public static func tool(_ content: String, answers call: ToolCall) -> Message {
        var message = Message(role: "tool", content: content)
        message.toolCallID = call.id
        return message
    }

    public init(from decoder: any Decoder) throws {
        let message = try decoder.container(keyedBy: CodingKeys.self)
        role = try message.decode(String.self, forKey: .role)
        // The content may be null in a message with tool calls.
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

/// A call of one of the chat's tools.
public struct ToolCall: Codable, Hashable, Sendable {
    /// Id of the call, if the model's format has ids.
    public var id: String?
    /// Name of the function.
    public var name: String
    /// Arguments, a JSON object.
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
