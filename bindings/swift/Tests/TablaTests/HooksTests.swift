// Hooks: captured and changed values, control vectors, adapters.

import XCTest

@testable import Tabla

final class HooksTests: XCTestCase {
    let prompt = "Once upon a time"

    /// Returns the values of points for the prompt, with other values of `Model.hooks`.
    func capture(
        _ model: Model, _ points: [String], positions: Hooks.Positions = .all, edits: [Edit] = [],
        steers: [Steer] = []
    ) async throws -> Captured {
        let hooks = try await model.hooks(points, positions: positions, edits: edits, steers: steers)
        let session = try Session(model)
        try await session.setHooks(hooks)
        return try await session.capture(try model.tokenize(prompt, addSpecial: true))
    }

    /// Returns numbers from -1 to 1.
    func wave(_ count: Int) -> [Float] {
        (0..<count).map { Float(sin(Double($0))) }
    }

    func largestDifference(_ one: [Float], _ two: [Float]) -> Float {
        XCTAssertEqual(one.count, two.count)
        return zip(one, two).reduce(0) { max($0, abs($1.0 - $1.1)) }
    }

    func testCapturesPoints() async throws {
        let model = try await storyModel()
        let (layers, dim) = (model.facts.layers, model.facts.dim)
        let captured = try await capture(model, ["token_embd", "blk.*"])
        XCTAssertEqual(captured.points.map(\.name), ["token_embd"] + (0..<layers).map { "blk.\($0)" })
        XCTAssertEqual(captured.points.map(\.columns), (0...layers).map { $0 * dim..<($0 + 1) * dim })
        XCTAssertEqual(captured.width, (layers + 1) * dim)
        let count = try model.tokenize(prompt, addSpecial: true).count
        XCTAssertEqual(captured.positions, Array(0..<count))
        XCTAssertEqual(captured.values.count, count * captured.width)
        let rows = try captured.rows("blk.1")
        XCTAssertEqual(rows.map(\.count), captured.positions.map { _ in dim })
        XCTAssertEqual(rows[1][0], captured.values[captured.width + 2 * dim])
        XCTAssertThrowsError(try captured.rows("blk.99"))
    }

    func testPositionsSelectRows() async throws {
        let model = try await storyModel()
        let all = try await capture(model, ["blk.1"]).rows("blk.1")
        let expected: [(Hooks.Positions, [Int])] = [(.last, [all.count - 1]), (.list([2, 0, 2]), [0, 2])]
        for (positions, rows) in expected {
            let captured = try await capture(model, ["blk.1"], positions: positions)
            XCTAssertEqual(captured.positions, rows)
            for (row, position) in zip(try captured.rows("blk.1"), rows) {
                XCTAssertLessThan(largestDifference(row, all[position]), 1e-3)
            }
        }
    }

    func testGeneratedTokensAreCaptured() async throws {
        let model = try await storyModel()
        let session = try Session(model)
        try await session.setHooks(try await model.hooks(["blk.0"]))
        _ = try await session.generate(prompt, options: greedy(5))
        let captured = try await session.captured()
        let tokens = try await session.tokens
        XCTAssertEqual(captured.positions.count, tokens.count)
        let fork = try await session.fork()
        let again = try await fork.captured()
        XCTAssertEqual(again.positions, captured.positions)
        XCTAssertLessThan(largestDifference(again.values, captured.values), 1e-3)
    }

    func testEditsChangeValues() async throws {
        let model = try await storyModel()
        let (dim, vector) = (model.facts.dim, wave(2 * model.facts.dim))
        let one = Array(vector.prefix(dim))
        let plain = try await capture(model, ["token_embd"]).rows("token_embd")
        let edits: [Edit] = [
            .add("token_embd", one, scale: 0.5),
            .set("blk.0", [7, -7], columns: 2..<4, positions: 1..<2),
            .set("blk.1", vector, positions: 1..<3),
            .projectOut("blk.2", one),
            .scale("blk.3", by: 0, columns: 0..<5),
        ]
        let captured = try await capture(model, ["token_embd", "blk.*"], edits: edits)
        let rows = try ["token_embd", "blk.0", "blk.1", "blk.2", "blk.3"].map(captured.rows)
        XCTAssertLessThan(largestDifference(rows[0][1], zip(plain[1], one).map { $0 + 0.5 * $1 }), 1e-3)
        XCTAssertEqual(Array(rows[1][1][2..<4]), [7, -7])
        XCTAssertNotEqual(rows[1][2][2], 7)
        XCTAssertEqual(rows[2][1] + rows[2][2], vector)
        XCTAssertNotEqual(rows[2][0], one)
        for row in rows[3] {
            XCTAssertEqual(zip(row, one).reduce(0) { $0 + $1.0 * $1.1 }, 0, accuracy: 1e-2)
        }
        for row in rows[4] {
            XCTAssertEqual(row.prefix(5).map { $0 }, [0, 0, 0, 0, 0])
        }
    }

