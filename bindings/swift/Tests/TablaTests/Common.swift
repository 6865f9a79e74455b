// Shared helpers of the tests.

import Foundation
import XCTest

@testable import Tabla

/// The built-in story model on the CPU.
func storyModel(maxContext: UInt32 = 512, sequences: UInt32 = 1) async throws -> Model {
    var options = LoadOptions()
    options.device = .cpu
    options.maxContext = maxContext
    options.sequences = sequences
    return try await Model.load(options: options)
}

/// Options of greedy sampling with at most `maxTokens` tokens.
func greedy(_ maxTokens: UInt32) -> GenerateOptions {
    var options = GenerateOptions()
    options.temperature = 0
    options.maxTokens = maxTokens
    return options
}

/// Options of an answer that does not end by itself.
var endless: GenerateOptions {
    var options = GenerateOptions()
    options.ignoreEOS = true
    options.contextShift = true
    options.maxTokens = .max
    return options
}

/// Path of a small test model of the repository.
func golden(_ name: String) -> String {
    repositoryFile("tests/golden/arch/\(name)/model.gguf")
}

/// Path of a file of the repository.
func repositoryFile(_ name: String) -> String {
    let repository = (0..<5).reduce(URL(fileURLWithPath: #filePath)) { path, _ in
        path.deletingLastPathComponent()
    }
    return repository.appendingPathComponent(name).path
}

/// Fails unless `body` throws an error of the library with this code and a message that contains `words`.
func assertFails(
    _ code: TablaError.Code, _ words: String, line: UInt = #line, _ body: () async throws -> Void
) async {
    do {
        try await body()
        XCTFail("no error was thrown", line: line)
    } catch let error as TablaError {
        XCTAssertEqual(error.code, code, error.message, line: line)
        XCTAssertTrue(error.message.contains(words), error.message, line: line)
    } catch {
        XCTFail("\(error)", line: line)
    }
}

/// Fails unless `body` throws `CancellationError`.
func assertCancelled(line: UInt = #line, _ body: () async throws -> Void) async {
    do {
        try await body()
        XCTFail("no error was thrown", line: line)
    } catch {
        XCTAssertTrue(error is CancellationError, "\(error)", line: line)
    }
}
