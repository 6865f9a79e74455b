// Conversions between Swift values and C values.

internal import CTabla
import Foundation

/// A handle, which is freed with its last reference.
///
/// `@unchecked Sendable`: it is a number that the library resolves under a lock and never dereferences, so
/// any thread can use it.
final class Handle: @unchecked Sendable {
    let pointer: OpaquePointer
    private let free: @Sendable (OpaquePointer) -> TablaStatus

    init(_ pointer: OpaquePointer?, free: @escaping @Sendable (OpaquePointer) -> TablaStatus) throws {
        self.pointer = try checkHandle(pointer)
        self.free = free
    }

    deinit {
        _ = free(pointer)
    }
}

/// Calls `body` with C strings, which are valid during the call; nil becomes NULL.
func withCStrings<R>(
    _ texts: [String?],
    _ body: (UnsafeBufferPointer<UnsafePointer<CChar>?>) throws -> R
) throws -> R {
    for text in texts.compactMap({ $0?.utf8 }) {
        if let end = text.firstIndex(of: 0) {
            let at = text.distance(from: text.startIndex, to: end)
            throw TablaError(code: .argument, message: "string contains a NUL at byte \(at)")
        }
    }
    let copies = texts.map { text in text.map { UnsafePointer(strdup($0)!) } }
    defer { for copy in copies { free(UnsafeMutablePointer(mutating: copy)) } }
    return try copies.withUnsafeBufferPointer(body)
}

/// Calls `body` with a C string, which is valid during the call; nil becomes NULL.
func withCString<R>(_ text: String?, _ body: (UnsafePointer<CChar>?) throws -> R) throws -> R {
    try withCStrings([text]) { try body($0[0]) }
}

/// Returns the array that a function of the library writes. Calls the function twice: first for the count,
/// then for the values.
func callForArray<T>(
    _ call: (UnsafeMutablePointer<T>?, Int, UnsafeMutablePointer<Int>) throws -> TablaStatus
) throws -> [T] {
    var count = 0
    try check(call(nil, 0, &count))
    return try [T](unsafeUninitializedCapacity: count) { buffer, written in
        try check(call(buffer.baseAddress, buffer.count, &count))
        written = count
    }
}

/// Returns a number as `uint32_t`.
func uint32(_ number: Int, _ name: String) throws -> UInt32 {
    guard let converted = UInt32(exactly: number) else {
        throw TablaError(
            code: .argument, message: "\(name) \(number) is out of range: expected 0 to \(UInt32.max)")
    }
    return converted
}

extension String {
    /// Creates a string from bytes of the library. Invalid UTF-8 becomes U+FFFD.
    init(_ bytes: some Collection<CChar>) {
        self.init(decoding: bytes.lazy.map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
    }

    /// Creates a string from a NUL-terminated character array in a struct.
    init<Field>(field: Field) {
        self = withUnsafeBytes(of: field) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    }
}