    func testEditsChangeOneSession() async throws {
        let model = try await storyModel()
        let plain = try await Session(model).generate(prompt, options: greedy(12))
        let session = try Session(model)
        try await session.setHooks(try await model.hooks(edits: [.scale("blk.*.ffn_down", by: 0)]))
        let edited = try await session.generate(prompt, options: greedy(12))
        XCTAssertNotEqual(edited, plain)
        let other = try await Session(model).generate(prompt, options: greedy(12))
        XCTAssertEqual(other, plain)
        try await session.setHooks(nil)
        try await session.truncate()
        let again = try await session.generate(prompt, options: greedy(12))
        XCTAssertEqual(again, plain)
    }

    func testLensOfTheLastLayerIsTheOutput() async throws {
        let model = try await storyModel()
        let hooks = try await model.hooks(["blk.*"])
        let session = try Session(model)
        try await session.setHooks(hooks)
        let captured = try await session.capture(try model.tokenize(prompt, addSpecial: true))
        let last = try captured.rows("blk.\(model.facts.layers - 1)")
        let lens = try await hooks.lens(last)
        let logits = try await session.logits(.all)
        XCTAssertLessThan(largestDifference(lens.flatMap { $0 }, logits), 1e-3)
        let none = try await hooks.lens([])
        XCTAssertTrue(none.isEmpty)
        await assertFails(.argument, "expected rows of") { _ = try await hooks.lens([[1, 2]]) }
    }

    func testControlVectorsRoundTrip() async throws {
        let model = try await storyModel()
        let vector = wave(model.facts.dim)
        let control = try ControlVector([1: vector, 3: vector.map { -$0 }], modelHint: "llama")
        let points = ["blk.\(model.facts.layers - 1)"]
        let edits: [Edit] = [.add("blk.1", vector, scale: 2), .add("blk.3", vector, scale: -2)]
        let edited = try await capture(model, points, edits: edits)
        let first = try await capture(model, points, edits: [edits[0]])
        for name in ["gguf", "npy"] {
            let path = NSTemporaryDirectory() + "tabla-\(UUID().uuidString).\(name)"
            defer { try? FileManager.default.removeItem(atPath: path) }
            try await control.save(path)
            let loaded = try await ControlVector.load(path)
            let steered = try await capture(model, points, steers: [Steer(loaded, scale: 2)])
            XCTAssertLessThan(largestDifference(steered.values, edited.values), 1e-3)
            let one = try await capture(model, points, steers: [Steer(loaded, scale: 2, layers: 0..<3)])
            XCTAssertLessThan(largestDifference(one.values, first.values), 1e-3)
        }
        await assertFails(.io, "missing.gguf") { _ = try await ControlVector.load("missing.gguf") }
        await assertFails(.argument, "same length") { _ = try ControlVector([1: [1], 2: [1, 2]]) }
        await assertFails(.argument, "-1") { _ = try ControlVector([-1: [1]]) }
        let zero = try ControlVector([0: [1]])
        await assertFails(.unsupported, "layer 0") { try await zero.save("zero.gguf") }
    }

    func testAdapterScales() async throws {
        let model = try await Model.load(golden("llama"))
        let adapter = try await model.loadAdapter(repositoryFile("tests/golden/lora/llama/adapter.gguf"))
        let session = try Session(model)
        func logits() async throws -> [Float] {
            try await session.truncate()
            try await session.prefill([3, 17, 2, 40, 5, 6])
            return try await session.logits()
        }
        let plain = try await logits()
        try await session.setHooks(try await model.hooks(adapters: [adapter]))
        let whole = try await logits()
        XCTAssertGreaterThan(largestDifference(whole, plain), 1e-2)
        try await session.setAdapterScales([0])
        let none = try await logits()
        XCTAssertLessThan(largestDifference(none, plain), 1e-3)
        await assertFails(.argument, "scale") { try await session.setAdapterScales([1, 1]) }
        try await session.setHooks(nil)
        await assertFails(.state, "hooks") { try await session.setAdapterScales([1]) }
        await assertFails(.io, "missing.gguf") { _ = try await model.loadAdapter("missing.gguf") }
    }

    func testErrorsNameTheItem() async throws {
        let (model, other) = (try await storyModel(), try await storyModel(maxContext: 64))
        let session = try Session(model)
        await assertFails(.argument, "no point matches") { _ = try await model.hooks(["blk.99"]) }
        await assertFails(.argument, "expected a vector of") {
            _ = try await model.hooks(edits: [.add("blk.0", [1, 2])])
        }
        await assertFails(.argument, "positions: expected a range") {
            _ = try await model.hooks(edits: [.scale("blk.0", by: 0, positions: 2..<2)])
        }
        await assertFails(.argument, "columns -1") {
            _ = try await model.hooks(edits: [.scale("blk.0", by: 0, columns: -1..<2)])
        }
        await assertFails(.argument, "positions -1") {
            _ = try await model.hooks(["blk.0"], positions: .list([-1]))
        }
        await assertFails(.argument, "NUL") { _ = try await model.hooks(["a\0b"]) }
        await assertFails(.state, "no hooks") { _ = try await session.captured() }
        await assertFails(.state, "no hooks") { _ = try await session.capture([1]) }
        let hooks = try await other.hooks(["blk.0"])
        await assertFails(.argument, "another model") { try await session.setHooks(hooks) }
    }
}
