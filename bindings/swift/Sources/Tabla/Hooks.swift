// Hooks: captured and changed values of the forward pass.

internal import CTabla

/// Values of the forward pass to capture and to change: `Model.hooks`. Any number of sessions can
/// use them.
public final class Hooks: Sendable {
    public let model: Model
    /// The captured points, in the order of the forward pass.
    public let points: [CapturedPoint]
    let handle: Handle

    /// Positions whose values are captured.
    public enum Positions: Sendable {
        case all
        /// The last token of the sequence.
        case last
        case list([Int])
    }

    /// What hooks capture and change.
    fileprivate struct Parts: Sendable {
        let capture: [String]
        let positions: Positions
        let attentionPositions: Int
        let edits: [Edit]
        let adapters: [Adapter]
        let steers: [Steer]
    }

    fileprivate init(_ model: Model, _ parts: Parts) throws {
        let handle = try parts.withC { c in
            try Handle(tabla_hooks_new(model.handle.pointer, c), free: { tabla_hooks_free($0) })
        }
        var count = 0
        try check(tabla_hooks_point(handle.pointer, 0, nil, &count))
        var points: [CapturedPoint] = []
        for index in 0..<count {
            var point = TablaCapturedPoint()
            point.struct_size = UInt32(MemoryLayout.size(ofValue: point))
            var total = 0
            try check(tabla_hooks_point(handle.pointer, index, &point, &total))
            let (first, name) = (Int(point.offset), String(cString: point.name))
            points.append(CapturedPoint(name: name, columns: first..<first + Int(point.cols)))
        }
        self.model = model
        self.points = points
        self.handle = handle
    }

    /// Returns the logits that the model's final norm and output projection give for rows of the
    /// residual stream (logit lens): a row of the vocabulary for each row.
    public func lens(_ rows: [[Float]]) async throws -> [[Float]] {
        let (dim, vocab) = (model.facts.dim, model.facts.vocab)
        if let row = rows.first(where: { $0.count != dim }) {
            throw TablaError(
                code: .argument, message: "expected rows of \(dim) numbers, got \(row.count)")
        }
        let residual = rows.flatMap { $0 }
        let logits: [Float] = try await blocking { [model, handle] in
            try callForArray {
                tabla_hooks_lens(model.handle.pointer, handle.pointer, residual, rows.count, $0, $1, $2)
            }
        }
        return rows.indices.map { Array(logits[$0 * vocab..<($0 + 1) * vocab]) }
    }
}

/// A point of the forward pass whose values are captured.
public struct CapturedPoint: Hashable, Sendable {
    /// Name of the tensor that computes it: `blk.3.attn_q`. `blk.3` is the residual stream after
    /// layer 3, `token_embd` that before the first layer.
    public let name: String
    /// Its columns in a row of `Captured.values`.
    public let columns: Range<Int>
}

/// Values that hooks captured.
public struct Captured: Sendable {
    /// The captured points, in the order of the forward pass.
    public let points: [CapturedPoint]
    /// Position of each row, in ascending order.
    public let positions: [Int]
    /// Number of columns of a row.
    public let width: Int
    /// All rows, `[positions, width]`, in row-major order.
    public let values: [Float]

    /// Returns the values of a point: a row for each position.
    public func rows(_ point: String) throws -> [[Float]] {
        guard let columns = points.first(where: { $0.name == point })?.columns else {
            throw TablaError(code: .argument, message: "point \(point) is not captured")
        }
        return positions.indices.map { row in
            let start = row * width
            return Array(values[start + columns.lowerBound..<start + columns.upperBound])
        }
    }

    /// Reads the values that hooks captured for the sequence of a session.
    fileprivate init(_ session: OpaquePointer, _ hooks: Hooks) throws {
        var (rows, width) = (0, 0)
        try check(tabla_session_captured(session, nil, 0, nil, 0, &rows, &width))
        var positions = [UInt32](repeating: 0, count: rows)
        var values = [Float](repeating: 0, count: rows * width)
        try check(
            tabla_session_captured(
                session, &positions, positions.count, &values, values.count, &rows, &width))
        points = hooks.points
        self.positions = positions.map { Int($0) }
        self.width = width
        self.values = values
    }
}

