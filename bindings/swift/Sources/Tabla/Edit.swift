// Changes of the forward pass: edits, control vectors and LoRA adapters.

internal import CTabla

/// A change of the value at the points that match a pattern, in which `*` stands for any text
/// without a dot. `Model.hooks` applies edits in their order, before a value is captured.
///
/// Columns of an attention head `h` of size `n` at the point `blk.3.attn` are `h * n..<(h + 1) * n`.
public struct Edit: Sendable {
    let point: String
    let action: Int32
    let vector: [Float]
    let factor: Float
    let columns: Range<Int>?
    let positions: Range<Int>?

    /// Replaces the value by a vector, or by the vectors of all positions of the edit, one after
    /// another: activation patching.
    public static func set(
        _ point: String, _ vector: [Float], columns: Range<Int>? = nil, positions: Range<Int>? = nil
    ) -> Edit {
        Edit(
            point: point, action: TABLA_EDIT_SET, vector: vector, factor: 0, columns: columns,
            positions: positions)
    }

    /// Adds `scale` times a vector, which steers the model.
    public static func add(
        _ point: String, _ vector: [Float], scale: Float = 1, columns: Range<Int>? = nil,
        positions: Range<Int>? = nil
    ) -> Edit {
        Edit(
            point: point, action: TABLA_EDIT_ADD, vector: vector, factor: scale, columns: columns,
            positions: positions)
    }

    /// Multiplies the value by a factor; 0 removes it: ablation.
    public static func scale(
        _ point: String, by factor: Float, columns: Range<Int>? = nil, positions: Range<Int>? = nil
    ) -> Edit {
        Edit(
            point: point, action: TABLA_EDIT_SCALE, vector: [], factor: factor, columns: columns,
            positions: positions)
    }

    /// Subtracts `strength` times the projection on a vector; 1 removes the direction.
    public static func projectOut(
        _ point: String, _ vector: [Float], strength: Float = 1, columns: Range<Int>? = nil,
        positions: Range<Int>? = nil
    ) -> Edit {
        Edit(
            point: point, action: TABLA_EDIT_PROJECT_OUT, vector: vector, factor: strength,
            columns: columns, positions: positions)
    }

    /// Returns the C struct. `point` and `vector` point to the memory of the fields with these names.
    func c(_ point: UnsafePointer<CChar>?, _ vector: UnsafePointer<Float>?) throws -> TablaEdit {
        var c = TablaEdit()
        c.point = point
        c.vector = vector
        c.vector_count = self.vector.count
        c.action = action
        c.factor = factor
        (c.first_column, c.column_count) = try firstAndCount(columns, "columns")
        (c.first_position, c.position_count) = try firstAndCount(positions, "positions")
        return c
    }
}

/// A control vector with its factor, for `Model.hooks`: `scale` times the vector of a layer is added
/// to the output of the layer.
public struct Steer: Sendable {
    public var vector: ControlVector
    public var scale: Float
    /// Layers to which it is added, counted from 0; nil: all.
    public var layers: Range<Int>?

    public init(_ vector: ControlVector, scale: Float = 1, layers: Range<Int>? = nil) {
        self.vector = vector
        self.scale = scale
        self.layers = layers
    }

    /// Returns the C struct, which is valid as long as the control vector.
    func c() throws -> TablaSteer {
        var c = TablaSteer()
        c.vector = vector.handle.pointer
        c.scale = scale
        (c.first_layer, c.layer_count) = try firstAndCount(layers, "layers")
        return c
    }
}

/// A vector per layer that is added to the output of the layer: `Steer`.
public final class ControlVector: Sendable {
    let handle: Handle

    /// Creates a control vector from vectors by layer, counted from 0. `modelHint` is the
    /// architecture of the model.
    public init(_ vectors: [Int: [Float]], modelHint: String = "") throws {
        let layers = vectors.keys.sorted()
        let dim = vectors.values.first?.count ?? 0
        guard vectors.values.allSatisfy({ $0.count == dim }) else {
            throw TablaError(
                code: .argument, message: "expected a vector of the same length for each layer")
        }
        let numbers = try layers.map { try uint32($0, "layer") }
        let rows = layers.flatMap { vectors[$0] ?? [] }
        handle = try withCString(modelHint) { hint in
            try ControlVector.own(tabla_control_vector_new(hint, numbers, numbers.count, rows, dim))
        }
    }

    private init(_ handle: Handle) {
        self.handle = handle
    }

    private static func own(_ pointer: OpaquePointer?) throws -> Handle {
        try Handle(pointer, free: { tabla_control_vector_free($0) })
    }

    /// Reads a GGUF file of llama.cpp, or an `.npy` file of the shape `[layers, dim]`.
    public static func load(_ path: String) async throws -> ControlVector {
        try await blocking {
            try withCString(path) { try ControlVector(own(tabla_control_vector_load($0))) }
        }
    }

    /// Writes an `.npy` file if the name ends in `.npy`, otherwise a GGUF file, which cannot have a
    /// vector of layer 0. The file replaces an existing one when it is complete.
    public func save(_ path: String) async throws {
        try await blocking { [handle] in
            try withCString(path) { try check(tabla_control_vector_save(handle.pointer, $0)) }
        }
    }
}

/// A LoRA adapter of a model: `Model.loadAdapter`. `Model.hooks` applies it.
public final class Adapter: Sendable {
    let handle: Handle

    fileprivate init(_ model: Model, _ path: String) throws {
        handle = try withCString(path) {
            try Handle(tabla_adapter_load(model.handle.pointer, $0), free: { tabla_adapter_free($0) })
        }
    }
}

extension Model {
    /// Reads a LoRA adapter for this model: a folder of `peft`, or a GGUF file of llama.cpp.
    public func loadAdapter(_ path: String) async throws -> Adapter {
        try await blocking { try Adapter(self, path) }
    }
}

/// Returns the first element of a range and its number of elements, as in C: 0 and 0 for all.
private func firstAndCount(_ range: Range<Int>?, _ name: String) throws -> (UInt32, UInt32) {
    guard let range else { return (0, 0) }
    if range.isEmpty {
        throw TablaError(code: .argument, message: "\(name): expected a range with elements, got \(range)")
    }
    return (try uint32(range.lowerBound, name), try uint32(range.count, name))
}
