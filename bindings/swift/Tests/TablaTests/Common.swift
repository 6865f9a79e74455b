// What tests have in common.

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

/// The likeliest tokens, so many of them.
func greedy(_ maxTokens: UInt32) -> GenerateOptions {
    var options = GenerateOptions()
    options.temperature = 0
    options.maxTokens = maxTokens
    return options
}

/// What never ends by itself.
var endless: GenerateOptions {
    var options = GenerateOptions()
    options.ignoreStops = true
    options.contextShift = true
    options.maxTokens = 0
    return options
}

/// A small model of the repository's tests.
func golden(_ name: String) -> String {
    let repository = (0..<5).reduce(URL(fileURLWithPath: #filePath)) { path, _ in
        path.deletingLastPathComponent()
    }
    return repository.appendingPathComponent("tests/golden/arch/\(name)/model.gguf").path
}

/// Fails unless `body` throws an error of the library with this code, whose message has these words.
func assertFails(
    _ code: TablaError.Code, _ words: String, line: UInt = #line, _ body: () async throws -> Void
) async {
    do {
        try await body()
        XCTFail("it throws nothing", line: line)
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
        XCTFail("it throws nothing", line: line)
    } catch {
        XCTAssertTrue(error is CancellationError, "\(error)", line: line)
    }
}
