// Chat: `chat [model]`. Each line of standard input is a message. The default is the built-in story
// model, which has no chat template.

import Foundation
import Tabla

let path = CommandLine.arguments.dropFirst().first
do {
    let model = try await Model.load(path)
    let session = try Session(model)
    var chat = ChatOptions()
    chat.chatTemplate = path == nil ? "vicuna" : nil
    var options = GenerateOptions()
    options.maxTokens = 200

    var messages: [Message] = []
    while let line = readLine() {
        messages.append(.user(line))
        var answer = ""
        // Passes the whole conversation; the session only computes new tokens.
        for try await part in session.streamResponse(to: messages, chat: chat, options: options) {
            if case .content(let text) = part {
                answer += text
                FileHandle.standardOutput.write(Data(text.utf8))
            }
        }
        print()
        messages.append(.assistant(answer))
    }
} catch {
    FileHandle.standardError.write(Data("\(error.localizedDescription)\n".utf8))
    exit(1)
}
