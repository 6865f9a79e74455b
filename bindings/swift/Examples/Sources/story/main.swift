// Generates a story: `story [model [prompt]]`. The default is the built-in story model.

import Foundation
import Tabla

let arguments = CommandLine.arguments.dropFirst()
do {
    let model = try await Model.load(arguments.first) { progress in
        FileHandle.standardError.write(Data("\(Int(progress.done * 100)) % \(progress.name)\n".utf8))
    }
    var options = GenerateOptions()
    options.maxTokens = 64
    options.temperature = 0.7

    let session = try Session(model)
    for try await piece in session.stream(arguments.dropFirst().first ?? "Once upon a time", options: options) {
        FileHandle.standardOutput.write(Data(piece.text.utf8))
    }
    let stats = try await session.stats
    print("\n\(stats.tokens) tokens in \(stats.predictedMilliseconds) ms")
} catch {
    FileHandle.standardError.write(Data("\(error.localizedDescription)\n".utf8))
    exit(1)
}
