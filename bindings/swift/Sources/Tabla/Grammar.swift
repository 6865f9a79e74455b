// What an answer may be.

internal import CTabla

/// A compiled grammar, which any number of answers follow at once: `GenerateOptions.grammar`.
/// docs/structure.md has what may be asked for.
public final class Grammar: Sendable {
    let handle: Handle

    /// What a grammar is made from.
    public enum Source: Sendable {
        /// Any JSON object.
        case jsonObject
        /// JSON that a JSON schema accepts.
        case jsonSchema(String)
        /// A text that a regular expression matches from its start to its end.
        case regex(String)
        /// A grammar in Lark's syntax.
        case lark(String)
        /// A grammar in GBNF, the syntax of llama.cpp.
        case gbnf(String)
        /// A call of one of the tools of a chat: of the function of that name, or of any.
        case call(ChatOptions, function: String?)
    }

    /// Compiles a grammar for a model's vocabulary, which takes some seconds at most.
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
        case .call(let chat, let function):
            try chat.withC { chat in
                try withCString(function) { tabla_grammar_new_call(model, chat, $0) }
            }
        }
    }
}