extension Model {
    /// Compiles hooks, which a session uses after `Session.setHooks`. Other sessions are not affected.
    ///
    /// `capture` are patterns of points, in which `*` stands for any text without a dot; an unknown
    /// point throws an error that lists all of them. `edits` are applied in their order, before a
    /// value is captured. Rows of attention weights have `attentionPositions` positions; 0: the
    /// context of the model. `adapters` are LoRA adapters, whose scales `Session.setAdapterScales`
    /// sets; `steers` are control vectors, which are added after the edits.
    public func hooks(
        _ capture: [String] = [], positions: Hooks.Positions = .all, attentionPositions: Int = 0,
        edits: [Edit] = [], adapters: [Adapter] = [], steers: [Steer] = []
    ) async throws -> Hooks {
        let parts = Hooks.Parts(
            capture: capture, positions: positions, attentionPositions: attentionPositions,
            edits: edits, adapters: adapters, steers: steers)
        return try await blocking { try Hooks(self, parts) }
    }
}

extension Session {
    /// Sets the hooks of the session; nil removes them. Tokens in the sequence are computed again
    /// when they are needed.
    public func setHooks(_ hooks: Hooks?) throws {
        try check(tabla_session_set_hooks(handle.pointer, hooks?.handle.pointer))
        self.hooks = hooks
    }

    /// Sets the scales of the adapters of the session's hooks, in the order of `Model.hooks`; 0
    /// disables an adapter. Sessions with the same hooks and other scales are decoded together.
    public func setAdapterScales(_ scales: [Float]) throws {
        try check(tabla_session_set_adapter_scales(handle.pointer, scales, scales.count))
    }

    /// Returns the values of the sequence that the hooks of the session capture.
    public func captured() async throws -> Captured {
        let hooks = try requiredHooks()
        return try await cancellable { try Captured($0, hooks) }
    }

    /// Replaces the sequence by tokens, and returns the values that the hooks of the session capture.
    /// Unlike `prefill`, it also works for encoders.
    public func capture(_ tokens: [UInt32]) async throws -> Captured {
        let hooks = try requiredHooks()
        return try await cancellable { session in
            try check(tabla_session_capture(session, tokens, tokens.count))
            return try Captured(session, hooks)
        }
    }

    private func requiredHooks() throws -> Hooks {
        guard let hooks else {
            throw TablaError(
                code: .state, message: "the session has no hooks: set them with setHooks")
        }
        return hooks
    }
}

extension Hooks.Parts {
    /// Calls `body` with the C struct, which is valid during the call.
    fileprivate func withC<R>(_ body: (UnsafePointer<TablaHookOptions>) throws -> R) throws -> R {
        var c = TablaHookOptions()
        try check(tabla_hook_options_init(&c, MemoryLayout<TablaHookOptions>.size))
        c.attention_positions = try uint32(attentionPositions, "attentionPositions")
        var list: [UInt32] = []
        switch positions {
        case .all: c.positions = TABLA_POSITIONS_ALL
        case .last: c.positions = TABLA_POSITIONS_LAST
        case .list(let numbers):
            c.positions = TABLA_POSITIONS_LIST
            list = try Set(numbers).sorted().map { try uint32($0, "positions") }
        }
        let patterns = capture + edits.map(\.point)
        let vectors = edits.flatMap(\.vector)
        let adapterPointers: [OpaquePointer?] = adapters.map { $0.handle.pointer }
        let steers = try steers.map { try $0.c() }
        return try withExtendedLifetime(self) {
            try withCStrings(patterns) { texts in
                try vectors.withUnsafeBufferPointer { vectors in
                    try withEdits(texts.dropFirst(capture.count), vectors.baseAddress) { edits in
                        try list.withUnsafeBufferPointer { list in
                            try adapterPointers.withUnsafeBufferPointer { adapters in
                                try steers.withUnsafeBufferPointer { steers in
                                    (c.capture, c.capture_count) = (texts.baseAddress, capture.count)
                                    (c.position_list, c.position_list_count) = (list.baseAddress, list.count)
                                    (c.edits, c.edit_count) = (edits.baseAddress, edits.count)
                                    (c.adapters, c.adapter_count) = (adapters.baseAddress, adapters.count)
                                    (c.steers, c.steer_count) = (steers.baseAddress, steers.count)
                                    return try body(&c)
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Calls `body` with the C structs of the edits, whose vectors are one after another.
    private func withEdits<R>(
        _ points: some Sequence<UnsafePointer<CChar>?>, _ vectors: UnsafePointer<Float>?,
        _ body: (UnsafeBufferPointer<TablaEdit>) throws -> R
    ) throws -> R {
        var structs: [TablaEdit] = []
        var start = 0
        for (edit, point) in zip(edits, points) {
            structs.append(try edit.c(point, vectors.map { $0 + start }))
            start += edit.vector.count
        }
        return try structs.withUnsafeBufferPointer(body)
    }
}
