// Grammars that constrain answers.

internal import CTabla

/// A compiled grammar. Any number of answers can use it at the same time:
/// `GenerateOptions.grammar`. docs/structure.md describes the kinds of grammars.
public final class Grammar: Sendable {
    let handle: Handle

    /// Source of a grammar.
    public enum Source: Sendable {
        /// Any JSON object.
        case jsonObject
        /// JSON that matches a JSON schema.
        case jsonSchema(String)
        /// Text that matches a regular expression as a whole.
        case regex(String)
        /// Text of a grammar in Lark syntax.
        case lark(String)
        /// Text of a grammar in GBNF, the syntax of llama.cpp.
        case gbnf(String)
        /// A call of one of the chat's tools: of the named function, or of any.
        case toolCall(ChatOptions, function: String?)
    }

    /// Compiles a grammar for a model's vocabulary, which takes at most several seconds.
    public init(_ model: Model, _ source: Source) async throws {
        handle = try await blocking { try Handle(source.compile(model), free: { tabla_grammar_free($0) }) }
    }
}

extension Grammar.Source {
    fileprivate func compile(_ model: Model) throws -> OpaquePointer? {
        let model = model.handle.pointer
        func new(_ kind: Int32, _ text: String?) throws -> OpaquePointer? {
            try withCString(text) { tabla_grammar_new(model, kind, $0) }
        }
        return switch self {
        case .jsonObject: try new(TABLA_GRAMMAR_JSON_OBJECT, nil)
        case .jsonSchema(let text): try new(TABLA_GRAMMAR_JSON_SCHEMA, text)
        case .regex(let text): try new(TABLA_GRAMMAR_REGEX, text)
        case .lark(let text): try new(TABLA_GRAMMAR_LARK, text)
        case .gbnf(let text): try new(TABLA_GRAMMAR_GBNF, text)
        case .toolCall(let chat, let function):
            try chat.withC { chat in
                try withCString(function) { tabla_grammar_new_tool_call(model, chat, $0) }
            }
        }
    }
}
